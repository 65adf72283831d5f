// A product's description as text.
#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "gemm/checks.h"
#include "gemm/leaves.h"
#include "gemm/quant_panels.h"
#include "plait/gemm.h"

namespace plait {
namespace {

std::int64_t read_size(std::string_view word, std::string_view value) {
  const auto size = base::parse_int(value);
  PLAIT_CHECK(size && *size >= 0, "matmul: ", word, " is not a size");
  return *size;
}

Dtype read_dtype(std::string_view word, std::string_view value) {
  const auto dtype = parse_dtype(value);
  PLAIT_CHECK(dtype, "matmul: ", word, " is no dtype; there are f32, bf16 and f16");
  return *dtype;
}

// A scheme, or a dtype; "s8" is both, and means the scheme.
void read_weight(GemmDesc& desc, std::string_view word, std::string_view value) {
  desc.quant = parse_quant_scheme(value);
  desc.weight = Dtype::bf16;
  if (desc.quant) return;
  const auto dtype = parse_dtype(value);
  PLAIT_CHECK(dtype, "matmul: ", word, " is no weight; there are f32, bf16, f16, and schemes such ",
              "as s8:channel or s4:group=64:offsets");
  desc.weight = *dtype;
}

}  // namespace

std::string name(const GemmDesc& desc) {
  return base::sentence("m=", desc.m, " n=", desc.n, " k=", desc.k, " x=", name(desc.x),
                        " w=", desc.quant ? name(*desc.quant) : std::string(name(desc.weight)),
                        " out=", name(desc.out),
                        desc.shares == 1 ? std::string() : base::sentence(" shares=", desc.shares));
}

SumTree sum_tree(const GemmDesc& desc) {
  gemm::check(desc);
  return {gemm::refusal_of_nodes(gemm::depth_of(desc), desc.shares)};
}

GemmDesc parse_gemm(std::string_view text) {
  GemmDesc desc = {.m = -1, .n = -1, .k = -1};
  std::vector<std::string_view> known;
  for (const std::string_view word : base::split(text, ' ')) {
    if (word.empty()) continue;
    const std::size_t equals = std::min(word.find('='), word.size());
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = word.substr(std::min(equals + 1, word.size()));
    PLAIT_CHECK(std::find(known.begin(), known.end(), key) == known.end(), "matmul: \"", text,
                "\" says ", key, "= more than once");
    known.push_back(key);
    if (key == "m") {
      desc.m = read_size(word, value);
    } else if (key == "n") {
      desc.n = read_size(word, value);
    } else if (key == "k") {
      desc.k = read_size(word, value);
    } else if (key == "x") {
      desc.x = read_dtype(word, value);
    } else if (key == "w") {
      read_weight(desc, word, value);
    } else if (key == "out") {
      desc.out = read_dtype(word, value);
    } else if (key == "shares") {
      desc.shares = read_size(word, value);
    } else {
      base::fail(Code::invalid_argument, "matmul: ", word,
                 " describes no product; m=, n=, k=, x=, w=, out= and shares= do");
    }
  }
  PLAIT_CHECK(desc.m >= 0 && desc.n >= 0 && desc.k >= 0, "matmul: \"", text,
              "\" lacks one of m=, n= and k=");
  gemm::check(desc);
  return desc;
}

}  // namespace plait
