#include "verify/layer_check.h"

#include <algorithm>
#include <chrono>
#include <numeric>
#include <optional>
#include <random>
#include <thread>
#include <vector>

#include "base/check.h"
#include "plait/packed_weight.h"
#include "tensor/compare.h"
#include "tensor/fill.h"
#include "tensor/tolerance.h"
#include "verify/exact.h"
#include "verify/float_mode.h"
#include "verify/layer_operands.h"
#include "verify/layer_reference.h"
#include "verify/operands.h"

namespace plait::verify {
namespace {

// The elements of a result that are compared with sums in f64: all of a small result, and fewer if
// they are sums of many products.
constexpr std::int64_t kMostSamples = 120;
constexpr std::int64_t kMostProducts = 400'000;

struct Result {
  Guarded out;
  Guarded grad_x;
  Guarded grad_weight;
  Guarded grad_bias;

  // Calls visit(name, matrix, other's matrix) for each matrix.
  template <class Visit>
  static void for_each(const Result& one, const Result& other, Visit&& visit) {
    visit("out", one.out, other.out);
    visit("grad_x", one.grad_x, other.grad_x);
    visit("grad_weight", one.grad_weight, other.grad_weight);
    visit("grad_bias", one.grad_bias, other.grad_bias);
  }
};

class Check {
 public:
  Check(const LayerCase& one, Communicator& comm, const SpoilLayer& spoil)
      : case_(one),
        comm_(comm),
        spoil_(spoil),
        whole_(one, comm.rank()),
        reference_(one, whole_, comm.world()),
        random_(one.seed * 31 + static_cast<std::uint64_t>(comm.rank())) {
    if (one.scheme) {
      packed_.emplace(whole_.quantized());
      turned_.emplace(whole_.quantized_turned());
      return;
    }
    if (!one.packed) return;
    const WeightView weight = whole_.weight();
    packed_.emplace(weight);
    turned_.emplace(weight.turned());
  }

  Findings run() {
    const std::vector<Result> serial = run_variant(0, {.plan = {.schedule = Schedule::serial}});
    std::string failure = guards(serial);
    for (int i = 0; i < case_.in_flight; ++i) note(failure, against_reference(i, serial[i]));
    for (std::size_t number = 1; number <= case_.variants.size(); ++number) {
      const LayerVariant& variant = case_.variants[number - 1];
      const std::vector<Result> results = run_variant(number, variant);
      std::string found = guards(results);
      for (int i = 0; i < case_.in_flight; ++i) note(found, difference(results[i], serial[i]));
      if (!found.empty()) note(failure, describe(variant) + found);
    }
    note(failure, against_one_rank(serial));
    if (!keeps_modes_) note(failure, "a call has changed the thread's float mode");
    return {.failure = failure, .as_one = as_one_};
  }

 private:
  // Keeps only the first failure.
  static void note(std::string& failure, const std::string& found) {
    if (failure.empty()) failure = found;
  }

  static std::string describe(const LayerVariant& variant) {
    return base::sentence("with the plan \"", name(variant.plan), "\"",
                          variant.recompute_all_gather ? "" : ", x kept",
                          variant.column_backward ? ", column_backward" : "",
                          variant.aligned_packing ? "" : ", rows without gaps", ": ");
  }

  Weight weight() const {
    if (packed_) return *packed_;
    return whole_.weight();
  }
  std::optional<Weight> turned() const {
    if (turned_) return *turned_;
    return {};
  }

  LinearDesc desc() const {
    LinearDesc desc = {.inputs = weight().k(),
                       .outputs = weight().n(),
                       .layout = case_.layout,
                       .weight = weight().kind()};
    if (const std::optional<Weight> weight = turned()) desc.turned = weight->kind();
    return desc;
  }

  Guarded gradient(Dtype dtype, std::int64_t rows, std::int64_t cols, tensor::Origin origin) const {
    Guarded matrix(dtype, rows, cols, case_.gap);
    if (case_.accumulate) reference_.fill_before(matrix.view(), origin);
    return matrix;
  }

  Result empty(int i) const {
    const ConstTensorView x = whole_.x(i);
    const ConstTensorView grad_out = whole_.grad_out(i);
    const ConstTensorView weight = whole_.weight().view;
    return {.out = Guarded(case_.out, grad_out.rows, grad_out.cols, case_.gap),
            .grad_x = Guarded(case_.grad_x, x.rows, x.cols, case_.gap),
            .grad_weight =
                gradient(case_.grad_weight, weight.rows, weight.cols, reference_.weight_origin()),
            .grad_bias = gradient(case_.grad_weight, 1, grad_out.cols, reference_.bias_origin())};
  }

  void come_late() {
    if (case_.delays) std::this_thread::sleep_for(std::chrono::microseconds(random_() % 3000));
  }

  // Compares this rank's results with its part of those of one rank that has the whole layer. The
  // results that are not sums over ranks' shares must be equal in any world.
  std::string against_one_rank(const std::vector<Result>& serial) {
    if (comm_.world() == 1) return {};
    LayerCase alone = case_;
    alone.shares = {std::accumulate(case_.shares.begin(), case_.shares.end(), std::int64_t{0})};
    alone.delays = false;
    std::optional<Communicator> self = comm_.split(comm_.rank(), 0);
    if (!self) return "a rank has no group of its own";
    Check one(alone, *self, spoil_);
    const std::vector<Result> results =
        one.run_variant(kOnOneRank, {.plan = {.schedule = Schedule::serial}});
    const bool all = is_as_on_one_rank(case_);
    const Range inputs = whole_.own_inputs();
    const Range outputs = whole_.own_outputs();
    const bool out_in = case_.layout == WeightLayout::out_in;
    std::string failure;
    const auto compare_part = [&](const char* what, const Guarded& mine, const Guarded& other,
                                  Range rows, Range columns) {
      const ConstTensorView part =
          other.view().row_range(rows.begin, rows.end).column_range(columns.begin, columns.end);
      const tensor::BitComparison same = tensor::same_bits(mine.view(), part);
      if (!same) {
        note(failure,
             base::sentence(what, " differs from that of one rank alone: ", same.describe()));
      }
      return part.bytes() > 0;
    };
    for (std::size_t i = 0; i < serial.size(); ++i) {
      const Result& mine = serial[i];
      const Result& other = results[i];
      // One of them is a sum over the ranks' shares.
      bool has_out = false;
      bool has_grad_x = false;
      if (all || !case_.row)
        has_out = compare_part("out", mine.out, other.out, whole_.out_rows(), outputs);
      if (case_.asks_x && (all || case_.row))
        has_grad_x = compare_part("grad_x", mine.grad_x, other.grad_x, whole_.x_rows(), inputs);
      if (all && (case_.row ? has_out : has_grad_x)) as_one_ = true;
      if (case_.asks_weight) {
        compare_part("grad_weight", mine.grad_weight, other.grad_weight, out_in ? outputs : inputs,
                     out_in ? inputs : outputs);
      }
      if (case_.asks_bias)
        compare_part("grad_bias", mine.grad_bias, other.grad_bias, {0, 1}, outputs);
    }
    return failure;
  }

  template <class Call>
  void in_some_mode(const Call& call) {
    const FloatMode mode = case_.modes ? kFloatModes[random_() % kFloatModes.size()] : FloatMode{};
    const InFloatMode in_mode(mode);
    call();
    keeps_modes_ = keeps_modes_ && InFloatMode::holds(mode);
  }

  // Every other backward gets no state of its forward.
  static bool has_state(int call) { return call % 2 == 0; }

  template <class Layer>
  std::vector<Result> run_layer(Layer&& layer) {
    std::vector<Result> results;
    std::vector<LinearState> states(static_cast<std::size_t>(case_.in_flight));
    for (int i = 0; i < case_.in_flight; ++i) {
      results.push_back(empty(i));
      come_late();
      in_some_mode([&] {
        layer.forward({.x = whole_.x(i),
                       .weight = weight(),
                       .out = results[i].out.view(),
                       .bias = whole_.bias()},
                      &states[i]);
      });
    }
    for (int i = 0; i < case_.in_flight; ++i) {
      const Result& result = results[i];
      come_late();
      const LinearBackward call = {
          .x = whole_.x(i),
          .weight = weight(),
          .turned = turned(),
          .grad_out = whole_.grad_out(i),
          .grad_x = case_.asks_x ? result.grad_x.view() : TensorView{},
          .grad_weight = case_.asks_weight ? result.grad_weight.view() : TensorView{},
          .grad_bias = case_.asks_bias ? result.grad_bias.view() : TensorView{},
          .accumulate = case_.accumulate};
      in_some_mode([&] { layer.backward(call, has_state(i) ? &states[i] : nullptr); });
    }
    return results;
  }

  std::vector<Result> run_variant(std::size_t number, const LayerVariant& variant) {
    std::vector<Result> results = made_by(variant);
    for (const Result& one : results) {
      if (!spoil_) break;
      spoil_(number, {.out = one.out.view(),
                      .grad_x = one.grad_x.view(),
                      .grad_weight = one.grad_weight.view(),
                      .grad_bias = one.grad_bias.view()});
    }
    return results;
  }

  std::vector<Result> made_by(const LayerVariant& variant) {
    const LinearOptions options = {
        .sequence_parallel = case_.sequence_parallel,
        .recompute_all_gather = variant.recompute_all_gather,
        .column_backward = variant.column_backward,
        .aligned_packing = variant.aligned_packing,
        .operators = {.wire = case_.wire, .plan = variant.plan, .threads = variant.threads}};
    if (case_.row) return run_layer(RowParallelLinear(desc(), comm_, options));
    return run_layer(ColumnParallelLinear(desc(), comm_, options));
  }

  static std::string guards(const std::vector<Result>& results) {
    std::string failure;
    for (const Result& one : results) {
      Result::for_each(one, one, [&](const char* what, const Guarded& matrix, const Guarded&) {
        if (!matrix.is_intact())
          note(failure, base::sentence("bytes around ", what, " were written"));
      });
    }
    return failure;
  }

  static std::string difference(const Result& got, const Result& serial) {
    std::string failure;
    Result::for_each(got, serial, [&](const char* what, const Guarded& one, const Guarded& other) {
      const tensor::BitComparison same = tensor::same_bits(one.view(), other.view());
      if (!same) note(failure, base::sentence(what, " differs from serial: ", same.describe()));
    });
    return failure;
  }

  std::string against_reference(int i, const Result& result) {
    std::string failure = compare("out", result.out.view(), [&](auto row, auto col) {
      return reference_.out_at(i, row, col);
    });
    if (case_.asks_x) {
      note(failure, compare("grad_x", result.grad_x.view(),
                            [&](auto row, auto col) { return reference_.grad_x_at(i, row, col); }));
    }
    if (case_.asks_weight) {
      const bool out_in = case_.layout == WeightLayout::out_in;
      note(failure, compare("grad_weight", result.grad_weight.view(), [&](auto row, auto col) {
             return reference_.grad_weight_at(i, out_in ? row : col, out_in ? col : row,
                                              {row, col});
           }));
    }
    if (case_.asks_bias) {
      note(failure, compare("grad_bias", result.grad_bias.view(),
                            [&](auto, auto col) { return reference_.grad_bias_at(i, col); }));
    }
    return failure;
  }

  template <class At>
  std::string compare(const char* what, const ConstTensorView& got, At&& at) {
    const std::int64_t elements = got.rows * got.cols;
    // The tolerance of an s8 wire needs the products of all columns that share a scale.
    const std::int64_t columns = case_.wire == Dtype::s8 ? tensor::kScaleGroup : 1;
    const std::int64_t products = (std::max(whole_.inputs(), whole_.outputs()) + 1) * columns;
    const std::int64_t samples =
        std::min(elements, std::clamp<std::int64_t>(kMostProducts / products, 1, kMostSamples));
    for (std::int64_t i = 0; i < samples; ++i) {
      const std::int64_t one =
          samples == elements
              ? i
              : static_cast<std::int64_t>(random_() % static_cast<std::uint64_t>(elements));
      const std::int64_t row = one / got.cols;
      const std::int64_t col = one % got.cols;
      const LayerReference::Wanted want = at(row, col);
      const std::string wrong = want.sum.what_is_wrong_with(element(got, row, col), want.roundings);
      if (!wrong.empty()) return base::sentence(what, '[', row, ", ", col, "] ", wrong);
    }
    return {};
  }

  const LayerCase& case_;
  Communicator& comm_;
  const SpoilLayer& spoil_;
  LayerOperands whole_;
  LayerReference reference_;
  std::mt19937_64 random_;
  bool keeps_modes_ = true;
  bool as_one_ = false;
  std::optional<PackedWeight> packed_;
  std::optional<PackedWeight> turned_;
};

}  // namespace

Findings verify_case(const LayerCase& one, Communicator& comm, const SpoilLayer& spoil) {
  return Check(one, comm, spoil).run();
}

}  // namespace plait::verify
