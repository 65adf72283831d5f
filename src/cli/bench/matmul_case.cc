#include "cli/bench/matmul_case.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <type_traits>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "cli/host/memory.h"
#include "gemm/backends.h"
#include "gemm/quant_panels.h"
#include "plait/quantized.h"
#include "tensor/fill.h"

namespace plait::cli {
namespace {

GemmDesc describe(const MatmulOptions& options, std::int64_t m, const std::string& weight) {
  return parse_gemm(base::sentence(
      "m=", m, " n=", options.n, " k=", options.k, " x=", name(options.x),
      " w=", weight == kPlain ? name(options.x) : weight, " out=", name(options.out)));
}

// The names of the requested backends, in the order in which they are tried.
std::vector<std::string> backends_of(const MatmulOptions& options, const GemmDesc& desc) {
  std::vector<std::string> names;
  const auto list = [&](std::string_view name) {
    if (std::find(names.begin(), names.end(), name) == names.end()) names.emplace_back(name);
  };
  for (const std::string& wanted : options.backends) {
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

void check_operands_fit(const MatmulOptions& options) {
  const std::int64_t m = *std::max_element(options.m.begin(), options.m.end());
  // Each size is at most 2^24, so this can't overflow.
  std::size_t needed = (elements(m, options.k) + elements(m, options.n)) * 2 * sizeof(float);
  for (const std::string& weight : options.weights) {
    needed += elements(options.n, options.k) * sizeof(float);  // before packing
    if (weight != kPlain) needed += gemm::packed_bytes(describe(options, m, weight));
  }
  const auto available = static_cast<std::size_t>(read_memory().available);
  PLAIT_CHECK(needed <= available, "m=", m, " n=", options.n, " k=", options.k, " may take ",
              base::show_bytes(static_cast<double>(needed)), "; available are ",
              base::show_bytes(static_cast<double>(available)));
}

}  // namespace

double MatmulCase::flops() const {
  return 2.0 * static_cast<double>(desc.m) * static_cast<double>(desc.n) *
         static_cast<double>(desc.k);
}

std::size_t MatmulCase::weight_bytes() const {
  if (weight != kPlain) return gemm::packed_bytes(desc);
  return elements(desc.n, desc.k) * size_of(desc.weight);
}

Dtype MatmulCase::operand() const { return gemm::operand_of(desc); }

std::vector<MatmulCase> matmul_cases(const MatmulOptions& options) {
  std::vector<MatmulCase> cases;
  for (const std::int64_t m : options.m) {
    for (const std::string& weight : options.weights) {
      const GemmDesc desc = describe(options, m, weight);
      for (const std::string& backend : backends_of(options, desc))
        cases.push_back({.desc = desc, .weight = weight, .backend = backend});
    }
  }
  PLAIT_CHECK(!cases.empty(), "only the reference backend supports this product (plait info)");
  return cases;
}

MatmulOperands::MatmulOperands(const MatmulOptions& options) : options_(options) {
  check_operands_fit(options);
  const std::int64_t m = *std::max_element(options.m.begin(), options.m.end());
  x_ = Buffer::for_tensor(options.x, m, options.k, {.huge_pages = true});
  tensor::fill_random(x_.view(options.x, m, options.k), /*seed=*/1);
  out_ = Buffer::for_tensor(options.out, m, options.n, {.huge_pages = true});
  std::memset(out_.data(), 0, out_.bytes());
  for (const std::string& kind : options.weights) make_weight(kind);
}

void MatmulOperands::make_weight(const std::string& kind) {
  const GemmDesc desc = describe(options_, 1, kind);
  const Dtype dtype = desc.quant ? options_.x : desc.weight;
  const bool by_outputs = options_.layout == WeightLayout::out_in;
  const std::int64_t rows = by_outputs ? options_.n : options_.k;
  const std::int64_t cols = by_outputs ? options_.k : options_.n;
  Buffer& plain = plain_[dtype];
  if (plain.bytes() == 0) {
    plain = Buffer::for_tensor(dtype, rows, cols, {.huge_pages = true});
    tensor::fill_random(plain.view(dtype, rows, cols), /*seed=*/2);
  }
  const WeightView view = {.view = plain.view(dtype, rows, cols), .layout = options_.layout};
  if (kind == kPlain) {
    weights_.emplace(kind, view);
  } else if (desc.quant) {
    weights_.emplace(kind,
                     PackedWeight(quantize(view, *desc.quant, options_.threads), options_.threads));
  } else {
    weights_.emplace(kind, PackedWeight(view, options_.threads));
  }
}

std::vector<GemmCall> MatmulOperands::calls_of(const MatmulCase& one) {
  const GemmDesc& desc = one.desc;
  const auto [rows, cols] =
      options_.transposed_x ? std::pair(desc.k, desc.m) : std::pair(desc.m, desc.k);
  const Weight weight =
      std::visit([](const auto& any) { return Weight(any); }, weights_.at(one.weight));
  const std::int64_t width = options_.columns == 0 ? desc.n : options_.columns;
  std::vector<GemmCall> calls;
  for (std::int64_t begin = 0; begin < desc.n; begin += width) {
    const std::int64_t end = std::min(begin + width, desc.n);
    // The results of windows are stored one after another, without gaps.
    calls.push_back(
        {.x = {.view = x_.view(desc.x, rows, cols), .transposed = options_.transposed_x},
         .weight = weight,
         .out = {.data = out_.data() + elements(desc.m, begin) * size_of(desc.out),
                 .dtype = desc.out,
                 .rows = desc.m,
                 .cols = end - begin},
         .window = {.columns = {begin, end}},
         .accumulate = options_.accumulate});
  }
  return calls;
}

std::function<void()> MatmulOperands::call_of(const MatmulCase& one) {
  // Shared, because std::function copies its captures, and a Gemm can't be copied.
  auto gemm = std::make_shared<Gemm>(
      select_gemm(one.desc, {.backend = one.backend, .threads = options_.threads}));
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

}  // namespace plait::cli
