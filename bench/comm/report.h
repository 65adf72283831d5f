// What was measured, as tables for people and as JSON for programs.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "race.h"

namespace plait::bench {

// One size of one thing, done by several contenders.
struct Race {
  std::string what;
  std::size_t bytes;
  std::vector<std::string> names;
  std::vector<Summary> times;
};

// Transfers of one size over an emulated link.
struct LinkTrial {
  std::string link;
  std::string waiting;  // how the receiver waits
  std::size_t bytes = 0;
  double ideal = 0;  // nanoseconds from post to arrival
  Summary measured = {};
  double error = 0;      // median of |measured - ideal| / ideal
  double processor = 0;  // CPU time of the receiver, as a part of the time it waited
  double useful = -1;    // work it got done meanwhile, as a part of what it does alone
};

struct Machine {
  std::string processor;
  int processors;
  std::string kernel;
  std::string compiler;
};
Machine this_machine();

// The average number of processes that wanted to run in the last minute.
double load();

class Report {
 public:
  // Prints tables to `tables` as results come in, in Markdown if asked for.
  Report(std::string title, std::ostream& tables, bool markdown);

  void add(const Race& race);
  void add(const LinkTrial& trial);

  // Everything, with the machine and its load.
  std::string json(const std::vector<std::string>& command) const;

 private:
  void begin_table(const std::string& name, const std::vector<std::string>& columns);
  void print_row(const std::vector<std::string>& cells);

  std::string title_;
  std::ostream* tables_;
  bool markdown_;
  double load_before_;
  std::string table_;  // the one being printed
  std::vector<Race> races_;
  std::vector<LinkTrial> trials_;
};

}  // namespace plait::bench
