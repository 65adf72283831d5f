#include "plan/models.h"

#include <algorithm>
#include <array>
#include <cmath>

namespace plait::plan {
namespace {

// name, hidden, ffn, heads, kv_heads, layers, gated, vocab
constexpr std::array<Model, 4> kModels = {{
    {"bloom-7b", 4096, 16384, 32, 32, 30, false, 250880},
    {"bloom-176b", 14336, 57344, 112, 112, 70, false, 250880},
    {"llama2-7b", 4096, 11008, 32, 32, 32, true, 32000},
    {"llama2-70b", 8192, 28672, 64, 8, 80, true, 32000},
}};

}  // namespace

std::span<const Model> models() { return kModels; }

const Model* find_model(std::string_view name) {
  const auto* const found = std::find_if(kModels.begin(), kModels.end(),
                                         [&](const Model& one) { return one.name == name; });
  return found == kModels.end() ? nullptr : found;
}

std::string model_names() {
  std::string names;
  for (const Model& model : kModels) {
    if (!names.empty()) names += ", ";
    names += model.name;
  }
  return names;
}

BlockWidths widths_of(const Model& model) {
  return {.hidden = model.hidden,
          .keys = model.kv_heads * model.head_size(),
          .ffn = model.ffn,
          .gated = model.gated};
}

BlockWidths scaled(BlockWidths widths, double scale, int ranks) {
  // The widths of most models are multiples of this.
  const std::int64_t unit = std::int64_t{64} * ranks;
  for (std::int64_t* width : {&widths.hidden, &widths.keys, &widths.ffn}) {
    const double exact = static_cast<double>(*width) * scale / static_cast<double>(unit);
    *width = std::max<std::int64_t>(std::llround(exact), 1) * unit;
  }
  return widths;
}

std::vector<LinearLayer> linear_layers(const BlockWidths& widths) {
  const std::int64_t hidden = widths.hidden;
  const std::int64_t inside = widths.gated ? 2 * widths.ffn : widths.ffn;
  return {
      {.name = "qkv", .kind = LinearKind::column, .in = hidden, .out = hidden + 2 * widths.keys},
      {.name = "proj", .kind = LinearKind::row, .in = hidden, .out = hidden},
      {.name = "up", .kind = LinearKind::column, .in = hidden, .out = inside},
      {.name = "down", .kind = LinearKind::row, .in = widths.ffn, .out = hidden}};
}

}  // namespace plait::plan
