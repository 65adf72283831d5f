#include "measure/experts_case.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <numeric>
#include <random>
#include <utility>

#include "base/check.h"
#include "base/parallel.h"
#include "measure/collective_race.h"
#include "measure/limits.h"
#include "measure/link_search.h"
#include "measure/memory.h"
#include "plait/all_to_all_rows.h"
#include "plait/collectives.h"
#include "plait/experts.h"
#include "plait/packed_weight.h"
#include "tensor/fill.h"

namespace plait::measure {
namespace {

constexpr Effort kFew = {.repetitions = 3};

// This rank's experts with their weights, and the operands of the largest batch.
class ExpertsOperands {
 public:
  ExpertsOperands(const ExpertsSetup& setup, const ExpertsModel& model, Communicator& comm)
      : desc_(describe(model, setup.x)), threads_(setup.threads), backend_(setup.backend) {
    desc_.weight.is_packed = true;
    own_ = ExpertParallelMLP(desc_, comm).experts_of(comm.rank());
    const std::int64_t rows = *std::max_element(setup.tokens.begin(), setup.tokens.end());
    x_ = Buffer::for_tensor(setup.x, rows, desc_.hidden);
    tensor::fill_random(x_.view(setup.x, rows, desc_.hidden), /*seed=*/1);
    for (std::size_t i = 0; i < own_.size(); ++i) {
      pack(up_, model.n, desc_.hidden);
      pack(down_, desc_.hidden, desc_.inner);
    }
    for (const auto& weight : up_) ups_.emplace_back(*weight);
    for (const auto& weight : down_) downs_.emplace_back(*weight);
  }

  const std::vector<std::int64_t>& own() const { return own_; }

  // The operands of one batch beside x.
  struct Batch {
    std::vector<std::int64_t> ids;
    std::vector<float> weights;
    std::int64_t tokens = 0;
  };

  std::function<void()> call(const Batch& batch, Communicator& comm, Schedule schedule,
                             bool replicated, const Buffer& out) {
    auto layer = std::make_shared<ExpertParallelMLP>(desc_, comm,
                                                     ExpertsOptions{.schedule = schedule,
                                                                    .replicated = replicated,
                                                                    .threads = threads_,
                                                                    .backend = backend_});
    return [this, layer, &batch, &out] { run(*layer, batch, out); };
  }

  // The products of so many rows for each own expert, of which each has one.
  std::function<void()> products(const Batch& batch, Communicator& alone, const Buffer& out) {
    ExpertsDesc desc = desc_;
    desc.experts = std::max<std::int64_t>(1, std::ssize(own_));
    desc.top = 1;
    desc.ranks.clear();
    auto layer = std::make_shared<ExpertParallelMLP>(
        desc, alone,
        ExpertsOptions{.schedule = Schedule::serial, .threads = threads_, .backend = backend_});
    x_received_ = Buffer::for_tensor(desc.dtype, batch.tokens, desc.hidden);
    tensor::fill_random(x_received_.view(desc.dtype, batch.tokens, desc.hidden), /*seed=*/1);
    return [this, layer, &batch, &out] {
      if (own_.empty()) return;
      run(*layer, batch, out, &x_received_);
    };
  }

  std::size_t weight_bytes(const std::vector<std::int64_t>& rows) const {
    std::size_t bytes = 0;
    for (std::size_t i = 0; i < own_.size(); ++i)
      if (rows[static_cast<std::size_t>(own_[i])] > 0) bytes += up_[i]->bytes() + down_[i]->bytes();
    return bytes;
  }

 private:
  void run(ExpertParallelMLP& layer, const Batch& batch, const Buffer& out,
           const Buffer* x = nullptr) {
    const ExpertsDesc& desc = layer.desc();
    layer.forward({.x = (x != nullptr ? *x : x_).view(desc.dtype, batch.tokens, desc.hidden),
                   .ids = batch.ids,
                   .weights = batch.weights,
                   .up = ups_,
                   .down = downs_,
                   .out = out.view(desc.out, batch.tokens, desc.hidden)});
  }

  void pack(std::vector<std::unique_ptr<PackedWeight>>& to, std::int64_t n, std::int64_t k) {
    const Buffer plain = Buffer::for_tensor(desc_.dtype, n, k);
    tensor::fill_random(plain.view(desc_.dtype, n, k), /*seed=*/2);
    to.push_back(std::make_unique<PackedWeight>(
        WeightView{.view = plain.view(desc_.dtype, n, k), .layout = WeightLayout::out_in}));
  }

  ExpertsDesc desc_;
  int threads_;
  std::string backend_;
  std::vector<std::int64_t> own_;
  Buffer x_, x_received_;
  std::vector<std::unique_ptr<PackedWeight>> up_, down_;
  std::vector<Weight> ups_, downs_;
};

using Batch = ExpertsOperands::Batch;

// The rows that each rank sends to each expert: counts[rank][expert].
using Counts = std::vector<std::vector<std::int64_t>>;

// The numbers that a rank sends to each: rows, once, and results for each of the rank's slots.
struct Travelling {
  std::vector<std::int64_t> rows, results;
};

// The exchange of the rows of a batch, there and back, with nothing between.
class RowsExchange {
 public:
  RowsExchange(ExpertsDesc desc, Travelling counts)
      : desc_(std::move(desc)),
        counts_(std::move(counts)),
        rows_(std::max(sum_of(counts_.rows), sum_of(counts_.results))),
        x_(Buffer::for_tensor(desc_.dtype, rows_, desc_.hidden)) {
    std::memset(x_.data(), 0, x_.bytes());
  }

  void run(Communicator& comm) {
    all_to_all_rows(first(sum_of(counts_.rows)), counts_.rows, there_, comm);
    all_to_all_rows(first(sum_of(counts_.results)), counts_.results, back_, comm);
  }

  static int rank_of(std::int64_t expert, std::int64_t experts, int world) {
    for (int rank = 0; rank < world; ++rank) {
      const Shard shard = balanced_shard(static_cast<std::size_t>(experts), rank, world);
      if (static_cast<std::size_t>(expert) < shard.offset + shard.count) return rank;
    }
    return world - 1;
  }

 private:
  static std::int64_t sum_of(const std::vector<std::int64_t>& counts) {
    return std::accumulate(counts.begin(), counts.end(), std::int64_t{0});
  }
  ConstTensorView first(std::int64_t rows) const {
    return x_.view(desc_.dtype, rows_, desc_.hidden).row_range(0, rows);
  }

  ExpertsDesc desc_;
  Travelling counts_;
  std::int64_t rows_;
  Buffer x_;
  ReceivedRows there_, back_;
};

bool all_agree(bool mine, Communicator& comm) {
  float differing = mine ? 0.0F : 1.0F;
  all_reduce({&differing, 1}, comm);
  return differing == 0.0F;
}

// One batch of a model, over each of the links.
class BatchMeasure {
 public:
  BatchMeasure(const ExpertsSetup& setup, const ExpertsModel& model, ExpertsOperands& operands,
               Communicator& comm)
      : setup_(setup), model_(model), operands_(operands), comm_(comm) {}

  std::vector<ExpertsMeasurement> measure(std::int64_t tokens, const std::string& skew) {
    draw(tokens, skew);
    const ExpertsDesc desc = describe(model_, setup_.x);
    const int rank = comm_.rank();
    const auto row_bytes = desc.hidden * static_cast<std::int64_t>(size_of(desc.dtype));
    const auto bytes_of = [&](std::int64_t rows) { return static_cast<double>(rows * row_bytes); };
    const Buffer out = Buffer::for_tensor(setup_.x, tokens, desc.hidden);
    const Buffer other = Buffer::for_tensor(setup_.x, tokens, desc.hidden);
    const Buffer local = Buffer::for_tensor(setup_.x, received_.tokens, desc.hidden);
    std::optional<Communicator> alone = comm_.split(rank, 0);
    PLAIT_CHECK(alone.has_value(), "bench experts: a rank has no group of its own");
    const auto products = operands_.products(received_, *alone, local);
    RowsExchange rows(desc, travelling_);
    const std::size_t weight_bytes = operands_.weight_bytes(all_rows());
    const Limit reading = measure::reading(std::max<std::size_t>(weight_bytes, 64),
                                           base::thread_count(setup_.threads));
    std::vector<ExpertsMeasurement> results;
    for (const double ratio : setup_.ratios) {
      std::optional<Link> link;
      if (ratio > 0) {
        CollectiveRace race(comm_, kFew);
        race.add(products);
        const double wanted = ratio * race.run().front().median;
        // If no row leaves its rank, the speed is that for one.
        const auto busiest = std::max<std::int64_t>(busiest_, 2);
        link = link_of(bytes_of(busiest) / wanted * 1e9);
      }
      Communicator over = comm_.with_link(link);
      const auto serial = operands_.call(batch_, over, Schedule::serial, setup_.replicated, out);
      const auto fused = operands_.call(batch_, over, Schedule::fused, setup_.replicated, other);
      serial();
      fused();
      const bool equal = all_agree(std::memcmp(out.data(), other.data(), out.bytes()) == 0, comm_);
      CollectiveRace race(comm_, setup_.effort);
      race.add(products);
      race.add(reading.call);
      race.add(serial);
      race.add(fused);
      if (!setup_.replicated) race.add([&] { rows.run(over); });
      const std::vector<Times> times = race.run();
      results.push_back({.model = model_.name,
                         .tokens = tokens,
                         .skew = skew,
                         .link = link,
                         .by_network = link || comm_.hosts() > 1,
                         .most = most_,
                         .weight_bytes = weight_bytes,
                         .compute = times[0],
                         .exchange = setup_.replicated ? Times{} : times[4],
                         .reading = times[1],
                         .serial = times[2],
                         .fused = times[3],
                         .bits_equal = equal});
    }
    return results;
  }

 private:
  std::vector<std::int64_t> all_rows() const {
    std::vector<std::int64_t> rows(static_cast<std::size_t>(model_.experts), 0);
    for (const auto& of_rank : counts_)
      for (std::size_t expert = 0; expert < rows.size(); ++expert) rows[expert] += of_rank[expert];
    return rows;
  }

  void draw(std::int64_t tokens, const std::string& skew) {
    const int world = comm_.world();
    const auto own = std::ssize(operands_.own());
    const std::vector<double> weights = experts_weights(skew, model_, world);
    counts_.clear();
    Counts rows;  // that travel, by source and rank
    for (int rank = 0; rank < world; ++rank) {
      const std::vector<std::int64_t> ids =
          draw_experts(model_, tokens, weights, setup_.replicated ? 1U : 1U + unsigned(rank));
      auto& counts = counts_.emplace_back(static_cast<std::size_t>(model_.experts), 0);
      for (const std::int64_t id : ids) ++counts[static_cast<std::size_t>(id)];
      rows.push_back(rows_to_ranks(ids));
      if (setup_.replicated || rank == comm_.rank())
        batch_ = {ids, std::vector<float>(ids.size(), 0.125F), tokens};
      if (setup_.replicated) break;
    }
    // The rows and results of pairs of ranks, and the rows of ranks.
    const auto own_rank = static_cast<std::size_t>(comm_.rank());
    std::vector<std::int64_t> to(static_cast<std::size_t>(world), 0);
    travelling_ = {.rows = rows[setup_.replicated ? 0 : own_rank], .results = {}};
    busiest_ = 0;
    for (std::size_t from = 0; from < counts_.size(); ++from) {
      std::vector<std::int64_t> pair(to.size(), 0);
      for (std::int64_t expert = 0; expert < model_.experts; ++expert) {
        const auto rank =
            static_cast<std::size_t>(RowsExchange::rank_of(expert, model_.experts, world));
        pair[rank] += counts_[from][static_cast<std::size_t>(expert)];
      }
      for (std::size_t rank = 0; rank < to.size(); ++rank) {
        to[rank] += pair[rank];
        if (rank != from) busiest_ = std::max(busiest_, rows[from][rank] + pair[rank]);
      }
      travelling_.results.push_back(pair[own_rank]);
    }
    const auto sum = std::accumulate(to.begin(), to.end(), std::int64_t{0});
    most_ = static_cast<double>(*std::max_element(to.begin(), to.end())) * world /
            static_cast<double>(std::max<std::int64_t>(sum, 1));
    // A row of each rank's experts for each that comes.
    received_ = {};
    const std::vector<std::int64_t> of_experts = all_rows();
    for (std::int64_t i = 0; i < own; ++i) {
      const auto expert = static_cast<std::size_t>(operands_.own()[static_cast<std::size_t>(i)]);
      received_.ids.insert(received_.ids.end(), static_cast<std::size_t>(of_experts[expert]), i);
    }
    received_.tokens = std::ssize(received_.ids);
    received_.weights.assign(received_.ids.size(), 1.0F);
    if (setup_.replicated) counts_.resize(static_cast<std::size_t>(world), counts_.front());
  }

  // How many tokens have an expert on each rank.
  std::vector<std::int64_t> rows_to_ranks(const std::vector<std::int64_t>& ids) const {
    const int world = comm_.world();
    std::vector<std::int64_t> rows(static_cast<std::size_t>(world), 0);
    std::vector<std::int64_t> last(rows.size(), -1);  // token that was counted
    for (std::size_t slot = 0; slot < ids.size(); ++slot) {
      const auto token = static_cast<std::int64_t>(slot) / model_.top;
      const auto rank =
          static_cast<std::size_t>(RowsExchange::rank_of(ids[slot], model_.experts, world));
      if (std::exchange(last[rank], token) != token) ++rows[rank];
    }
    return rows;
  }

  const ExpertsSetup& setup_;
  const ExpertsModel& model_;
  ExpertsOperands& operands_;
  Communicator& comm_;
  Counts counts_;
  Batch batch_, received_;
  Travelling travelling_;
  std::int64_t busiest_ = 0;  // rows and results of a pair of ranks
  double most_ = 0;
};

}  // namespace

ExpertsDesc describe(const ExpertsModel& model, Dtype dtype) {
  return {.hidden = model.k,
          .inner = model.n / 2,
          .experts = model.experts,
          .top = model.top,
          .dtype = dtype,
          .out = dtype,
          .wire = dtype,
          .weight = {.dtype = dtype}};
}

double ExpertsMeasurement::ideal() const { return std::max(compute.median, exchange.median); }

std::optional<double> ExpertsMeasurement::efficiency() const {
  const double hidden_at_best = serial.median - ideal();
  if (!by_network || hidden_at_best < kNoise * serial.median) return std::nullopt;
  return (serial.median - fused.median) / hidden_at_best;
}

std::vector<double> experts_weights(std::string_view skew, const ExpertsModel& model, int ranks) {
  const Shard first = balanced_shard(static_cast<std::size_t>(model.experts), 0, ranks);
  std::vector<double> weights(static_cast<std::size_t>(model.experts), 1.0);
  if (skew == "4:1") std::fill_n(weights.begin(), first.count, 4.0);
  if (skew.starts_with("gini=")) {
    // Weights from 1 - d to 1 + d, evenly, have the coefficient d / 3.
    const double most = 3 * std::stod(std::string(skew.substr(5)));
    for (std::size_t i = 0; i < weights.size(); ++i) {
      const double place = (static_cast<double>(i) + 0.5) / static_cast<double>(weights.size());
      weights[i] = 1 - most + 2 * most * place;
    }
    std::mt19937 random(2);
    std::shuffle(weights.begin(), weights.end(), random);
  }
  return weights;
}

std::vector<std::string> experts_skews() { return {"balanced", "gini=0.15", "gini=0.3", "4:1"}; }

void check_memory(const ExpertsSetup& setup, const ExpertsModel& model) {
  // Both weights. The comparison reads memory of its own, with as many bytes.
  check_memory(3.0 * static_cast<double>(model.n * model.k) *
                   static_cast<double>(size_of(setup.x)) * model.experts,
               base::sentence("the experts of ", model.name));
}

std::function<void(std::size_t)> experts_calls(const ExpertsSetup& setup, const ExpertsModel& model,
                                               const std::vector<Plan>& plans, Communicator& comm) {
  struct Case {
    ExpertsOperands operands;
    Batch batch;
    Buffer out;
    std::vector<std::function<void()>> calls;
  };
  const std::int64_t tokens = setup.tokens.front();
  const auto seed = setup.replicated ? 1U : 1U + unsigned(comm.rank());
  const std::string skew = setup.skews.empty() ? "balanced" : setup.skews.front();
  const std::vector<double> weights = experts_weights(skew, model, comm.world());
  const std::vector<std::int64_t> ids = draw_experts(model, tokens, weights, seed);
  auto one = std::make_shared<Case>(
      Case{.operands = ExpertsOperands(setup, model, comm),
           .batch = {ids, std::vector<float>(ids.size(), 0.125F), tokens},
           .out = Buffer::for_tensor(setup.x, tokens, describe(model, setup.x).hidden),
           .calls = {}});
  for (const Plan& plan : plans)
    one->calls.push_back(
        one->operands.call(one->batch, comm, plan.schedule, setup.replicated, one->out));
  return [one](std::size_t i) { one->calls[i](); };
}

Recorded record(const ExpertsSetup& setup, const ExpertsModel& model,
                const std::vector<Plan>& plans, const std::optional<Link>& link,
                Communicator& comm) {
  Recording recording(comm);
  {
    Communicator traced = comm.with_link(link);
    const auto call = experts_calls(setup, model, plans, traced);
    for (std::size_t i = 0; i < plans.size(); ++i) {
      call(i);  // so that it is as warm as the measured runs
      recording.run(name(plans[i]), [&] { call(i); });
    }
  }
  return recording.collect();
}

std::vector<ExpertsMeasurement> measure(const ExpertsSetup& setup, const ExpertsModel& model,
                                        Communicator& comm) {
  ExpertsOperands operands(setup, model, comm);
  BatchMeasure batches(setup, model, operands, comm);
  std::vector<ExpertsMeasurement> results;
  for (const std::int64_t tokens : setup.tokens) {
    for (const std::string& skew : setup.skews) {
      for (ExpertsMeasurement& one : batches.measure(tokens, skew))
        results.push_back(std::move(one));
    }
  }
  return results;
}

}  // namespace plait::measure
