// A prepared operator asks for no memory when it runs, whether its weight is packed already or
// packed anew in each run.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <new>
#include <string>
#include <vector>

#include "conformance/ranks.h"
#include "ops/problem.h"

namespace {

thread_local int allocations = 0;  // by this rank

void* counted(std::size_t bytes) {
  ++allocations;
  void* memory = std::malloc(bytes == 0 ? 1 : bytes);
  if (memory == nullptr) throw std::bad_alloc();
  return memory;
}

}  // namespace

// Counts the allocations that Buffers make.
extern "C" void* aligned_alloc(std::size_t alignment, std::size_t bytes) noexcept {
  ++allocations;
  void* memory = nullptr;
  return posix_memalign(&memory, alignment, bytes) == 0 ? memory : nullptr;
}

// Sanitizers have to see mappings themselves.
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
extern "C" void* mmap(void* at, std::size_t bytes, int protection, int flags, int fd,
                      off_t offset) noexcept {
  ++allocations;
  const auto start = syscall(SYS_mmap, at, bytes, protection, flags, fd, offset);
  return reinterpret_cast<void*>(start);  // -1 is MAP_FAILED
}
#endif

void* operator new(std::size_t bytes) { return counted(bytes); }
void* operator new[](std::size_t bytes) { return counted(bytes); }
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }
void operator delete[](void* memory, std::size_t /*bytes*/) noexcept { std::free(memory); }

namespace plait {
namespace {

// The allocations of one run, the fewest of ten: a long wait may allocate.
int allocations_of(Op& ready, const OpCall& call) {
  for (int run = 0; run < 3; ++run) ready.run(call);
  int least = 1000;
  for (int run = 0; run < 10; ++run) {
    const int before = allocations;
    ready.run(call);
    least = std::min(least, allocations - before);
  }
  return least;
}

// Without this, the test below would pass whatever operators do.
TEST(PreparedOperators, AreCaughtWhereTheyTakeABuffer) {
  const int before = allocations;
  const Buffer small(1000);
  EXPECT_GT(allocations, before);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  const int then = allocations;
  const Buffer large(std::size_t{1} << 22, {.huge_pages = true});
  EXPECT_GT(allocations, then);
#endif
}

TEST(PreparedOperators, AllocateNothingWhenTheyRun) {
  for (int i = 0; i < kOperators; ++i) {
    const auto op = static_cast<Operator>(i);
    for (const char* text : {"serial", "pipelined parts=3", "fused"}) {
      const Plan plan = parse_plan(text);
      if (!has_schedule(op, plan.schedule)) continue;
      for (const std::int64_t m : {1, 150, 1100}) {  // the last borrow a place for packed X
        run_as_threads(2, [&](Communicator& comm) {
          const OpProblem problem(op, m, comm);
          Op packed = prepare(problem.desc(), comm, {.plan = plan});
          EXPECT_EQ(allocations_of(packed, problem.call()), 0)
              << name(op) << ' ' << text << " m=" << m;
          Op plain = prepare(problem.plain_desc(), comm, {.plan = plan});
          EXPECT_EQ(allocations_of(plain, problem.plain_call()), 0)
              << name(op) << ' ' << text << " m=" << m << ", a plain weight";
        });
      }
    }
  }
}

TEST(PackedWeights, AllocateNothingWhenPackedAgain) {
  const Buffer memory = Buffer::for_tensor(Dtype::f32, 700, 900);
  const TensorView view = memory.view(Dtype::f32, 700, 900);
  std::fill_n(static_cast<float*>(view.data), 700 * 900, 1.0F);
  const WeightView weight = {.view = view, .layout = WeightLayout::out_in};
  const QuantizedWeight values = quantize(weight, *parse_quant_scheme("s8:group=32:offsets"));
  PackedWeight plain(weight);
  PackedWeight small(values);
  const int before = allocations;
  plain.repack(weight);
  small.repack(values);
  EXPECT_EQ(allocations, before);
}

}  // namespace
}  // namespace plait
