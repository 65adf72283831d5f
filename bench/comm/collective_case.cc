#include "collective_case.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace plait::bench {
namespace {

// Small whole numbers are exact in every dtype, and so are their sums over 4 ranks.
float value(std::size_t i, int rank) {
  return static_cast<float>((i * 7 + static_cast<std::size_t>(rank) * 13) % 61) - 30.0F;
}

// The numbers of input and output elements of a rank.
struct Sizes {
  std::size_t in, out;
};

Sizes sizes_of(Operation operation, std::size_t count, const Shard& shard, int world) {
  switch (operation) {
    case Operation::all_gather:
      return {.in = shard.count, .out = count};
    case Operation::reduce_scatter:
      return {.in = count, .out = shard.count};
    case Operation::all_to_all:
      return {.in = count, .out = shard.count * world};
    default:
      return {.in = count, .out = count};
  }
}

}  // namespace

std::string describe(const CollectiveKind& kind) {
  std::string text(name(kind.operation));
  if (kind.dtype != Dtype::f32) text += base::sentence(" ", name(kind.dtype));
  return text;
}

CollectiveCase::CollectiveCase(const CollectiveKind& kind, std::size_t bytes, Communicator& comm)
    : kind_(kind),
      comm_(&comm),
      count_(bytes / size_of(kind.dtype)),
      shard_(balanced_shard(count_, comm.rank(), comm.world())) {
  const Sizes sizes = sizes_of(kind.operation, count_, shard_, comm.world());
  in_count_ = sizes.in;
  out_count_ = sizes.out;
  in_.resize(in_count_ * size_of(kind.dtype));
  out_.resize(out_count_ * size_of(kind.dtype));
  const bool only_mine = kind.operation == Operation::all_gather;
  fill(in_.data(), only_mine ? shard_.offset : 0, in_count_, comm.rank());
  original_ = in_;
}

void CollectiveCase::fill(std::byte* to, std::size_t first, std::size_t count, int rank) const {
  std::vector<float> values(count);
  for (std::size_t i = 0; i < count; ++i) values[i] = value(first + i, rank);
  convert(values.data(), Dtype::f32, to, kind_.dtype, count);
}

void CollectiveCase::call() {
  switch (kind_.operation) {
    case Operation::barrier:
      return barrier(*comm_);
    case Operation::broadcast:
      return broadcast(out(), 0, *comm_);
    case Operation::all_gather:
      return all_gather(in(), out(), *comm_);
    case Operation::reduce_scatter:
      return reduce_scatter(in(), out(), *comm_);
    case Operation::all_reduce:
      return all_reduce(in(), out(), *comm_);
    case Operation::all_to_all:
      return all_to_all(in(), out(), *comm_);
    default:
      base::fail(Code::invalid_argument, name(kind_.operation), " is not a collective");
  }
}

void CollectiveCase::rewrite() {
  std::memcpy(in_.data(), original_.data(), in_.size());
  if (kind_.operation == Operation::broadcast && is_root())
    std::memcpy(out_.data(), original_.data(), out_.size());
}

std::vector<std::byte> CollectiveCase::expected() const {
  const int world = comm_->world();
  std::vector<std::byte> bytes(out_.size());
  std::vector<float> sums(out_count_, 0.0F);
  switch (kind_.operation) {
    case Operation::all_gather:
      for (int rank = 0; rank < world; ++rank) {
        const Shard shard = balanced_shard(count_, rank, world);
        fill(bytes.data() + shard.offset * size_of(kind_.dtype), shard.offset, shard.count, rank);
      }
      break;
    case Operation::all_to_all:
      for (int rank = 0; rank < world; ++rank) {
        fill(bytes.data() + rank * shard_.count * size_of(kind_.dtype), shard_.offset, shard_.count,
             rank);
      }
      break;
    case Operation::broadcast:
      fill(bytes.data(), 0, count_, 0);
      break;
    default: {
      const std::size_t first = kind_.operation == Operation::reduce_scatter ? shard_.offset : 0;
      for (std::size_t i = 0; i < out_count_; ++i) {
        for (int rank = 0; rank < world; ++rank) sums[i] += value(first + i, rank);
      }
      convert(sums.data(), Dtype::f32, bytes.data(), kind_.dtype, out_count_);
    }
  }
  return bytes;
}

void CollectiveCase::spoil() {
  if (kind_.operation == Operation::broadcast && is_root()) {
    rewrite();
  } else {
    std::fill(out_.begin(), out_.end(), std::byte{0xA5});
  }
}

void CollectiveCase::check(std::string_view who, const std::function<void()>& call) {
  spoil();
  barrier(*comm_);
  call();
  const auto wanted = expected();
  const auto at = std::mismatch(wanted.begin(), wanted.end(), out_.begin());
  if (at.first == wanted.end()) return;
  base::fail(Code::mismatch, who, "'s ", describe(kind_), " of ", count_ * size_of(kind_.dtype),
             " bytes gave a wrong element ", (at.first - wanted.begin()) / size_of(kind_.dtype),
             " on rank ", comm_->rank());
}

}  // namespace plait::bench
