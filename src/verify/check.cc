#include "verify/check.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <memory>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/check.h"
#include "ops/blocking.h"
#include "ops/shapes.h"
#include "tensor/compare.h"
#include "tensor/in_pairs.h"
#include "tensor/tolerance.h"
#include "verify/exact.h"
#include "verify/float_mode.h"
#include "verify/operands.h"
#include "verify/other_sums.h"
#include "verify/random.h"
#include "verify/steps.h"

namespace plait::verify {
namespace {

// The elements of a result that are compared with sums in f64: all of a small result, and fewer if
// they are sums of many products.
constexpr std::int64_t kMostSamples = 200;
constexpr std::int64_t kMostProducts = 400'000;

// How often a late rank also falls behind within a call, at most.
constexpr int kNaps = 4;

class Check {
 public:
  Check(const VerifyCase& one, Communicator& comm, const Spoil& spoil)
      : case_(one),
        comm_(comm),
        spoil_(spoil),
        rank_(static_cast<std::size_t>(comm.rank())),
        mine_(one, comm.rank(), comm.world()),
        out_rows_(ops::count(ops::shapes_of(one.op).out, one.m, comm.rank(), comm.world())),
        random_(one.seed * 31 + static_cast<std::uint64_t>(comm.rank())),
        parts_(static_cast<std::size_t>(comm.world())) {
    if (one.two_groups) others_.emplace(comm);
  }

  Findings run() {
    std::string failure;
    // Each rank makes the operands of all ranks, so that the reference needs no communication.
    for (int rank = 0; rank < comm_.world(); ++rank)
      all_.push_back(std::make_unique<VerifyOperands>(case_, rank, comm_.world()));
    const Results serial = run_plan(0, {.schedule = Schedule::serial});
    for (const Result& one : serial) note(failure, guards(one));
    note(failure, against_reference(serial.back()));
    note(failure, same("out", serial.back().out.view(), "its steps by one rank alone",
                       in_steps(case_, all_, comm_.rank()).view()));
    if (is_as_on_one_rank(case_)) note(failure, against_one_rank(serial.back()));
    for (std::size_t i = 0; i < case_.plans.size(); ++i) {
      const Results results = run_plan(i + 1, case_.plans[i]);
      for (std::size_t run = 0; run < results.size(); ++run)
        note(failure, difference(results[run], serial[run]), place_of(case_.plans[i], run));
    }
    note(failure, aside_);
    return {.failure = failure, .as_one = as_one_};
  }

 private:
  // The output of a run. `gathered` is empty unless the case requests it.
  struct Result {
    Guarded out;
    Guarded gathered;
  };
  using Results = std::array<Result, 2>;

  // Keeps only the first failure.
  static void note(std::string& failure, const std::string& found, const std::string& place = {}) {
    if (failure.empty() && !found.empty()) failure = place + found;
  }

  static std::string place_of(const Plan& plan, std::size_t run) {
    return base::sentence("with the plan \"", name(plan), run == 0 ? "\": " : "\", run again: ");
  }

  Result empty() const {
    return {.out = Guarded(case_.out, out_rows_, case_.n[rank_]),
            .gathered = Guarded(case_.x, case_.gathered ? case_.m : 0, case_.k[rank_])};
  }

  // Runs the plan twice. What the first run leaves in slots and buffers comes from another x, and
  // must not appear in the output of the second.
  Results run_plan(std::size_t number, const Plan& plan) {
    const OpOptions options = {.wire = case_.wire, .plan = plan, .threads = case_.threads[number]};
    const Weight weight = mine_.weight();
    std::optional<Op> op;
    if (case_.prepared) {
      op = prepare({.op = case_.op,
                    .m = case_.m + case_.spare,
                    .n = weight.n(),
                    .k = weight.k(),
                    .x = case_.x,
                    .weight = weight.kind(),
                    .out = case_.out,
                    .gathered = case_.gathered},
                   comm_, options);
    } else if (case_.spare > 0) {
      call_with_more_rows(weight, options);
    }
    Results results = {empty(), empty()};
    int naps = 0;
    bool polls_others = false;  // beside the operator, which advances them only where it waits
    const PollHook poll = [&] {
      if (polls_others) others_->progress();
      if (case_.delays && naps < kNaps && random_() % 4 == 0) delay(300), ++naps;
    };
    for (std::size_t run = 0; run < results.size(); ++run) {
      if (case_.delays) delay(3000);
      naps = 0;
      const FloatMode mode =
          case_.modes ? kFloatModes[random_() % kFloatModes.size()] : FloatMode{};
      if (others_) others_->make(case_.seed + 2 * number + run);
      const OpCall call = {.x = run == 0 ? mine_.other_x() : mine_.x(),
                           .weight = weight,
                           .out = results[run].out.view(),
                           .bias = mine_.bias(),
                           .gathered = case_.gathered ? results[run].gathered.view() : TensorView{},
                           .poll = case_.delays || others_ ? poll : PollHook{}};
      {
        const InFloatMode in_mode(mode);
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
        if (!InFloatMode::holds(mode)) note(aside_, "a call has changed the float mode");
      }
      if (others_ && !others_->are_right())
        note(aside_, "the sum of another communicator is wrong");
      if (spoil_) spoil_(number, results[run].out.view(), results[run].gathered.view());
    }
    return results;
  }

  // Fills the memory and the slots that later calls use with NaNs.
  void call_with_more_rows(const Weight& weight, const OpOptions& options) {
    const ops::Shapes shapes = ops::shapes_of(case_.op);
    const std::int64_t m = case_.m + case_.spare;
    const auto rows = [&](ops::Rows which) {
      return ops::count(which, m, comm_.rank(), comm_.world());
    };
    const Buffer x = Buffer::for_tensor(case_.x, rows(shapes.x), weight.k());
    const Buffer out = Buffer::for_tensor(case_.out, rows(shapes.out), weight.n());
    const Buffer gathered = Buffer::for_tensor(case_.x, case_.gathered ? m : 0, weight.k());
    std::fill_n(x.data(), x.bytes(), std::byte{0xFF});
    OpCall call = {.x = x.view(case_.x, rows(shapes.x), weight.k()),
                   .weight = weight,
                   .out = out.view(case_.out, rows(shapes.out), weight.n())};
    if (case_.gathered) call.gathered = gathered.view(case_.x, m, weight.k());
    block(call, options);
  }

  void delay(std::uint64_t most) {
    std::this_thread::sleep_for(std::chrono::microseconds(random_() % most));
  }

  void block(const OpCall& call, OpOptions options) {
    options.bias = call.bias;
    options.gathered = call.gathered;
    options.poll = call.poll;
    ops::blocking(case_.op)(call.x, call.weight, call.out, comm_, options);
  }

  static std::string guards(const Result& one) {
    if (!one.out.is_intact()) return "bytes around out were written";
    if (!one.gathered.is_intact()) return "bytes around gathered were written";
    return {};
  }

  static std::string difference(const Result& got, const Result& serial) {
    std::string found = guards(got);
    note(found, same("out", got.out.view(), "serial", serial.out.view()));
    note(found, same("gathered", got.gathered.view(), "serial", serial.gathered.view()));
    return found;
  }

  static std::string same(const char* what, const ConstTensorView& got, const char* from,
                          const ConstTensorView& want) {
    const tensor::BitComparison result = tensor::same_bits(got, want);
    return result ? std::string()
                  : base::sentence(what, " differs from ", from, ": ", result.describe());
  }

  std::string against_one_rank(const Result& result) {
    const Guarded whole = on_one_rank(case_, all_, comm_.rank());
    if (spoil_) spoil_(kOnOneRank, whole.view(), {});
    as_one_ = whole.view().bytes() > 0;
    return same("out", result.out.view(), "what one rank makes that has all k", whole.view());
  }

  std::string against_reference(const Result& result) {
    const ConstTensorView out = result.out.view();
    const std::int64_t elements = out.rows * out.cols;
    const std::int64_t samples = std::min(elements, most_samples());
    for (std::int64_t i = 0; i < samples; ++i) {
      const std::int64_t at =
          samples == elements
              ? i
              : static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(elements));
      const std::int64_t row = at / out.cols;
      const std::int64_t col = at % out.cols;
      const std::string wrong = what_is_wrong_with(element(out, row, col), row, col);
      if (!wrong.empty()) return base::sentence("out[", row, ", ", col, "] ", wrong);
    }
    return case_.gathered ? against_shards(result.gathered.view()) : std::string();
  }

  std::int64_t most_samples() const {
    const std::int64_t products = std::accumulate(case_.k.begin(), case_.k.end(), std::int64_t{1});
    // The tolerance of an s8 wire needs the products of all columns that share a scale.
    const std::int64_t columns = is_coded() ? tensor::kScaleGroup : 1;
    return std::clamp<std::int64_t>(kMostProducts / (products * columns), 1, kMostSamples);
  }

  std::string against_shards(const ConstTensorView& gathered) {
    std::int64_t row = 0;
    for (const auto& operands : all_) {
      const std::int64_t rows = operands->x().rows;
      const auto result = tensor::same_bits(gathered.row_range(row, row + rows), operands->x());
      if (!result) return "gathered differs from the shards: " + result.describe();
      row += rows;
    }
    return {};
  }

  // The error of this rank's element (row, col).
  std::string what_is_wrong_with(double got, std::int64_t row, std::int64_t col) {
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
      const std::size_t maker = maker_of(row_of_m);
      for (std::int64_t k = 0; k < case_.k[rank_]; ++k)
        sum.add(multiplied_x(row_of_m, k), all_[maker]->weight_at(k, col));
      terms = case_.k[rank_];
    }
    sum.add(mine_.bias_at(col), 1);
    const std::int64_t groups =
        case_.scheme && case_.scheme->per == QuantPer::group ? terms / case_.scheme->group + 1 : 1;
    tensor::Roundings way = {.terms = terms + (case_.scheme ? 2 * groups + 2 : 0),
                             .world = sums_products ? world : 1,
                             .wire = sums_products ? case_.wire : Dtype::f32,
                             .out = case_.out};
    if (is_coded()) {
      way.group = group_magnitude(col, case_.n[rank_], world, [&](int rank, std::int64_t j) {
        return magnitude(rank, row_of_m, j);
      });
    }
    return sum.what_is_wrong_with(got, way);
  }

  bool is_coded() const { return traits_of(case_.op).shares_k && case_.wire == Dtype::s8; }

  // An upper bound of one rank's sum of products.
  double magnitude(int rank, std::int64_t row_of_m, std::int64_t col) const {
    const auto index = static_cast<std::size_t>(rank);
    double sum = 0;
    for (std::int64_t k = 0; k < case_.k[index]; ++k)
      sum += std::abs(all_[index]->x_at(row_of_m, k) * all_[index]->weight_at(k, col));
    return sum;
  }

  std::int64_t first_row_of(int rank) const {
    return ops::shard_of(case_.m, rank, comm_.world()).begin;
  }

  std::size_t owner_of(std::int64_t row) const {
    int rank = comm_.world() - 1;
    while (first_row_of(rank) > row) --rank;
    return static_cast<std::size_t>(rank);
  }

  // The rank whose weight was used for the row.
  std::size_t maker_of(std::int64_t row) const {
    return is_compute_first(case_.op) ? owner_of(row) : rank_;
  }

  // The input of a product without partial results: a gathered x, or a rounded sum.
  double multiplied_x(std::int64_t row, std::int64_t k) {
    if (!traits_of(case_.op).communicates()) return mine_.x_at(row, k);
    if (!sums_over_ranks(case_.op)) {
      const std::size_t owner = owner_of(row);
      return all_[owner]->x_at(row - first_row_of(static_cast<int>(owner)), k);
    }
    for (std::size_t rank = 0; rank < all_.size(); ++rank)
      parts_[rank] = static_cast<float>(all_[rank]->x_at(row, k));
    tensor::add_in_pairs(parts_, [](float& sum, float more) { sum += more; });
    const Buffer rounded(sizeof(float));
    convert(parts_.data(), Dtype::f32, rounded.data(), case_.x, 1);
    return element(
        {.data = rounded.data(), .dtype = case_.x, .rows = 1, .cols = 1, .row_stride = 1}, 0, 0);
  }

  const VerifyCase& case_;
  Communicator& comm_;
  const Spoil& spoil_;
  std::size_t rank_;
  VerifyOperands mine_;
  std::int64_t out_rows_;
  std::mt19937_64 random_;
  std::vector<std::unique_ptr<VerifyOperands>> all_;
  std::optional<OtherSums> others_;
  std::string aside_;         // failures other than in the results
  std::vector<float> parts_;  // an element of x of each rank
  bool as_one_ = false;
};

}  // namespace

Findings verify_case(const VerifyCase& one, Communicator& comm, const Spoil& spoil) {
  return Check(one, comm, spoil).run();
}

}  // namespace plait::verify
