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
  std::vector<std::size_t> sizes;  // empty: each section's own
  std::vector<std::string> only;   // sections; empty: all
  std::string json;                // a file, "-" for stdout, or empty
  bool markdown = false;
  bool quick = false;
  Effort effort;
  std::vector<std::string> command;  // as typed

  bool wants(const std::string& name) const;
  // Those asked for, else `own`.
  const std::vector<std::size_t>& sizes_or(const std::vector<std::size_t>& own) const;
  // Where the tables go: not among the JSON.
  std::ostream& tables() const;
};

struct Program {
  std::string name;
  std::string purpose;
  std::string examples;
  std::vector<std::string> sections;  // what --only may name
  bool starts_ranks;                  // has --ranks, --transport and --link
};

// Reads the command line; an exit status where there is nothing left to do: help was printed, or a
// sentence about what cannot be understood.
std::optional<int> read_settings(const Program& program, int argc, char** argv, Settings& settings);

// Writes the report where --json says.
void write_json(const Report& report, const Settings& settings);

// Exit status of a program that ended with this error, after printing it: 1 a check failed, 2 wrong
// usage, 3 a peer was lost.
int explain(const std::exception& error, const std::string& program);

}  // namespace plait::bench
