// The cost of a span for its thread: off, on, and the two clock readings alone.
#include <benchmark/benchmark.h>

#include <cstdint>
#include <filesystem>
#include <memory>

#include "base/clock.h"
#include "base/ticks.h"
#include "plait/trace.h"
#include "trace/ring.h"
#include "trace/stopwatch.h"

namespace plait {
namespace {

void two_ticks(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(base::ticks());
    benchmark::DoNotOptimize(base::ticks());
  }
}
BENCHMARK(two_ticks);

void two_clock_readings(benchmark::State& state) {
  for (auto _ : state) {
    benchmark::DoNotOptimize(base::now());
    benchmark::DoNotOptimize(base::now());
  }
}
BENCHMARK(two_clock_readings);

void span_off(benchmark::State& state) {
  Trace* trace = nullptr;
  std::int64_t bytes = 0;
  for (auto _ : state) {
    benchmark::DoNotOptimize(trace);
    const Span span(trace, Lane::compute, "matmul", {.bytes = ++bytes, .chunk = 3});
    benchmark::ClobberMemory();
  }
}
BENCHMARK(span_off);

void span_on(benchmark::State& state) {
  // All threads share one rank, as in a rank with a progress thread.
  static std::unique_ptr<Trace> shared;
  if (state.thread_index() == 0) shared = std::make_unique<Trace>(0);
  std::int64_t bytes = 0;
  for (auto _ : state) {
    const Span span(shared.get(), Lane::compute, "matmul", {.bytes = ++bytes, .chunk = 3});
    benchmark::ClobberMemory();
  }
}
BENCHMARK(span_on);
BENCHMARK(span_on)->Threads(2)->UseRealTime();

void spans_nested(benchmark::State& state) {
  Trace trace(0);
  for (auto _ : state) {
    const Span outer(&trace, Lane::comm, "reduce");
    const Span inner(&trace, Lane::wait, "arrival", {.peer = 1});
    benchmark::ClobberMemory();
  }
  state.SetItemsProcessed(2 * state.iterations());
}
BENCHMARK(spans_nested);

void span_on_without_counter(benchmark::State& state) {
  trace::Ring ring(Trace::kDefaultCapacity, trace::Stopwatch(/*counter=*/false));
  for (auto _ : state) {
    const base::Ticks begin = ring.tick();
    benchmark::ClobberMemory();
    ring.push({.kind = trace::Kind::span,
               .lane = Lane::compute,
               .label = "matmul",
               .begin = begin,
               .end = ring.tick()});
  }
}
BENCHMARK(span_on_without_counter);

void first_span_of_a_thread(benchmark::State& state) {
  for (auto _ : state) {
    Trace trace(0);
    const Span span(&trace, Lane::compute, "matmul");
  }
}
BENCHMARK(first_span_of_a_thread)->Unit(benchmark::kMicrosecond);

void fill(Trace& trace) {
  for (std::size_t i = 0; i < Trace::kDefaultCapacity; ++i) {
    const Span span(&trace, Lane::compute, "matmul", {.bytes = 1 << 20, .flops = 1 << 30});
  }
}

void pack(benchmark::State& state) {
  Trace trace(0);
  fill(trace);
  for (auto _ : state) benchmark::DoNotOptimize(trace.pack());
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(Trace::kDefaultCapacity));
}
BENCHMARK(pack)->Unit(benchmark::kMillisecond);

void write(benchmark::State& state) {
  const auto path = std::filesystem::temp_directory_path() / "plait_span_bench.json";
  Trace trace(0);
  fill(trace);
  for (auto _ : state) trace.write_json(path);
  state.SetItemsProcessed(state.iterations() * static_cast<std::int64_t>(Trace::kDefaultCapacity));
  std::filesystem::remove(path);
}
BENCHMARK(write)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace plait
