#include "plan/sizes.h"

#include <algorithm>

#include "base/round_up.h"

namespace plait::plan {
namespace {

// If there are few partial sums, every rank gets all of them and sums them alone: one step instead
// of two. With two ranks this sends no more than f32 in both steps. With each further rank, every
// rank sends and sums as much again.
constexpr std::int64_t kOneStepBytes = 256 * 1024;

// A slot this small is still in the cache of the peer that has read it. A product that writes it
// line by line waits for each line to be transferred; a copy requests many lines at once. Over a
// link, copying is no slower either.
constexpr std::int64_t kCopiedAtOnceBytes = 256 * 1024;

// A message this small is one chunk: a second chunk would take longer to hand over than it saves.
constexpr std::int64_t kOneChunkBytes = 64 * 1024;

// The elements of a fused chunk. With so many, handing it over takes little time compared with its
// product.
constexpr std::int64_t kChunkElements = 64 * 1024;

// The elements of each peer's block of a chunk, at least. In large worlds this is the stricter
// limit.
constexpr std::int64_t kBlockElements = 16 * 1024;

// For a link that takes as long as the product. The time of the largest chunk is not hidden, so
// there should be many small chunks, down to a panel's width. If that gives more than
// kChunksOverLink, chunks are pairs of panels, because each chunk reads all of X, which may not fit
// into a cache.
constexpr std::int64_t kChunksOverLink = 64;
constexpr std::int64_t kEnoughOverLink = 32;

// If ranks read each other's memory, there is little to hide. Chunks are as wide as a product needs
// that reads X from memory, but there are at least this many. If X stays in a cache, more chunks
// keep more of the sums in one too.
constexpr std::int64_t kEnoughInMemory = 8;

// The least rows of a rank for which reading a weight again is worthwhile. Through shared memory,
// rows arrive long before the weight is read, and ranks that read their weights at the same time
// share the bandwidth, so more rows are needed. But a weight with few columns stays in a cache, or
// takes no longer than the rows.
constexpr std::int64_t kLeastRows = 32;
constexpr std::int64_t kLeastRowsInMemory = 256;
constexpr std::int64_t kColumnsPerRow = 8;

}  // namespace

// 1000 in parts=4 first=50 last=50: 50 + 100 + 100 + 50 percent → 0 166 500 833 1000
std::vector<Range> ranges_of(std::int64_t total, const Plan& plan, std::int64_t unit) {
  std::int64_t all = 0;
  const auto weight = [&](int i) -> std::int64_t {
    if (i == 0) return plan.first;
    return i + 1 == plan.parts ? plan.last : 100;
  };
  for (int i = 0; i < plan.parts; ++i) all += weight(i);
  const std::int64_t step = total >= unit * plan.parts ? unit : 1;
  std::vector<Range> ranges;
  std::int64_t so_far = 0;
  std::int64_t begin = 0;
  for (int i = 0; i < plan.parts; ++i) {
    so_far += weight(i);
    // In two steps, because the product of a large size and a percentage might overflow.
    const std::int64_t exact = total / all * so_far + total % all * so_far / all;
    const std::int64_t rounded = std::min((exact + step / 2) / step * step, total);
    const std::int64_t end = i + 1 == plan.parts ? total : std::max(begin, rounded);
    ranges.push_back({begin, end});
    begin = end;
  }
  return ranges;
}

// 1920 in 256: 64 + 128 + six of 256 + 128 + 64. Nothing hides the ends, so they are small. They
// begin at a quarter of the width, because still smaller chunks cost more than they save.
std::vector<Range> ramped(std::int64_t columns, std::int64_t width) {
  std::vector<std::int64_t> head;
  std::vector<std::int64_t> tail;
  std::int64_t left = columns;
  const std::int64_t least = std::max(width / 4 / kPanel * kPanel, kPanel);
  for (std::int64_t size = least; size < width && left >= 2 * size + 2 * width; size *= 2) {
    head.push_back(size);
    tail.push_back(size);
    left -= 2 * size;
  }
  std::vector<Range> ranges;
  std::int64_t begin = 0;
  const auto take = [&](std::int64_t size) {
    ranges.push_back({begin, begin + size});
    begin += size;
  };
  for (const std::int64_t size : head) take(size);
  for (; left > 0; left -= std::min(left, width)) take(std::min(left, width));
  std::reverse(tail.begin(), tail.end());
  for (const std::int64_t size : tail) take(size);
  if (ranges.empty()) ranges.push_back({0, 0});
  return ranges;
}

static_assert(kPanel % tensor::kScaleGroup == 0);

std::vector<Range> column_parts(std::int64_t n, const Plan& plan, Dtype wire) {
  Plan followed = plan;
  if (wire == Dtype::s8) {  // more parts than panels would begin anywhere
    const std::int64_t panels = std::max<std::int64_t>(n / kPanel, 1);
    followed.parts = static_cast<int>(std::min<std::int64_t>(plan.parts, panels));
  }
  return ranges_of(n, followed, kPanel);
}

// 200 in 70: 128 + 64 + 8. The rest of a panel comes last, so that all others begin at one.
std::vector<Range> column_chunks(std::int64_t n, std::int64_t width, Dtype wire) {
  const std::int64_t rest = n % kPanel;
  if (wire != Dtype::s8) return ramped(n, width);
  if (n < kPanel) return ramped(n, kPanel);
  std::vector<Range> ranges = ramped(n - rest, base::round_up(std::min(width, n), kPanel));
  if (rest > 0) ranges.push_back({n - rest, n});
  return ranges;
}

bool are_copied_at_once(const PartialSums& sums) { return sums.bytes() <= kCopiedAtOnceBytes; }

bool is_one_step(const PartialSums& sums, int world) {
  return world > 1 && sums.bytes() <= kOneStepBytes / (world - 1);
}

std::int64_t most_in_one_step(Dtype dtype, int world) {
  return world > 1 ? kOneStepBytes / (world - 1) / static_cast<std::int64_t>(size_of(dtype)) : 0;
}

bool gathers_all_first(const GatheredRows& rows, int world, bool linked) {
  const std::int64_t own = rows.m / world;
  if (own < kLeastRows) return true;
  return !linked && own < kLeastRowsInMemory && rows.m - own <= rows.n / kColumnsPerRow;
}

namespace {

std::int64_t chunk_elements(int world) {
  return std::max(kChunkElements, kBlockElements * (world - 1));
}

}  // namespace

// Few rows make small chunks, so chunks get wider, but there are at least four.
std::int64_t suitable_chunk(const PartialSums& sums, int world, bool linked) {
  const std::int64_t rows = std::max<std::int64_t>(sums.m, 1);
  const std::int64_t least = base::round_up(chunk_elements(world) / rows, kPanel);
  if (sums.bytes() <= kOneChunkBytes) return std::max(sums.n, kPanel);
  const std::int64_t most = std::max(base::round_up(sums.n / 4, kPanel), kPanel);
  if (linked) {
    const std::int64_t pair = sums.n >= kEnoughOverLink * 2 * kPanel ? 2 * kPanel : kPanel;
    return std::min(std::max({base::round_up(sums.n / kChunksOverLink, kPanel), pair, least}),
                    most);
  }
  const std::int64_t wide = std::min(kFullSpeed, base::round_up(sums.n / kEnoughInMemory, kPanel));
  return std::min(std::max(wide, least), most);
}

// From so many rows on that a panel has elements enough, a chunk's width depends on n alone.
std::int64_t largest_suitable_block(const PartialSums& most, int world, bool linked) {
  std::int64_t largest = 0;
  const auto add = [&](std::int64_t rows) {
    const PartialSums sums = {.m = rows, .n = most.n, .dtype = most.dtype};
    const std::int64_t own = base::ceil_div(rows, world);
    largest = std::max(largest, own * std::min(most.n, suitable_chunk(sums, world, linked)));
  };
  const std::int64_t varied = std::min(most.m, chunk_elements(world) / kPanel);
  for (std::int64_t rows = 1; rows <= varied; ++rows) add(rows);
  add(most.m);
  return largest;
}

}  // namespace plait::plan
