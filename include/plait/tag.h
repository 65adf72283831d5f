// What a chunk belongs to: written beside it, compared where it arrives.
//
// Two ranks that disagree about the call they are in (its operator, element type, sizes, plan or
// number) leave chunks with different tags, so that the disagreement is found at the first chunk
// and costs nothing otherwise.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <type_traits>

#include "plait/dtype.h"
#include "plait/export.h"

namespace plait {

enum class Operation : std::uint16_t {
  custom,  // a caller's own use of a mailbox
  barrier,
  broadcast,
  all_gather,
  reduce_scatter,
  all_reduce,
  all_to_all,
  make_mailbox,  // set-up calls are announced like any other
  split,
  matmul_all_reduce,
  matmul_reduce_scatter,
  matmul_all_gather,
  all_gather_matmul,
  reduce_scatter_matmul,
  all_reduce_matmul,
};

PLAIT_EXPORT std::string_view name(Operation operation);

// In a tag of an operator's call the last size has more to say, above what any size comes to: the
// dtype of out, so many times kTagOut, and whether there is a bias.
inline constexpr std::int64_t kTagOut = std::int64_t{1} << 56;
inline constexpr std::int64_t kTagBias = std::int64_t{1} << 60;

struct Tag {
  Operation operation = Operation::custom;
  Dtype dtype = Dtype::f32;
  Dtype wire = Dtype::f32;  // in which partial sums travel
  std::uint32_t call = 0;   // counted by the communicator
  std::uint32_t chunk = 0;  // within the call
  std::uint32_t plan = 0;   // fingerprint of the plan
  // m, n and k of a product, of which those are 0 that may differ from rank to rank; elements,
  // shards and root of a collective.
  std::array<std::int64_t, 3> sizes = {};

  bool operator==(const Tag&) const = default;
};
static_assert(std::is_trivially_copyable_v<Tag> && sizeof(Tag) == 40);

// The first field in which the two differ, for a sentence: "elements: 100 and 120". Of the shards,
// which a tag has as a fingerprint, only that they differ.
PLAIT_EXPORT std::string difference(const Tag& a, const Tag& b);

}  // namespace plait
