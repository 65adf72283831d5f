// A tag says which call a chunk belongs to. It is sent with the chunk and compared on arrival.
//
// Two ranks that disagree about the call they are in (its operator, element type, sizes, plan or
// number) send chunks with different tags. The disagreement is thus found at the first chunk, and
// the check costs nothing otherwise.
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
  all_to_all_rows,
  make_mailbox,  // set-up calls are announced like any other
  with_link,
  split,
  matmul_all_reduce,
  matmul_reduce_scatter,
  matmul_all_gather,
  all_gather_matmul,
  reduce_scatter_matmul,
  all_reduce_matmul,
  matmul_all_to_all,  // plait/ulysses.h
  all_to_all_matmul,
  expert_parallel_mlp,
};

PLAIT_EXPORT std::string_view name(Operation operation);

// In an operator's tag the last size also holds, in bits above any size, the dtype of out, as a
// multiple of kTagOut, and whether there is a bias.
inline constexpr std::int64_t kTagOut = std::int64_t{1} << 56;
inline constexpr std::int64_t kTagBias = std::int64_t{1} << 60;

struct Tag {
  Operation operation = Operation::custom;
  Dtype dtype = Dtype::f32;
  Dtype wire = Dtype::f32;  // the dtype in which partial sums travel
  std::uint32_t call = 0;   // counted by the communicator
  std::uint32_t chunk = 0;  // within the call
  std::uint32_t plan = 0;   // fingerprint of the plan
  // m, n and k of a product; those that may differ between ranks are 0. Of a collective: elements,
  // shards and root. Of experts: columns of x, and, if all ranks have the same rows, their number
  // and a fingerprint of their experts.
  std::array<std::int64_t, 3> sizes = {};

  bool operator==(const Tag&) const = default;
};
static_assert(std::is_trivially_copyable_v<Tag> && sizeof(Tag) == 40);

// The first field in which the two differ, for a sentence: "elements: 100 and 120". For shards it
// says only that they differ, since a tag has them as a fingerprint.
PLAIT_EXPORT std::string difference(const Tag& a, const Tag& b);

}  // namespace plait
