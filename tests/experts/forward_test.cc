// Every number of ranks, schedule and placement gives the bits of one rank with all experts, and
// that rank gives what a double loop gives.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <cstring>
#include <string>
#include <thread>
#include <vector>

#include "experts/batch.h"
#include "plait/trace.h"
#include "tensor/float_modes.h"
#include "trace/pack.h"

namespace plait {
namespace {

constexpr std::int64_t kHidden = 96;
constexpr std::int64_t kInner = 80;

ExpertsDesc small(std::int64_t experts = 7, std::int64_t top = 3) {
  return {.hidden = kHidden, .inner = kInner, .experts = experts, .top = top};
}

const std::vector<ExpertsOptions> kWays = {{.schedule = Schedule::serial},
                                           {.schedule = Schedule::fused},
                                           {.schedule = Schedule::serial, .replicated = true},
                                           {.schedule = Schedule::fused, .replicated = true}};

// Rows of each rank: some, none, one and more.
std::vector<std::int64_t> uneven(int world, std::int64_t most) {
  const std::vector<std::int64_t> all = {most, 0, 1, most / 2};
  return {all.begin(), all.begin() + world};
}

void expect_bits_everywhere(const Experts& experts, std::int64_t most = 40) {
  for (const int world : {1, 2, 3, 4}) {
    const Batch batch(experts.desc, uneven(world, most));
    const std::vector<std::byte> wanted = by_one_rank(experts, batch);
    run_in_threads(world, [&](Communicator& comm) {
      for (ExpertsOptions options : kWays) {
        options.threads = comm.rank() == 0 ? 2 : 1;
        expect_bits(comm, experts, batch, options, wanted);
      }
    });
  }
}

double sigmoid(double z) { return 1.0 / (1.0 + std::exp(-z)); }

// An element of the activation, and how much it enlarges an error of its inputs.
struct Activated {
  double value;
  double slope;
};

Activated activated(const ExpertsDesc& desc, const std::vector<double>& up, std::int64_t i) {
  const auto at = [&](std::int64_t index) { return up[static_cast<std::size_t>(index)]; };
  const bool is_interleaved = desc.activation == ExpertActivation::swiglu_interleaved;
  const double limit = desc.limit;
  const double gate = std::min(at(is_interleaved ? 2 * i : i), limit);
  const double value = gate * sigmoid(desc.alpha * gate);
  if (desc.activation == ExpertActivation::silu) return {value, 1.2};
  const double other =
      std::clamp(at(is_interleaved ? 2 * i + 1 : desc.inner + i), -limit, limit) + desc.added;
  return {value * other, 1.2 * std::abs(other) + std::abs(gate)};
}

// Some elements are beyond the limit, and others aren't.
void use_all_of_the_activation(ExpertsDesc& desc) {
  desc.alpha = 1.702F;
  desc.limit = 1.5F;
  desc.added = 1.0F;
}

double gamma(double terms) {
  const double nu = terms * unit_roundoff(Dtype::f32);
  return nu / (1 - nu);
}

// The layer as its header describes it, in double, and a bound of what rounding may change.
void expect_close(const Experts& experts, const Batch& batch, const std::vector<std::byte>& out) {
  const ExpertsDesc& desc = experts.desc;
  std::vector<float> got(static_cast<std::size_t>(batch.rows() * desc.hidden));
  convert(out.data(), desc.out, got.data(), Dtype::f32, got.size());
  for (std::int64_t row = 0; row < batch.rows(); ++row) {
    std::vector<double> sum(static_cast<std::size_t>(desc.hidden), 0.0);
    std::vector<double> bound = sum;
    std::vector<double> magnitude = sum;
    for (std::int64_t slot = row * desc.top; slot < (row + 1) * desc.top; ++slot) {
      const std::int64_t id = batch.ids[static_cast<std::size_t>(slot)];
      if (id < 0) continue;
      const auto expert = static_cast<std::size_t>(id);
      const Values& up = experts.up[expert];
      const Values& down = experts.down[expert];
      const double weight = batch.weights[static_cast<std::size_t>(slot)];
      const bool early = desc.weights_at == ExpertWeightsAt::activation;
      std::vector<double> first(static_cast<std::size_t>(up.rows));
      std::vector<double> error(first.size());
      for (std::int64_t j = 0; j < up.rows; ++j) {
        double magnitudes = 0;
        double value = 0;
        for (std::int64_t k = 0; k < desc.hidden; ++k) {
          value += static_cast<double>(batch.x.at(row, k)) * up.at(j, k);
          magnitudes += std::abs(static_cast<double>(batch.x.at(row, k)) * up.at(j, k));
        }
        if (!experts.up_biases.empty()) value += experts.up_biases[expert].at(0, j);
        first[static_cast<std::size_t>(j)] = value;
        error[static_cast<std::size_t>(j)] = gamma(kHidden + 2) * (magnitudes + 1);
      }
      double worst = 0;
      for (const double one : error) worst = std::max(worst, one);
      std::vector<double> inputs(static_cast<std::size_t>(desc.inner));
      std::vector<double> input_errors(inputs.size());
      for (std::int64_t i = 0; i < desc.inner; ++i) {
        const Activated one = activated(desc, first, i);
        const double scale = early ? weight : 1.0;
        const auto at = static_cast<std::size_t>(i);
        inputs[at] = one.value * scale;
        // A sigmoid, with its exp(), is a dozen roundings. Twice, for products of small errors.
        input_errors[at] = std::abs(scale) * 2 * one.slope * worst +
                           (gamma(16) + unit_roundoff(desc.dtype)) * std::abs(inputs[at]);
      }
      for (std::int64_t n = 0; n < desc.hidden; ++n) {
        double value = experts.down_biases.empty() ? 0 : experts.down_biases[expert].at(0, n);
        double magnitudes = std::abs(value);
        double errors = 0;
        for (std::int64_t i = 0; i < desc.inner; ++i) {
          const double by = down.at(n, i);
          value += inputs[static_cast<std::size_t>(i)] * by;
          magnitudes += std::abs(inputs[static_cast<std::size_t>(i)] * by);
          errors += input_errors[static_cast<std::size_t>(i)] * std::abs(by);
        }
        const double factor = early ? 1.0 : weight;
        const auto at = static_cast<std::size_t>(n);
        sum[at] += factor * value;
        magnitude[at] += std::abs(factor * value);
        bound[at] += std::abs(factor) * (errors + gamma(kInner + 2) * (magnitudes + errors) +
                                         unit_roundoff(desc.wire) * magnitudes);
      }
    }
    for (std::int64_t n = 0; n < desc.hidden; ++n) {
      const auto at = static_cast<std::size_t>(n);
      const double most = bound[at] + gamma(static_cast<double>(2 * desc.top)) * magnitude[at] +
                          unit_roundoff(desc.out) * (std::abs(sum[at]) + bound[at]);
      ASSERT_NEAR(got[static_cast<std::size_t>(row * desc.hidden + n)], sum[at], most)
          << "row " << row << ", column " << n;
    }
  }
}

TEST(Experts, OneRankGivesWhatADoubleLoopGives) {
  for (const auto activation :
       {ExpertActivation::swiglu, ExpertActivation::swiglu_interleaved, ExpertActivation::silu}) {
    for (const auto weights_at : {ExpertWeightsAt::combine, ExpertWeightsAt::activation}) {
      for (const Dtype dtype : {Dtype::f32, Dtype::bf16}) {
        ExpertsDesc desc = small(5, 2);
        desc.activation = activation;
        desc.weights_at = weights_at;
        desc.dtype = dtype;
        desc.out = Dtype::f32;
        use_all_of_the_activation(desc);
        const Experts experts(desc, dtype, "", weights_at == ExpertWeightsAt::combine);
        const Batch batch(experts.desc, {9});
        SCOPED_TRACE(std::string(name(activation)) + " " + std::string(name(weights_at)) + " " +
                     std::string(name(dtype)));
        expect_close(experts, batch, by_one_rank(experts, batch));
      }
    }
  }
}

TEST(Experts, AnyWorldGivesTheBitsOfOneRank) {
  expect_bits_everywhere({small(), Dtype::bf16, "", false});
}

TEST(Experts, AnyWeightGivesTheBitsOfOneRank) {
  for (const Dtype dtype : {Dtype::f32, Dtype::f16}) {
    ExpertsDesc desc = small();
    desc.dtype = dtype;
    desc.out = dtype;
    expect_bits_everywhere({desc, dtype, "packed", true}, 12);
  }
  for (const char* scheme : {"s8", "s8:group=32:offsets", "s4:group=64"})
    expect_bits_everywhere({small(), Dtype::bf16, scheme, true}, 12);
}

TEST(Experts, AnyActivationGivesTheBitsOfOneRank) {
  for (const auto activation : {ExpertActivation::swiglu_interleaved, ExpertActivation::silu}) {
    ExpertsDesc desc = small(5, 4);
    desc.activation = activation;
    use_all_of_the_activation(desc);
    desc.weights_at = ExpertWeightsAt::activation;
    desc.wire = Dtype::bf16;
    desc.out = Dtype::f32;
    expect_bits_everywhere({desc, Dtype::bf16, "", true}, 20);
  }
}

TEST(Experts, ARankNeedsNoExpertsAndPlacesMayBeMixed) {
  ExpertsDesc desc = small();
  const Batch batch(desc, {30, 7, 20});
  const std::vector<std::byte> wanted = by_one_rank({desc, Dtype::bf16, "", false}, batch);
  for (const std::vector<int>& ranks :
       {std::vector<int>{2, 0, 2, 0, 0, 2, 2}, std::vector<int>{1, 1, 1, 1, 1, 1, 1},
        std::vector<int>{2, 1, 0, 2, 1, 0, 2}}) {
    desc.ranks = ranks;
    const Experts experts(desc, Dtype::bf16, "", false);
    run_in_threads(3, [&](Communicator& comm) {
      for (const ExpertsOptions& options : kWays)
        expect_bits(comm, experts, batch, options, wanted);
    });
  }
}

TEST(Experts, FewerExpertsThanRanksAreEnough) {
  expect_bits_everywhere({small(2, 2), Dtype::bf16, "", false});
}

TEST(Experts, BatchesMayBeEmptyOrHaveNoExperts) {
  const Experts experts(small(), Dtype::bf16, "", false);
  run_in_threads(3, [&](Communicator& comm) {
    for (const ExpertsOptions& options : kWays) {
      expect_bits(comm, experts, Batch(experts.desc, {0, 0, 0}), options, {});
      Batch none(experts.desc, {2, 3, 1});
      none.ids.assign(none.ids.size(), -1);
      const std::vector<std::byte> zeros(static_cast<std::size_t>(none.rows() * kHidden) *
                                         size_of(Dtype::bf16));
      expect_bits(comm, experts, none, options, zeros);
    }
  });
}

// Own rows are so many that they are multiplied first, in parts, and others as they come.
TEST(Experts, ManyRowsInFewExpertsGiveTheBitsOfOneRank) {
  const Experts experts(small(4, 2), Dtype::bf16, "packed", false);
  const Batch batch(experts.desc, {900, 300, 0});
  const std::vector<std::byte> wanted = by_one_rank(experts, batch);
  for (const char* link : {"", "1gbit,200us"}) {
    CommunicatorOptions options;
    if (*link != '\0') options.link = parse_link(link);
    run_in_threads(
        3,
        [&](Communicator& comm) {
          for (const ExpertsOptions& way : kWays) expect_bits(comm, experts, batch, way, wanted);
        },
        options);
  }
}

// A layer is used again, with other batches, and keeps its memory.
TEST(Experts, CallsFollowOneAnother) {
  const Experts experts(small(), Dtype::bf16, "", false);
  run_in_threads(3, [&](Communicator& comm) {
    for (const ExpertsOptions& options : kWays) {
      ExpertParallelMLP layer(experts.desc, comm, options);
      const std::vector<std::int64_t> own = layer.experts_of(comm.rank());
      std::size_t held = 0;
      for (unsigned number = 0; number < 16; ++number) {
        const unsigned call = number % 8;
        const Batch batch(experts.desc, {static_cast<std::int64_t>(call * 7 % 30), 5, 17}, call);
        const std::vector<std::byte> wanted = by_one_rank(experts, batch);
        const bool all = options.replicated;
        RankCall mine(
            experts, batch, all ? 0 : batch.first_row(comm.rank()),
            all ? batch.rows() : batch.rows_of_ranks[static_cast<std::size_t>(comm.rank())], own);
        layer.forward(mine.call());
        const std::size_t first =
            all ? 0 : static_cast<std::size_t>(batch.first_row(comm.rank()) * kHidden) * 2;
        ASSERT_TRUE(std::equal(mine.out.begin(), mine.out.end(),
                               wanted.begin() + static_cast<std::ptrdiff_t>(first)))
            << call;
        std::int64_t slots = 0;
        for (const std::int64_t id : batch.ids) slots += std::count(own.begin(), own.end(), id);
        std::int64_t shown = 0;
        for (const std::int64_t rows : layer.rows().of_ranks) shown += rows;
        EXPECT_EQ(shown, slots);
        shown = 0;
        for (const std::int64_t rows : layer.rows().of_experts) shown += rows;
        EXPECT_EQ(shown, slots);
        if (number == 7) held = layer.held_bytes();
      }
      EXPECT_GT(held, 0U);
      // Which rows a product takes at once depends on what has come, and so does its memory; eight
      // calls that each kept their own would have several times as much.
      EXPECT_LE(layer.held_bytes(), 2 * held);
    }
  });
}

// Rank 0 computes what is beside the call while it waits for rank 1, which comes only then.
TEST(Experts, WorkBesideACallFillsItsWait) {
  const Experts experts(small(), Dtype::bf16, "", false);
  for (const int world : {1, 2, 3}) {
    const Batch batch(experts.desc, uneven(world, 40));
    const std::vector<std::byte> wanted = by_one_rank(experts, batch);
    for (const ExpertsOptions& options : kWays) {
      std::atomic<bool> has_worked{false};
      run_in_threads(world, [&](Communicator& comm) {
        ExpertParallelMLP layer(experts.desc, comm, options);
        const bool all = options.replicated;
        const std::int64_t first = all ? 0 : batch.first_row(comm.rank());
        const auto rank = static_cast<std::size_t>(comm.rank());
        RankCall mine(experts, batch, first, all ? batch.rows() : batch.rows_of_ranks[rank],
                      layer.experts_of(comm.rank()));
        layer.forward(mine.call());  // ranks make their mailbox together
        int calls = 0;
        ExpertsForward call = mine.call();
        call.beside = [&](const std::function<void()>& poll_step) {
          ++calls;
          poll_step();
          if (comm.rank() == 0) has_worked = true;
        };
        const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(20);
        while (comm.rank() == 1 && !has_worked && std::chrono::steady_clock::now() < deadline)
          std::this_thread::yield();
        EXPECT_TRUE(comm.rank() != 1 || has_worked);
        layer.forward(call);
        EXPECT_EQ(calls, 1);
        const std::size_t begin = static_cast<std::size_t>(first * kHidden) * 2;
        EXPECT_TRUE(mine.out.empty() ||
                    std::memcmp(mine.out.data(), wanted.data() + begin, mine.out.size()) == 0);
      });
    }
  }
}

// Profiles take the time of a call from these. A call that throws has no return.
TEST(Experts, MarkTheirCalls) {
  const Experts experts(small(), Dtype::bf16, "", false);
  const Batch batch(experts.desc, {5});
  run_in_threads(1, [&](Communicator& comm) {
    ExpertParallelMLP layer(experts.desc, comm);
    RankCall mine(experts, batch, 0, 5, layer.experts_of(0));
    Trace trace(0);
    comm.set_trace(&trace);
    layer.forward(mine.call());
    ExpertsForward failing = mine.call();
    failing.beside = [](const auto& /*poll_step*/) { throw Error(Code::system, "no"); };
    expect_error(Code::system, [&] { layer.forward(failing); });
    comm.set_trace(nullptr);
    const trace::RankRecords found = trace::unpack(trace.pack());
    std::vector<std::string> marks;
    for (const trace::Record& record : found.records) {
      if (record.kind == trace::Kind::mark) marks.push_back(found.labels[record.label]);
    }
    const std::string call = "call experts m=5 hidden=96 inner=80 experts=7 top=3 x=bf16";
    EXPECT_EQ(marks, (std::vector<std::string>{call, "return", call}));
  });
}

TEST(Experts, ModesOfTheCallerAndItsHookDoNotCount) {
  ExpertsDesc desc = small();
  desc.dtype = Dtype::f32;
  desc.out = Dtype::f32;
  const Experts experts(desc, Dtype::f32, "", false);
  Batch batch(experts.desc, {20, 20});
  for (float& weight : batch.weights) weight *= 0x1p-130F;  // results are denormal numbers
  const std::vector<std::byte> wanted = by_one_rank(experts, batch);
  for (const FloatMode& mode : float_modes()) {
    run_in_threads(2, [&](Communicator& comm) {
      ExpertParallelMLP layer(experts.desc, comm, {.threads = 1});
      RankCall mine(experts, batch, batch.first_row(comm.rank()), 20,
                    layer.experts_of(comm.rank()));
      ExpertsForward call = mine.call();
      call.poll = mode.enter;
      mode.enter();
      layer.forward(call);
      mode.leave();
      const std::size_t size = mine.out.size();
      const auto first = static_cast<std::size_t>(comm.rank()) * size;
      EXPECT_EQ(std::memcmp(mine.out.data(), wanted.data() + first, size), 0) << mode.name;
    });
  }
}

TEST(Experts, RowsDoNotDependOnTheirNeighbours) {
  const Experts experts(small(), Dtype::bf16, "", false);
  const Batch batch(experts.desc, {50});
  const std::vector<std::byte> wanted = by_one_rank(experts, batch);
  const std::size_t row_bytes = wanted.size() / 50;
  run_in_threads(1, [&](Communicator& comm) {
    ExpertParallelMLP layer(experts.desc, comm);
    for (const std::int64_t row : {0, 17, 49}) {
      RankCall one(experts, batch, row, 1, layer.experts_of(0));
      layer.forward(one.call());
      EXPECT_TRUE(std::equal(one.out.begin(), one.out.end(),
                             wanted.begin() + row * static_cast<std::ptrdiff_t>(row_bytes)));
    }
  });
}

}  // namespace
}  // namespace plait
