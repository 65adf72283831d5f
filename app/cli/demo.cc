// The program that `./do demo` runs: `plait bench OPERATOR` alone, so that little has to be
// compiled for it.
#include <exception>
#include <string>
#include <vector>

#include "cli/bench/measurements.h"
#include "cli/console.h"

int main(int argc, char** argv) {
  const std::vector<std::string> words(argv + (argc > 0 ? 1 : 0), argv + argc);
  if (words.size() < 2 || words[0] != "bench") {
    plait::cli::complain("plait_demo", "it measures an operator alone: plait_demo bench OPERATOR");
    return plait::cli::kWrongUsage;
  }
  try {
    const plait::cli::Words options(words.begin() + 2, words.end());
    return plait::cli::measure_operator(words[0], words[1], options);
  } catch (const plait::Error& error) {
    plait::cli::complain("plait_demo", error.what());
    return plait::cli::exit_status(error.code());
  } catch (const std::exception& error) {
    plait::cli::complain("plait_demo", error.what());
    return plait::cli::kCheckFailed;
  }
}
