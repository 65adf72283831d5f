// The measurements of plait bench: one function each, which takes the words after its name and
// returns the exit status.
#pragma once

#include <string>

#include "cli/verbs.h"

namespace plait::cli {

int bench_matmul(Words words);
int bench_grouped(Words words);
int bench_experts(Words words);
int bench_layer(Words words);
int bench_model(Words words);

// `verb` is "bench" or "trace"; `spelling` is the operator as typed.
int measure_operator(const std::string& verb, const std::string& spelling, Words words);

}  // namespace plait::cli
