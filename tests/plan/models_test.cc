#include "plan/models.h"

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace plait::plan {
namespace {

// The parameters of the blocks' weights and one embedding.
std::int64_t parameters(const Model& model) {
  std::int64_t block = 0;
  for (const LinearLayer& layer : linear_layers(widths_of(model))) block += layer.in * layer.out;
  return model.layers * block + model.vocab * model.hidden;
}

TEST(Models, AreAsLargeAsTheirNamesSay) {
  EXPECT_EQ(parameters(*find_model("llama2-7b")) / 100'000'000, 66);  // and 0.13 for the head
  EXPECT_EQ(parameters(*find_model("llama2-70b")) / 1'000'000'000, 68);
  EXPECT_EQ(parameters(*find_model("bloom-7b")) / 100'000'000, 70);
  EXPECT_EQ(parameters(*find_model("bloom-176b")) / 1'000'000'000, 176);
}

TEST(Models, ShareKeysAndValuesWhereTheyDo) {
  const auto layers = linear_layers(widths_of(*find_model("llama2-70b")));
  ASSERT_EQ(layers.size(), 4U);
  EXPECT_EQ(layers[0].name, "qkv");
  EXPECT_EQ(layers[0].out, 8192 + 2 * 1024);
  EXPECT_EQ(layers[0].kind, LinearKind::column);
  EXPECT_EQ(layers[2].out, 2 * 28672);
  EXPECT_EQ(layers[3].in, 28672);
  EXPECT_EQ(layers[3].kind, LinearKind::row);
}

TEST(Models, AreMadeSmallerInWholePanelsOfEveryRank) {
  const BlockWidths small = scaled(widths_of(*find_model("llama2-7b")), 0.25, 3);
  EXPECT_EQ(small.hidden, 5 * 192);  // the nearest to 1024
  EXPECT_EQ(small.keys, 5 * 192);
  EXPECT_EQ(small.ffn, 14 * 192);  // the nearest to 2752
  EXPECT_EQ(scaled(small, 0.001, 3).hidden, 192);
}

TEST(Models, AreFoundByNameAlone) {
  for (const Model& model : models()) {
    EXPECT_EQ(find_model(model.name), &model);
    EXPECT_EQ(model.hidden % model.heads, 0) << model.name;
    EXPECT_NE(model_names().find(model.name), std::string::npos);
  }
  EXPECT_EQ(find_model("llama2"), nullptr);
  EXPECT_EQ(find_model(""), nullptr);
}

}  // namespace
}  // namespace plait::plan
