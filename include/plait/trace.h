// Traces: spans of work that the threads of a rank record, written as one timeline for Perfetto
// (ui.perfetto.dev) and chrome://tracing.
//
//   plait::Trace trace(rank);
//   {
//     plait::Span span(&trace, plait::Lane::compute, "matmul", {.bytes = bytes, .flops = flops});
//     ...
//   }                                        // here the span is recorded, begin to end
//   trace.write_json("timeline.json");
//
// For many ranks, send every rank's pack() to one rank and call write_json(path, packs) there. With
// a null Trace* a span records nothing and costs a branch; otherwise it costs some tens of
// nanoseconds.
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
  wait,  // neither: the time that overlap should remove
};

// A string literal (nothing else compiles), or a result of Trace::intern(). The literal must stay
// loaded as long as the trace is used, which matters for plugins that are unloaded.
class Label {
 public:
  // Implicit, so that a literal can be passed as a label.
  consteval Label(const char* literal) : text_(literal) { (void)*literal; }

  const char* text() const { return text_; }

 private:
  friend class Trace;
  struct Interned {};
  Label(Interned /*kept by the trace*/, const char* text) : text_(text) {}

  const char* text_;
};

// Details of a span; a negative number is unknown and is not written.
struct SpanArgs {
  std::int64_t bytes = -1;
  std::int64_t flops = -1;
  std::int32_t peer = -1;
  std::int32_t chunk = -1;
};

// In nanoseconds of the host's monotonic clock, as std::chrono::steady_clock counts them.
struct TimeInterval {
  std::int64_t begin;
  std::int64_t end;
};

// How another clock compares with this host's; see estimate_clock_offset().
struct ClockOffset {
  std::int64_t nanoseconds;      // to add to this host's clock to get the other's
  std::int64_t uncertainty = 0;  // the true offset differs by at most this
  std::int64_t at = 0;           // the time of the comparison, on this host's clock
};

// The records of one rank. Threads may record and read (pack, write_json, dropped) at the same
// time: a reader finds all records that were complete before its call. Recording takes no lock,
// never waits and never throws; only a thread's first record allocates, 2 MiB by default. A thread
// keeps its newest `capacity` records (rounded up to a power of two, less one). Older ones are
// overwritten and counted, and the timeline says how many were lost.
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

  // An activity that goes on independently of the recording thread, such as a chunk on its way.
  // Unlike spans, flights of one lane may overlap.
  void flight(Lane lane, Label label, TimeInterval interval, SpanArgs args = {}) noexcept;

  // Nanoseconds to add to this host's clock to get the clock of the timeline.
  void set_clock_offset(std::int64_t nanoseconds);

  // A measured offset instead. Clocks of hosts drift apart: for records between the first
  // measurement and the newest one, the offset is interpolated linearly.
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

  trace::Ring* ring() noexcept;  // the calling thread's; null if there is no memory for it

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

  // For details that are known only after the span has begun.
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
// microseconds from the earliest record on. The file is written completely or not at all. A damaged
// pack is refused, and so are two packs of one rank.
PLAIT_EXPORT void write_json(const std::string& path,
                             std::span<const std::vector<std::byte>> packs);

// A question and its answer between two clocks: asked and heard by this host's clock, answered by
// the other's.
struct ClockSample {
  std::int64_t asked, answered, heard;
};

PLAIT_EXPORT ClockOffset estimate_clock_offset(std::span<const ClockSample> samples);

}  // namespace plait
