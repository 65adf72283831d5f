#include "measure/matmul_case.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "gemm/backends.h"
#include "gemm/quant_panels.h"
#include "measure/memory.h"
#include "plait/quantized.h"
#include "plan/weight_kind.h"
#include "tensor/fill.h"

namespace plait::measure {
namespace {

GemmDesc describe(const MatmulSetup& setup, std::int64_t m, const std::string& weight) {
  return parse_gemm(base::sentence("m=", m, " n=", setup.n, " k=", setup.k, " x=", name(setup.x),
                                   " w=", weight == plan::kPlain ? name(setup.x) : weight,
                                   " out=", name(setup.out)));
}

// The names of the requested backends, in the order in which they are tried.
std::vector<std::string> backends_of(const MatmulSetup& setup, const GemmDesc& desc) {
  std::vector<std::string> names;
  const auto list = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const std::string& wanted : setup.backends) {
    if (wanted != "all") {
      list(select_gemm(desc, {.backend = wanted}).backend());
      continue;
    }
    for (const GemmChoice& choice : explain_gemm(desc)) {
      if (choice.refusal.empty() && choice.backend != gemm::kReference) list(choice.backend);
    }
  }
  return names;
}

std::size_t elements(std::int64_t rows, std::int64_t cols) {
  return static_cast<std::size_t>(rows) * static_cast<std::size_t>(cols);
}

void check_operands_fit(const MatmulSetup& setup) {
  const std::int64_t m = *std::max_element(setup.m.begin(), setup.m.end());
  // Each size is at most 2^24, so this can't overflow.
  std::size_t needed = (elements(m, setup.k) + elements(m, setup.n)) * 2 * sizeof(float);
  for (const std::string& weight : setup.weights) {
    needed += elements(setup.n, setup.k) * sizeof(float);  // before packing
    if (weight != plan::kPlain) needed += gemm::packed_bytes(describe(setup, m, weight));
  }
  check_memory(static_cast<double>(needed),
               base::sentence("m=", m, " n=", setup.n, " k=", setup.k));
}

}  // namespace

double MatmulCase::flops() const {
  return 2.0 * static_cast<double>(desc.m) * static_cast<double>(desc.n) *
         static_cast<double>(desc.k);
}

std::size_t MatmulCase::weight_bytes() const {
  if (weight != plan::kPlain) return gemm::packed_bytes(desc);
  return elements(desc.n, desc.k) * size_of(desc.weight);
}

Dtype MatmulCase::operand() const { return gemm::operand_of(desc); }

std::vector<MatmulCase> matmul_cases(const MatmulSetup& setup) {
  std::vector<MatmulCase> cases;
  for (const std::int64_t m : setup.m) {
    for (const std::string& weight : setup.weights) {
      const GemmDesc desc = describe(setup, m, weight);
      for (const std::string& backend : backends_of(setup, desc))
        cases.push_back({.desc = desc, .weight = weight, .backend = backend});
    }
  }
  PLAIT_CHECK(!cases.empty(), "only the reference backend supports this product (plait info)");
  return cases;
}

MatmulOperands::MatmulOperands(const MatmulSetup& setup) : setup_(setup) {
  check_operands_fit(setup);
  const std::int64_t m = *std::max_element(setup.m.begin(), setup.m.end());
  x_ = Buffer::for_tensor(setup.x, m, setup.k, {.huge_pages = true});
  tensor::fill_random(x_.view(setup.x, m, setup.k), /*seed=*/1);
  out_ = Buffer::for_tensor(setup.out, m, setup.n, {.huge_pages = true});
  std::memset(out_.data(), 0, out_.bytes());
  for (const std::string& kind : setup.weights) make_weight(kind);
}

void MatmulOperands::make_weight(const std::string& kind) {
  const GemmDesc desc = describe(setup_, 1, kind);
  const Dtype dtype = desc.quant ? setup_.x : desc.weight;
  const bool by_outputs = setup_.layout == WeightLayout::out_in;
  const std::int64_t rows = by_outputs ? setup_.n : setup_.k;
  const std::int64_t cols = by_outputs ? setup_.k : setup_.n;
  Buffer& plain = plain_[dtype];
  if (plain.bytes() == 0) {
    plain = Buffer::for_tensor(dtype, rows, cols, {.huge_pages = true});
    tensor::fill_random(plain.view(dtype, rows, cols), /*seed=*/2);
  }
  const WeightView view = {.view = plain.view(dtype, rows, cols), .layout = setup_.layout};
  if (kind == plan::kPlain) {
    weights_.emplace(kind, view);
  } else if (desc.quant) {
    weights_.emplace(kind,
                     PackedWeight(quantize(view, *desc.quant, setup_.threads), setup_.threads));
  } else {
    weights_.emplace(kind, PackedWeight(view, setup_.threads));
  }
}

std::vector<GemmCall> MatmulOperands::calls_of(const MatmulCase& one) {
  const GemmDesc& desc = one.desc;
  const auto [rows, cols] =
      setup_.transposed_x ? std::pair(desc.k, desc.m) : std::pair(desc.m, desc.k);
  const Weight weight =
      std::visit([](const auto& any) { return Weight(any); }, weights_.at(one.weight));
  const std::int64_t width = setup_.columns == 0 ? desc.n : setup_.columns;
  std::vector<GemmCall> calls;
  for (std::int64_t begin = 0; begin < desc.n; begin += width) {
    const std::int64_t end = std::min(begin + width, desc.n);
    // The results of windows are stored one after another, without gaps.
    calls.push_back({.x = {.view = x_.view(desc.x, rows, cols), .transposed = setup_.transposed_x},
                     .weight = weight,
                     .out = {.data = out_.data() + elements(desc.m, begin) * size_of(desc.out),
                             .dtype = desc.out,
                             .rows = desc.m,
                             .cols = end - begin},
                     .window = {.columns = {begin, end}},
                     .accumulate = setup_.accumulate});
  }
  return calls;
}

std::function<void()> MatmulOperands::call_of(const MatmulCase& one) {
  // Shared, because std::function copies its captures, and a Gemm can't be copied.
  auto gemm = std::make_shared<Gemm>(
      select_gemm(one.desc, {.backend = one.backend, .threads = setup_.threads}));
  std::vector<GemmCall> calls = calls_of(one);
  if (calls.size() == 1) return [gemm, call = calls[0]] { gemm->run(call); };
  // X is packed once for all windows, and that counts as a part of their cost.
  auto packed = std::make_shared<PackedInput>();
  for (GemmCall& call : calls) call.packed_x = packed.get();
  return [gemm, packed, calls] {
    gemm->pack(calls[0].x, *packed);
    for (const GemmCall& call : calls) gemm->run(call);
  };
}

}  // namespace plait::measure
