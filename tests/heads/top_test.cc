// matmul_top() against sorted logits of one rank, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <numeric>

#include "problem.h"

namespace plait {
namespace {

struct Found {
  std::vector<float> values;
  std::vector<std::int64_t> ids;

  Found(std::int64_t m, std::int64_t k)
      : values(static_cast<std::size_t>(m * k)), ids(static_cast<std::size_t>(m * k)) {}
};

// The plain way: all logits, sorted.
Found sorted(const Head& head, std::int64_t k, std::int64_t vocab_size, Dtype rounded) {
  const std::vector<float> logits = head.logits(rounded);
  Found found(head.m, k);
  for (std::int64_t row = 0; row < head.m; ++row) {
    const float* values = logits.data() + row * head.v;
    std::vector<std::int64_t> ids(static_cast<std::size_t>(vocab_size));
    std::iota(ids.begin(), ids.end(), 0);
    std::stable_sort(ids.begin(), ids.end(), [&](std::int64_t a, std::int64_t b) {
      if (values[b] != values[b]) return false;
      return values[a] != values[a] || values[a] > values[b];
    });
    for (std::int64_t i = 0; i < k; ++i) {
      const auto at = static_cast<std::size_t>(row * k + i);
      found.ids[at] = ids[static_cast<std::size_t>(i)];
      found.values[at] = values[found.ids[at]];
    }
  }
  return found;
}

class TopOfRanks : public RanksTest {
 protected:
  void expect_sorted(const Head& head, std::int64_t k, VocabularyOptions options = {}) const {
    const std::int64_t size = options.vocab_size < 0 ? head.v : options.vocab_size;
    const Found wanted = sorted(head, k, size, options.logits);
    run([&](Communicator& comm) {
      for (const auto& firsts : {even_shares(head.v, world()), odd_shares(head.v, world())}) {
        const std::int64_t first = firsts[static_cast<std::size_t>(comm.rank())];
        const std::int64_t count = firsts[static_cast<std::size_t>(comm.rank()) + 1] - first;
        const WeightView weight = head.weight(first, count);
        const PackedWeight packed(weight);
        for (const bool is_packed : {false, true}) {
          VocabularyOptions how = options;
          how.threads = is_packed ? 3 : 1;
          how.first_id = is_packed ? first : -1;
          Found found(head.m, k);
          matmul_top(head.x_view(), is_packed ? Weight(packed) : Weight(weight),
                     {.k = k, .values = found.values, .ids = found.ids}, comm, how);
          EXPECT_EQ(found.ids, wanted.ids);
          EXPECT_TRUE(same_bits(found.values, wanted.values));
        }
      }
    });
  }
};

TEST_P(TopOfRanks, HasTheBitsOfSortedLogits) {
  for (const std::int64_t m : {1, 5, 64}) expect_sorted(Head(m, 1003, 65), 7);
  expect_sorted(Head(3, 5000, 33, Dtype::bf16), 1);
  expect_sorted(Head(2, 700, 33, Dtype::f16), 5);
  expect_sorted(Head(0, 700, 33), 5);
}

TEST_P(TopOfRanks, PutsTheLowestOfEqualIdsFirst) {
  expect_sorted(Head(5, 900, 3, Dtype::f32, true), 40);
  expect_sorted(Head(5, 900, 64, Dtype::bf16), 40, {.logits = Dtype::bf16});
}

TEST_P(TopOfRanks, TakesMoreThanARankHas) {
  expect_sorted(Head(3, 20, 16), 20);
  expect_sorted(Head(3, 1500, 16), kMostTop);
}

TEST_P(TopOfRanks, LeavesPaddingOut) {
  expect_sorted(Head(4, 512, 16), 30, {.vocab_size = 401});
  expect_sorted(Head(4, 512, 16), 3, {.vocab_size = 3});
}

TEST_P(TopOfRanks, PutsNaNsFirst) {
  Head head(3, 600, 16);
  head.set(head.w, 599, 2, kNotANumber);
  head.set(head.w, 40, 2, kNotANumber);
  expect_sorted(head, 4);
}

TEST_P(TopOfRanks, TakesAQuantisedWeight) {
  const Head head(3, 640, 64, Dtype::bf16);
  const QuantizedWeight quantized = quantize(head.weight(0, 640), *parse_quant_scheme("s8"));
  const PackedWeight whole(quantized);
  Found wanted(3, 6);
  run_in_threads(1, [&](Communicator& comm) {
    matmul_top(head.x_view(), whole, {.k = 6, .values = wanted.values, .ids = wanted.ids}, comm);
  });
  EXPECT_NE(wanted.values[0], 0);
  run([&](Communicator& comm) {
    // A scale for the whole tensor would differ from share to share: one rank has it all.
    const PackedWeight none(quantize(head.weight(0, 0), *parse_quant_scheme("s8")));
    const bool has_all = comm.rank() == comm.world() - 1;
    Found found(3, 6);
    matmul_top(head.x_view(), has_all ? whole : none,
               {.k = 6, .values = found.values, .ids = found.ids}, comm);
    EXPECT_EQ(found.ids, wanted.ids);
    EXPECT_TRUE(same_bits(found.values, wanted.values));
  });
}

INSTANTIATE_TEST_SUITE_P(Threads, TopOfRanks,
                         worlds_of({.name = "threads", .run = run_as_threads}, {1, 2, 3}),
                         case_name);
INSTANTIATE_TEST_SUITE_P(Shm, TopOfRanks,
                         worlds_of({.name = "shm", .run = run_in_processes}, {2, 4}), case_name);

std::string refused(Code code, const Head& head, std::int64_t k, const VocabularyOptions& options,
                    std::int64_t other_k = -1) {
  std::string sentence;
  run_in_threads(2, [&](Communicator& comm) {
    const bool is_last = comm.rank() == 1;
    const std::int64_t wanted = is_last && other_k >= 0 ? other_k : k;
    std::vector<float> values(static_cast<std::size_t>(head.m * wanted), -7);
    std::vector<std::int64_t> ids(values.size(), -7);
    const Error error = expect_error(code, [&] {
      matmul_top(head.x_view(), head.weight(0, head.v), {.k = wanted, .values = values, .ids = ids},
                 comm, options);
    });
    for (const std::int64_t id : ids) EXPECT_EQ(id, -7);
    if (is_last) sentence = error.what();
  });
  return sentence;
}

TEST(Top, RefusesInASentence) {
  const Head head(2, 10, 4);
  EXPECT_EQ(refused(Code::invalid_argument, head, 21, {}),
            "matmul_top: k is 21, but the vocabulary has 20 ids");
  EXPECT_EQ(refused(Code::invalid_argument, head, 0, {}),
            "matmul_top: k is 0; it must be from 1 to 1024");
  EXPECT_EQ(refused(Code::invalid_argument, head, 2, {.vocab_size = 21}),
            "matmul_top: vocab_size is 21, but the ranks' weights have 20 rows");
  EXPECT_EQ(
      refused(Code::mismatch, head, 2, {.first_id = 10}),
      "matmul_top: rank 0 gives first_id 10, but the ranks before it have 0 rows of the weight");
  EXPECT_EQ(refused(Code::mismatch, head, 2, {.vocab_size = 20}, 3),
            "matmul_top: rank 1 has k 3, and rank 0 has 2");
  const std::string differ = refused(Code::mismatch, head, 2, {}, 3);
  EXPECT_TRUE(differ.starts_with("matmul_top: the ranks' calls differ, perhaps in ")) << differ;
}

// Ranks that pad make another exchange first.
TEST(Top, RefusesAVocabularyThatOneRankAlonePads) {
  const Head head(2, 10, 4);
  run_in_threads(2, [&](Communicator& comm) {
    std::vector<float> values(4);
    std::vector<std::int64_t> ids(4);
    const Error error = expect_error(Code::mismatch, [&] {
      matmul_top(head.x_view(), head.weight(0, head.v), {.k = 2, .values = values, .ids = ids},
                 comm, {.vocab_size = comm.rank() == 0 ? 18 : -1});
    });
    EXPECT_TRUE(contains(error.what(), "matmul_top: the ranks' calls differ, ")) << error.what();
    EXPECT_TRUE(contains(error.what(), "vocab_size")) << error.what();
  });
}

TEST(Top, SavesAnExchangeIfNothingIsPaddingOrFirstIdsAreGiven) {
  const Head head(1, 4000, 16);
  struct Case {
    bool knows;
    std::int64_t vocab_size;
    int calls;  // of both ranks
  };
  for (const auto& [knows, vocab_size, expected] :
       {Case{false, 4000, 4}, Case{true, 4000, 2}, Case{false, -1, 2}}) {
    std::atomic<int> calls{0};
    run_in_threads(2, [&](Communicator& comm) {
      const std::uint64_t before = comm.completed_calls();
      float value = 0;
      std::int64_t id = 0;
      matmul_top(
          head.x_view(), head.weight(std::int64_t{2000} * comm.rank(), 2000),
          {.k = 1, .values = {&value, 1}, .ids = {&id, 1}}, comm,
          {.vocab_size = vocab_size, .first_id = knows ? std::int64_t{2000} * comm.rank() : -1});
      calls += static_cast<int>(comm.completed_calls() - before);
    });
    EXPECT_EQ(calls, expected);
  }
}

}  // namespace
}  // namespace plait
