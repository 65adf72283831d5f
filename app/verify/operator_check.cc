// The calls of an operator: each plan runs twice, with two x.
#include <algorithm>
#include <array>
#include <numeric>
#include <optional>
#include <vector>

#include "base/check.h"
#include "ops/blocking.h"
#include "ops/shapes.h"
#include "tensor/compare.h"
#include "tensor/in_pairs.h"
#include "verify/check.h"
#include "verify/groups.h"
#include "verify/other_sums.h"
#include "verify/steps.h"

namespace plait::verify {
namespace {

// How often a late rank also falls behind within a call, at most.
constexpr int kNaps = 4;

class OperatorSubject : public Subject {
 public:
  OperatorSubject(const VerifyCase& one, Communicator& comm)
      : Subject(one, comm), case_(one), rank_(static_cast<std::size_t>(comm.rank())) {
    // Each rank makes the operands of all ranks, so that the reference needs no communication.
    for (int rank = 0; rank < comm.world(); ++rank)
      all_.push_back(std::make_unique<VerifyOperands>(one, rank, comm.world()));
    if (one.two_groups) others_.emplace(comm);
  }

 private:
  static constexpr std::int64_t kMostSamples = 200;

  // The results of a call, in this order. The second is empty unless the case requests it.
  static constexpr std::size_t kOut = 0, kGathered = 1;

  std::size_t variants() const override { return case_.plans.size(); }

  std::string place_of(std::size_t variant, std::size_t call) const override {
    return base::sentence("with the plan \"", name(case_.plans[variant - 1]),
                          call == 0 ? "\": " : "\", run again: ");
  }

  // The first call has another x, which it leaves in slots and buffers. None of it may appear in
  // the output of the second.
  std::vector<Results> run(std::size_t variant) override {
    const OpOptions options = {
        .wire = case_.wire,
        .plan = variant == 0 ? Plan{.schedule = Schedule::serial} : case_.plans[variant - 1],
        .threads = case_.threads[variant]};
    std::optional<Op> op;
    if (case_.prepared) {
      op = prepare(desc(), comm_, options);
    } else if (case_.spare > 0) {
      call_with_more_rows(options);
    }
    std::vector<Results> calls;
    for (const ConstTensorView& x : {mine().other_x(), mine().x()}) {
      if (others_) others_->make(case_.seed + 2 * variant + calls.size());
      calls.push_back(empty());
      OpCall call = {.x = x,
                     .weight = mine().weight(),
                     .out = calls.back()[kOut].matrix.view(),
                     .bias = mine().bias()};
      if (case_.gathered) call.gathered = calls.back()[kGathered].matrix.view();
      this->call(std::move(call), op, options);
    }
    return calls;
  }

  OpDesc desc() const {
    const Weight weight = mine().weight();
    return {.op = case_.op,
            .m = case_.m + case_.spare,
            .n = weight.n(),
            .k = weight.k(),
            .x = case_.x,
            .weight = weight.kind(),
            .out = case_.out,
            .gathered = case_.gathered};
  }

  Results empty() const {
    Results results;
    results.push_back(
        {"out", Guarded(case_.out, rows(ops::shapes_of(case_.op).out, case_.m), case_.n[rank_])});
    results.push_back({"gathered", Guarded(case_.x, case_.gathered ? case_.m : 0, case_.k[rank_])});
    return results;
  }

  // Without a prepared operator, makes a blocking call.
  void call(OpCall call, std::optional<Op>& op, const OpOptions& options) {
    int naps = 0;
    bool polls_others = false;  // beside the operator, which advances them only where it waits
    const PollHook poll = [&] {
      if (polls_others) others_->progress();
      if (case_.delays && naps < kNaps && random_() % 4 == 0) delay(300), ++naps;
    };
    if (case_.delays || others_) call.poll = poll;
    const bool same_mode = call_in_some_mode([&] {
      if (others_) {
        others_->start(random_);
        others_->wait_for_some(random_);
        polls_others = random_() % 2 == 0;
      }
      if (op) {
        op->run(call);
      } else {
        block(call, options);
      }
      if (others_) others_->wait_for_all(random_);
    });
    if (!same_mode) note(aside_, "a call has changed the float mode");
    if (others_ && !others_->are_right()) note(aside_, "the sum of another communicator is wrong");
  }

  // Fills the memory and the slots that later calls use with NaNs.
  void call_with_more_rows(const OpOptions& options) {
    const ops::Shapes shapes = ops::shapes_of(case_.op);
    const OpDesc more = desc();
    const Buffer x = Buffer::for_tensor(case_.x, rows(shapes.x, more.m), more.k);
    const Buffer out = Buffer::for_tensor(case_.out, rows(shapes.out, more.m), more.n);
    const Buffer gathered = Buffer::for_tensor(case_.x, case_.gathered ? more.m : 0, more.k);
    std::fill_n(x.data(), x.bytes(), std::byte{0xFF});
    OpCall call = {.x = x.view(case_.x, rows(shapes.x, more.m), more.k),
                   .weight = mine().weight(),
                   .out = out.view(case_.out, rows(shapes.out, more.m), more.n)};
    if (case_.gathered) call.gathered = gathered.view(case_.x, more.m, more.k);
    block(call, options);
  }

  void block(const OpCall& call, OpOptions options) {
    options.bias = call.bias;
    options.gathered = call.gathered;
    options.poll = call.poll;
    ops::blocking(case_.op)(call.x, call.weight, call.out, comm_, options);
  }

  std::string check_serial(const std::vector<Results>& serial) override {
    const Result& out = serial.back()[kOut];
    std::string failure = compare(out, {kMostSamples, products()},
                                  [&](auto row, auto col) { return wanted_at(row, col); });
    if (case_.gathered) note(failure, against_shards(serial.back()[kGathered].matrix.view()));
    note(failure, same("out", out.matrix.view(), "its steps by one rank alone",
                       in_steps(case_, all_, comm_.rank()).view()));
    if (case_.op == Operator::matmul) note(failure, against_groups());
    if (!is_as_on_one_rank(case_)) return failure;
    Results whole;
    whole.push_back({"out", on_one_rank(case_, all_, comm_.rank())});
    spoil(kOnOneRank, whole);
    const TensorView& one = whole[kOut].matrix.view();
    as_one_ = one.bytes() > 0;
    note(failure, same("out", out.matrix.view(), "what one rank makes that has all k", one));
    return failure;
  }

  std::string against_groups() const {
    auto [together, alone] = in_groups(case_, all_, comm_.rank());
    Results grouped;
    grouped.push_back({"out", std::move(together)});
    spoil(kInGroups, grouped);
    const Guarded& out = grouped[kOut].matrix;
    if (!out.is_intact()) return "a grouped product has written bytes around out";
    return same("out", out.view(), "a product for each group", alone.view());
  }

  // The tolerance of an s8 wire needs the products of all columns that share a scale.
  std::int64_t products() const {
    return std::accumulate(case_.k.begin(), case_.k.end(), std::int64_t{1}) *
           (is_coded() ? tensor::kScaleGroup : 1);
  }

  std::string against_shards(const ConstTensorView& gathered) const {
    std::int64_t row = 0;
    for (const auto& operands : all_) {
      const std::int64_t rows = operands->x().rows;
      const auto result = tensor::same_bits(gathered.row_range(row, row + rows), operands->x());
      if (!result) return "gathered differs from the shards: " + result.describe();
      row += rows;
    }
    return {};
  }

  // This rank's element (row, col).
  Wanted wanted_at(std::int64_t row, std::int64_t col) const {
    const int world = comm_.world();
    const std::int64_t row_of_m =
        ops::shapes_of(case_.op).out == ops::Rows::all ? row : row + first_row_of(comm_.rank());
    Exact sum;
    std::int64_t terms = 0;
    const bool sums_products = traits_of(case_.op).shares_k;
    for (std::size_t rank = 0; sums_products && rank < all_.size(); ++rank) {
      for (std::int64_t k = 0; k < case_.k[rank]; ++k)
        sum.add(all_[rank]->x_at(row_of_m, k), all_[rank]->weight_at(k, col));
      terms = std::max(terms, case_.k[rank]);
    }
    if (!sums_products) {
      const std::size_t maker = is_compute_first(case_.op) ? owner_of(row_of_m) : rank_;
      terms = case_.k[rank_];
      for (std::int64_t k = 0; k < terms; ++k)
        sum.add(multiplied_x(row_of_m, k), all_[maker]->weight_at(k, col));
    }
    sum.add(mine().bias_at(col), 1);
    tensor::Roundings way = {.terms = terms_of(terms, case_.scheme),
                             .world = sums_products ? world : 1,
                             .wire = sums_products ? case_.wire : Dtype::f32,
                             .out = case_.out};
    if (is_coded()) {
      way.group = group_magnitude(col, case_.n[rank_], world, [&](int rank, std::int64_t j) {
        const VerifyOperands& its = *all_[static_cast<std::size_t>(rank)];
        double magnitude = 0;
        for (std::int64_t k = 0; k < case_.k[static_cast<std::size_t>(rank)]; ++k)
          magnitude += std::abs(its.x_at(row_of_m, k) * its.weight_at(k, j));
        return magnitude;
      });
    }
    return {sum, way};
  }

  const VerifyOperands& mine() const { return *all_[rank_]; }

  std::int64_t rows(ops::Rows which, std::int64_t m) const {
    return ops::count(which, m, comm_.rank(), comm_.world());
  }

  bool is_coded() const { return traits_of(case_.op).shares_k && case_.wire == Dtype::s8; }

  std::int64_t first_row_of(int rank) const {
    return ops::shard_of(case_.m, rank, comm_.world()).begin;
  }

  std::size_t owner_of(std::int64_t row) const {
    int rank = comm_.world() - 1;
    while (first_row_of(rank) > row) --rank;
    return static_cast<std::size_t>(rank);
  }

  // The input of a product without partial results: a gathered x, or a rounded sum.
  double multiplied_x(std::int64_t row, std::int64_t k) const {
    if (!traits_of(case_.op).communicates()) return mine().x_at(row, k);
    if (!sums_over_ranks(case_.op)) {
      const std::size_t owner = owner_of(row);
      return all_[owner]->x_at(row - first_row_of(static_cast<int>(owner)), k);
    }
    std::vector<float> parts;
    parts.reserve(all_.size());
    for (const auto& operands : all_) parts.push_back(static_cast<float>(operands->x_at(row, k)));
    tensor::add_in_pairs(parts, [](float& sum, float more) { sum += more; });
    const Buffer rounded(sizeof(float));
    convert(parts.data(), Dtype::f32, rounded.data(), case_.x, 1);
    return element(
        {.data = rounded.data(), .dtype = case_.x, .rows = 1, .cols = 1, .row_stride = 1}, 0, 0);
  }

  const VerifyCase& case_;
  std::size_t rank_;
  std::vector<std::unique_ptr<VerifyOperands>> all_;
  std::optional<OtherSums> others_;
};

}  // namespace

std::unique_ptr<Subject> subject_of(const VerifyCase& one, Communicator& comm) {
  return std::make_unique<OperatorSubject>(one, comm);
}

}  // namespace plait::verify
