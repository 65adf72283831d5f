// Checks products by cuBLASLt against sums in f64, and prints their speed, a line of JSON for each.
//
//   lt_check           a few shapes, dtypes and layouts
//   lt_check speed     the speed of all shapes of shapes.h in bf16, with and without parts of k
//
// Ends with 1 if a product is wrong, with 77 if cuBLASLt or a device is missing. It stands alone:
// it is built from this file, tests/gpu/lt/*.cc and four files of src/base (check, env, error,
// text), and links cudart statically and libdl.
#include <algorithm>
#include <cstdio>
#include <string_view>

#include "gpu/compare.cuh"
#include "gpu/figure.h"
#include "gpu/kernel_cost.cuh"
#include "gpu/reference.cuh"
#include "gpu/shapes.h"
#include "plait/error.h"

namespace plait::gpu {
namespace {

constexpr int kCandidates = 8;
constexpr int kNothingToCheck = 77;

struct Findings {
  std::int64_t inexact = 0;  // elements of products of integers that are not the exact value
  double worst = 0;          // the largest share of its bound that an error of others is
};

const char* word(Dtype dtype) {
  if (dtype == Dtype::f32) return "f32";
  return dtype == Dtype::bf16 ? "bf16" : "f16";
}

// Every sum of k products of integers up to this one is below 2^24, and so exact in f32.
int largest_integer(std::int64_t k) { return k * 9 < (1 << 24) ? 3 : 1; }

// Runs every candidate over poisoned memory and lets `compare` look at the result.
template <class In, class Out, class Compare>
void check_candidates(LtProduct& product, Operands<In, Out>& set, cudaStream_t stream,
                      const Compare& compare) {
  const int candidates = product.candidates(kCandidates);
  for (int candidate = 0; candidate < candidates; ++candidate) {
    set.out.fill_bytes(0xff, stream);
    product.run(set.view(), candidate, stream);
    check_cuda(cudaStreamSynchronize(stream));
    compare();
  }
}

template <class In, class Out>
Findings check(LtProduct& product, const LtProblem& problem, cudaStream_t stream) {
  Findings findings;
  Operands<In, Out> set(problem);
  const bool in_out = problem.layout == WeightLayout::in_out;
  const ProductShape shape = {.m = problem.m, .n = problem.n, .k = problem.k, .in_out = in_out};
  DeviceBuffer<double> exact(set.out.count()), magnitude(set.out.count());

  const int most = largest_integer(problem.k);
  fill_integers(set.x.data(), set.x.count(), 1, most, stream);
  fill_integers(set.w.data(), set.w.count(), 2, most, stream);
  reference_product(set.x.data(), set.w.data(), shape, exact.data(), nullptr, stream);
  check_candidates(product, set, stream, [&] {
    findings.inexact += count_inexact(set.out.data(), exact.data(), set.out.count());
  });

  set.fill_uniform(3, stream);
  reference_product(set.x.data(), set.w.data(), shape, exact.data(), magnitude.data(), stream);
  const ErrorTerms terms = {.terms = static_cast<double>(problem.k)};
  check_candidates(product, set, stream, [&] {
    const WorstError worst =
        worst_error(set.out.data(), exact.data(), magnitude.data(), set.out.count(), terms);
    findings.worst = std::max(findings.worst, worst.ratio);
  });
  return findings;
}

Figure describe(const char* name, const LtProblem& problem) {
  Figure figure(name);
  figure.number("m", static_cast<double>(problem.m)).number("n", static_cast<double>(problem.n));
  figure.number("k", static_cast<double>(problem.k));
  figure.text("in", word(problem.in)).text("out", word(problem.out));
  return figure.text("layout", problem.layout == WeightLayout::out_in ? "out_in" : "in_out");
}

void add_best(Figure& figure, const LtProblem& problem, const LtProduct& product,
              const LtBest& best) {
  if (best.candidate < 0) return;
  const LtChoice choice = product.choice(best.candidate);
  figure.number("candidate", best.candidate).number("algorithm", choice.algorithm);
  figure.number("tile", choice.tile).number("stages", choice.stages);
  figure.number("k_parts", choice.k_parts).number("us", best.microseconds);
  figure.number("tflops", tflops(static_cast<double>(problem.m), static_cast<double>(problem.n),
                                 static_cast<double>(problem.k), best.microseconds));
}

// False if the product is wrong.
template <class In, class Out>
bool check_case(LtProblem problem, cudaStream_t stream) {
  problem.in = kDtypeOf<In>;
  problem.out = kDtypeOf<Out>;
  LtProduct product(problem);
  const Findings findings = check<In, Out>(product, problem, stream);
  const OperandSets<In, Out> sets(problem, stream);
  const LtBest best = best_time(product, sets.views(), {.candidates = kCandidates}, stream);
  const bool right = best.candidate >= 0 && findings.inexact == 0 && findings.worst <= 1;
  Figure figure = describe("cublaslt check", problem);
  add_best(figure, problem, product, best);
  figure.number("inexact", static_cast<double>(findings.inexact));
  figure.number("worst_error", findings.worst).yes_or_no("right", right).print();
  return right;
}

bool check_all(cudaStream_t stream) {
  using B = __nv_bfloat16;
  using H = __half;
  constexpr auto kInOut = WeightLayout::in_out;
  bool right = true;
  right &= check_case<B, B>({.m = 2048, .n = 8192, .k = 4096}, stream);
  right &= check_case<B, B>({.m = 2048, .n = 8192, .k = 4096, .layout = kInOut}, stream);
  right &= check_case<B, float>({.m = 2048, .n = 8192, .k = 4096}, stream);
  right &= check_case<B, B>({.m = 2048, .n = 8192, .k = 4096, .may_split_k = false}, stream);
  right &= check_case<H, H>({.m = 2048, .n = 8192, .k = 4096}, stream);
  right &= check_case<H, float>({.m = 2048, .n = 8192, .k = 4096, .layout = kInOut}, stream);
  right &= check_case<B, B>({.m = 1023, .n = 1638, .k = 23640}, stream);
  right &= check_case<B, B>({.m = 1023, .n = 1638, .k = 23640, .layout = kInOut}, stream);
  right &= check_case<B, float>({.m = 1, .n = 8192, .k = 1024}, stream);
  right &= check_case<B, B>({.m = 8192, .n = 7168, .k = 8192}, stream);
  return right;
}

void measure_all(cudaStream_t stream) {
  for (const NamedShape& shape : all_shapes()) {
    const LtProblem any = {.m = shape.m, .n = shape.n, .k = shape.k};
    const OperandSets<__nv_bfloat16, __nv_bfloat16> sets(any, stream);
    for (const bool may_split_k : {true, false}) {
      LtProblem problem = any;
      problem.may_split_k = may_split_k;
      LtProduct product(problem);
      const LtBest best = best_time(product, sets.views(), {.candidates = kCandidates}, stream);
      Figure figure = describe("cublaslt speed", problem);
      figure.text("shape", shape.name).yes_or_no("may_split_k", may_split_k);
      add_best(figure, problem, product, best);
      figure.print();
    }
  }
}

int run(std::string_view mode) {
  if (const auto refusal = LtProduct::refusal({.m = 1, .n = 1, .k = 1})) {
    std::fprintf(stderr, "%s\n", refusal->c_str());
    return kNothingToCheck;
  }
  const Stream stream;
  if (mode != "speed") return check_all(stream.get()) ? 0 : 1;
  measure_all(stream.get());
  return 0;
}

}  // namespace
}  // namespace plait::gpu

int main(int argc, char** argv) {
  try {
    return plait::gpu::run(argc > 1 ? argv[1] : "");
  } catch (const plait::Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
