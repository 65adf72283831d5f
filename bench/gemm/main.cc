// Measures plait's products and oneDNN's in one process, in turns.
//
//   plait_bench_gemm --shape square --benchmark_filter='bf16/(plait|onednn)/512'
// packing a weight, compared with a copy
//
// One run measures one shape. Its cases share operands, and take turns (give
// --benchmark_repetitions and --benchmark_enable_random_interleaving=true).
#include <benchmark/benchmark.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "base/parallel.h"
#include "base/processor.h"
#include "contenders.h"
#include "gemm/backends.h"
#include "measure/limits.h"
#include "packing.h"
#include "plait/gemm.h"

namespace plait::bench {
namespace {

void report(benchmark::State& state, double operations) {
  using benchmark::Counter;
  state.counters["flops"] = Counter(operations, Counter::kIsIterationInvariantRate);
}

// A contender prepares its operands in its first turn, so that filtered ones cost nothing.
void run(benchmark::State& state, const Contender& contender, const Case& one, double operations) {
  std::function<void()> call;
  try {
    call = contender.prepare(one);
    call();
  } catch (const std::exception& error) {
    state.SkipWithError(error.what());
    return;
  }
  for (auto _ : state) call();
  report(state, operations);
}

void add(const GemmShape& shape, const Contender& contender, const Case& one) {
  const std::string name = std::string(shape.name) + "/" + std::string(plait::name(one.dtype)) +
                           "/" + contender.name + "/" + std::to_string(one.rows);
  const double operations = 2.0 * static_cast<double>(one.rows) * static_cast<double>(shape.n) *
                            static_cast<double>(shape.k);
  benchmark::RegisterBenchmark(name.c_str(), run, contender, one, operations)
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

// The dtypes of cases. The peak is that of the dtype in which they are multiplied.
constexpr std::array kDtypes = {Dtype::bf16, Dtype::f32, Dtype::f16};

measure::Limit peak_of(Dtype dtype) {
  const Dtype operand = gemm::operand_of({.m = 1, .n = 1, .k = 1, .x = dtype, .weight = dtype});
  return measure::multiplying(operand, base::thread_count(0));
}

void add_limit(const GemmShape& shape, Dtype dtype, const char* who,
               const std::function<measure::Limit()>& prepare) {
  const std::string name =
      std::string(shape.name) + "/" + std::string(plait::name(dtype)) + "/" + who;
  benchmark::RegisterBenchmark(name.c_str(),
                               [prepare](benchmark::State& state) {
                                 const measure::Limit limit = prepare();
                                 for (auto _ : state) limit.call();
                                 report(state, limit.amount);
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

// The limits: multiply-adds alone, and reading as many bytes as the weight has, which one row takes
// at least.
void add_limits(const GemmShape& shape, Dtype dtype) {
  const auto bytes = static_cast<std::size_t>(shape.n * shape.k) * size_of(dtype);
  add_limit(shape, dtype, "peak/0", [dtype] { return peak_of(dtype); });
  add_limit(shape, dtype, "memory/1",
            [bytes] { return measure::reading(bytes, base::thread_count(0)); });
}

void add_all(Operands& operands) {
  std::vector<Contender> contenders = plait_contenders(operands);
  for (Contender& other : onednn_contenders(operands)) contenders.push_back(std::move(other));
  for (const Dtype dtype : kDtypes) {
    add_limits(operands.shape(), dtype);
    add_packing(operands, dtype);
    for (const std::int64_t rows : kRows) {
      for (const Contender& contender : contenders)
        add(operands.shape(), contender, {.dtype = dtype, .rows = rows});
    }
  }
}

std::string backend_of(const GemmShape& shape, Dtype dtype) {
  return std::string(select_gemm({.m = kRows.back(),
                                  .n = shape.n,
                                  .k = shape.k,
                                  .x = dtype,
                                  .weight = dtype,
                                  .out = dtype})
                         .backend());
}

// Removes --shape NAME and --list from the command line. nullopt: --list was given.
std::optional<std::string> take_shape(int& argc, char** argv) {
  std::string shape = "square";
  int kept = 1;
  for (int i = 1; i < argc; ++i) {
    if (std::strcmp(argv[i], "--list") == 0) return std::nullopt;
    if (std::strcmp(argv[i], "--shape") == 0 && i + 1 < argc)
      shape = argv[++i];
    else
      argv[kept++] = argv[i];
  }
  argc = kept;
  return shape;
}

int main_of(int argc, char** argv) {
  const auto shape = take_shape(argc, argv);
  if (!shape) {
    for (const GemmShape& one : gemm_shapes()) std::puts(std::string(one.name).c_str());
    return 0;
  }
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  Operands operands(find_shape(*shape));
  benchmark::AddCustomContext("processor", base::read_processor().model);
  benchmark::AddCustomContext("compiler", __VERSION__);
  benchmark::AddCustomContext("onednn", onednn_version());
  benchmark::AddCustomContext("threads", std::to_string(base::thread_count(0)));
  benchmark::AddCustomContext("n", std::to_string(operands.shape().n));
  benchmark::AddCustomContext("k", std::to_string(operands.shape().k));
  for (const Dtype dtype : kDtypes) {
    benchmark::AddCustomContext("peak_" + std::string(name(dtype)), peak_of(dtype).by);
    benchmark::AddCustomContext("backend_" + std::string(name(dtype)),
                                backend_of(operands.shape(), dtype));
  }
  add_all(operands);
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}

}  // namespace
}  // namespace plait::bench

int main(int argc, char** argv) {
  try {
    return plait::bench::main_of(argc, argv);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "plait_bench_gemm: %s\n", error.what());
    return 2;
  }
}
