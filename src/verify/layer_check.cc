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
#include "verify/operands.h"

namespace plait::verify {
namespace {

// The elements of a result that are compared with sums in f64: all of a small result, and fewer if
// they are sums of many products.
constexpr std::int64_t kMostSamples = 120;
constexpr std::int64_t kMostProducts = 400'000;

constexpr std::uint64_t kSeedOfGradients = 3;

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

  // The old values depend on the matrix's place in that of all ranks.
  Guarded gradient(Dtype dtype, std::int64_t rows, std::int64_t cols, tensor::Origin origin) const {
    Guarded matrix(dtype, rows, cols, case_.gap);
    if (case_.accumulate)
      tensor::fill_random(matrix.view(), case_.seed * 16 + kSeedOfGradients, origin);
    return matrix;
  }

  tensor::Origin weight_origin() const {
    const std::int64_t output = whole_.own_outputs().begin;
    const std::int64_t input = whole_.own_inputs().begin;
    if (case_.layout == WeightLayout::out_in) return {.row = output, .col = input};
    return {.row = input, .col = output};
  }
  tensor::Origin bias_origin() const { return {.row = 0, .col = whole_.own_outputs().begin}; }

  Result empty(int i) const {
    const ConstTensorView x = whole_.x(i);
    const ConstTensorView grad_out = whole_.grad_out(i);
    const ConstTensorView weight = whole_.weight().view;
    return {.out = Guarded(case_.out, grad_out.rows, grad_out.cols, case_.gap),
            .grad_x = Guarded(case_.grad_x, x.rows, x.cols, case_.gap),
            .grad_weight = gradient(case_.grad_weight, weight.rows, weight.cols, weight_origin()),
            .grad_bias = gradient(case_.grad_weight, 1, grad_out.cols, bias_origin())};
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
    std::string failure =
        compare("out", result.out.view(), [&](auto row, auto col) { return out_at(i, row, col); });
    if (case_.asks_x) {
      note(failure, compare("grad_x", result.grad_x.view(),
                            [&](auto row, auto col) { return grad_x_at(i, row, col); }));
    }
    if (case_.asks_weight) {
      const bool out_in = case_.layout == WeightLayout::out_in;
      note(failure, compare("grad_weight", result.grad_weight.view(), [&](auto row, auto col) {
             return grad_weight_at(i, out_in ? row : col, out_in ? col : row, {row, col});
           }));
    }
    if (case_.asks_bias) {
      note(failure, compare("grad_bias", result.grad_bias.view(),
                            [&](auto, auto col) { return grad_bias_at(i, col); }));
    }
    return failure;
  }

  struct Wanted {
    Exact sum;
    tensor::Roundings roundings;
  };

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
      const Wanted want = at(row, col);
      const std::string wrong = want.sum.what_is_wrong_with(element(got, row, col), want.roundings);
      if (!wrong.empty()) return base::sentence(what, '[', row, ", ", col, "] ", wrong);
    }
    return {};
  }

  // The roundings of a sum over k by the weight, which may be quantised.
  std::int64_t terms_of(std::int64_t k) const {
    if (!case_.scheme) return k;
    const std::int64_t groups =
        case_.scheme->per == QuantPer::group ? k / case_.scheme->group + 1 : 1;
    return k + 2 * groups + 2;
  }

  // The roundings of sums over the dimension that ranks share.
  tensor::Roundings shared(Dtype out) const {
    return {.terms = terms_of(*std::max_element(case_.shares.begin(), case_.shares.end())),
            .world = comm_.world(),
            .wire = case_.wire,
            .out = out};
  }

  // Sets what the tolerance needs of an s8 wire. product(col, k): along the dimension shared.
  template <class Product>
  void add_group(tensor::Roundings& way, std::int64_t col, std::int64_t cols,
                 const Product& product) const {
    if (way.wire != Dtype::s8) return;
    std::vector<std::int64_t> begins = {0};
    for (const std::int64_t share : case_.shares) begins.push_back(begins.back() + share);
    way.group = group_magnitude(col, cols, comm_.world(), [&](int rank, std::int64_t j) {
      const auto index = static_cast<std::size_t>(rank);
      double sum = 0;
      for (std::int64_t k = begins[index]; k < begins[index + 1]; ++k)
        sum += std::abs(product(j, k));
      return sum;
    });
  }

  Wanted out_at(int i, std::int64_t row, std::int64_t col) const {
    const std::int64_t output = whole_.own_outputs().begin + col;
    Exact sum;
    for (std::int64_t k = 0; k < whole_.inputs(); ++k)
      sum.add(whole_.x_at(i, whole_.out_rows().begin + row, k), whole_.weight_at(output, k));
    sum.add(whole_.bias_at(output), 1);
    if (!case_.row) return {sum, {.terms = terms_of(whole_.inputs()), .out = case_.out}};
    tensor::Roundings way = shared(case_.out);
    add_group(way, col, whole_.outputs(), [&](std::int64_t j, std::int64_t k) {
      return whole_.x_at(i, whole_.out_rows().begin + row, k) * whole_.weight_at(j, k);
    });
    return {sum, way};
  }

  Wanted grad_x_at(int i, std::int64_t row, std::int64_t col) const {
    const std::int64_t input = whole_.own_inputs().begin + col;
    Exact sum;
    for (std::int64_t n = 0; n < whole_.outputs(); ++n)
      sum.add(whole_.grad_out_at(i, whole_.x_rows().begin + row, n),
              whole_.turned_weight_at(n, input));
    if (case_.row) return {sum, {.terms = terms_of(whole_.outputs()), .out = case_.grad_x}};
    tensor::Roundings way = shared(case_.grad_x);
    add_group(way, col, whole_.inputs(), [&](std::int64_t j, std::int64_t n) {
      return whole_.grad_out_at(i, whole_.x_rows().begin + row, n) * whole_.turned_weight_at(n, j);
    });
    return {sum, way};
  }

  Wanted grad_weight_at(int i, std::int64_t row, std::int64_t col, tensor::Origin place) const {
    Exact sum;
    for (std::int64_t m = 0; m < case_.m; ++m)
      sum.add(whole_.grad_out_at(i, m, whole_.own_outputs().begin + row),
              whole_.x_at(i, m, whole_.own_inputs().begin + col));
    const tensor::Origin origin = weight_origin();
    sum.add(before({.row = origin.row + place.row, .col = origin.col + place.col}), 1);
    return {sum, {.terms = case_.m + 1, .out = case_.grad_weight}};
  }

  Wanted grad_bias_at(int i, std::int64_t col) const {
    Exact sum;
    for (std::int64_t m = 0; m < case_.m; ++m)
      sum.add(whole_.grad_out_at(i, m, whole_.own_outputs().begin + col), 1);
    sum.add(before({.row = 0, .col = bias_origin().col + col}), 1);
    return {sum, {.terms = case_.m + 1, .out = case_.grad_weight}};
  }

  // The value of a gradient before backward.
  double before(tensor::Origin place) const {
    if (!case_.accumulate) return 0;
    const Buffer one(size_of(case_.grad_weight));
    tensor::fill_random(one.view(case_.grad_weight, 1, 1), case_.seed * 16 + kSeedOfGradients,
                        place);
    return element(one.view(case_.grad_weight, 1, 1), 0, 0);
  }

  const LayerCase& case_;
  Communicator& comm_;
  const SpoilLayer& spoil_;
  LayerOperands whole_;
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
