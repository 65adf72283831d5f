// Shows the progress of long work to a user at a terminal.
//
//   Progress progress("measuring");
//   for (...) progress.show(done, total);   // after two seconds: "measuring: 12 of 40, 9 s left"
//
// Writes one line to standard error, if that is a terminal; overwrites it, and finally removes it.
// With an empty name, as on all ranks but one, it shows nothing.
#pragma once

#include <cstdint>
#include <string>

#include "base/clock.h"

namespace plait::measure {

class Progress {
 public:
  explicit Progress(std::string what);
  ~Progress();
  Progress(const Progress&) = delete;
  Progress& operator=(const Progress&) = delete;

  void show(std::int64_t done, std::int64_t total);

 private:
  std::string what_;
  bool terminal_;
  bool shown_ = false;
  base::Nanoseconds begin_;
  base::Nanoseconds next_;
};

}  // namespace plait::measure
