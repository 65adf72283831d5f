// Who did what when: spans of work that the threads of a rank record, written as one timeline that
// Perfetto (ui.perfetto.dev) and chrome://tracing open.
//
//   plait::Trace trace(rank);
//   {
//     plait::Span span(&trace, plait::Lane::compute, "matmul", {.bytes = bytes, .flops = flops});
//     ...
//   }                                        // here the span is recorded, begin to end
//   trace.write_json("timeline.json");
//
// For many ranks, send every rank's pack() to one and call write_json(path, packs) there.
// A null Trace* turns a span off at the cost of a branch; on, it costs some tens of nanoseconds.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "plait/export.h"

namespace plait {

namespace trace {
class Ring;
}

// Each thread of a rank has one track per lane.
enum class Lane : std::uint8_t {
  compute,
  comm,
  wait,  // neither: the time that overlap is to remove
};

// A string literal (nothing else compiles), or what Trace::intern() gave. The literal must stay
// loaded as long as the trace is used: mind plugins that are unloaded.
class Label {
 public:
  // Implicit, so that a literal can stand where a label is asked for.
  consteval Label(const char* literal) : text_(literal) { (void)*literal; }

  const char* text() const { return text_; }

 private:
  friend class Trace;
  struct Interned {};
  Label(Interned /*kept by the trace*/, const char* text) : text_(text) {}

  const char* text_;
};

// What is known of a span; a negative number is unknown and is not written.
struct SpanArgs {
  std::int64_t bytes = -1;
  std::int64_t flops = -1;
  std::int32_t peer = -1;
  std::int32_t chunk = -1;
};

// In nanoseconds of the host's monotonic clock, as std::chrono::steady_clock counts them.
struct Interval {
  std::int64_t begin;
  std::int64_t end;
};

// How another clock was compared with this host's; see estimate_offset().
struct ClockOffset {
  std::int64_t nanoseconds;      // to add to this host's clock to get the other's
  std::int64_t uncertainty = 0;  // the true offset is at most so far away
  std::int64_t at = 0;           // when, on this host's clock
};

// The records of one rank. Any thread may record and any thread may read (pack, write_json,
// dropped) at any time, at once: a reader finds what was recorded before it came. Recording takes
// no lock, never waits and never throws; only a thread's first record allocates, 2 MiB by default.
// A thread keeps its newest `capacity` records (rounded up to a power of two, less one); older ones
// give way, are counted, and the timeline says how many.
class PLAIT_EXPORT Trace {
 public:
  static constexpr std::size_t kDefaultCapacity = (1U << 15) - 1;

  explicit Trace(int rank, std::size_t capacity_per_thread = kDefaultCapacity);
  ~Trace();  // after every span has ended
  Trace(const Trace&) = delete;
  Trace& operator=(const Trace&) = delete;

  int rank() const;

  // Keeps a name that is not a literal. Takes a lock: do it once, not per span.
  Label intern(std::string_view name);

  // A moment, such as "posted".
  void mark(Lane lane, Label label, SpanArgs args = {}) noexcept;

  // A value from now on, such as "bytes in flight".
  void count(Label label, std::int64_t value) noexcept;

  // What goes on beside the code that knows of it, such as a chunk on its way. Unlike spans,
  // flights of one lane may overlap.
  void flight(Lane lane, Label label, Interval interval, SpanArgs args = {}) noexcept;

  // Nanoseconds to add to this host's clock to get the clock of the timeline.
  void set_clock_offset(std::int64_t nanoseconds);

  // Where that was measured. Clocks of hosts drift apart: what was recorded between the first
  // measurement and the newest one gets the offset on the line through both.
  void add_clock_offset(const ClockOffset& measured);

  // How many records were lost so far.
  std::int64_t dropped() const;

  // All records as bytes, to be sent to the rank that writes the timeline.
  std::vector<std::byte> pack() const;

  // This rank's timeline alone.
  void write_json(const std::string& path) const;

 private:
  friend class Span;
  struct Impl;

  trace::Ring* ring() noexcept;  // the calling thread's; null where there is no memory for it

  std::unique_ptr<Impl> impl_;
};

// From construction to destruction, on one thread; spans of one lane nest.
class PLAIT_EXPORT Span {
 public:
  Span(Trace* trace, Lane lane, Label label, SpanArgs args = {})
      : label_(label), args_(args), lane_(lane) {
    if (trace != nullptr) open(*trace);
  }
  ~Span() {
    if (ring_ != nullptr) close();
  }
  Span(const Span&) = delete;
  Span& operator=(const Span&) = delete;

  // For what is known only later.
  SpanArgs& args() { return args_; }

 private:
  void open(Trace& trace) noexcept;
  void close() noexcept;

  trace::Ring* ring_ = nullptr;
  std::uint64_t begin_ = 0;
  Label label_;
  SpanArgs args_;
  Lane lane_;
};

// Writes the packs of any number of ranks as one timeline: a process per rank, times in
// microseconds from the earliest record on. The file appears complete or not at all. A damaged pack
// is refused, and so are two packs of one rank.
PLAIT_EXPORT void write_json(const std::string& path,
                             std::span<const std::vector<std::byte>> packs);

// One question and answer between two clocks: asked and heard on this host's, answered on the
// other's.
struct PingPong {
  std::int64_t asked, answered, heard;
};

PLAIT_EXPORT ClockOffset estimate_offset(std::span<const PingPong> samples);

}  // namespace plait
