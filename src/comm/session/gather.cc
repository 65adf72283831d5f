#include "comm/session/gather.h"

#include <numeric>

namespace plait::comm {

std::vector<std::string> gather_text(const std::string& mine, Communicator& comm) {
  const std::vector<std::size_t> counts = gather_values(mine.size(), comm);
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

}  // namespace plait::comm
