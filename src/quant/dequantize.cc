#include "base/check.h"
#include "base/default_floats.h"
#include "base/parallel.h"
#include "quant/scheme.h"
#include "quant/tiles.h"
#include "tensor/validate.h"

namespace plait {
namespace {

using quant::Tile;

void check_out(const QuantizedWeight& weight, const WeightView& out) {
  quant::check_layout(out.layout, "dequantize: out");
  tensor::validate_on_cpu(out.view, "dequantize: out");
  PLAIT_CHECK(out.view.dtype != Dtype::s8, "dequantize: out is s8; it must be f32, bf16 or f16");
  const bool out_in = out.layout == WeightLayout::out_in;
  PLAIT_CHECK(out.n() == weight.n() && out.k() == weight.k(), "dequantize: out is ", out.view.rows,
              " x ", out.view.cols, " but the weight in ", name(out.layout), " is ",
              out_in ? weight.n() : weight.k(), " x ", out_in ? weight.k() : weight.n());
}

// One row of a tile, to be dequantised.
struct Row {
  std::int64_t column;
  std::int64_t k, k_count;
  const std::int8_t* values;
  float* weights;
};

void multiply(const QuantizedWeight& weight, std::int64_t group_size, const Row& row) {
  const ConstTensorView scales = weight.scales();
  const ConstTensorView offsets = weight.offsets();
  const auto multiply_part = [&](std::int64_t group, std::int64_t from, std::int64_t to) {
    const std::int64_t part = group * weight.n() + row.column;
    const float scale = static_cast<const float*>(scales.data)[part];
    const bool shifted = offsets.data != nullptr;
    const int offset = shifted ? static_cast<const std::int8_t*>(offsets.data)[part] : 0;
    for (std::int64_t i = from - row.k; i < to - row.k; ++i) {
      row.weights[i] = static_cast<float>(row.values[i] + offset) * scale;
    }
  };
  quant::for_each_group(group_size, row.k, row.k + row.k_count, multiply_part);
}

}  // namespace

void QuantizedWeight::dequantize(const TensorView& out, WeightLayout layout, int threads) const {
  check_out(*this, {.view = out, .layout = layout});
  base::check_threads(threads, "dequantize");
  const base::DefaultFloats floats;
  const WeightView packed = {.view = values(), .layout = WeightLayout::out_in};
  const std::int64_t group_size = quant::group_size(scheme_, k_);
  quant::for_each_tile({.n = n_, .k = k_, .threads = threads}, [&](const Tile& tile) {
    quant::Block<std::int8_t> read;
    quant::Block<float> block;
    quant::read_values(packed, quant::format_of(scheme_.bits), tile, read);
    for (std::int64_t c = 0; c < tile.columns; ++c) {
      multiply(*this, group_size,
               {.column = tile.column + c,
                .k = tile.k,
                .k_count = tile.k_count,
                .values = read.row(c),
                .weights = block.row(c)});
    }
    quant::write_tile(block, tile, out, layout);
  });
}

}  // namespace plait
