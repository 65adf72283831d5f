// Searches for the speed of a link over which an operation takes the wanted time.
//
//   LinkSearch search(guess);
//   while (search.off() > kCloseEnough) search.take(measured(search.next()) / wanted);
//
// Slower links take longer, but the time is no simple function of the bytes, because overlap hides
// some of them.
#pragma once

#include <functional>
#include <limits>
#include <optional>

#include "plait/communicator.h"

namespace plait::measure {

// The link to try. Its speed is rounded to three digits, as people write speeds in bits.
Link link_of(double bytes_per_second);

class LinkSearch {
 public:
  explicit LinkSearch(double bytes_per_second) : next_(1 / bytes_per_second) {}

  // The speed to try next, in bytes per second.
  double next() const { return 1 / next_; }

  // Reports how many times the wanted time the operation took over next().
  void take(double ratio);

  // Reports another, longer measurement of the best link, which replaces the first.
  void take_again(double ratio);

  // The best link tried, and its error: 0.1 means a tenth too much or too little.
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

  double next_;  // seconds per byte
  Try best_;
  std::optional<Try> last_;
  std::optional<Try> fast_;  // the slowest link that took too little time
  std::optional<Try> slow_;  // the fastest link that took too much time
};

// Tries a link, then up to `most` more links that follow from the results. `far_off` returns by how
// much the time was off, as a ratio, or nothing to stop. Returns the last link tried.
Link settle(const Link& first, int most,
            const std::function<std::optional<double>(const Link&)>& far_off);

}  // namespace plait::measure
