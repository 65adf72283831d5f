// The calls of a layer: forwards, then backwards, each of several micro-batches.
#include <algorithm>
#include <numeric>
#include <optional>
#include <vector>

#include "base/check.h"
#include "plait/packed_weight.h"
#include "verify/check.h"
#include "verify/layer_operands.h"
#include "verify/layer_reference.h"

namespace plait::verify {
namespace {

class LayerSubject : public Subject {
 public:
  LayerSubject(const LayerCase& one, Communicator& comm)
      : Subject(one, comm),
        case_(one),
        whole_(one, comm.rank()),
        reference_(one, whole_, comm.world()) {
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

 private:
  static constexpr std::int64_t kMostSamples = 120;

  // The results of a micro-batch, in this order.
  static constexpr std::size_t kOut = 0, kGradX = 1, kGradWeight = 2, kGradBias = 3;

  std::size_t variants() const override { return case_.variants.size(); }

  std::string place_of(std::size_t number, std::size_t) const override {
    const LayerVariant& variant = case_.variants[number - 1];
    return base::sentence("with the plan \"", name(variant.plan), "\"",
                          variant.recompute_all_gather ? "" : ", x kept",
                          variant.column_backward ? ", column_backward" : "",
                          variant.aligned_packing ? "" : ", rows without gaps", ": ");
  }

  std::vector<Results> run(std::size_t number) override {
    const LayerVariant variant = number == 0 ? LayerVariant{.plan = {.schedule = Schedule::serial}}
                                             : case_.variants[number - 1];
    const LinearOptions options = {
        .sequence_parallel = case_.sequence_parallel,
        .recompute_all_gather = variant.recompute_all_gather,
        .column_backward = variant.column_backward,
        .aligned_packing = variant.aligned_packing,
        .operators = {.wire = case_.wire, .plan = variant.plan, .threads = variant.threads}};
    if (case_.row) return run_layer(RowParallelLinear(desc(), comm_, options));
    return run_layer(ColumnParallelLinear(desc(), comm_, options));
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

  Results empty(int i) const {
    const ConstTensorView x = whole_.x(i);
    const ConstTensorView grad_out = whole_.grad_out(i);
    const ConstTensorView weight = whole_.weight().view;
    Results results;
    results.push_back({"out", Guarded(case_.out, grad_out.rows, grad_out.cols, case_.gap)});
    results.push_back({"grad_x", Guarded(case_.grad_x, x.rows, x.cols, case_.gap)});
    results.push_back(
        {"grad_weight", gradient(weight.rows, weight.cols, reference_.weight_origin())});
    results.push_back({"grad_bias", gradient(1, grad_out.cols, reference_.bias_origin())});
    return results;
  }

  Guarded gradient(std::int64_t rows, std::int64_t cols, tensor::Origin origin) const {
    Guarded matrix(case_.grad_weight, rows, cols, case_.gap);
    if (case_.accumulate) reference_.fill_before(matrix.view(), origin);
    return matrix;
  }

  template <class Layer>
  std::vector<Results> run_layer(Layer&& layer) {
    std::vector<Results> calls;
    std::vector<LinearState> states(static_cast<std::size_t>(case_.in_flight));
    for (int i = 0; i < case_.in_flight; ++i) {
      calls.push_back(empty(i));
      in_some_mode([&] {
        layer.forward({.x = whole_.x(i),
                       .weight = weight(),
                       .out = calls[i][kOut].matrix.view(),
                       .bias = whole_.bias()},
                      &states[i]);
      });
    }
    for (int i = 0; i < case_.in_flight; ++i) {
      const auto asked = [&](bool asks, std::size_t which) {
        return asks ? calls[i][which].matrix.view() : TensorView{};
      };
      const LinearBackward call = {.x = whole_.x(i),
                                   .weight = weight(),
                                   .turned = turned(),
                                   .grad_out = whole_.grad_out(i),
                                   .grad_x = asked(case_.asks_x, kGradX),
                                   .grad_weight = asked(case_.asks_weight, kGradWeight),
                                   .grad_bias = asked(case_.asks_bias, kGradBias),
                                   .accumulate = case_.accumulate};
      // Every other backward gets no state of its forward.
      in_some_mode([&] { layer.backward(call, i % 2 == 0 ? &states[i] : nullptr); });
    }
    return calls;
  }

  template <class Call>
  void in_some_mode(const Call& call) {
    if (!call_in_some_mode(call)) note(aside_, "a call has changed the thread's float mode");
  }

  std::string check_serial(const std::vector<Results>& serial) override {
    std::string failure;
    for (std::size_t i = 0; i < serial.size(); ++i)
      note(failure, against_reference(static_cast<int>(i), serial[i]));
    note(failure, against_one_rank(serial));
    return failure;
  }

  std::string against_reference(int i, const Results& results) {
    using At = std::function<Wanted(std::int64_t row, std::int64_t col)>;
    // The tolerance of an s8 wire needs the products of all columns that share a scale.
    const std::int64_t columns = case_.wire == Dtype::s8 ? tensor::kScaleGroup : 1;
    const Samples samples = {kMostSamples,
                             (std::max(whole_.inputs(), whole_.outputs()) + 1) * columns};
    std::string failure;
    const auto check = [&](bool asks, std::size_t which, const At& at) {
      if (asks) note(failure, compare(results[which], samples, at));
    };
    check(true, kOut, [&](auto row, auto col) { return reference_.out_at(i, row, col); });
    check(case_.asks_x, kGradX,
          [&](auto row, auto col) { return reference_.grad_x_at(i, row, col); });
    check(case_.asks_weight, kGradWeight, [&](auto row, auto col) {
      const bool out_in = case_.layout == WeightLayout::out_in;
      return reference_.grad_weight_at(i, out_in ? row : col, out_in ? col : row, {row, col});
    });
    check(case_.asks_bias, kGradBias,
          [&](auto, auto col) { return reference_.grad_bias_at(i, col); });
    return failure;
  }

  // Compares this rank's results with its part of those of one rank that has the whole layer. The
  // results that are not sums over ranks' shares must be equal in any world.
  std::string against_one_rank(const std::vector<Results>& serial) {
    if (comm_.world() == 1) return {};
    LayerCase whole = case_;
    whole.shares = {std::accumulate(case_.shares.begin(), case_.shares.end(), std::int64_t{0})};
    whole.delays = false;
    std::optional<Communicator> self = comm_.split(comm_.rank(), 0);
    if (!self) return "a rank has no group of its own";
    const std::vector<Results> alone = LayerSubject(whole, *self).run(0);
    const bool all = is_as_on_one_rank(case_);
    const Range inputs = whole_.own_inputs();
    const Range outputs = whole_.own_outputs();
    const bool out_in = case_.layout == WeightLayout::out_in;
    std::string failure;
    for (std::size_t i = 0; i < serial.size(); ++i) {
      spoil(kOnOneRank, alone[i]);
      const auto check = [&](bool asks, std::size_t which, Range rows, Range columns) {
        if (!asks) return;
        const Result& mine = serial[i][which];
        const ConstTensorView part = alone[i][which]
                                         .matrix.view()
                                         .row_range(rows.begin, rows.end)
                                         .column_range(columns.begin, columns.end);
        note(failure, same(mine.name, mine.matrix.view(), "that of one rank alone", part));
        // Only one of the results is a sum over the ranks' shares.
        if (which == (case_.row ? kOut : kGradX) && part.bytes() > 0) as_one_ = true;
      };
      check(all || !case_.row, kOut, whole_.out_rows(), outputs);
      check(case_.asks_x && (all || case_.row), kGradX, whole_.x_rows(), inputs);
      check(case_.asks_weight, kGradWeight, out_in ? outputs : inputs, out_in ? inputs : outputs);
      check(case_.asks_bias, kGradBias, {0, 1}, outputs);
    }
    return failure;
  }

  const LayerCase& case_;
  LayerOperands whole_;
  LayerReference reference_;
  std::optional<PackedWeight> packed_;
  std::optional<PackedWeight> turned_;
};

}  // namespace

std::unique_ptr<Subject> subject_of(const LayerCase& one, Communicator& comm) {
  return std::make_unique<LayerSubject>(one, comm);
}

}  // namespace plait::verify
