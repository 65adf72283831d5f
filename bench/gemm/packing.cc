#include "packing.h"

#include <benchmark/benchmark.h>

#include <cstring>
#include <functional>
#include <memory>
#include <string>

#include "base/parallel.h"
#include "plait/packed_weight.h"

namespace plait::bench {
namespace {

using Prepare = std::function<std::function<void()>()>;

void add(const std::string& name, std::size_t bytes, const Prepare& prepare) {
  benchmark::RegisterBenchmark(name.c_str(),
                               [bytes, prepare](benchmark::State& state) {
                                 const std::function<void()> call = prepare();
                                 call();
                                 for (auto _ : state) call();
                                 using benchmark::Counter;
                                 state.counters["bytes"] =
                                     Counter(static_cast<double>(bytes),
                                             Counter::kIsIterationInvariantRate);
                               })
      ->UseRealTime()
      ->Unit(benchmark::kMicrosecond);
}

std::function<void()> copying(const ConstTensorView& weight) {
  const auto to = std::make_shared<Buffer>(weight.bytes(), BufferOptions{.huge_pages = true});
  return [weight, to] {
    const auto threads = static_cast<std::size_t>(base::thread_count(0));
    base::on_threads(static_cast<int>(threads), [&](int thread) {
      const std::size_t begin = to->bytes() * static_cast<std::size_t>(thread) / threads;
      const std::size_t end = to->bytes() * static_cast<std::size_t>(thread + 1) / threads;
      const auto* from = static_cast<const std::byte*>(weight.data);
      std::memcpy(to->data() + begin, from + begin, end - begin);
    });
  };
}

}  // namespace

void add_packing(Operands& operands, Dtype dtype) {
  const GemmShape& shape = operands.shape();
  const std::string start = std::string(shape.name) + "/" + std::string(name(dtype)) + "/";
  const auto bytes = static_cast<std::size_t>(shape.n * shape.k) * size_of(dtype);
  add(start + "copy/0", bytes, [&operands, dtype] { return copying(operands.weight(dtype)); });
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    add(start + "pack_" + std::string(name(layout)) + "/0", bytes, [&operands, dtype, layout] {
      const WeightView weight = {.view = operands.weight(dtype), .layout = layout};
      const auto packed = std::make_shared<PackedWeight>(weight);
      return [packed, weight] { packed->repack(weight); };
    });
  }
}

}  // namespace plait::bench
