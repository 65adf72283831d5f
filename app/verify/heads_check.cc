// The calls that follow a product by ranks' shares of a vocabulary, whose results must have the
// bits of one rank that has the whole vocabulary.
#include <cstring>
#include <numeric>
#include <optional>
#include <string>
#include <vector>

#include "base/check.h"
#include "plait/collectives.h"
#include "plait/columns.h"
#include "plait/packed_weight.h"
#include "verify/check.h"

namespace plait::verify {
namespace {

constexpr const char* kGatheredFirst = "product of gathered columns";

// The results of one rank, whose ids begin with `first`.
class Heads {
 public:
  Heads(const HeadsCase& one, Communicator& comm, std::vector<std::int64_t> shares)
      : case_(one),
        comm_(comm),
        shares_(std::move(shares)),
        own_(shares_[static_cast<std::size_t>(comm.rank())]),
        first_(std::accumulate(shares_.begin(), shares_.begin() + comm.rank(), std::int64_t{0})),
        x_(one.x, one.m, one.k) {
    fill(x_.view(), one.numbers, one.seed * 4 + kSeedOfX);
    // The whole weight is quantised, because scales may depend on all of it.
    const bool out_in = one.layout == WeightLayout::out_in;
    weight_ = Guarded(one.scheme ? Dtype::f32 : one.weight, out_in ? one.ids() : one.k,
                      out_in ? one.k : one.ids());
    // A weight to be quantised must be finite.
    fill(weight_.view(), one.scheme ? Numbers::usual : one.numbers, one.seed * 4 + kSeedOfWeight);
    if (one.scheme) {
      const WeightView whole = {.view = weight_.view(), .layout = one.layout};
      packed_.emplace(
          part_of(quantize(whole, *one.scheme, /*threads=*/1), {first_, first_ + own_}, {0, one.k}),
          /*threads=*/1);
    } else if (one.packed) {
      packed_.emplace(plain());
    }
    const std::int64_t size = one.options.vocabulary.vocab_size;
    const std::int64_t ids = size < 0 ? one.ids() : size;
    for (std::int64_t row = 0; row < one.m; ++row)
      targets_.push_back(row % 5 == 3 ? one.options.ignored_target : row * 7919 % ids);
  }

  bool has_gradients() const { return !case_.scheme && case_.layout == WeightLayout::out_in; }
  std::int64_t own() const { return own_; }
  std::int64_t first() const { return first_; }

  Results run(const HeadsVariant& variant) {
    CrossEntropyOptions options = case_.options;
    options.vocabulary.threads = variant.threads;
    if (variant.gives_first_id) options.vocabulary.first_id = first_;
    const auto rows = static_cast<std::size_t>(case_.m);
    std::vector<float> values(rows * static_cast<std::size_t>(case_.top));
    std::vector<std::int64_t> ids(values.size());
    matmul_top(x_.view(), weight(), {.k = case_.top, .values = values, .ids = ids}, comm_,
               options.vocabulary);
    Results results;
    add(results, "values", values, case_.m);
    // Ids are below 2^24, so f32 has them.
    add(results, "ids", std::vector<float>(ids.begin(), ids.end()), case_.m);
    std::vector<float> loss(rows);
    std::vector<float> sums(rows);
    matmul_cross_entropy(
        {.x = x_.view(), .weight = weight(), .targets = targets_, .out = loss, .log_sum_exp = sums},
        comm_, options);
    add(results, "loss", loss, 1);
    add(results, "log_sum_exp", sums, 1);
    results.push_back({"columns", Guarded(case_.x, case_.m, case_.ids())});
    results.back().matrix.poison();
    matmul_all_gather_columns(
        x_.view(), weight(), results.back().matrix.view(), comm_,
        {.counts = shares_, .threads = variant.threads, .plan = variant.plan});
    gather_first(results, variant);
    if (!has_gradients()) return results;
    const std::vector<float> grads(rows, 0.5F);
    for (const bool at_once : {false, true}) {
      results.push_back({at_once ? "dx at once" : "dx", Guarded(Dtype::f32, case_.m, case_.k)});
      results.push_back({at_once ? "dw at once" : "dw", Guarded(Dtype::f32, own_, case_.k)});
      for (std::size_t i = results.size() - 2; i < results.size(); ++i) results[i].matrix.poison();
      CrossEntropyGradient call = {.x = x_.view(),
                                   .weight = plain(),
                                   .targets = targets_,
                                   .log_sum_exp = {},
                                   .grad_loss = grads,
                                   .dx = results[results.size() - 2].matrix.view(),
                                   .dw = results.back().matrix.view()};
      if (!at_once) {
        call.log_sum_exp = sums;
        matmul_cross_entropy_gradient(call, comm_, options);
        continue;
      }
      matmul_cross_entropy_with_gradient(call, {.losses = loss, .log_sum_exp = sums}, comm_,
                                         options);
      add(results, "loss at once", loss, 1);
    }
    return results;
  }

 private:
  // Ranks have some columns of x each, in balanced shares.
  void gather_first(Results& results, const HeadsVariant& variant) {
    const Shard share =
        balanced_shard(static_cast<std::size_t>(case_.k), comm_.rank(), comm_.world());
    const auto begin = static_cast<std::int64_t>(share.offset);
    const Guarded gathered(case_.x, case_.m, case_.k);
    results.push_back({kGatheredFirst, Guarded(case_.x, case_.m, own_)});
    results.back().matrix.poison();
    all_gather_columns_matmul(
        x_.view().column_range(begin, begin + static_cast<std::int64_t>(share.count)), weight(),
        gathered.view(), results.back().matrix.view(), comm_,
        {.threads = variant.threads, .plan = variant.plan});
  }

  static void add(Results& results, const char* name, const std::vector<float>& values,
                  std::int64_t rows) {
    const std::int64_t cols = rows == 0 ? 0 : std::ssize(values) / rows;
    results.push_back({name, Guarded(Dtype::f32, rows, cols)});
    results.back().matrix.poison();
    for (std::int64_t row = 0; row < rows && cols > 0; ++row) {
      std::memcpy(results.back().matrix.view().row(row), values.data() + row * cols,
                  static_cast<std::size_t>(cols) * sizeof(float));
    }
  }

  WeightView plain() const {
    const TensorView& whole = weight_.view();
    return {.view = case_.layout == WeightLayout::out_in
                        ? whole.row_range(first_, first_ + own_)
                        : whole.column_range(first_, first_ + own_),
            .layout = case_.layout};
  }
  Weight weight() const {
    if (packed_) return *packed_;
    return plain();
  }

  const HeadsCase& case_;
  Communicator& comm_;
  std::vector<std::int64_t> shares_;
  std::int64_t own_;
  std::int64_t first_;
  Guarded x_;
  Guarded weight_;
  std::optional<PackedWeight> packed_;
  std::vector<std::int64_t> targets_;
};

class HeadsSubject final : public Subject {
 public:
  HeadsSubject(const HeadsCase& one, Communicator& comm)
      : Subject(one, comm), case_(one), heads_(one, comm, one.shares) {}

 private:
  std::size_t variants() const override { return case_.variants.size(); }

  std::string place_of(std::size_t number, std::size_t) const override {
    const HeadsVariant& variant = case_.variants[number - 1];
    return base::sentence("with ", variant.threads, " threads",
                          variant.gives_first_id ? " and first_id" : "", ", and with the plan \"",
                          name(variant.plan), "\": ");
  }

  std::vector<Results> run(std::size_t number) override {
    std::vector<Results> calls(1);
    const bool kept = call_in_some_mode(
        [&] { calls[0] = heads_.run(number == 0 ? HeadsVariant{} : case_.variants[number - 1]); });
    if (!kept) note(aside_, "a call has changed the thread's float mode");
    return calls;
  }

  std::string check_serial(const std::vector<Results>& serial) override {
    std::string failure;
    run_in_threads(1, [&](Communicator& alone) {
      const Results whole = Heads(case_, alone, {case_.ids()}).run({});
      for (std::size_t i = 0; i < whole.size(); ++i) {
        const std::string_view name = whole[i].name;
        if (name.starts_with("dx") && !has_one_sum()) continue;
        ConstTensorView wanted = whole[i].matrix.view();
        if (name == kGatheredFirst)
          wanted = wanted.column_range(heads_.first(), heads_.first() + heads_.own());
        if (name.starts_with("dw"))
          wanted = wanted.row_range(heads_.first(), heads_.first() + heads_.own());
        note(failure, same(whole[i].name, serial[0][i].matrix.view(), "that of one rank", wanted));
      }
    });
    as_one_ = comm_.world() > 1 && case_.m > 0;
    return failure;
  }

  // True if dx is added up as one rank adds it: see plait/vocabulary.h.
  bool has_one_sum() const {
    const std::vector<std::int64_t>& shares = case_.shares;
    return 16 % shares.size() == 0 && std::equal(shares.begin() + 1, shares.end(), shares.begin());
  }

  const HeadsCase& case_;
  Heads heads_;
};

}  // namespace

std::unique_ptr<Subject> subject_of(const HeadsCase& one, Communicator& comm) {
  return std::make_unique<HeadsSubject>(one, comm);
}

}  // namespace plait::verify
