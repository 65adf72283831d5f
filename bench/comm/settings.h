// The command line that the two programs share.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "race.h"
#include "report.h"

namespace plait::bench {

struct Settings {
  int ranks = 2;
  std::string transport = "shm";
  std::string link = "25gbit,5us";
  std::vector<std::size_t> sizes;  // empty: the sizes of each section
  std::vector<std::string> only;   // sections; empty: all
  std::string json;                // a file, "-" for stdout, or empty
  bool quick = false;
  Effort effort;
  std::vector<std::string> command;  // as typed

  bool wants(const std::string& name) const;
  // The requested sizes, or `own` if none were requested.
  const std::vector<std::size_t>& sizes_or(const std::vector<std::size_t>& own) const;
  // The stream for tables, which must not be mixed with JSON.
  std::ostream& tables() const;
};

struct Program {
  std::string name;
  std::string purpose;
  std::string examples;
  std::vector<std::string> sections;  // the names that --only accepts
  bool starts_ranks;                  // has --ranks, --transport and --link
};

// Reads the command line. Returns an exit status if the program should end, after printing the help
// or an error.
std::optional<int> read_settings(const Program& program, int argc, char** argv, Settings& settings);

// Writes the report to the file of --json.
void write_json(const Report& report, const Settings& settings);

// Prints the error, and returns the exit status for it: 1 a check failed, 2 wrong usage, 3 a peer
// was lost.
int explain(const std::exception& error, const std::string& program);

}  // namespace plait::bench
