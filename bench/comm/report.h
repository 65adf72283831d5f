// The results as tables and as JSON.
#pragma once

#include <cstddef>
#include <iosfwd>
#include <string>
#include <vector>

#include "race.h"

namespace plait::bench {

// The times of several contenders for one operation and one size.
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
  double processor = 0;  // CPU time of the receiver, as a share of the time it waited
  double useful = -1;    // work done while waiting, as a share of what it does alone
};

// The average number of runnable processes in the last minute.
double load();

class Report {
 public:
  // Prints results to `tables` when they are added.
  Report(std::string title, std::ostream& tables);

  void add(const Race& race);
  void add(const LinkTrial& trial);

  // All results, with the machine and its load.
  std::string json(const std::vector<std::string>& command) const;

 private:
  void begin_table(const std::string& name, const std::vector<std::string>& columns);
  void print_row(const std::vector<std::string>& cells);

  std::string title_;
  std::string processor_;
  std::ostream* tables_;
  double load_before_;
  std::string table_;  // the table that is being printed
  std::vector<Race> races_;
  std::vector<LinkTrial> trials_;
};

}  // namespace plait::bench
