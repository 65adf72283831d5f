#include "launch/lines.h"

#include <algorithm>
#include <utility>

namespace plait::launch {

Lines::Lines(std::string prefix, std::size_t longest)
    : prefix_(std::move(prefix)), longest_(longest) {}

void Lines::take(std::string_view bytes, std::string& out) {
  while (!bytes.empty()) {
    const auto newline = bytes.find('\n');
    const auto wanted = std::min(newline, bytes.size());
    const auto taken = std::min(wanted, longest_ - begun_.size());
    begun_.append(bytes.substr(0, taken));
    bytes.remove_prefix(taken);
    const bool ends = !bytes.empty() && bytes.front() == '\n';
    if (ends) bytes.remove_prefix(1);
    if (ends || begun_.size() == longest_) end_line(out);
  }
}

void Lines::finish(std::string& out) {
  if (!begun_.empty()) end_line(out);
}

void Lines::end_line(std::string& out) {
  out.append(prefix_).append(begun_).append("\n");
  begun_.clear();
}

}  // namespace plait::launch
