// How much of the communication is hidden behind the product, in each schedule: over an emulated
// link, and over the real one to the CPU's memory.
#include <unistd.h>

#include <algorithm>
#include <functional>
#include <utility>
#include <vector>

#include "gpu/figure.h"
#include "gpu/overlap_cases.cuh"
#include "gpu/overlap_checks.h"
#include "gpu/timing.cuh"

namespace plait::gpu {
namespace {

constexpr int kRuns = 7;
constexpr unsigned int kLatency = 5000;  // nanoseconds
constexpr DeviceOperator kOps[] = {DeviceOperator::matmul_reduce_scatter,
                                   DeviceOperator::matmul_all_reduce,
                                   DeviceOperator::all_gather_matmul};

// The median time of the work that `queue_rank` queues in the ranks' streams, from the first rank's
// begin to the last one's end, in microseconds.
double median_of_all(VirtualRanks& ranks, const std::function<void(int rank)>& queue_rank) {
  std::vector<double> times;
  const cudaStream_t first = ranks.stream(0);
  for (int run = -2; run < kRuns; ++run) {
    Event begin;
    Event end;
    // All is queued before the first kernel runs.
    idle(1'500'000, first);
    begin.record(first);
    std::vector<Event> done(static_cast<std::size_t>(ranks.world()));
    for (int r = 1; r < ranks.world(); ++r)
      check_cuda(cudaStreamWaitEvent(ranks.stream(r), begin.get(), 0));
    for (int r = 0; r < ranks.world(); ++r) queue_rank(r);
    for (int r = 1; r < ranks.world(); ++r) {
      Event& of_rank = done[static_cast<std::size_t>(r)];
      of_rank.record(ranks.stream(r));
      check_cuda(cudaStreamWaitEvent(first, of_rank.get(), 0));
    }
    end.record(first);
    check_cuda(cudaDeviceSynchronize());
    if (run >= 0) times.push_back(end.microseconds_since(begin));
  }
  return median(std::move(times));
}

cuda::DevicePlan plan_of(DeviceSchedule schedule, int parts, int world) {
  return {.schedule = schedule, .parts = parts, .share = {.blocks = blocks_for(world)}};
}

struct Times {
  double gemm = 0;
  double comm = 0;
  double serial = 0;
  double pipelined = 0;
  double fused = 0;

  // 1: as long as the longer of product and communication alone; 0: no better than serial.
  double efficiency(double time) const { return (serial - time) / (serial - std::max(gemm, comm)); }
};

class Measurement {
 public:
  Measurement(const Case& c, SlotMemory where)
      : c_(c), ranks_(c.world, cuda::needs_of(problem_of(c), c.world), where), operands_(c) {
    operands_.fill(c, [](auto* data, std::int64_t count, std::uint64_t seed) {
      fill_random(data, count, seed);
    });
    check_cuda(cudaDeviceSynchronize());
  }

  VirtualRanks& ranks() { return ranks_; }

  // All ranks' products at once, each of the same size as in the operator, without any exchange.
  double gemm() {
    // Every rank needs room for all rows.
    if (out_.empty())
      for (int r = 0; r < c_.world; ++r) out_.emplace_back(2LL * c_.m * c_.n);
    Case alone = c_;
    alone.op = DeviceOperator::matmul;
    const auto plan = plan_of(DeviceSchedule::fused, 1, c_.world);
    return median_of_all(ranks_, [&](int r) {
      cuda::DeviceOperands operands = operands_.of(c_, r);
      if (c_.op == DeviceOperator::all_gather_matmul) operands.x = operands_.whole.data();
      operands.out = out_[static_cast<std::size_t>(r)].data();
      check_cuda(cuda::run(problem_of(alone), operands, plan, {.rank = 0, .world = 1},
                           ranks_.mailbox(r), 1, ranks_.stream(r)));
    });
  }

  // The best of several numbers of parts.
  double operator()(DeviceSchedule schedule) {
    double best = 0;
    for (const int parts : {2, 4, 8}) {
      if (schedule != DeviceSchedule::pipelined && parts != 2) continue;
      const NamedPlan plan = {"measured", plan_of(schedule, parts, c_.world)};
      const double time = median_of_all(ranks_, [&](int r) {
        if (!queue(ranks_, c_, operands_, plan, r)) std::_Exit(1);
      });
      finish(ranks_, c_, plan);
      if (best == 0 || time < best) best = time;
    }
    return best;
  }

 private:
  Case c_;
  VirtualRanks ranks_;
  CaseOperands operands_;
  std::vector<DeviceBuffer<char>> out_;
};

// Bytes that a rank sends to one other rank. Each pair of ranks has a link of its own.
double bytes_of_link(const Case& c) {
  const double rows = static_cast<double>(c.m) / c.world;
  if (c.op == DeviceOperator::all_gather_matmul) return rows * c.k * 2;
  const double sums = rows * c.n * (c.wire == cuda::kF32 ? 4 : 2);
  return c.op == DeviceOperator::matmul_all_reduce ? sums + rows * c.n * 2 : sums;
}

void print_overlap(const char* link, const Case& c, const Times& times, double bytes) {
  Figure("overlap")
      .text("link", link)
      .text("op", name(c.op))
      .number("ranks", c.world)
      .number("m", c.m)
      .number("n", c.n)
      .number("k", c.k)
      .number("blocks", blocks_for(c.world))
      .number("link_bytes", bytes)
      .number("gemm_us", times.gemm)
      .number("comm_us", times.comm)
      .number("comm_to_gemm", times.comm / times.gemm)
      .number("serial_us", times.serial)
      .number("pipelined_us", times.pipelined)
      .number("fused_us", times.fused)
      .number("pipelined_efficiency", times.efficiency(times.pipelined))
      .number("fused_efficiency", times.efficiency(times.fused))
      .print();
}

void print_summary(const char* link, const std::vector<double>& efficiencies) {
  if (efficiencies.empty()) return;
  Figure("overlap, all cases")
      .text("link", link)
      .number("cases", static_cast<double>(efficiencies.size()))
      .number("fused_efficiency_median", median(efficiencies))
      .number("fused_efficiency_worst", *std::min_element(efficiencies.begin(), efficiencies.end()))
      .print();
}

void measure_schedules(Measurement& measurement, Times& times) {
  times.serial = measurement(DeviceSchedule::serial);
  times.pipelined = measurement(DeviceSchedule::pipelined);
  times.fused = measurement(DeviceSchedule::fused);
}

Case case_of(DeviceOperator op, int world, int m, int k = 4096) {
  return {
      .op = op, .world = world, .m = m, .n = 8192, .k = k, .wire = cuda::kBf16, .out = cuda::kBf16};
}

// The time in which the GPU's copy engines write all ranks' data to the CPU's memory and read it
// back, both ways at once.
double copy_time(VirtualRanks& ranks, std::size_t bytes) {
  std::vector<DeviceBuffer<char>> device;
  std::vector<char*> host;
  for (int r = 0; r < 2 * ranks.world(); ++r) {
    device.emplace_back(static_cast<std::int64_t>(bytes));
    void* memory = nullptr;
    check_cuda(cudaHostAlloc(&memory, bytes, cudaHostAllocDefault));
    host.push_back(static_cast<char*>(memory));
  }
  Event fork;
  Event join;
  const double time = median_of_all(ranks, [&](int r) {
    const auto out = 2 * static_cast<std::size_t>(r);
    const auto in = out + 1;
    const cudaStream_t side = ranks.mailbox(r).side;
    fork.record(ranks.stream(r));
    check_cuda(cudaStreamWaitEvent(side, fork.get(), 0));
    check_cuda(cudaMemcpyAsync(host[out], device[out].data(), bytes, cudaMemcpyDeviceToHost,
                               ranks.stream(r)));
    check_cuda(cudaMemcpyAsync(device[in].data(), host[in], bytes, cudaMemcpyHostToDevice, side));
    join.record(side);
    check_cuda(cudaStreamWaitEvent(ranks.stream(r), join.get(), 0));
  });
  for (char* memory : host) cudaFreeHost(memory);
  return time;
}

}  // namespace

int measure_link() {
  constexpr const char* kLink = "emulated link";
  std::vector<double> efficiencies;
  for (const DeviceOperator op : kOps) {
    for (const int world : {2, 4}) {
      for (const int m : {2048, 4096}) {
        alarm(60);
        const Case c = case_of(op, world, m);
        Measurement measurement(c, SlotMemory::device);
        Times times = {.gemm = measurement.gemm()};
        const double bytes = bytes_of_link(c);
        for (const double ratio : {0.5, 1.0, 2.0}) {
          times.comm = ratio * times.gemm;
          const double per_byte = (times.comm * 1000 - kLatency) / bytes;
          measurement.ranks().emulate_link(static_cast<float>(per_byte), kLatency);
          measure_schedules(measurement, times);
          print_overlap(kLink, c, times, bytes);
          efficiencies.push_back(times.efficiency(times.fused));
        }
      }
    }
  }
  print_summary(kLink, efficiencies);
  return 0;
}

int measure_pcie() {
  constexpr const char* kLink = "PCIe to pinned host memory";
  std::vector<double> efficiencies;
  // With a long k, communication takes less time than the product.
  const Case cases[] = {case_of(DeviceOperator::matmul_reduce_scatter, 2, 2048),
                        case_of(DeviceOperator::matmul_reduce_scatter, 2, 2048, 20480),
                        case_of(DeviceOperator::matmul_reduce_scatter, 2, 4096, 20480),
                        case_of(DeviceOperator::all_gather_matmul, 2, 2048)};
  for (const Case& c : cases) {
    alarm(120);
    Measurement measurement(c, SlotMemory::pinned_host);
    // A rank's own slots are in the CPU's memory too, so all that it makes crosses the link.
    const double bytes = c.world * bytes_of_link(c);
    Times times = {.gemm = measurement.gemm(),
                   .comm = copy_time(measurement.ranks(), static_cast<std::size_t>(bytes))};
    measure_schedules(measurement, times);
    print_overlap(kLink, c, times, bytes);
    if (times.comm <= times.gemm) efficiencies.push_back(times.efficiency(times.fused));
  }
  print_summary(kLink, efficiencies);
  return 0;
}

}  // namespace plait::gpu
