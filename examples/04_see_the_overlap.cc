// A product and its all-reduce over an emulated link: each alone, and together in three plans that
// give the same bits. The two ranks are threads of this process.
//
//   04_see_the_overlap timeline.json      the timeline of the ranks, for ui.perfetto.dev
#include <plait/plait.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <thread>
#include <vector>

namespace {

constexpr const char* kLink = "2gbit,20us";
constexpr std::int64_t kRows = 256;
constexpr std::int64_t kDepth = 2048;  // of each rank
constexpr std::int64_t kColumns = 1024;

// Small numbers in bf16.
plait::Buffer filled(std::int64_t rows, std::int64_t cols, int seed) {
  plait::Buffer buffer = plait::Buffer::for_tensor(plait::Dtype::bf16, rows, cols);
  auto* values = reinterpret_cast<plait::Bf16*>(buffer.data());
  for (std::int64_t i = 0; i < rows * cols; ++i)
    values[i] = plait::Bf16(static_cast<float>((i * 7 + seed) % 13 - 6) / 8);
  return buffer;
}

// The best of three runs by all ranks together; rank 0 prints it.
template <class Work>
void measure(const char* what, plait::Communicator& comm, Work work) {
  using Milliseconds = std::chrono::duration<double, std::milli>;
  Milliseconds best(1e9);
  for (int i = 0; i < 3; ++i) {
    plait::barrier(comm);
    const auto begin = std::chrono::steady_clock::now();
    work();
    best = std::min<Milliseconds>(best, std::chrono::steady_clock::now() - begin);
  }
  if (comm.rank() == 0) std::printf("%-18s %6.1f ms\n", what, best.count());
}

// True if all plans give the same bits.
bool see(plait::Communicator& comm) {
  const plait::Buffer x = filled(kRows, kDepth, comm.rank());
  const plait::Buffer w = filled(kColumns, kDepth, comm.rank() + 3);
  const plait::Buffer y = plait::Buffer::for_tensor(plait::Dtype::bf16, kRows, kColumns);
  const plait::TensorView rows = x.view(plait::Dtype::bf16, kRows, kDepth);
  const plait::TensorView out = y.view(plait::Dtype::bf16, kRows, kColumns);
  const plait::PackedWeight weight({.view = w.view(plait::Dtype::bf16, kColumns, kDepth),
                                    .layout = plait::WeightLayout::out_in});

  const std::vector<float> sums(kRows * kColumns);
  measure("product alone", comm, [&] { plait::matmul(rows, weight, out, comm); });
  // Like the operator, it sends partial sums in f32 to the rank that sums them, and the sums back
  // in bf16.
  measure("all-reduce alone", comm, [&] {
    plait::all_reduce({sums.data(), sums.size()}, {out.data, sums.size(), out.dtype}, comm);
  });

  bool same = true;
  std::vector<std::byte> serial;
  for (const char* plan : {"serial", "pipelined parts=4", "fused"}) {
    const plait::OpDesc what = {.op = plait::Operator::matmul_all_reduce,
                                .m = kRows,
                                .n = kColumns,
                                .k = kDepth,
                                .weight = plait::Weight(weight).kind()};
    plait::Op op = plait::prepare(what, comm, {.plan = plait::parse_plan(plan)});
    measure(plan, comm, [&] { op.run({.x = rows, .weight = weight, .out = out}); });
    if (serial.empty()) serial.assign(y.data(), y.data() + y.bytes());
    same &= std::memcmp(serial.data(), y.data(), y.bytes()) == 0;
  }
  return same;
}

}  // namespace

int main(int argc, char** argv) {
  const plait::ThreadGroup group(2);
  std::atomic<int> failures{0};
  const auto be_rank = [&](int rank) {
    try {
      plait::Trace trace(rank);
      plait::Communicator comm =
          group.join(rank, {.link = plait::parse_link(kLink), .trace = &trace});
      if (!see(comm)) ++failures;
      if (argc > 1) plait::write_timeline(argv[1], trace, comm);
    } catch (const plait::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ++failures;
    }
  };
  std::thread other(be_rank, 1);
  be_rank(0);
  other.join();
  if (failures > 0) return 1;
  std::printf("the same bits each time, over an emulated link of %s\n", kLink);
}
