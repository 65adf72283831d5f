#include "tune/agree.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"
#include "comm/session/gather.h"

namespace plait::tune {
namespace {

// "of 17 lines", or the text itself if it is short enough for a sentence.
std::string described(std::string_view text) {
  const auto lines = std::count(text.begin(), text.end(), '\n');
  return lines > 0 ? base::sentence("of ", lines, " lines") : base::sentence('"', text, '"');
}

// ", the first different line being 3", for texts of several lines.
std::string first_difference(std::string_view a, std::string_view b) {
  const auto differs = std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first;
  if (std::count(a.begin(), a.end(), '\n') == 0) return "";
  return base::sentence(", the first different line being ",
                        1 + std::count(a.begin(), differs, '\n'));
}

}  // namespace

double slowest(double nanoseconds, Communicator& comm) {
  const auto mine = static_cast<float>(nanoseconds);
  const std::vector<float> all = comm::gather_values(mine, comm);
  return double{*std::max_element(all.begin(), all.end())};
}

int least(int mine, Communicator& comm) {
  return -static_cast<int>(slowest(-static_cast<double>(mine), comm));
}

std::optional<std::string> agree_on(std::string_view what, const std::optional<std::string>& mine,
                                    Communicator& comm) {
  // The prefix marks that there is a text, because a text may be empty.
  const std::vector<std::string> all = comm::gather_text(mine ? "=" + *mine : "", comm);
  int first = -1;
  for (int rank = 0; rank < comm.world(); ++rank) {
    if (all[static_cast<std::size_t>(rank)].empty()) continue;
    if (first < 0) first = rank;
    const auto theirs = std::string_view(all[static_cast<std::size_t>(rank)]).substr(1);
    const auto ours = std::string_view(all[static_cast<std::size_t>(first)]).substr(1);
    if (theirs == ours) continue;
    base::fail(Code::mismatch, "automatic_plans: ranks ", first, " and ", rank, " have different ",
               what, ", ", described(ours), " and ", described(theirs),
               first_difference(ours, theirs), ": all ranks need the same one, or none");
  }
  if (first < 0) return std::nullopt;
  return all[static_cast<std::size_t>(first)].substr(1);
}

}  // namespace plait::tune
