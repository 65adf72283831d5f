// Cases of plait's operators on one GPU: their operands on all ranks, their plans, and their exact
// results.
#pragma once

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "gpu/compare.cuh"
#include "gpu/fill.cuh"
#include "gpu/reference.cuh"
#include "gpu/virtual_ranks.cuh"

namespace plait::gpu {

using Bf16Value = __nv_bfloat16;
using cuda::DeviceOperator;
using cuda::DeviceSchedule;

inline int multiprocessors() {
  int count = 0;
  check_cuda(cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, 0));
  return count;
}

// Few enough blocks for each rank so that all ranks' kernels are resident at once.
inline int blocks_for(int world) {
  if (world == 1) return multiprocessors();
  return std::max(2, (multiprocessors() / world - 2) / 2 * 2);
}

struct Case {
  DeviceOperator op;
  int world;
  int m, n, k;  // k of each rank
  int wire, out;
  bool bias = false;
  bool gathered = false;
  unsigned int fingerprint = 0x1234;
  int odd_rank = -1;  // a rank that is in another call
};

inline const char* name(DeviceOperator op) {
  switch (op) {
    case DeviceOperator::matmul:
      return "matmul";
    case DeviceOperator::matmul_all_reduce:
      return "matmul_all_reduce";
    case DeviceOperator::matmul_reduce_scatter:
      return "matmul_reduce_scatter";
    case DeviceOperator::all_gather_matmul:
      return "all_gather_matmul";
  }
  return "";
}

inline std::string text(const Case& c) {
  static const char* kKinds[] = {"f32", "bf16", "f16"};
  return std::string(name(c.op)) + " ranks=" + std::to_string(c.world) +
         " m=" + std::to_string(c.m) + " n=" + std::to_string(c.n) + " k=" + std::to_string(c.k) +
         " wire=" + kKinds[c.wire] + " out=" + kKinds[c.out] + (c.bias ? " bias" : "") +
         (c.gathered ? " gathered" : "");
}

inline bool is_compute_first(DeviceOperator op) {
  return op == DeviceOperator::matmul_all_reduce || op == DeviceOperator::matmul_reduce_scatter;
}

inline cuda::DeviceProblem problem_of(const Case& c) {
  return {.op = c.op,
          .m = c.m,
          .n = c.n,
          .k = c.k,
          .element = cuda::kBf16,
          .layout = cuda::Layout::out_in,
          .wire = c.wire,
          .out = c.out};
}

// One case's operands on all ranks.
struct CaseOperands {
  explicit CaseOperands(const Case& c)
      : shards{.m = c.m, .world = c.world}, whole(1LL * c.m * c.k) {
    for (int r = 0; r < c.world; ++r) {
      const bool own_rows = c.op == DeviceOperator::all_gather_matmul;
      x.emplace_back(is_compute_first(c.op) ? 1LL * c.m * c.k : 1);
      weight.emplace_back(1LL * c.n * c.k + 8);
      const int rows = out_rows(c, r);
      out.emplace_back(1LL * rows * c.n * (c.out == cuda::kF32 ? 4 : 2) + 16);
      gathered.emplace_back(own_rows && c.gathered ? 1LL * c.m * c.k : 1);
    }
    bias = DeviceBuffer<float>(c.n + 1);
  }

  int out_rows(const Case& c, int rank) const {
    if (c.op != DeviceOperator::matmul_reduce_scatter) return c.m;
    return shards.end(rank) - shards.begin(rank);
  }

  template <class Fill>
  void fill(const Case& c, Fill&& values) {
    for (int r = 0; r < c.world; ++r) {
      const auto i = static_cast<std::size_t>(r);
      if (is_compute_first(c.op)) values(x[i].data(), x[i].count(), 2 * i + 1);
      values(weight[i].data(), 1LL * c.n * c.k, 2 * i + 2);
    }
    values(whole.data(), whole.count(), 99);
    values(bias.data(), c.n, 98);
  }

  cuda::DeviceOperands of(const Case& c, int rank) {
    const auto i = static_cast<std::size_t>(rank);
    const Bf16Value* rows =
        is_compute_first(c.op) ? x[i].data() : whole.data() + 1LL * shards.begin(rank) * c.k;
    return {.x = rows,
            .x_stride = c.k,
            .weight = weight[i].data(),
            .weight_stride = c.k,
            .out = out[i].data(),
            .out_stride = c.n,
            .bias = {.values = c.bias ? bias.data() : nullptr, .kind = cuda::kF32},
            .gathered = c.gathered ? gathered[i].data() : nullptr,
            .gathered_stride = c.k};
  }

  cuda::Shards shards;
  DeviceBuffer<Bf16Value> whole;
  std::vector<DeviceBuffer<Bf16Value>> x;
  std::vector<DeviceBuffer<Bf16Value>> weight;
  std::vector<DeviceBuffer<char>> out;
  std::vector<DeviceBuffer<Bf16Value>> gathered;
  DeviceBuffer<float> bias;
};

struct NamedPlan {
  const char* name;
  cuda::DevicePlan plan;
};

inline std::vector<NamedPlan> plans_for(int world) {
  const int blocks = blocks_for(world);
  const auto plan = [&](DeviceSchedule schedule, int parts) {
    return cuda::DevicePlan{.schedule = schedule, .parts = parts, .share = {.blocks = blocks}};
  };
  return {{"serial", plan(DeviceSchedule::serial, 1)},
          {"fused", plan(DeviceSchedule::fused, 1)},
          {"pipelined", plan(DeviceSchedule::pipelined, 3)}};
}

// Loads all kernels; false if there is no GPU.
bool start_gpu();

// Delays later work in the stream. start_gpu() loads its kernel.
void idle(unsigned long long nanoseconds, cudaStream_t stream);

inline void fill_with_integers(const Case& c, CaseOperands& operands, std::uint64_t seed) {
  operands.fill(c, [&](auto* data, std::int64_t count, std::uint64_t of_operand) {
    fill_integers(data, count, seed + of_operand, 2);
  });
}

// Queues the rank's call.
inline bool queue(VirtualRanks& ranks, const Case& c, CaseOperands& operands, const NamedPlan& plan,
                  int rank) {
  const cudaError_t status = cuda::run(
      problem_of(c), operands.of(c, rank), plan.plan, {.rank = rank, .world = c.world},
      ranks.mailbox(rank), c.fingerprint + (rank == c.odd_rank ? 1U : 0U), ranks.stream(rank));
  if (status == cudaSuccess) return true;
  std::printf("FAILED %s, %s: %s\n", text(c).c_str(), plan.name, cudaGetErrorString(status));
  return false;
}

inline bool queue_all(VirtualRanks& ranks, const Case& c, CaseOperands& operands,
                      const NamedPlan& plan, std::mt19937* delays = nullptr) {
  for (int r = 0; r < c.world; ++r) {
    if (delays != nullptr) idle((*delays)() % 40 * 1000ULL, ranks.stream(r));
    if (!queue(ranks, c, operands, plan, r)) return false;
  }
  return true;
}

inline bool finish(VirtualRanks& ranks, const Case& c, const NamedPlan& plan) {
  const cudaError_t status = cudaDeviceSynchronize();
  if (status != cudaSuccess) {
    std::printf("FAILED %s, %s: %s\n", text(c).c_str(), plan.name, cudaGetErrorString(status));
    std::fflush(stdout);
    std::_Exit(1);
  }
  const int stuck = ranks.gave_up();
  if (stuck < 0) return true;
  const auto& record = ranks.record(stuck);
  std::printf("FAILED %s, %s: rank %d gave up (%u) on rank %d, place %d: %llx for %llx\n",
              text(c).c_str(), plan.name, stuck, record.trouble, record.peer, record.place,
              record.found, record.expected);
  std::fflush(stdout);
  std::_Exit(1);
}

static __global__ void add_kernel(double* to, const double* from, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    to[i] += from[i];
}
static __global__ void add_bias_kernel(double* to, const float* bias, int n, std::int64_t count) {
  for (std::int64_t i = blockIdx.x * blockDim.x + threadIdx.x; i < count;
       i += static_cast<std::int64_t>(gridDim.x) * blockDim.x)
    to[i] += static_cast<double>(bias[i % n]);
}

inline void reference_sum(const Case& c, CaseOperands& operands, int rank,
                          DeviceBuffer<double>& exact, DeviceBuffer<double>& one) {
  const ProductShape shape = {.m = c.m, .n = c.n, .k = c.k};
  const std::int64_t count = 1LL * c.m * c.n;
  if (count == 0) return;
  if (is_compute_first(c.op)) {
    exact.fill_bytes(0);
    for (std::size_t r = 0; r < operands.x.size(); ++r) {
      reference_product(operands.x[r].data(), operands.weight[r].data(), shape, one.data(),
                        static_cast<double*>(nullptr));
      add_kernel<<<256, 256>>>(exact.data(), one.data(), count);
    }
  } else {
    reference_product(operands.whole.data(), operands.weight[static_cast<std::size_t>(rank)].data(),
                      shape, exact.data(), static_cast<double*>(nullptr));
  }
  if (c.bias) add_bias_kernel<<<256, 256>>>(exact.data(), operands.bias.data(), c.n, count);
  check_cuda(cudaDeviceSynchronize());
}

// How many of a rank's elements are not the exact sums of integers. `exact`: the whole matrix.
template <class Out>
std::int64_t wrong_elements_as(const Case& c, CaseOperands& operands, int rank,
                               const double* exact) {
  const bool scattered = c.op == DeviceOperator::matmul_reduce_scatter;
  const auto i = static_cast<std::size_t>(rank);
  return count_inexact(reinterpret_cast<const Out*>(operands.out[i].data()),
                       exact + (scattered ? 1LL * operands.shards.begin(rank) * c.n : 0),
                       1LL * operands.out_rows(c, rank) * c.n);
}

inline std::int64_t wrong_elements_of(const Case& c, CaseOperands& operands, int rank,
                                      const double* exact) {
  if (c.out == cuda::kF32) return wrong_elements_as<float>(c, operands, rank, exact);
  if (c.out == cuda::kBf16) return wrong_elements_as<Bf16Value>(c, operands, rank, exact);
  return wrong_elements_as<__half>(c, operands, rank, exact);
}

// Wrong elements of all ranks, those of the rows that they gathered included.
inline std::int64_t wrong_elements(const Case& c, CaseOperands& operands,
                                   DeviceBuffer<double>& exact, DeviceBuffer<double>& one) {
  std::int64_t wrong = 0;
  for (int r = 0; r < c.world; ++r) {
    if (c.op == DeviceOperator::all_gather_matmul || r == 0)
      reference_sum(c, operands, r, exact, one);
    wrong += wrong_elements_of(c, operands, r, exact.data());
    if (c.gathered)
      wrong += count_different_bytes(operands.gathered[static_cast<std::size_t>(r)].data(),
                                     operands.whole.data(), 2LL * c.m * c.k);
  }
  return wrong;
}

// All ranks' results.
inline std::vector<std::vector<char>> results_of(const CaseOperands& operands) {
  std::vector<std::vector<char>> results;
  for (const auto& out : operands.out) results.push_back(out.to_host());
  return results;
}

}  // namespace plait::gpu
