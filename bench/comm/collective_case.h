// A collective of one size: its buffers, its call, and its expected result.
//
// `bytes` is the size of the whole tensor: the sum of all_reduce, the input of reduce_scatter, the
// result of all_gather, the message of broadcast, and what one rank sends in all_to_all.
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/collectives.h"

namespace plait::bench {

struct CollectiveKind {
  Operation operation;
  Dtype dtype = Dtype::f32;
};

// "all_reduce", "all_reduce bf16"
std::string describe(const CollectiveKind& kind);

class CollectiveCase {
 public:
  CollectiveCase(const CollectiveKind& kind, std::size_t bytes, Communicator& comm);

  ConstElements in() const { return {in_.data(), in_count_, kind_.dtype}; }
  Elements out() { return {out_.data(), out_count_, kind_.dtype}; }

  // Calls plait's collective.
  void call();

  // Writes the input again, as its producer would, so that only this core's cache has its lines.
  void rewrite();

  // Overwrites the output, makes the call, and refuses a wrong result.
  void check(std::string_view who, const std::function<void()>& call);

 private:
  void fill(std::byte* to, std::size_t first, std::size_t count, int rank) const;
  std::vector<std::byte> expected() const;
  void spoil();
  bool is_root() const { return comm_->rank() == 0; }

  CollectiveKind kind_;
  Communicator* comm_;
  std::size_t count_;  // elements of the whole tensor
  Shard shard_;        // this rank's
  std::size_t in_count_ = 0;
  std::size_t out_count_ = 0;
  std::vector<std::byte> in_;
  std::vector<std::byte> out_;
  std::vector<std::byte> original_;
};

}  // namespace plait::bench
