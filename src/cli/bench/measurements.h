// What plait bench can measure: one function each, which takes the words after its name and answers
// with the exit status.
#pragma once

#include <string>

#include "cli/verbs.h"

namespace plait::cli {

int bench_matmul(Words words);
int bench_layer(Words words);
int bench_model(Words words);

// `verb` is "bench" or "trace", `spelling` the operator as it was written.
int measure_operator(const std::string& verb, const std::string& spelling, Words words);

}  // namespace plait::cli
