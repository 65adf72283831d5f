#include "measure/limits.h"

#include <algorithm>
#include <cstddef>
#include <memory>

#include "base/clock.h"
#include "base/parallel.h"
#include "measure/peak_loops.h"
#include "plait/buffer.h"

namespace plait::measure {
namespace {

constexpr std::size_t kLine = 64;

const PeakLoop& best_loop(Dtype operand) {
  const auto loops = peak_loops(operand);
  return *std::find_if(loops.begin(), loops.end(),
                       [](const PeakLoop& loop) { return loop.usable(); });
}

// The number of rounds that take half a millisecond.
std::int64_t rounds_of(const PeakLoop& loop) {
  constexpr base::Nanoseconds kCall = 500 * base::kMicrosecond;
  constexpr std::int64_t kFew = 1000;
  loop.run(kFew);
  const base::Nanoseconds begin = base::now();
  loop.run(kFew);
  const base::Nanoseconds took = std::max<base::Nanoseconds>(base::now() - begin, 1);
  return std::max<std::int64_t>(1, kFew * kCall / took);
}

// Reads all lines, with the same prefetch distance as the kernels. Words of 16 bytes suffice if
// they don't depend on one another, because caches are slower.
void read_all(const std::byte* from, std::size_t bytes) {
  using Word [[gnu::vector_size(16), gnu::may_alias]] = std::uint64_t;
  constexpr std::size_t kAhead = 16384;
  Word a = {};
  Word b = {};
  Word c = {};
  Word d = {};
  for (std::size_t at = 0; at + kLine <= bytes; at += kLine) {
    __builtin_prefetch(from + at + kAhead);
    const auto* line = reinterpret_cast<const Word*>(from + at);
    a ^= line[0];
    b ^= line[1];
    c ^= line[2];
    d ^= line[3];
  }
  const Word all = a ^ b ^ c ^ d;
  // not of a variable that the loop changes, which would then stay in memory
  asm volatile("" : : "m"(all));
}

}  // namespace

Limit multiplying(Dtype operand, int threads) {
  const PeakLoop& loop = best_loop(operand);
  const std::int64_t rounds = rounds_of(loop);
  return {.by = loop.name,
          .amount = loop.run(1) * static_cast<double>(rounds) * threads,
          .call = [&loop, rounds, threads] {
            base::on_threads(threads, [&](int) { loop.run(rounds); });
          }};
}

Limit reading(std::size_t bytes, int threads) {
  // Each thread reads whole lines.
  const std::size_t part = bytes / static_cast<std::size_t>(threads) / kLine * kLine;
  // Shared, because std::function copies its captures.
  const auto block = std::make_shared<Buffer>(bytes, BufferOptions{.huge_pages = true});
  // writes all pages, which would otherwise be one page of zeros
  std::fill_n(block->data(), bytes, std::byte{1});
  return {.by = {}, .amount = static_cast<double>(part) * threads, .call = [block, part, threads] {
            base::on_threads(threads, [&](int thread) {
              read_all(block->data() + static_cast<std::size_t>(thread) * part, part);
            });
          }};
}

}  // namespace plait::measure
