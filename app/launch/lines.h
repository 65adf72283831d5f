// Splits a stream of bytes into whole lines, each with a prefix.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace plait::launch {

class Lines {
 public:
  // A longer line is split here, so that a rank that never ends a line can't fill our memory.
  static constexpr std::size_t kLongest = std::size_t{16} << 20;

  explicit Lines(std::string prefix, std::size_t longest = kLongest);

  // Appends to `out` the lines that these bytes complete. Bytes of any value pass unchanged.
  void take(std::string_view bytes, std::string& out);

  // Appends what came after the last newline, with a newline, so that it can't run into the line of
  // another rank.
  void finish(std::string& out);

 private:
  void end_line(std::string& out);

  std::string prefix_;
  std::size_t longest_;
  std::string begun_;
};

}  // namespace plait::launch
