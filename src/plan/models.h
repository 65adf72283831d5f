// Shapes of models that people train and serve, for tuning and measuring what they multiply.
//
//   const Model* model = find_model("llama2-70b");
//   for (const LinearLayer& layer : linear_layers(widths_of(*model))) ...   // qkv, proj, up, down
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace plait {

struct Model {
  std::string_view name;
  std::int64_t hidden;
  std::int64_t ffn;  // how wide the feed-forward network is inside
  std::int64_t heads;
  std::int64_t kv_heads;  // fewer than heads where several share keys and values
  std::int64_t layers;
  bool gated;  // the feed-forward network has a gate as wide as what it gates
  std::int64_t vocab;

  std::int64_t head_size() const { return hidden / heads; }
};

constexpr std::string_view name(const Model& model) { return model.name; }

// All that are known, by name.
std::span<const Model> models();

// Null where no model is called so.
const Model* find_model(std::string_view name);

// "bloom-7b, bloom-176b, ...", for sentences.
std::string model_names();

// Column: each rank has some of the outputs; row: some of the inputs.
enum class LinearKind : std::uint8_t { column, row };

constexpr std::string_view name(LinearKind kind) {
  return kind == LinearKind::column ? "column" : "row";
}

// A linear layer of a block, before it is cut over ranks.
struct LinearLayer {
  std::string_view name;
  LinearKind kind;
  std::int64_t in;
  std::int64_t out;
};

// What the layers of a block fit together by: those of a model, or of a smaller one like it.
struct BlockWidths {
  std::int64_t hidden;
  std::int64_t keys;  // and values: of each as many
  std::int64_t ffn;
  bool gated;
};

BlockWidths widths_of(const Model& model);

// Of a block like it, each to whole panels on every rank; what layers have in common stays the same
// in all of them.
BlockWidths scaled(BlockWidths widths, double scale, int ranks);

// The four of one block, in the order in which they are used: queries, keys and values as one;
// what attention goes through; gate and up as one; down.
std::vector<LinearLayer> linear_layers(const BlockWidths& widths);

}  // namespace plait
