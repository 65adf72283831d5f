// The public functions: what they refuse, and which task they run.
#include <cstdint>
#include <functional>

#include "base/check.h"
#include "comm/collectives/tasks.h"
#include "plait/collectives.h"

namespace plait {
namespace {

using comm::Layout;
using comm::Task;

const std::byte* begin_of(const ConstElements& elements) {
  return static_cast<const std::byte*>(elements.data);
}
const std::byte* end_of(const ConstElements& elements) {
  return begin_of(elements) + elements.count * size_of(elements.dtype);
}

// Far beyond any memory, and small enough that bytes, chunks and addresses can be counted.
constexpr std::size_t kMostBytes = std::size_t{1} << 46;

constexpr Dtype kLastDtype = Dtype::s8;

void check_elements(const char* caller, const char* what, const ConstElements& elements) {
  PLAIT_CHECK(elements.device == kCpu, caller, ": ", what, " is on ", name(elements.device),
              ", whose memory this build cannot reach");
  PLAIT_CHECK(elements.dtype <= kLastDtype, caller, ": ", what, " has the dtype ",
              static_cast<int>(elements.dtype), ", which is none");
  PLAIT_CHECK(elements.count <= kMostBytes / size_of(elements.dtype), caller, ": ", what, " has ",
              elements.count, " elements, more than memory can hold");
  PLAIT_CHECK(elements.data != nullptr || elements.count == 0, caller, ": ", what, " has ",
              elements.count, " elements and no address");
}

void check_stream(const char* caller, Stream stream) {
  PLAIT_CHECK(!stream, caller, ": a stream was given for elements on the ", name(kCpu),
              ", which has none");
}

// Sums may be rounded to another dtype of floating point than they are made of.
void check_sum_dtypes(const char* caller, const ConstElements& in, const ConstElements& out) {
  PLAIT_CHECK(in.dtype == out.dtype || (in.dtype != Dtype::s8 && out.dtype != Dtype::s8), caller,
              ": the input is ", name(in.dtype), " but the output is ", name(out.dtype));
}

void check_same_dtype(const char* caller, const ConstElements& in, const ConstElements& out) {
  PLAIT_CHECK(in.dtype == out.dtype, caller, ": the input is ", name(in.dtype),
              " but the output is ", name(out.dtype));
}

// `in_place`: the one lies exactly where it belongs in the other, which is fine.
void check_apart(const char* caller, const ConstElements& in, const ConstElements& out,
                 bool in_place) {
  if (in.count == 0 || out.count == 0 || in_place) return;
  // std::less orders unrelated addresses; < need not.
  const std::less<> before;
  const bool apart = !before(begin_of(in), end_of(out)) || !before(begin_of(out), end_of(in));
  PLAIT_CHECK(apart, caller, ": the input and the output overlap");
}

Layout lay_out(std::vector<std::size_t> counts) {
  Layout layout;
  std::size_t offset = 0;
  for (const std::size_t count : counts) {
    layout.offsets.push_back(offset);
    offset += count;
  }
  layout.counts = std::move(counts);
  return layout;
}

Layout lay_out(const char* caller, std::size_t elements, int world, Counts counts) {
  std::vector<std::size_t> each(counts.begin(), counts.end());
  if (counts.empty()) {
    for (int rank = 0; rank < world; ++rank)
      each.push_back(balanced_shard(elements, rank, world).count);
  }
  PLAIT_CHECK(static_cast<int>(each.size()) == world, caller, ": ", each.size(), " counts for ",
              world, " ranks");
  std::size_t total = 0;
  bool counted = true;
  for (const std::size_t count : each) {
    counted = counted && !__builtin_add_overflow(total, count, &total);
  }
  PLAIT_CHECK(counted, caller, ": the counts add up to more than can be counted, not to the ",
              elements, " elements");
  PLAIT_CHECK(total == elements, caller, ": the counts add up to ", total, ", not to the ",
              elements, " elements");
  return lay_out(std::move(each));
}

std::unique_ptr<Task> checked_broadcast(const Elements& data, int root, Communicator& comm,
                                        Stream stream) {
  check_stream("broadcast", stream);
  check_elements("broadcast", "the data", data);
  PLAIT_CHECK(root >= 0 && root < comm.world(), "broadcast: there is no rank ", root,
              " in a world of ", comm.world());
  return comm::make_broadcast(comm.state(), data, root);
}

std::unique_ptr<Task> checked_all_gather(const ConstElements& mine, const Elements& all,
                                         Communicator& comm, Counts counts, Stream stream) {
  check_stream("all_gather", stream);
  check_elements("all_gather", "the shard", mine);
  check_elements("all_gather", "the output", all);
  check_same_dtype("all_gather", mine, all);
  const Layout shards = lay_out("all_gather", all.count, comm.world(), counts);
  PLAIT_CHECK(mine.count == shards.counts[comm.rank()], "all_gather: the shard of rank ",
              comm.rank(), " has ", mine.count, " elements, not ", shards.counts[comm.rank()]);
  check_apart("all_gather", mine, all,
              mine.data == begin_of(all) + shards.offsets[comm.rank()] * size_of(all.dtype));
  return comm::make_all_gather(comm.state(), mine, all, shards);
}

std::unique_ptr<Task> checked_reduce_scatter(const ConstElements& all, const Elements& mine,
                                             Communicator& comm, Counts counts, Stream stream) {
  check_stream("reduce_scatter", stream);
  check_elements("reduce_scatter", "the input", all);
  check_elements("reduce_scatter", "the shard", mine);
  check_sum_dtypes("reduce_scatter", all, mine);
  const Layout shards = lay_out("reduce_scatter", all.count, comm.world(), counts);
  PLAIT_CHECK(mine.count == shards.counts[comm.rank()], "reduce_scatter: the shard of rank ",
              comm.rank(), " has ", mine.count, " elements, not ", shards.counts[comm.rank()]);
  check_apart("reduce_scatter", all, mine,
              mine.dtype == all.dtype &&
                  mine.data == begin_of(all) + shards.offsets[comm.rank()] * size_of(all.dtype));
  return comm::make_reduce_scatter(comm.state(), all, mine, shards);
}

std::unique_ptr<Task> checked_all_reduce(const ConstElements& in, const Elements& out,
                                         Communicator& comm, Stream stream) {
  check_stream("all_reduce", stream);
  check_elements("all_reduce", "the input", in);
  check_elements("all_reduce", "the output", out);
  check_sum_dtypes("all_reduce", in, out);
  PLAIT_CHECK(in.count == out.count, "all_reduce: the input has ", in.count,
              " elements, the output ", out.count);
  check_apart("all_reduce", in, out, in.dtype == out.dtype && in.data == out.data);
  return comm::make_all_reduce(comm.state(), in, out);
}

std::unique_ptr<Task> checked_all_to_all(const ConstElements& send, const Elements& receive,
                                         Communicator& comm, const AllToAllCounts& counts,
                                         Stream stream) {
  check_stream("all_to_all", stream);
  check_elements("all_to_all", "the input", send);
  check_elements("all_to_all", "the output", receive);
  check_same_dtype("all_to_all", send, receive);
  check_apart("all_to_all", send, receive, false);
  const comm::Parts parts = {
      .send = lay_out("all_to_all", send.count, comm.world(), counts.send),
      .receive = lay_out("all_to_all", receive.count, comm.world(), counts.receive)};
  const std::size_t to_self = parts.send.counts[comm.rank()];
  const std::size_t from_self = parts.receive.counts[comm.rank()];
  PLAIT_CHECK(to_self == from_self, "all_to_all: rank ", comm.rank(), " sends itself ", to_self,
              " elements but receives ", from_self);
  return comm::make_all_to_all(comm.state(), send, receive, parts);
}

std::int64_t bytes_of(const ConstElements& elements) {
  return static_cast<std::int64_t>(elements.count * size_of(elements.dtype));
}

void run(const std::unique_ptr<Task>& task, Communicator& comm, Label label,
         std::int64_t bytes = 0) {
  const Span span(comm.trace(), Lane::comm, label, {.bytes = bytes});
  comm.state().run(*task);
}

Pending start(std::unique_ptr<Task> task, Communicator& comm, Label label, std::int64_t bytes = 0) {
  task->record(comm.trace(), label, bytes);
  return {std::move(task), comm};
}

}  // namespace

Shard balanced_shard(std::size_t elements, int rank, int world) {
  PLAIT_CHECK(world > 0 && rank >= 0 && rank < world, "balanced_shard: there is no rank ", rank,
              " in a world of ", world);
  // 10 elements, world 4 → 3 3 2 2 from 0 3 6 8
  const auto index = static_cast<std::size_t>(rank);
  const std::size_t least = elements / static_cast<std::size_t>(world);
  const std::size_t longer = elements % static_cast<std::size_t>(world);
  return {.offset = index * least + (index < longer ? index : longer),
          .count = least + (index < longer ? 1 : 0)};
}

void barrier(Communicator& comm) { run(comm::make_barrier(comm.state()), comm, "barrier"); }

void broadcast(Elements data, int root, Communicator& comm, Stream stream) {
  run(checked_broadcast(data, root, comm, stream), comm, "broadcast", bytes_of(data));
}

void all_gather(ConstElements mine, Elements all, Communicator& comm, Counts counts,
                Stream stream) {
  run(checked_all_gather(mine, all, comm, counts, stream), comm, "all_gather", bytes_of(all));
}

void reduce_scatter(ConstElements all, Elements mine, Communicator& comm, Counts counts,
                    Stream stream) {
  run(checked_reduce_scatter(all, mine, comm, counts, stream), comm, "reduce_scatter",
      bytes_of(all));
}

void all_reduce(ConstElements in, Elements out, Communicator& comm, Stream stream) {
  run(checked_all_reduce(in, out, comm, stream), comm, "all_reduce", bytes_of(in));
}

void all_reduce(Elements in_place, Communicator& comm, Stream stream) {
  all_reduce(in_place, in_place, comm, stream);
}

void all_to_all(ConstElements send, Elements receive, Communicator& comm,
                const AllToAllCounts& counts, Stream stream) {
  run(checked_all_to_all(send, receive, comm, counts, stream), comm, "all_to_all", bytes_of(send));
}

Pending start_barrier(Communicator& comm) {
  return start(comm::make_barrier(comm.state()), comm, "barrier");
}

Pending start_broadcast(Elements data, int root, Communicator& comm, Stream stream) {
  return start(checked_broadcast(data, root, comm, stream), comm, "broadcast", bytes_of(data));
}

Pending start_all_gather(ConstElements mine, Elements all, Communicator& comm, Counts counts,
                         Stream stream) {
  return start(checked_all_gather(mine, all, comm, counts, stream), comm, "all_gather",
               bytes_of(all));
}

Pending start_reduce_scatter(ConstElements all, Elements mine, Communicator& comm, Counts counts,
                             Stream stream) {
  return start(checked_reduce_scatter(all, mine, comm, counts, stream), comm, "reduce_scatter",
               bytes_of(all));
}

Pending start_all_reduce(ConstElements in, Elements out, Communicator& comm, Stream stream) {
  return start(checked_all_reduce(in, out, comm, stream), comm, "all_reduce", bytes_of(in));
}

Pending start_all_to_all(ConstElements send, Elements receive, Communicator& comm,
                         const AllToAllCounts& counts, Stream stream) {
  return start(checked_all_to_all(send, receive, comm, counts, stream), comm, "all_to_all",
               bytes_of(send));
}

}  // namespace plait
