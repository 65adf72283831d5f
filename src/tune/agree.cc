#include "tune/agree.h"

#include <algorithm>
#include <cstdint>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "plait/collectives.h"

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
  auto mine = static_cast<float>(nanoseconds);
  std::vector<float> all(static_cast<std::size_t>(comm.world()));
  all_gather({&mine, 1}, {all.data(), all.size()}, comm);
  return double{*std::max_element(all.begin(), all.end())};
}

std::vector<std::string> gather_text(const std::string& mine, Communicator& comm) {
  const auto world = static_cast<std::size_t>(comm.world());
  const auto size = static_cast<std::int64_t>(mine.size());
  std::vector<std::int64_t> sizes(world);
  all_gather({&size, sizeof(size), Dtype::s8}, {sizes.data(), sizeof(size) * world, Dtype::s8},
             comm);
  const std::vector<std::size_t> counts(sizes.begin(), sizes.end());
  std::string joined(std::accumulate(counts.begin(), counts.end(), std::size_t{0}), '\0');
  all_gather({mine.data(), mine.size(), Dtype::s8}, {joined.data(), joined.size(), Dtype::s8}, comm,
             counts);
  std::vector<std::string> all;
  std::size_t at = 0;
  for (const std::size_t count : counts) {
    all.push_back(joined.substr(at, count));
    at += count;
  }
  return all;
}

int least(int mine, Communicator& comm) {
  return -static_cast<int>(slowest(-static_cast<double>(mine), comm));
}

std::optional<std::string> agree_on(std::string_view what, const std::optional<std::string>& mine,
                                    Communicator& comm) {
  // The prefix marks that there is a text, because a text may be empty.
  const std::vector<std::string> all = gather_text(mine ? "=" + *mine : "", comm);
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
