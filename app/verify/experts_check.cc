// The calls of a layer of experts, whose results must have the bits of one rank with all experts.
#include <deque>
#include <numeric>
#include <string>
#include <vector>

#include "base/check.h"
#include "plait/packed_weight.h"
#include "verify/check.h"

namespace plait::verify {
namespace {

constexpr std::uint64_t kSeedOfUp = 2;
constexpr std::uint64_t kSeedOfDown = 3;
constexpr std::uint64_t kSeedOfUpBias = 4;
constexpr std::uint64_t kSeedOfDownBias = 5;
constexpr std::uint64_t kSeedOfGrad = 6;
constexpr std::uint64_t kSeedOfSlots = 7;

// The operands of all ranks: a few experts are small enough for each to have them.
class ExpertsOperands {
 public:
  explicit ExpertsOperands(const ExpertsCase& one)
      : case_(one),
        rows_(std::accumulate(one.rows.begin(), one.rows.end(), std::int64_t{0})),
        x_(made(one.desc.dtype, rows_, one.desc.hidden, kSeedOfX)),
        grad_(made(one.desc.dtype, rows_, one.desc.hidden, kSeedOfGrad)) {
    const ExpertsDesc& desc = one.desc;
    for (std::int64_t expert = 0; expert < desc.experts * desc.parts; ++expert) {
      add(up_, turned_up_, outputs(), desc.hidden, 8 * expert + kSeedOfUp);
      add(down_, turned_down_, desc.hidden, desc.inner, 8 * expert + kSeedOfDown);
      if (!one.biases) continue;
      up_biases_.push_back(made(desc.dtype, 1, outputs(), 8 * expert + kSeedOfUpBias));
      down_biases_.push_back(made(desc.dtype, 1, desc.hidden, 8 * expert + kSeedOfDownBias));
    }
    Random random(one.seed, kSeedOfSlots);
    for (std::int64_t slot = 0; slot < rows_ * desc.top; ++slot) {
      const bool is_usual = one.skewed && !random.one_in(4);
      ids_.push_back(random.one_in(10) ? -1 : is_usual ? 0 : random.below(desc.experts));
      weights_.push_back(static_cast<float>(random.between(-4, 20)) / 16.0F);
    }
  }

  // The results for rows of one rank with these experts; see `results`.
  Results run(ExpertParallelMLP& layer, const std::vector<std::int64_t>& own, Range rows) const {
    const ExpertsDesc& desc = case_.desc;
    const auto of = [&](const auto& all) {
      std::vector<typename std::decay_t<decltype(all)>::value_type> some;
      for (const std::int64_t expert : own)
        if (!all.empty()) some.push_back(all[static_cast<std::size_t>(expert)]);
      return some;
    };
    const auto views_of = [&](const std::deque<Guarded>& all) {
      std::vector<ConstTensorView> views;
      for (const std::int64_t expert : own)
        if (!all.empty()) views.emplace_back(all[static_cast<std::size_t>(expert)].view());
      return views;
    };
    const std::vector<Weight> up = of(up_), down = of(down_);
    const std::vector<Weight> turned_up = of(turned_up_), turned_down = of(turned_down_);
    const auto up_biases = views_of(up_biases_), down_biases = views_of(down_biases_);
    const auto slots = [&](const auto& all) {
      return std::span(all).subspan(static_cast<std::size_t>(rows.begin * desc.top),
                                    static_cast<std::size_t>((rows.end - rows.begin) * desc.top));
    };
    Results results = results_for(rows, std::ssize(own));
    for (Result& result : results) result.matrix.poison();
    const ExpertsForward call = {.x = x_.view().row_range(rows.begin, rows.end),
                                 .ids = slots(ids_),
                                 .weights = slots(weights_),
                                 .up = up,
                                 .down = down,
                                 .up_biases = up_biases,
                                 .down_biases = down_biases,
                                 .out = results[0].matrix.view(),
                                 .gradients = case_.gradients};
    layer.forward(call);
    if (!case_.gradients) return results;
    std::vector<std::vector<TensorView>> grads;
    for (std::size_t i = 3; i < results.size(); ++i) {
      const TensorView& all = results[i].matrix.view();
      auto& views = grads.emplace_back();
      const std::int64_t each = own.empty() ? 0 : all.rows / std::ssize(own);
      for (std::int64_t expert = 0; expert < std::ssize(own); ++expert)
        views.push_back(all.row_range(expert * each, (expert + 1) * each));
    }
    const TensorView& by_weight = results[2].matrix.view();
    ExpertsBackward back = {.forward = call,
                            .grad_out = grad_.view().row_range(rows.begin, rows.end),
                            .grad_x = results[1].matrix.view(),
                            .grad_weights = {static_cast<float*>(by_weight.data),
                                             static_cast<std::size_t>(by_weight.cols)},
                            .grad_up = grads[0],
                            .grad_down = grads[1]};
    if (desc.weight.is_packed) {
      back.turned_up = turned_up;
      back.turned_down = turned_down;
    }
    if (case_.biases) {
      back.grad_up_biases = grads[2];
      back.grad_down_biases = grads[3];
    }
    layer.backward(back);
    return results;
  }

  std::int64_t rows() const { return rows_; }
  std::int64_t outputs() const {
    return case_.desc.activation == ExpertActivation::silu ? case_.desc.inner
                                                           : 2 * case_.desc.inner;
  }

 private:
  Guarded made(Dtype dtype, std::int64_t rows, std::int64_t cols, std::uint64_t which) const {
    Guarded matrix(dtype, rows, cols);
    fill(matrix.view(), case_.numbers, case_.seed * 64 + which);
    return matrix;
  }

  void add(std::vector<Weight>& to, std::vector<Weight>& turned, std::int64_t n, std::int64_t k,
           std::uint64_t which) {
    const WeightKind& kind = case_.desc.weight;
    const bool out_in = case_.layout == WeightLayout::out_in;
    // A weight to be quantised must be finite.
    plain_.emplace_back(kind.scheme ? Dtype::f32 : kind.dtype, out_in ? n : k, out_in ? k : n);
    fill(plain_.back().view(), kind.scheme ? Numbers::usual : case_.numbers,
         case_.seed * 64 + which);
    const WeightView weight = {.view = plain_.back().view(), .layout = case_.layout};
    const auto pack = [&](const WeightView& view) -> const PackedWeight& {
      if (kind.scheme) return packed_.emplace_back(quantize(view, *kind.scheme, /*threads=*/1));
      return packed_.emplace_back(view);
    };
    if (!kind.is_packed) return to.emplace_back(weight), void();
    to.emplace_back(pack(weight));
    turned.emplace_back(pack(weight.turned()));
  }

  // out; and with gradients those of x, of the slots' weights, and of weights and biases.
  Results results_for(Range rows, std::int64_t own) const {
    const ExpertsDesc& desc = case_.desc;
    const std::int64_t count = rows.end - rows.begin;
    const bool out_in = case_.layout == WeightLayout::out_in || desc.weight.is_packed;
    const auto lying = [&](const char* name, std::int64_t n, std::int64_t k) {
      return Result{name, Guarded(Dtype::f32, own * (out_in ? n : k), out_in ? k : n)};
    };
    Results results;
    results.push_back({"out", Guarded(desc.out, count, desc.hidden)});
    if (!case_.gradients) return results;
    results.push_back({"grad_x", Guarded(desc.dtype, count, desc.hidden)});
    results.push_back({"grad_weights", Guarded(Dtype::f32, 1, count * desc.top)});
    results.push_back(lying("grad_up", outputs(), desc.hidden));
    results.push_back(lying("grad_down", desc.hidden, desc.inner));
    if (!case_.biases) return results;
    results.push_back({"grad_up_biases", Guarded(Dtype::f32, own, outputs())});
    results.push_back({"grad_down_biases", Guarded(Dtype::f32, own, desc.hidden)});
    return results;
  }

  const ExpertsCase& case_;
  std::int64_t rows_;
  Guarded x_, grad_;
  std::deque<Guarded> plain_, up_biases_, down_biases_;
  std::deque<PackedWeight> packed_;
  std::vector<Weight> up_, down_, turned_up_, turned_down_;
  std::vector<std::int64_t> ids_;
  std::vector<float> weights_;
};

class ExpertsSubject final : public Subject {
 public:
  ExpertsSubject(const ExpertsCase& one, Communicator& comm)
      : Subject(one, comm), case_(one), operands_(one) {
    const auto own = static_cast<std::size_t>(comm.rank());
    if (one.replicated) {
      rows_ = {0, operands_.rows()};
    } else {
      rows_.begin = std::accumulate(one.rows.begin(), one.rows.begin() + comm.rank(), rows_.begin);
      rows_.end = rows_.begin + one.rows[own];
    }
  }

 private:
  std::size_t variants() const override { return case_.variants.size(); }

  std::string place_of(std::size_t number, std::size_t) const override {
    const ExpertsVariant& variant = case_.variants[number - 1];
    return base::sentence(name(variant.schedule), ", ", variant.threads, " threads: ");
  }

  // 0: the serial one.
  std::vector<Results> run(std::size_t number) override {
    const ExpertsVariant variant =
        number == 0 ? ExpertsVariant{.schedule = Schedule::serial} : case_.variants[number - 1];
    ExpertParallelMLP layer(
        case_.desc, comm_,
        {.schedule = variant.schedule, .replicated = case_.replicated, .threads = variant.threads});
    own_ = layer.experts_of(comm_.rank());
    std::vector<Results> calls;
    const bool kept =
        call_in_some_mode([&] { calls.push_back(operands_.run(layer, own_, rows_)); });
    if (!kept) note(aside_, "a call has changed the thread's float mode");
    return calls;
  }

  // One rank with all experts, or all parts of them, and all rows.
  std::string check_serial(const std::vector<Results>& serial) override {
    Results all;
    run_in_threads(1, [&](Communicator& alone) {
      ExpertsDesc desc = case_.desc;
      desc.ranks.clear();
      ExpertParallelMLP layer(desc, alone, {.schedule = Schedule::serial, .threads = 1});
      all = operands_.run(layer, layer.experts_of(0), {0, operands_.rows()});
    });
    spoil(kOnOneRank, all);
    std::string failure;
    for (std::size_t i = 0; i < all.size(); ++i) {
      const Result& got = serial[0][i];
      const ConstTensorView whole = all[i].matrix.view();
      const auto compare = [&](const ConstTensorView& mine, const ConstTensorView& wanted) {
        note(failure, same(got.name, mine, "that of one rank alone", wanted));
      };
      if (i < 2) {
        compare(got.matrix.view(), whole.row_range(rows_.begin, rows_.end));
      } else if (i == 2) {
        const std::int64_t top = case_.desc.top;
        compare(got.matrix.view(), whole.column_range(rows_.begin * top, rows_.end * top));
      } else {
        const std::int64_t each = whole.rows / (case_.desc.experts * case_.desc.parts);
        for (std::size_t j = 0; j < own_.size(); ++j) {
          const auto first = static_cast<std::int64_t>(j) * each;
          compare(got.matrix.view().row_range(first, first + each),
                  whole.row_range(own_[j] * each, (own_[j] + 1) * each));
        }
      }
    }
    as_one_ = comm_.world() > 1 && operands_.rows() > 0;
    return failure;
  }

  const ExpertsCase& case_;
  ExpertsOperands operands_;
  Range rows_ = {0, 0};
  std::vector<std::int64_t> own_;
};

}  // namespace

std::unique_ptr<Subject> subject_of(const ExpertsCase& one, Communicator& comm) {
  return std::make_unique<ExpertsSubject>(one, comm);
}

}  // namespace plait::verify
