// What plait bench can measure: one function each, which takes the words after its name and answers
// with the exit status.
#pragma once

#include <string>

#include "cli/verbs.h"
#include "plait/operator.h"

namespace plait::cli {

int bench_matmul(Words words);

// `verb` is the operator as it was written.
int bench_operator(Operator op, const std::string& verb, Words words);

}  // namespace plait::cli
