// For a rank that is meeting the others by another transport than shm: finds ranks of the same job
// on this host that have chosen a different one.
//
// Rank 0 listens where it would listen for ranks that use shm, until the ranks have met. The others
// call there what listens, whether it is such a rank 0 or one that uses shm, and say which
// transport they use. Rank 0 refuses all ranks where one of them uses another transport than it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "comm/shm/meeting_place.h"
#include "comm/shm/porch.h"
#include "comm/transport.h"

namespace plait::comm::shm {

class TransportCheck {
 public:
  explicit TransportCheck(const Site& site);

  // To be called again and again until this rank has been met by rank 0, or as rank 0 by all.
  // Throws Error{mismatch} where another rank uses another transport.
  void look();

 private:
  void look_as_first(Porch& porch);
  void look_as_other(Finder& finder);
  [[noreturn]] void refuse(const Guest& guest, Porch& porch);

  int rank_;
  int world_;
  std::string transport_;
  base::Nanoseconds look_at_;

  std::optional<Porch> porch_;  // of rank 0, where the place is free
  std::vector<Guest> guests_;   // that use the same transport

  std::optional<Finder> finder_;  // of the others
  base::Fd first_;                // rank 0, where it has been found
};

}  // namespace plait::comm::shm
