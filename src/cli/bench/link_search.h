// Looks for the speed of a link over which something takes as long as is wanted.
//
//   LinkSearch search(guess);
//   while (search.off() > kCloseEnough) search.take(measured(search.next()) / wanted);
//
// Slower links take longer, but by no simple function of the bytes: some of what travels is hidden.
#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "plait/communicator.h"

namespace plait::cli {

// The link that is tried: its speed to three digits, as somebody would write it in bits.
Link link_of(double bytes_per_second);

class LinkSearch {
 public:
  explicit LinkSearch(double bytes_per_second) : next_(1 / bytes_per_second) {}

  // To be tried, in bytes a second.
  double next() const { return 1 / next_; }

  // How many times as long as wanted it took over next().
  void take(double ratio);

  // The nearest was measured again, and longer: that is what it takes now.
  void take_again(double ratio);

  // The nearest of those that were tried, and how far it is off: 0.1 is a tenth too much, or as
  // much too little.
  double best() const { return 1 / best_.seconds_per_byte; }
  double off() const;

 private:
  struct Try {
    double seconds_per_byte = 0;
    double ratio = 0;
  };
  static double off(const Try& one);
  static double between(const Try& fast, const Try& slow);
  double beyond(const Try& here) const;

  double next_;  // seconds a byte
  Try best_;
  std::optional<Try> last_;
  std::optional<Try> fast_;  // the slowest of those that took too little
  std::optional<Try> slow_;  // the fastest of those that took too much
};

// Tries a link, and another one that what it took leads to as long as the answer is a ratio: how
// many times as long as wanted it took. At most `most` links more. Returns the last.
Link settle(const Link& first, int most,
            const std::function<std::optional<double>(const Link&)>& far_off);

}  // namespace plait::cli
