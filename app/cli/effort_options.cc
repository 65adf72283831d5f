#include "cli/effort_options.h"

#include "cli/options.h"
#include "cli/values.h"

namespace plait::cli {

void add_options(Options& options, measure::Effort& effort, const std::string& seconds) {
  constexpr std::int64_t kMostRepetitions = 100000;
  effort.each = read_seconds("--seconds", seconds);
  options.add("-r,--repeat", whole(1, kMostRepetitions), effort.repetitions,
              "number of repetitions (default: set by --seconds)");
  options.add("-s,--seconds", kSeconds, effort.each,
              "time to measure each row of the table, for at least five\n"
              "repetitions (default: " +
                  seconds + ")");
}

}  // namespace plait::cli
