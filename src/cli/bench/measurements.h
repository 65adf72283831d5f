// What plait bench can measure: one function each, which takes the words after its name and answers
// with the exit status.
#pragma once

#include "cli/verbs.h"

namespace plait::cli {

int bench_matmul(Words words);

}  // namespace plait::cli
