// plait's products in all the ways in which operators use them.
#include <benchmark/benchmark.h>

#include <algorithm>
#include <map>

#include "base/check.h"
#include "contenders.h"
#include "plait/gemm.h"
#include "plait/quantized.h"

namespace plait::bench {
namespace {

// Reads one byte of every cache line.
void read(const TensorView& out, const Tile& tile) {
  constexpr std::int64_t kLine = 64;
  const TensorView view = out.row_range(tile.rows.begin, tile.rows.end)
                              .column_range(tile.columns.begin, tile.columns.end);
  unsigned sum = 0;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    const auto* line = static_cast<const std::uint8_t*>(view.row(row));
    for (std::int64_t at = 0; at < static_cast<std::int64_t>(view.row_bytes()); at += kLine)
      sum += line[at];
  }
  benchmark::DoNotOptimize(sum);
}

// The columns of a window, as a schedule sends them.
constexpr std::int64_t kWindow = 256;

class Plait {
 public:
  explicit Plait(Operands& operands) : operands_(operands) {}

  GemmDesc desc_of(const Case& one, const std::string& weight) const {
    return parse_gemm(base::sentence("m=", one.rows, " n=", operands_.shape().n,
                                     " k=", operands_.shape().k, " x=", name(one.dtype),
                                     " w=", weight, " out=", name(one.dtype)));
  }

  GemmCall call_of(const Case& one) {
    return {.x = {.view = operands_.x(one.dtype, one.rows)},
            .weight = view_of(one.dtype),
            .out = operands_.out(one.dtype, one.rows)};
  }

  WeightView view_of(Dtype dtype) {
    return {.view = operands_.weight(dtype), .layout = WeightLayout::out_in};
  }

  // `weight` is a dtype or a scheme. A scheme's weight is the same for every dtype it is made from.
  const PackedWeight& packed(const Case& one, const std::string& weight) {
    const auto found = packed_.find(weight);
    if (found != packed_.end()) return found->second;
    const WeightView view = view_of(one.dtype);
    const auto scheme = parse_quant_scheme(weight);
    return packed_
        .emplace(weight, scheme ? PackedWeight(quantize(view, *scheme)) : PackedWeight(view))
        .first->second;
  }

  // 0 threads: OMP_NUM_THREADS.
  std::function<void()> packed_product(const Case& one, const std::string& weight,
                                       int threads = 0) {
    GemmCall call = call_of(one);
    call.weight = packed(one, weight);
    return running(desc_of(one, weight), {call}, threads);
  }

  std::function<void()> plain_product(const Case& one) {
    return running(desc_of(one, std::string(name(one.dtype))), {call_of(one)});
  }

  // Runs one window after another, each into a buffer of its own without gaps. X is packed once for
  // all.
  std::function<void()> windows(const Case& one) {
    const std::string weight(name(one.dtype));
    const std::int64_t n = operands_.shape().n;
    std::vector<GemmCall> calls;
    for (std::int64_t begin = 0; begin < n; begin += kWindow) {
      const std::int64_t end = std::min(begin + kWindow, n);
      GemmCall call = call_of(one);
      call.weight = packed(one, weight);
      call.window.columns = {begin, end};
      call.out.data = static_cast<std::byte*>(call.out.data) +
                      one.rows * begin * static_cast<std::int64_t>(size_of(one.dtype));
      call.out.cols = end - begin;
      call.out.row_stride = end - begin;
      calls.push_back(call);
    }
    const auto gemm = std::make_shared<Gemm>(select_gemm(desc_of(one, weight)));
    const auto packed_x = std::make_shared<PackedInput>();
    for (GemmCall& call : calls) call.packed_x = packed_x.get();
    return [gemm, packed_x, calls] {
      gemm->pack(calls[0].x, *packed_x);
      for (const GemmCall& call : calls) gemm->run(call);
    };
  }

  // Reads every finished tile.
  std::function<void()> hooked(const Case& one) {
    const std::string weight(name(one.dtype));
    GemmCall call = call_of(one);
    call.weight = packed(one, weight);
    call.on_tile = [out = call.out](const Tile& tile) { read(out, tile); };
    return running(desc_of(one, weight), {call});
  }

  // dW += dYt·X: rows are outputs, and the sum is over the rows of X.
  std::function<void()> gradient(const Case& one) {
    const auto& shape = operands_.shape();
    GemmCall call = {.x = {.view = operands_.gradient(one.dtype, one.rows), .transposed = true},
                     .weight = WeightView{operands_.x(one.dtype, one.rows), WeightLayout::in_out},
                     .out = operands_.weight_gradient()};
    call.accumulate = true;
    return running({.m = shape.n,
                    .n = shape.k,
                    .k = one.rows,
                    .x = one.dtype,
                    .weight = one.dtype,
                    .out = Dtype::f32},
                   {call});
  }

 private:
  // Shared, because std::function copies its captures, and a Gemm can't be copied.
  static std::function<void()> running(const GemmDesc& desc, const std::vector<GemmCall>& calls,
                                       int threads = 0) {
    return [gemm = std::make_shared<Gemm>(select_gemm(desc, {.threads = threads})), calls] {
      for (const GemmCall& call : calls) gemm->run(call);
    };
  }

  Operands& operands_;
  std::map<std::string, PackedWeight> packed_;
};

}  // namespace

std::vector<Contender> plait_contenders(Operands& operands) {
  const auto plait = std::make_shared<Plait>(operands);
  const auto packed = [&](const char* name, const std::string& weight) {
    return Contender{name, [plait, weight](const Case& one) {
                       return plait->packed_product(
                           one, weight.empty() ? std::string(plait::name(one.dtype)) : weight);
                     }};
  };
  const auto on_threads = [&](const char* name, int threads) {
    return Contender{name, [plait, threads](const Case& one) {
                       return plait->packed_product(one, std::string(plait::name(one.dtype)),
                                                    threads);
                     }};
  };
  return {
      packed("plait", ""),
      packed("plait_s8", "s8:channel"),
      packed("plait_s8_group", "s8:group=128"),
      packed("plait_s4_group", "s4:group=64"),
      {"plait_plain", [plait](const Case& one) { return plait->plain_product(one); }},
      {"plait_windows", [plait](const Case& one) { return plait->windows(one); }},
      {"plait_hook", [plait](const Case& one) { return plait->hooked(one); }},
      {"plait_gradient", [plait](const Case& one) { return plait->gradient(one); }},
      on_threads("one_thread", 1),
      on_threads("two_threads", 2),
  };
}

}  // namespace plait::bench
