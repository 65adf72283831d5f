#include "shapes.h"

#include <algorithm>
#include <stdexcept>

namespace plait::bench {
namespace {

// Column-parallel layers (qkv, up) have an eighth of the outputs, and row-parallel ones (out, down)
// an eighth of the inputs. LLaMA-2 70B has 64 heads for queries and 8 for keys and values, and its
// "up" includes the gate.
constexpr std::array kShapes = {
    GemmShape{"square", 4096, 4096},

    GemmShape{"bloom_7b.qkv", 1536, 4096},    GemmShape{"bloom_7b.out", 4096, 512},
    GemmShape{"bloom_7b.up", 2048, 4096},     GemmShape{"bloom_7b.down", 4096, 2048},

    GemmShape{"bloom_176b.qkv", 5376, 14336}, GemmShape{"bloom_176b.out", 14336, 1792},
    GemmShape{"bloom_176b.up", 7168, 14336},  GemmShape{"bloom_176b.down", 14336, 7168},

    GemmShape{"llama2_70b.qkv", 1280, 8192},  GemmShape{"llama2_70b.out", 8192, 1024},
    GemmShape{"llama2_70b.up", 7168, 8192},   GemmShape{"llama2_70b.down", 8192, 3584},
};

}  // namespace

std::span<const GemmShape> gemm_shapes() { return kShapes; }

const GemmShape& find_shape(const std::string& name) {
  const auto* found = std::find_if(kShapes.begin(), kShapes.end(),
                                   [&](const GemmShape& shape) { return shape.name == name; });
  if (found != kShapes.end()) return *found;
  std::string names;
  for (const GemmShape& shape : kShapes) {
    names += ' ';
    names += shape.name;
  }
  throw std::invalid_argument("unknown shape " + name + "; known are" + names);
}

}  // namespace plait::bench
