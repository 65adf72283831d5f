#include "experts/batch.h"

#include <cstring>
#include <numeric>

namespace plait {

Values::Values(Dtype type, std::int64_t row_count, std::int64_t col_count, float scale,
               std::minstd_rand& random)
    : dtype(type),
      rows(row_count),
      cols(col_count),
      data(static_cast<std::size_t>(row_count * col_count) * size_of(type)),
      exact(static_cast<std::size_t>(row_count * col_count)) {
  for (float& value : exact)
    value = scale * (static_cast<float>(random() % 2001) - 1000.0F) / 1000.0F;
  convert(exact.data(), Dtype::f32, data.data(), type, exact.size());
  convert(data.data(), type, exact.data(), Dtype::f32, exact.size());
}

Values Values::pick(const std::vector<std::int64_t>& of_rows,
                    const std::vector<std::int64_t>& of_cols) const {
  Values some;
  some.dtype = dtype;
  some.rows = std::ssize(of_rows);
  some.cols = std::ssize(of_cols);
  for (const std::int64_t row : of_rows) {
    for (const std::int64_t col : of_cols) some.exact.push_back(at(row, col));
  }
  some.data.resize(some.exact.size() * size_of(dtype));
  convert(some.exact.data(), Dtype::f32, some.data.data(), dtype, some.exact.size());
  return some;
}

namespace {

std::vector<std::int64_t> from(std::int64_t first, std::int64_t count) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(count));
  std::iota(all.begin(), all.end(), first);
  return all;
}

// The outputs of the first product that a part has, of those of a whole expert.
std::vector<std::int64_t> outputs_of_part(const ExpertsDesc& desc, std::int64_t part) {
  if (desc.activation == ExpertActivation::swiglu) {
    std::vector<std::int64_t> both = from(part * desc.inner, desc.inner);
    for (const std::int64_t up : from((desc.parts + part) * desc.inner, desc.inner))
      both.push_back(up);
    return both;
  }
  const std::int64_t each = desc.activation == ExpertActivation::silu ? 1 : 2;
  return from(each * part * desc.inner, each * desc.inner);
}

}  // namespace

Experts::Experts(ExpertsDesc wanted, Dtype dtype, const std::string& scheme, bool has_biases)
    : desc(std::move(wanted)) {
  std::minstd_rand random(77);
  const std::int64_t inner = desc.parts * desc.inner;
  const std::int64_t outputs = desc.activation == ExpertActivation::silu ? inner : 2 * inner;
  const auto add = [&](std::deque<Values>& values, std::vector<Weight>& weights, Values part) {
    values.push_back(std::move(part));
    const WeightView view = {.view = values.back().view(), .layout = WeightLayout::out_in};
    if (scheme.empty()) {
      weights.emplace_back(view);
    } else {
      if (scheme == "packed") {
        packed.emplace_back(view);
      } else {
        packed.emplace_back(quantize(view, *parse_quant_scheme(scheme)));
      }
      weights.emplace_back(packed.back());
    }
  };
  for (std::int64_t expert = 0; expert < desc.experts; ++expert) {
    const Values whole_up(dtype, outputs, desc.hidden, 0.3F, random);
    const Values whole_down(dtype, desc.hidden, inner, 0.3F, random);
    const Values up_bias(Dtype::f32, 1, has_biases ? outputs : 0, 0.5F, random);
    const Values down_bias(Dtype::f32, 1, has_biases ? desc.hidden : 0, 0.5F, random);
    const std::vector<std::int64_t> hidden = from(0, desc.hidden);
    for (std::int64_t part = 0; part < desc.parts; ++part) {
      const std::vector<std::int64_t> its = outputs_of_part(desc, part);
      add(up, up_weights, whole_up.pick(its, hidden));
      add(down, down_weights, whole_down.pick(hidden, from(part * desc.inner, desc.inner)));
      if (!has_biases) continue;
      up_biases.push_back(up_bias.pick({0}, its));
      up_bias_views.push_back(std::as_const(up_biases.back()).view());
      down_biases.push_back(down_bias);
      down_bias_views.push_back(std::as_const(down_biases.back()).view());
    }
  }
  desc.weight = up_weights.front().kind();
}

Batch::Batch(const ExpertsDesc& desc, std::vector<std::int64_t> rows_of, unsigned seed)
    : rows_of_ranks(std::move(rows_of)) {
  std::minstd_rand random(seed);
  const std::int64_t count = rows();
  x = Values(desc.dtype, count, desc.hidden, 1.0F, random);
  for (std::int64_t slot = 0; slot < count * desc.top; ++slot) {
    auto id = static_cast<std::int64_t>(random() / 7 % static_cast<unsigned>(desc.experts));
    const auto kind = random() / 5 % 10;
    if (kind == 0) id = -1;
    if (kind == 1 && slot % desc.top > 0) id = ids.back();
    ids.push_back(id);
    weights.push_back(static_cast<float>(random() % 1000) / 700.0F - 0.2F);
  }
}

std::int64_t Batch::rows() const {
  return std::accumulate(rows_of_ranks.begin(), rows_of_ranks.end(), std::int64_t{0});
}

std::int64_t Batch::first_row(int rank) const {
  return std::accumulate(rows_of_ranks.begin(), rows_of_ranks.begin() + rank, std::int64_t{0});
}

RankCall::RankCall(const Experts& experts, const Batch& batch, std::int64_t first,
                   std::int64_t row_count, const std::vector<std::int64_t>& own)
    : rows(row_count) {
  for (const std::int64_t expert : own) {
    const auto index = static_cast<std::size_t>(expert);
    up.push_back(experts.up_weights[index]);
    down.push_back(experts.down_weights[index]);
    if (experts.up_bias_views.empty()) continue;
    up_biases.push_back(experts.up_bias_views[index]);
    down_biases.push_back(experts.down_bias_views[index]);
  }
  const ExpertsDesc& desc = experts.desc;
  const auto slot = static_cast<std::size_t>(first * desc.top);
  const auto slots = static_cast<std::size_t>(rows * desc.top);
  x = batch.x.view().row_range(first, first + rows);
  ids = std::span(batch.ids).subspan(slot, slots);
  weights = std::span(batch.weights).subspan(slot, slots);
  out.assign(static_cast<std::size_t>(rows * desc.hidden) * size_of(desc.out), std::byte{0xee});
  out_view = {.data = out.data(), .dtype = desc.out, .rows = rows, .cols = desc.hidden};
}

ExpertsForward RankCall::call() const {
  return {.x = x,
          .ids = ids,
          .weights = weights,
          .up = up,
          .down = down,
          .up_biases = up_biases,
          .down_biases = down_biases,
          .out = out_view};
}

std::vector<std::byte> by_one_rank(const Experts& experts, const Batch& batch) {
  std::vector<std::byte> out;
  run_in_threads(1, [&](Communicator& comm) {
    ExpertsDesc desc = experts.desc;
    desc.ranks.clear();
    ExpertParallelMLP layer(desc, comm, {.schedule = Schedule::serial, .threads = 1});
    RankCall mine(experts, batch, 0, batch.rows(), layer.experts_of(0));
    layer.forward(mine.call());
    out = std::move(mine.out);
  });
  return out;
}

void expect_bits(Communicator& comm, const Experts& experts, const Batch& batch,
                 const ExpertsOptions& options, const std::vector<std::byte>& wanted) {
  ExpertParallelMLP layer(experts.desc, comm, options);
  const bool all = options.replicated;
  const std::int64_t first = all ? 0 : batch.first_row(comm.rank());
  const std::int64_t rows =
      all ? batch.rows() : batch.rows_of_ranks[static_cast<std::size_t>(comm.rank())];
  RankCall mine(experts, batch, first, rows, layer.experts_of(comm.rank()));
  layer.forward(mine.call());
  if (mine.out.empty()) return;
  const std::size_t row_bytes = mine.out_view.row_bytes();
  const std::byte* const its = wanted.data() + static_cast<std::size_t>(first) * row_bytes;
  if (std::memcmp(mine.out.data(), its, mine.out.size()) == 0) return;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::size_t at = static_cast<std::size_t>(row) * row_bytes;
    ASSERT_EQ(std::memcmp(mine.out.data() + at, its + at, row_bytes), 0)
        << "row " << row << " of rank " << comm.rank() << " of " << comm.world();
  }
}

}  // namespace plait
