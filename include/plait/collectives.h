// Collectives: sums and exchanges that all ranks of a communicator make together.
//
//   plait::all_reduce({sums.data(), sums.size()}, comm);          // in place
//
//   plait::Pending pending = plait::start_all_gather(mine, all, comm);
//   while (!pending.done()) compute_a_tile();                     // done() also makes progress
//
// Sums are taken in f32 as a tree over ranks (0 + 1, 2 + 3, ..., level by level) and rounded once.
// Every rank thus gets the same bits, in every run and over every transport, whatever the sizes and
// the threads' modes of rounding and denormals. The output may have another dtype than the input:
// f32 in, bf16 out. s8 is summed to s8, and saturates. If a tensor is cut into shards, `counts`
// says how many elements each rank owns. Empty means balanced: the first (elements mod world) ranks
// own one more. Every size may be 0. Input and output may be the same memory for broadcast, and for
// all_reduce of one dtype; otherwise they must not overlap. A collective that fails leaves its
// output undefined. If it refuses its arguments, it has written nothing.
//
// Elements are on a device. For devices other than the CPU, a stream orders the work. The
// transports of this build reach only the CPU's memory: other devices are refused with
// Error{invalid_argument}.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "plait/communicator.h"
#include "plait/dtype.h"
#include "plait/export.h"
#include "plait/stream.h"
#include "plait/tensor_view.h"

namespace plait {

// A pointer to an element type implies the dtype; with void* it must be given.
struct Elements {
  template <Element T>
  Elements(T* to, std::size_t n, Device where = kCpu) : Elements(to, n, kDtypeOf<T>, where) {}
  Elements(void* to, std::size_t n, Dtype type, Device where = kCpu)
      : data(to), count(n), dtype(type), device(where) {}

  void* data;
  std::size_t count;
  Dtype dtype;
  Device device;
};

struct ConstElements {
  template <Element T>
  ConstElements(const T* from, std::size_t n, Device where = kCpu)
      : ConstElements(from, n, kDtypeOf<T>, where) {}
  ConstElements(const void* from, std::size_t n, Dtype type, Device where = kCpu)
      : data(from), count(n), dtype(type), device(where) {}
  ConstElements(const Elements& elements)  // NOLINT(google-explicit-constructor): as T* to const T*
      : ConstElements(elements.data, elements.count, elements.dtype, elements.device) {}

  const void* data;
  std::size_t count;
  Dtype dtype;
  Device device;
};

using Counts = std::span<const std::size_t>;

// A rank's part of `elements` cut evenly among `world`.
struct Shard {
  std::size_t offset;
  std::size_t count;
};
PLAIT_EXPORT Shard balanced_shard(std::size_t elements, int rank, int world);

// A collective under way. Those of one communicator finish in the order in which they were started.
// It moves in calls of its communicator, and in all waits of the thread that has made the last of
// these, in whichever communicator: ranks may wait for what they have started in any order.
// Between calls, and while a rank computes, progress() and done() move it. They move all that the
// thread has started.
// Destroying a collective that is not done waits for it; its error, if any, is then lost. If an
// exception of the caller's hook destroys it (CommunicatorOptions::interrupted), it doesn't wait,
// and its communicator fails. A Pending that outlives its communicator is abandoned: its data stay
// as they are. Every call of a Pending that is abandoned, or was moved from, throws.
class PLAIT_EXPORT Pending {
 public:
  class Task;
  Pending(std::shared_ptr<Task> task, Communicator& comm);
  Pending(Pending&&) noexcept;
  Pending& operator=(Pending&&) noexcept;
  ~Pending();

  void progress();
  // True when all is done, and what this rank has sent needs none of its further calls.
  bool done();
  void wait();

 private:
  void check_usable() const;

  std::shared_ptr<Task> task_;
  Communicator::State* state_;
};

PLAIT_EXPORT void barrier(Communicator& comm);
PLAIT_EXPORT void broadcast(Elements data, int root, Communicator& comm, Stream stream = {});
PLAIT_EXPORT void all_gather(ConstElements mine, Elements all, Communicator& comm,
                             Counts counts = {}, Stream stream = {});
PLAIT_EXPORT void reduce_scatter(ConstElements all, Elements mine, Communicator& comm,
                                 Counts counts = {}, Stream stream = {});
PLAIT_EXPORT void all_reduce(ConstElements in, Elements out, Communicator& comm,
                             Stream stream = {});
PLAIT_EXPORT void all_reduce(Elements in_place, Communicator& comm, Stream stream = {});

// Part i of `send` goes to rank i, which finds it behind the parts of the ranks before this one.
struct AllToAllCounts {
  Counts send = {};     // elements for each rank; empty: balanced
  Counts receive = {};  // elements from each rank; empty: `receive.count` in balanced parts
};
PLAIT_EXPORT void all_to_all(ConstElements send, Elements receive, Communicator& comm,
                             const AllToAllCounts& counts = {}, Stream stream = {});

PLAIT_EXPORT Pending start_barrier(Communicator& comm);
PLAIT_EXPORT Pending start_broadcast(Elements data, int root, Communicator& comm,
                                     Stream stream = {});
PLAIT_EXPORT Pending start_all_gather(ConstElements mine, Elements all, Communicator& comm,
                                      Counts counts = {}, Stream stream = {});
PLAIT_EXPORT Pending start_reduce_scatter(ConstElements all, Elements mine, Communicator& comm,
                                          Counts counts = {}, Stream stream = {});
PLAIT_EXPORT Pending start_all_reduce(ConstElements in, Elements out, Communicator& comm,
                                      Stream stream = {});
PLAIT_EXPORT Pending start_all_to_all(ConstElements send, Elements receive, Communicator& comm,
                                      const AllToAllCounts& counts = {}, Stream stream = {});

}  // namespace plait
