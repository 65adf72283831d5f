// Widths of models that people train and serve, to tune and measure their products.
//
//   const Model* model = find_model("llama2-70b");
//   for (const LinearLayer& layer : linear_layers(widths_of(*model))) ...   // qkv, proj, up, down
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait::plan {

struct Model {
  std::string_view name;
  std::int64_t hidden;
  std::int64_t ffn;  // the inner width of the feed-forward network
  std::int64_t heads;
  std::int64_t kv_heads;  // fewer than heads if several heads share keys and values
  std::int64_t layers;
  bool gated;  // the feed-forward network has a gate as wide as its inner width
  std::int64_t vocab;

  std::int64_t head_size() const { return hidden / heads; }
};

constexpr std::string_view name(const Model& model) { return model.name; }

// All known models, sorted by name.
std::span<const Model> models();

// Null if no model has this name.
const Model* find_model(std::string_view name);

// "bloom-7b, bloom-176b, ...", for messages.
std::string model_names();

// Column-parallel: each rank has some of the outputs. Row-parallel: some of the inputs.
enum class LinearKind : std::uint8_t { column, row };

constexpr std::string_view name(LinearKind kind) {
  return kind == LinearKind::column ? "column" : "row";
}

// A linear layer of a block, before it is sharded.
struct LinearLayer {
  std::string_view name;
  LinearKind kind;
  std::int64_t in;
  std::int64_t out;
};

// The widths that a block's layers share: those of a model, or of a scaled one.
struct BlockWidths {
  std::int64_t hidden;
  std::int64_t keys;  // the width of keys, and of values
  std::int64_t ffn;
  bool gated;
};

BlockWidths widths_of(const Model& model);

// Widths multiplied by `scale`, each rounded to whole panels on every rank. Layers that share a
// width still share it.
BlockWidths scaled(BlockWidths widths, double scale, int ranks);

// The four layers of a block, in the order of use: queries, keys and values together; the output
// projection of attention; gate and up together; down.
std::vector<LinearLayer> linear_layers(const BlockWidths& widths);

}  // namespace plait::plan
