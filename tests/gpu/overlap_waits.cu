// Late ranks, lost ranks, and ranks that are in different calls: what the others do, and whether
// the GPU is free afterwards.
#include <unistd.h>

#include <chrono>

#include "gpu/figure.h"
#include "gpu/overlap_cases.cuh"
#include "gpu/overlap_checks.h"

namespace plait::gpu {
namespace {

using comm::cuda::Trouble;
using Clock = std::chrono::steady_clock;

constexpr unsigned long long kMillisecond = 1'000'000;
constexpr double kSoonEnough = 2.0;  // seconds

Case small_case(DeviceOperator op, int world) {
  return {.op = op,
          .world = world,
          .m = 1000,
          .n = 776,
          .k = 256,
          .wire = cuda::kBf16,
          .out = cuda::kF32};
}

constexpr DeviceOperator kOps[] = {DeviceOperator::matmul_reduce_scatter,
                                   DeviceOperator::matmul_all_reduce,
                                   DeviceOperator::all_gather_matmul};

// One group of ranks, which is of no use once a rank has given up.
struct Group {
  Group(const Case& c, unsigned long long timeout)
      : c(c),
        ranks(c.world, cuda::needs_of(problem_of(c), c.world), SlotMemory::device, timeout),
        operands(c) {
    fill_with_integers(c, operands, 1);
    check_cuda(cudaDeviceSynchronize());
  }

  bool is_right() {
    DeviceBuffer<double> exact(1LL * c.m * c.n);
    DeviceBuffer<double> one(1LL * c.m * c.n);
    return wrong_elements(c, operands, exact, one) == 0;
  }

  Case c;
  VirtualRanks ranks;
  CaseOperands operands;
};

struct Expected {
  Trouble trouble;
  int peer;     // the rank that is waited for; -1: any other
  int waiting;  // this many ranks, from 0 on, have a record
};

// A rank of matmul_all_reduce may have waited for another one that itself waited for the lost rank.
bool names(const Case& c, const Record& record, int rank, int peer) {
  if (peer < 0 || c.op == DeviceOperator::matmul_all_reduce) return record.peer != rank;
  return record.peer == peer;
}

// True if the GPU is free soon, each rank says what it waited for, and one names the right rank.
bool gives_up(Group& group, Clock::time_point begin, const Expected& expected) {
  const cudaError_t status = cudaDeviceSynchronize();
  const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
  bool right = status == cudaSuccess && seconds < kSoonEnough;
  if (!right) std::printf("FAILED after %.2f s: %s\n", seconds, cudaGetErrorString(status));
  bool one_names_it = expected.peer < 0;
  for (int r = 0; r < expected.waiting; ++r) {
    const Record& record = group.ranks.record(r);
    one_names_it = one_names_it || record.peer == expected.peer;
    if (record.trouble == static_cast<unsigned int>(expected.trouble) &&
        names(group.c, record, r, expected.peer) && record.place >= 0 && record.epoch == 1)
      continue;
    std::printf("FAILED: rank %d recorded trouble %u, rank %d, place %d, call %u\n", r,
                record.trouble, record.peer, record.place, record.epoch);
    right = false;
  }
  if (!one_names_it) std::printf("FAILED: no rank names rank %d\n", expected.peer);
  return right && one_names_it;
}

// Prints the figure. Returns how many checks failed.
int report(const char* check, const Case& c, const char* plan, bool right) {
  Figure("waits")
      .text("check", check)
      .text("op", name(c.op))
      .text("plan", plan)
      .yes_or_no("right", right)
      .print();
  return right ? 0 : 1;
}

int check_late(const Case& c, const NamedPlan& plan) {
  Group group(c, 5000 * kMillisecond);
  idle(200 * kMillisecond, group.ranks.stream(1));
  bool right = queue_all(group.ranks, c, group.operands, plan);
  finish(group.ranks, c, plan);
  right = right && group.is_right();
  return report("a rank late by 200 ms", c, plan.name, right);
}

int check_lost(const Case& c, const NamedPlan& plan) {
  Group group(c, 500 * kMillisecond);
  const auto begin = Clock::now();
  bool right = true;
  const int lost = c.world - 1;
  for (int r = 0; r < lost; ++r) right = queue(group.ranks, c, group.operands, plan, r) && right;
  right = gives_up(group, begin, {Trouble::timeout, lost, lost}) && right;
  return report("a rank that never calls", c, plan.name, right);
}

int check_mismatch(Case c, const NamedPlan& plan) {
  c.odd_rank = 1;
  Group group(c, 30'000 * kMillisecond);
  const auto begin = Clock::now();
  bool right = queue_all(group.ranks, c, group.operands, plan);
  right = gives_up(group, begin, {Trouble::mismatch, -1, c.world}) && right;
  return report("ranks in different calls", c, plan.name, right);
}

int check_stop(const Case& c, const NamedPlan& plan) {
  Group group(c, 60'000 * kMillisecond);
  bool right = queue(group.ranks, c, group.operands, plan, 0);
  usleep(100'000);
  const bool waits = cudaStreamQuery(group.ranks.stream(0)) == cudaErrorNotReady;
  if (!waits) std::puts("FAILED: the rank does not wait");
  const auto begin = Clock::now();
  // The operators' watcher does it in this order: the record, then the word that kernels look at.
  group.ranks.record(0).peer = 1;
  group.ranks.record(0).epoch = 1;
  group.ranks.record(0).trouble = static_cast<unsigned int>(Trouble::stopped);
  const Stream beside;
  const unsigned int one = 1;
  check_cuda(cudaMemcpyAsync(group.ranks.mailbox(0).waits.gave_up, &one, sizeof(one),
                             cudaMemcpyHostToDevice, beside.get()));
  right = gives_up(group, begin, {Trouble::stopped, 1, 1}) && right && waits;
  return report("a wait that the CPU ends", c, plan.name, right);
}

// A group of new ranks finds the GPU free.
int check_after(const Case& c, const NamedPlan& plan) {
  Group group(c, 5000 * kMillisecond);
  bool right = queue_all(group.ranks, c, group.operands, plan);
  finish(group.ranks, c, plan);
  right = right && group.is_right();
  return report("other ranks afterwards", c, plan.name, right);
}

}  // namespace

int check_waits() {
  int failures = 0;
  for (const DeviceOperator op : kOps) {
    for (const NamedPlan& plan : plans_for(3)) {
      alarm(60);
      failures += check_late(small_case(op, 3), plan);
      failures += check_lost(small_case(op, 3), plan);
      failures += check_mismatch(small_case(op, 2), plan);
      failures += check_stop(small_case(op, 2), plan);
      failures += check_after(small_case(op, 3), plan);
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace plait::gpu
