// The products whose speed is compared with cuBLASLt's.
#pragma once

#include <cstdint>
#include <vector>

namespace plait::gpu {

struct NamedShape {
  const char* name;  // the origin of the shape
  std::int64_t m, k, n;
};

// The shapes of the tests of MindSpeed's fused operators.
inline const std::vector<NamedShape>& mindspeed_shapes() {
  static const std::vector<NamedShape> shapes = {
      {"mindspeed", 2048, 4096, 8192},   {"mindspeed", 3584, 45056, 4608},
      {"mindspeed", 1280, 32768, 8192},  {"mindspeed", 4096, 23640, 1638},
      {"mindspeed", 5504, 32768, 8192},  {"mindspeed", 5120, 32256, 7936},
      {"mindspeed", 6848, 32768, 8192},  {"mindspeed", 3072, 32768, 8192},
      {"mindspeed", 16384, 23640, 4096},
  };
  return shapes;
}

struct NamedLayer {
  const char* name;
  bool row;  // row-parallel: its partial sums are reduced. Otherwise its input is gathered.
  std::int64_t k, n;
};

// One rank's shards of the linear layers of two models on 8 ranks. The column-parallel ones are
// the fused query, key and value projection, and the first layer of the MLP (LLaMA2: both halves).
inline const std::vector<NamedLayer>& model_layers() {
  static const std::vector<NamedLayer> layers = {
      {"llama2-70b attention out", true, 1024, 8192},  {"llama2-70b mlp down", true, 3584, 8192},
      {"llama2-70b qkv", false, 8192, 1280},           {"llama2-70b mlp up", false, 8192, 7168},
      {"bloom-176b attention out", true, 1792, 14336}, {"bloom-176b mlp down", true, 7168, 14336},
      {"bloom-176b qkv", false, 14336, 5376},          {"bloom-176b mlp up", false, 14336, 7168},
  };
  return layers;
}

// All layers with 2048, 4096 and 8192 rows. `row`: only these layers.
inline std::vector<NamedShape> model_shapes(bool row) {
  std::vector<NamedShape> shapes;
  for (const NamedLayer& layer : model_layers())
    for (const std::int64_t m : {2048, 4096, 8192})
      if (layer.row == row) shapes.push_back({layer.name, m, layer.k, layer.n});
  return shapes;
}

// All 33 shapes: 9 of MindSpeed, 12 of row-parallel and 12 of column-parallel layers.
inline std::vector<NamedShape> all_shapes() {
  std::vector<NamedShape> shapes = mindspeed_shapes();
  for (const bool row : {true, false})
    for (const NamedShape& shape : model_shapes(row)) shapes.push_back(shape);
  return shapes;
}

}  // namespace plait::gpu
