#include "measure/grouped_case.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <random>

#include "base/check.h"
#include "gemm/quant_panels.h"
#include "measure/memory.h"
#include "plait/packed_weight.h"
#include "plait/quantized.h"
#include "tensor/fill.h"

namespace plait::measure {
namespace {

std::int64_t most_rows(const GroupedSetup& setup, const ExpertsModel& model) {
  return *std::max_element(setup.tokens.begin(), setup.tokens.end()) * model.top;
}

GemmDesc describe(const GroupedSetup& setup, const ExpertsModel& model) {
  const std::int64_t m = std::max<std::int64_t>(most_rows(setup, model) / model.experts, 1);
  return parse_gemm(base::sentence("m=", m, " n=", model.n, " k=", model.k, " x=", name(setup.x),
                                   " w=", setup.weight, " out=", name(setup.out)));
}

std::int64_t sum(const std::vector<std::int64_t>& rows) {
  return std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
}

}  // namespace

const std::vector<ExpertsModel>& experts_models() {
  static const std::vector<ExpertsModel> models = {
      {.name = "qwen3-30b-a3b", .n = 2 * 768, .k = 2048, .experts = 128, .top = 8},
      {.name = "deepseek-v2-lite", .n = 2 * 1408, .k = 2048, .experts = 64, .top = 6},
      {.name = "gpt-oss-quarter", .n = 2 * 720, .k = 720, .experts = 32, .top = 4}};
  return models;
}

std::vector<std::int64_t> draw_experts(const ExpertsModel& model, std::int64_t tokens,
                                       const std::vector<double>& weights, unsigned seed) {
  std::mt19937 random(seed);
  std::uniform_real_distribution<double> uniform(1e-9, 1);
  std::vector<std::int64_t> ids;
  std::vector<std::pair<double, std::int64_t>> keys(weights.size());
  for (std::int64_t token = 0; token < tokens; ++token) {
    // The smallest keys are a weighted choice without repetition.
    for (std::size_t expert = 0; expert < keys.size(); ++expert)
      keys[expert] = {-std::log(uniform(random)) / weights[expert], expert};
    std::partial_sort(keys.begin(), keys.begin() + model.top, keys.end());
    for (int i = 0; i < model.top; ++i) ids.push_back(keys[static_cast<std::size_t>(i)].second);
  }
  return ids;
}

std::vector<std::int64_t> rows_of_experts(const ExpertsModel& model, std::int64_t tokens,
                                          std::string_view skew) {
  std::vector<double> weights(static_cast<std::size_t>(model.experts), 1.0);
  for (std::size_t expert = 0; skew == "skewed" && expert < weights.size(); ++expert)
    weights[expert] = 1 / static_cast<double>(expert + 1);
  std::vector<std::int64_t> rows(weights.size());
  for (const std::int64_t id : draw_experts(model, tokens, weights, /*seed=*/1))
    ++rows[static_cast<std::size_t>(id)];
  return rows;
}

GroupedOperands::GroupedOperands(const GroupedSetup& setup, const ExpertsModel& model)
    : setup_(setup), desc_(describe(setup, model)) {
  const std::int64_t rows = most_rows(setup, model);
  const auto packed = static_cast<double>(gemm::packed_bytes(desc_)) * model.experts;
  // The comparison reads memory of its own, with as many bytes.
  check_memory(2 * packed + static_cast<double>(rows * (model.n + model.k)) * sizeof(float),
               base::sentence("the experts of ", model.name));
  x_ = Buffer::for_tensor(setup.x, rows, model.k, {.huge_pages = true});
  tensor::fill_random(x_.view(setup.x, rows, model.k), /*seed=*/1);
  out_ = Buffer::for_tensor(setup.out, rows, model.n, {.huge_pages = true});
  std::memset(out_.data(), 0, out_.bytes());
  const Dtype dtype = desc_.quant ? setup.x : desc_.weight;
  const Buffer plain = Buffer::for_tensor(dtype, model.n, model.k);
  tensor::fill_random(plain.view(dtype, model.n, model.k), /*seed=*/2);
  const WeightView view = {.view = plain.view(dtype, model.n, model.k),
                           .layout = WeightLayout::out_in};
  for (int expert = 0; expert < model.experts; ++expert) {
    packed_.push_back(desc_.quant ? std::make_unique<PackedWeight>(
                                        quantize(view, *desc_.quant, setup.threads), setup.threads)
                                  : std::make_unique<PackedWeight>(view, setup.threads));
    weights_.emplace_back(*packed_.back());
  }
}

std::size_t GroupedOperands::weight_bytes(const std::vector<std::int64_t>& rows) const {
  const auto touched =
      std::count_if(rows.begin(), rows.end(), [](auto count) { return count > 0; });
  return gemm::packed_bytes(desc_) * static_cast<std::size_t>(touched);
}

std::function<void()> GroupedOperands::one_call(const std::vector<std::int64_t>& rows) {
  // Shared, because std::function copies its captures, and the product can't be copied.
  auto gemm = std::make_shared<GroupedGemm>(
      select_grouped_gemm(desc_, {.backend = setup_.backend, .threads = setup_.threads}));
  return [this, gemm, rows] {
    gemm->run({.x = x_.view(desc_.x, sum(rows), desc_.k),
               .rows = rows,
               .weights = weights_,
               .out = out_.view(desc_.out, sum(rows), desc_.n)});
  };
}

std::function<void()> GroupedOperands::group_by_group(const std::vector<std::int64_t>& rows) {
  auto gemm = std::make_shared<Gemm>(
      select_gemm(desc_, {.backend = setup_.backend, .threads = setup_.threads}));
  return [this, gemm, rows] {
    const ConstTensorView x = x_.view(desc_.x, sum(rows), desc_.k);
    const TensorView out = out_.view(desc_.out, sum(rows), desc_.n);
    std::int64_t first = 0;
    for (std::size_t group = 0; group < rows.size(); ++group) {
      const std::int64_t end = first + rows[group];
      if (rows[group] > 0) {
        gemm->run({.x = {.view = x.row_range(first, end)},
                   .weight = weights_[group],
                   .out = out.row_range(first, end)});
      }
      first = end;
    }
  };
}

}  // namespace plait::measure
