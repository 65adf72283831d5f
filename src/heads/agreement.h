// How ranks learn of one another's shares of a vocabulary, and find out that their calls differ.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "comm/session/state.h"
#include "plait/communicator.h"

namespace plait::heads {

// The terms of a call, which all ranks must have alike. All are whole numbers, which a sentence
// can show.
struct Terms {
  std::int64_t rows;
  std::int64_t k_of_x;
  std::int64_t vocab_size;
  std::int64_t k = 0;          // of matmul_top()
  std::int64_t wants_dx = 0;   // 1: yes
  std::int64_t targets = 0;    // a fingerprint
  std::int64_t options = 0;    // a fingerprint
  std::int64_t grad_loss = 0;  // a fingerprint, where ranks make it from what they were given

  bool operator==(const Terms&) const = default;
};

struct Place {
  std::int64_t share;       // of the weight's rows
  std::int64_t first = -1;  // -1: not known yet
};

// Runs this rank's own part of a call, while the others are on their way to the next exchange: what
// it throws ends their wait. Errors that all ranks have alike are thrown outside.
template <class Body>
void fail_together(const char* name, Communicator& comm, Body&& body) {
  try {
    body();
  } catch (...) {
    comm::Group& group = comm.state().group();
    if (!group.failed()) group.fail(comm::failure_of_caught(name, comm.rank()));
    throw;
  }
}

class Agreement {
 public:
  Agreement(const char* name, Communicator& comm, const Terms& terms, Place place)
      : name_(name), comm_(comm), terms_(terms), place_(place) {}

  // Collective. What this rank has for all, of the same size on each: returns the bytes of all, one
  // rank after another. Error{mismatch} on all ranks where terms or places don't fit together.
  std::vector<std::byte> gather(std::span<const std::byte> mine);

  // Collective, unless this rank's first id is known.
  void find_place();

  const char* name() const { return name_; }
  std::int64_t first() const { return place_.first; }
  // After a gather: the first id of each rank, and the rows of all ranks' weights.
  std::int64_t first_of(std::size_t rank) const { return firsts_[rank]; }
  std::int64_t total() const { return total_; }

 private:
  struct Header {
    Terms terms;
    Place place;
  };
  void check(std::span<const Header> all);

  const char* name_;
  Communicator& comm_;
  Terms terms_;
  Place place_;
  std::vector<std::int64_t> firsts_;
  std::int64_t total_ = -1;
};

}  // namespace plait::heads
