// The options of plait bench matmul.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "cli/output_files.h"
#include "cli/verbs.h"
#include "measure/matmul_case.h"

namespace plait::cli {

struct MatmulOptions : measure::MatmulSetup {
  OutputFiles files;
  std::vector<std::string> words;
};

// nullopt: help was requested and has been printed.
std::optional<MatmulOptions> read_matmul_options(Words words);

}  // namespace plait::cli
