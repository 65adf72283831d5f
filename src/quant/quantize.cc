#include <cmath>
#include <memory>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/parallel.h"
#include "quant/grid.h"
#include "quant/scheme.h"
#include "quant/tiles.h"
#include "tensor/validate.h"

namespace plait {
namespace {

using quant::Grid;
using quant::Range;
using quant::Tile;

void check_weight(const WeightView& weight) {
  quant::check_layout(weight.layout, "quantize: the weight");
  tensor::validate_on_cpu(weight.view, "quantize: the weight");
  PLAIT_CHECK(weight.view.dtype != Dtype::s8,
              "quantize: the weight is s8; it must be f32, bf16 or f16");
}

// A weight to be quantised, with its scheme.
struct Job {
  WeightView weight;
  QuantScheme scheme;
  std::int64_t group;  // consecutive k that share a scale
  const quant::Format& format;
  int threads;

  std::int64_t n() const { return weight.n(); }
  std::int64_t k() const { return weight.k(); }
  quant::Tiling tiling() const { return {.n = n(), .k = k(), .threads = threads}; }
};

[[noreturn]] void refuse(const Job& job, std::int64_t column, std::int64_t k, float weight) {
  const bool out_in = job.weight.layout == WeightLayout::out_in;
  const char* infinity = weight < 0 ? "-inf" : "inf";
  base::fail(Code::invalid_argument, "quantize: the weight at [", out_in ? column : k, ", ",
             out_in ? k : column, "] is ", std::isnan(weight) ? "nan" : infinity,
             "; only finite weights can be quantised");
}

[[noreturn]] void refuse_first(const Job& job, std::int64_t column, std::int64_t k,
                               const float* weights) {
  std::int64_t i = 0;
  while (std::isfinite(weights[i])) ++i;
  refuse(job, column, k + i, weights[i]);
}

// Finds the range of every part, [groups, n]. Refuses weights that are not finite.
void find_ranges(const Job& job, Range* ranges) {
  quant::for_each_tile(job.tiling(), [&](const Tile& tile) {
    quant::Block<float> block;
    quant::read_tile(job.weight, tile, block);
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      const std::int64_t column = tile.column + c;
      const auto include = [&](std::int64_t group, std::int64_t from, std::int64_t to) {
        const float* weights = block.row(c) + (from - tile.k);
        Range& range = ranges[group * job.n() + column];
        range.include(weights, to - from);
        if (!range.is_finite()) refuse_first(job, column, from, weights);
      };
      quant::for_each_group(job.group, tile.k, tile.k + tile.k_count, include);
    }
  });
}

void share_one_range(Range* ranges, std::int64_t count) {
  Range whole;
  for (std::int64_t i = 0; i < count; ++i) whole.include(ranges[i]);
  std::fill_n(ranges, count, whole);
}

// The scales of all parts, [groups, n], and their offsets if the scheme has any.
struct Parts {
  float* scales;
  std::int8_t* offsets;
};

void find_grids(const Job& job, const Range* ranges, std::int64_t groups, const Parts& parts) {
  base::parallel_for(groups, job.threads, [&](std::int64_t group) {
    for (std::int64_t i = group * job.n(); i < (group + 1) * job.n(); ++i) {
      const Grid grid = job.scheme.offsets ? Grid::shifted(ranges[i], job.format)
                                           : Grid::centred(ranges[i], job.format);
      parts.scales[i] = grid.scale;
      if (job.scheme.offsets) parts.offsets[i] = static_cast<std::int8_t>(grid.offset);
    }
  });
}

void find_values(const Job& job, const Parts& parts, std::int8_t* values) {
  const std::int64_t row_bytes = job.format.row_bytes(job.k());
  quant::for_each_tile(job.tiling(), [&](const Tile& tile) {
    quant::Block<float> block;
    std::array<std::int8_t, quant::kTileK> whole;  // NOLINT(*-member-init): written first
    quant::read_tile(job.weight, tile, block);
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      const std::int64_t column = tile.column + c;
      float* weights = block.row(c);
      const auto round = [&](std::int64_t group, std::int64_t from, std::int64_t to) {
        const std::int64_t part = group * job.n() + column;
        const int offset = job.scheme.offsets ? parts.offsets[part] : 0;
        const Grid grid = {.scale = parts.scales[part], .offset = offset};
        grid.round(weights + (from - tile.k), to - from, job.format);
      };
      quant::for_each_group(job.group, tile.k, tile.k + tile.k_count, round);
      convert(weights, Dtype::f32, whole.data(), Dtype::s8, static_cast<std::size_t>(tile.k_count));
      std::int8_t* row = values + column * row_bytes + job.format.row_bytes(tile.k);
      job.format.pack(whole.data(), tile.k_count, row);
    }
  });
}

}  // namespace

QuantizedWeight quantize(const WeightView& weight, const QuantScheme& scheme, int threads) {
  quant::check_scheme(scheme, "quantize");
  base::check_threads(threads, "quantize");
  check_weight(weight);
  QuantizedWeight result;
  result.scheme_ = scheme;
  result.n_ = weight.n();
  result.k_ = weight.k();
  result.allocate();
  const base::DefaultFloats floats;
  const Job job = {.weight = weight,
                   .scheme = scheme,
                   .group = quant::group_size(scheme, weight.k()),
                   .format = quant::format_of(scheme.bits),
                   .threads = threads};
  const Parts parts = {.scales = reinterpret_cast<float*>(result.scales_.data()),
                       .offsets = reinterpret_cast<std::int8_t*>(result.offsets_.data())};
  const std::int64_t count = result.groups() * result.n();
  const Buffer memory(static_cast<std::size_t>(count) * sizeof(Range));
  auto* ranges = reinterpret_cast<Range*>(memory.data());
  std::uninitialized_fill_n(ranges, count, Range());

  find_ranges(job, ranges);
  if (scheme.per == QuantPer::tensor) share_one_range(ranges, count);
  find_grids(job, ranges, result.groups(), parts);
  find_values(job, parts, reinterpret_cast<std::int8_t*>(result.values_.data()));
  return result;
}

}  // namespace plait
