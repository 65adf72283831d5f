#include "plait/trace.h"

#include <array>
#include <atomic>
#include <exception>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <unordered_set>

#include "base/check.h"
#include "trace/collect.h"
#include "trace/pack.h"
#include "trace/ring.h"
#include "trace/stopwatch.h"

namespace plait {
namespace {

constexpr std::size_t kMaxCapacity = (std::size_t{1} << 26) - 1;  // 4 GiB per thread

// Returns a number that no other trace of this process has. A thread's cached ring of a destroyed
// trace can't be mistaken for one of a new trace at the same address.
std::uint64_t unused_id() {
  static std::atomic<std::uint64_t> last{0};
  return last.fetch_add(1, std::memory_order_relaxed) + 1;
}

// A cached ring, which a thread finds without a lock. A thread seldom serves more than one rank, so
// a few entries suffice. A thread that finds another trace in its entry gets its ring under the
// lock, and replaces the entry.
struct RingCache {
  std::uint64_t trace_id = 0;
  trace::Ring* ring = nullptr;
};
constexpr std::size_t kCachedRings = 4;
constinit thread_local std::array<RingCache, kCachedRings> cached_rings{};

void check_offset(std::int64_t nanoseconds) {
  PLAIT_CHECK(nanoseconds >= -trace::kFarthest && nanoseconds <= trace::kFarthest,
              "trace: a clock offset of ", nanoseconds, " ns is out of range");
}

}  // namespace

struct Trace::Impl {
  Impl(int of_rank, std::size_t per_thread) : rank(of_rank), capacity(per_thread) {}

  trace::Ring* enrol();

  const std::uint64_t id = unused_id();
  const int rank;
  const std::size_t capacity;
  const trace::Stopwatch stopwatch;
  const trace::Anchor start = trace::drop_anchor(stopwatch);
  // records lost because there was no memory for their thread's ring
  std::atomic<std::int64_t> refused{0};

  mutable std::mutex mutex;  // guards the members below, but not the contents of rings
  trace::ClockLine clock;
  bool has_measured_clock = false;
  std::vector<std::unique_ptr<trace::Ring>> rings;
  std::unordered_map<std::thread::id, trace::Ring*> ring_of;
  std::unordered_set<std::string> names;
};

// When a thread ends, the system may give its id to a new thread, which then continues in the same
// ring. Threads that come and go therefore don't accumulate rings.
trace::Ring* Trace::Impl::enrol() {
  const std::scoped_lock lock(mutex);
  trace::Ring*& ring = ring_of[std::this_thread::get_id()];
  if (ring == nullptr) {
    rings.push_back(std::make_unique<trace::Ring>(capacity, stopwatch));
    ring = rings.back().get();
  }
  ring->adopt();
  return ring;
}

Trace::Trace(int rank, std::size_t capacity_per_thread) {
  PLAIT_CHECK(rank >= 0, "trace: rank ", rank, " is negative");
  PLAIT_CHECK(capacity_per_thread >= 1 && capacity_per_thread <= kMaxCapacity,
              "trace: ", capacity_per_thread, " records per thread, but 1 to ", kMaxCapacity,
              " are allowed");
  impl_ = std::make_unique<Impl>(rank, capacity_per_thread);
}

Trace::~Trace() = default;

int Trace::rank() const { return impl_->rank; }

trace::Ring* Trace::ring() noexcept {
  RingCache& cached = cached_rings[impl_->id % kCachedRings];
  if (cached.trace_id == impl_->id) [[likely]]
    return cached.ring;
  try {
    cached = {.trace_id = impl_->id, .ring = impl_->enrol()};
    return cached.ring;
  } catch (const std::exception&) {
    impl_->refused.fetch_add(1, std::memory_order_relaxed);  // a count; orders nothing
    return nullptr;
  }
}

Label Trace::intern(std::string_view name) {
  const std::scoped_lock lock(impl_->mutex);
  return {Label::Interned{}, impl_->names.emplace(name).first->c_str()};
}

void Trace::mark(Lane lane, Label label, SpanArgs args) noexcept {
  trace::Ring* const to = ring();
  if (to == nullptr) return;
  const base::Ticks at = to->tick();
  to->push({.kind = trace::Kind::mark,
            .lane = lane,
            .label = label.text(),
            .begin = at,
            .end = at,
            .args = args});
}

void Trace::count(Label label, std::int64_t value) noexcept {
  trace::Ring* const to = ring();
  if (to == nullptr) return;
  const base::Ticks at = to->tick();
  to->push({.kind = trace::Kind::count,
            .lane = Lane::compute,
            .label = label.text(),
            .begin = at,
            .end = at,
            .args = {.bytes = value}});
}

void Trace::flight(Lane lane, Label label, TimeInterval interval, SpanArgs args) noexcept {
  trace::Ring* const to = ring();
  if (to == nullptr) return;
  to->push({.kind = trace::Kind::flight,
            .lane = lane,
            .label = label.text(),
            .begin = static_cast<std::uint64_t>(interval.begin),
            .end = static_cast<std::uint64_t>(interval.end),
            .args = args});
}

void Trace::set_clock_offset(std::int64_t nanoseconds) {
  check_offset(nanoseconds);
  const std::scoped_lock lock(impl_->mutex);
  impl_->clock = {.first = {.nanoseconds = nanoseconds}, .last = {.nanoseconds = nanoseconds}};
  impl_->has_measured_clock = false;
}

void Trace::add_clock_offset(const ClockOffset& measured) {
  check_offset(measured.nanoseconds);
  check_offset(measured.at);
  PLAIT_CHECK(measured.uncertainty >= 0 && measured.uncertainty <= trace::kFarthest,
              "trace: an uncertainty of ", measured.uncertainty, " ns is out of range");
  const std::scoped_lock lock(impl_->mutex);
  if (!impl_->has_measured_clock) impl_->clock.first = measured;
  impl_->clock.last = measured;
  impl_->has_measured_clock = true;
}

std::int64_t Trace::dropped() const {
  const std::scoped_lock lock(impl_->mutex);
  auto sum = static_cast<std::uint64_t>(impl_->refused.load(std::memory_order_relaxed));
  for (const auto& ring : impl_->rings) sum += ring->dropped();
  return static_cast<std::int64_t>(sum);
}

std::vector<std::byte> Trace::pack() const {
  const std::scoped_lock lock(impl_->mutex);
  std::vector<trace::Ring::Content> contents;
  for (const auto& ring : impl_->rings) contents.push_back(ring->read());
  // The second anchor is taken after reading, so that every record lies between the anchors.
  const trace::Scale scale(impl_->start, trace::drop_anchor(impl_->stopwatch));
  auto all = trace::collect(contents, scale, impl_->clock);
  all.rank = impl_->rank;
  all.dropped += impl_->refused.load(std::memory_order_relaxed);
  return trace::pack(all);
}

void Trace::write_json(const std::string& path) const {
  const std::array packs = {pack()};
  plait::write_json(path, packs);
}

void Span::open(Trace& trace) noexcept {
  ring_ = trace.ring();
  // last, so that finding the ring is not part of the span
  if (ring_ != nullptr) begin_ = ring_->tick();
}

void Span::close() noexcept {
  const base::Ticks end = ring_->tick();
  ring_->push({.kind = trace::Kind::span,
               .lane = lane_,
               .label = label_.text(),
               .begin = begin_,
               .end = end,
               .args = args_});
}

}  // namespace plait
