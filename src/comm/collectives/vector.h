// Vectors as the flows know them: shards in chunks, each a matrix of one row.
#pragma once

#include <type_traits>
#include <vector>

#include "comm/flow/chunks.h"
#include "comm/flow/gather_flow.h"
#include "comm/flow/reduce_flow.h"
#include "plait/collectives.h"

namespace plait::comm {

inline const std::byte* element(const void* data, std::size_t index, Dtype dtype) {
  return static_cast<const std::byte*>(data) + index * size_of(dtype);
}
inline std::byte* element(void* data, std::size_t index, Dtype dtype) {
  return static_cast<std::byte*>(data) + index * size_of(dtype);
}

// A chunk of the shard that begins with element `first`.
template <class Vector>
auto chunk_of(const Vector& vector, const Pieces& pieces, std::uint32_t chunk,
              std::size_t first = 0) {
  using View = std::conditional_t<std::is_same_v<Vector, Elements>, TensorView, ConstTensorView>;
  return View{.data = element(vector.data, first + pieces.offset(chunk), vector.dtype),
              .dtype = vector.dtype,
              .rows = 1,
              .cols = static_cast<std::int64_t>(pieces.count(chunk))};
}

// The first element of each rank, and the number of its elements.
struct Layout {
  std::vector<std::size_t> offsets;
  std::vector<std::size_t> counts;
};

// A vector's shards. `widest`: the widest dtype in which the elements travel.
class Shards {
 public:
  static Shards balanced(std::size_t count, int world, Dtype widest, const LaneCapacity& capacity) {
    Shards shards = whole(0, widest, capacity);
    shards.shards_.reserve(static_cast<std::size_t>(world));
    for (int rank = 0; rank < world; ++rank) {
      const Shard shard = balanced_shard(count, rank, world);
      shards.shards_.push_back({shard.offset, Pieces(shard.count, widest, capacity)});
    }
    return shards;
  }
  static Shards of(const Layout& layout, Dtype widest, const LaneCapacity& capacity) {
    Shards shards = whole(0, widest, capacity);
    shards.shards_.reserve(layout.counts.size());
    for (std::size_t rank = 0; rank < layout.counts.size(); ++rank)
      shards.shards_.push_back(
          {layout.offsets[rank], Pieces(layout.counts[rank], widest, capacity)});
    return shards;
  }
  // Every rank owns all elements.
  static Shards whole(std::size_t count, Dtype widest, const LaneCapacity& capacity) {
    return Shards(Pieces(count, widest, capacity));
  }

  std::size_t offset(int owner) const { return at(owner).offset; }
  const Pieces& pieces(int owner) const { return at(owner).pieces; }

  // A chunk of an owner's shard of the vector.
  template <class Vector>
  auto block(const Vector& vector, std::uint32_t chunk, int owner) const {
    return chunk_of(vector, pieces(owner), chunk, offset(owner));
  }

 private:
  struct One {
    std::size_t offset;
    Pieces pieces;
  };
  const One& at(int owner) const {
    return shards_.empty() ? whole_ : shards_[static_cast<std::size_t>(owner)];
  }

  explicit Shards(const Pieces& whole) : whole_{.offset = 0, .pieces = whole} {}

  One whole_;  // used if there are no shards
  std::vector<One> shards_;
};

// Parts of the vector `in`; the sum of this rank's shard goes to `sum`.
class VectorPartials final : public Partials {
 public:
  VectorPartials(const Shards& shards, int rank, const ConstElements& in, const Elements& sum)
      : shards_(shards), rank_(rank), in_(in), sum_(sum) {}

  std::uint32_t chunks(int owner) const override { return shards_.pieces(owner).chunks(); }
  Handling handling(int owner) const override { return shards_.pieces(owner).handling(in_.dtype); }
  Extent extent(std::uint32_t chunk, int owner) const override {
    return {.rows = 1, .cols = static_cast<std::int64_t>(shards_.pieces(owner).count(chunk))};
  }
  ConstTensorView part(std::uint32_t chunk, int owner) const override {
    return shards_.block(in_, chunk, owner);
  }
  TensorView sum(std::uint32_t chunk) const override {
    return chunk_of(sum_, shards_.pieces(rank_), chunk);
  }

 private:
  const Shards& shards_;
  int rank_;
  ConstElements in_;
  Elements sum_;
};

// The shard `own` of this rank, and the vector `all` that the others' come to.
class VectorShares final : public Shares {
 public:
  VectorShares(const Shards& shards, int rank, const ConstElements& own, const Elements& all)
      : shards_(shards), rank_(rank), own_(own), all_(all) {}

  std::uint32_t chunks(int owner) const override { return shards_.pieces(owner).chunks(); }
  Handling handling(int owner) const override { return shards_.pieces(owner).handling(all_.dtype); }
  ConstTensorView own(std::uint32_t chunk) const override {
    return chunk_of(own_, shards_.pieces(rank_), chunk);
  }
  TensorView place(std::uint32_t chunk, int owner) const override {
    return shards_.block(all_, chunk, owner);
  }

 private:
  const Shards& shards_;
  int rank_;
  ConstElements own_;
  Elements all_;
};

}  // namespace plait::comm
