// The order of logits: values, -0 and 0, NaNs, ids.
#include "heads/top_rows.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>

#include "problem.h"

namespace plait::heads {
namespace {

TEST(TopRows, OrderValuesThenIds) {
  const float infinity = std::numeric_limits<float>::infinity();
  const std::vector<float> values = {0.0F, -0.0F, 1,         -1, kNotANumber, -infinity,
                                     0.0F, 1,     -infinity, 3,  kNotANumber, infinity};
  const std::vector<std::int64_t> order = {4, 10, 11, 9, 2, 7, 0, 1, 6, 3, 5, 8};
  for (std::int64_t k = 1; k <= std::ssize(values); ++k) {
    TopRows one(1, k);
    one.add(0, 0, values.data(), std::ssize(values));
    TopRows from_behind(1, k);
    for (std::int64_t i = std::ssize(values) - 1; i >= 0; --i)
      from_behind.add(0, i, &values[static_cast<std::size_t>(i)], 1);
    for (std::int64_t i = 0; i < k; ++i) {
      const TopEntry& entry = one.row(0)[static_cast<std::size_t>(i)];
      EXPECT_EQ(entry.id(), order[static_cast<std::size_t>(i)]);
      EXPECT_EQ(from_behind.row(0)[static_cast<std::size_t>(i)].id(), entry.id());
      EXPECT_EQ(std::memcmp(&entry.value, &values[static_cast<std::size_t>(entry.id())], 4), 0);
    }
  }
}

TEST(TopRows, ThatAreAddedAreThoseOfAll) {
  std::mt19937 random(9);
  std::vector<float> values(2000);
  for (float& value : values) value = static_cast<float>(random() % 50);
  TopRows all(1, 40);
  all.add(0, 0, values.data(), 2000);
  TopRows first(1, 40);
  TopRows second(1, 40);
  second.add(0, 0, values.data(), 30);
  first.add(0, 30, values.data() + 30, 1970);
  first.add(second);
  for (std::size_t i = 0; i < 40; ++i) EXPECT_EQ(first.row(0)[i].key, all.row(0)[i].key);
}

}  // namespace
}  // namespace plait::heads
