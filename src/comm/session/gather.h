// Brings a text of each rank to all ranks. Collective.
#pragma once

#include <cstddef>
#include <string>
#include <type_traits>
#include <vector>

#include "plait/collectives.h"

namespace plait::comm {

// The values of all ranks, by rank. They travel as bytes, since a dtype would round them.
template <class T>
std::vector<T> gather_values(const T& mine, Communicator& comm) {
  static_assert(std::is_trivially_copyable_v<T>);
  std::vector<T> all(static_cast<std::size_t>(comm.world()));
  all_gather({&mine, sizeof(T), Dtype::s8}, {all.data(), all.size() * sizeof(T), Dtype::s8}, comm);
  return all;
}

// The texts of all ranks, by rank.
std::vector<std::string> gather_text(const std::string& mine, Communicator& comm);

}  // namespace plait::comm
