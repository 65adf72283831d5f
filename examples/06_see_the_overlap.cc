// One all-reduce behind its product, in two plans over an emulated link: the same bits, and how
// long each takes. Two ranks are threads of this process.
//
//   06_see_the_overlap timeline.json      for ui.perfetto.dev
#include <plait/plait.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

namespace {

constexpr std::int64_t kRows = 256;
constexpr std::int64_t kDepth = 1024;  // of each rank
constexpr std::int64_t kColumns = 1024;

struct Layer {
  explicit Layer(int rank)
      : x(plait::Buffer::for_tensor(plait::Dtype::bf16, kRows, kDepth)),
        w(plait::Buffer::for_tensor(plait::Dtype::bf16, kColumns, kDepth)),
        y(plait::Buffer::for_tensor(plait::Dtype::bf16, kRows, kColumns)) {
    auto* x_values = reinterpret_cast<plait::Bf16*>(x.data());
    auto* w_values = reinterpret_cast<plait::Bf16*>(w.data());
    for (int i = 0; i < kRows * kDepth; ++i)
      x_values[i] = plait::Bf16(static_cast<float>((i * 7 + rank) % 13 - 6) / 8);
    for (int i = 0; i < kColumns * kDepth; ++i)
      w_values[i] = plait::Bf16(static_cast<float>((i * 5 + rank) % 11 - 5) / 8);
  }

  plait::Buffer x;
  plait::Buffer w;
  plait::Buffer y;
};

// Runs the plan and says how long it took; `y` has the result.
double run(Layer& layer, const std::string& plan, plait::Communicator& comm) {
  const plait::WeightView weight = {.view = layer.w.view(plait::Dtype::bf16, kColumns, kDepth),
                                    .layout = plait::WeightLayout::out_in};
  const plait::OpDesc what = {.op = plait::Operator::matmul_all_reduce, .m = kRows};
  plait::Op op = plait::prepare(what, weight, comm, {.plan = plait::parse_plan(plan)});
  const plait::OpCall call = {.x = layer.x.view(plait::Dtype::bf16, kRows, kDepth),
                              .out = layer.y.view(plait::Dtype::bf16, kRows, kColumns)};
  op.run(call);  // the first run finds cold caches
  plait::barrier(comm);
  const auto begin = std::chrono::steady_clock::now();
  op.run(call);
  const std::chrono::duration<double, std::milli> taken = std::chrono::steady_clock::now() - begin;
  return taken.count();
}

}  // namespace

int main(int argc, char** argv) {
  const plait::ThreadGroup group(2);
  std::atomic<int> failures{0};
  const auto be_rank = [&](int rank) {
    try {
      plait::Trace trace(rank);
      plait::Communicator comm =
          group.join(rank, {.link = plait::parse_link("1gbit,20us"), .trace = &trace});
      Layer layer(rank);
      const double serial = run(layer, "serial", comm);
      const std::vector<std::byte> want(layer.y.data(), layer.y.data() + layer.y.bytes());
      const double fused = run(layer, "fused", comm);
      if (std::memcmp(want.data(), layer.y.data(), want.size()) != 0) ++failures;
      if (rank == 0) std::printf("serial %.1f ms, fused %.1f ms, the same bits\n", serial, fused);
      if (argc > 1) plait::write_timeline(argv[1], trace, comm);
    } catch (const plait::Error& error) {
      std::fprintf(stderr, "%s\n", error.what());
      ++failures;
    }
  };
  std::thread other(be_rank, 1);
  be_rank(0);
  other.join();
  return failures > 0 ? 1 : 0;
}
