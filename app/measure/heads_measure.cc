#include "measure/heads_measure.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "base/check.h"
#include "base/parallel.h"
#include "measure/collective_race.h"
#include "measure/limits.h"
#include "measure/memory.h"
#include "ops/shapes.h"
#include "plait/collectives.h"
#include "plait/columns.h"
#include "plait/gemm.h"
#include "plait/packed_weight.h"
#include "plait/trace.h"
#include "plait/vocabulary.h"
#include "tensor/fill.h"

namespace plait::measure {
namespace {

double bytes(std::int64_t rows, std::int64_t columns, std::size_t size) {
  return static_cast<double>(rows) * static_cast<double>(columns) * static_cast<double>(size);
}

// A matrix with its memory.
class Operand {
 public:
  Operand() = default;
  Operand(Dtype dtype, std::int64_t rows, std::int64_t cols, std::uint64_t seed = 0)
      : memory_(Buffer::for_tensor(dtype, rows, cols, {.huge_pages = true})),
        view(memory_.view(dtype, rows, cols)) {
    std::memset(memory_.data(), 0, memory_.bytes());
    if (seed > 0) tensor::fill_random(view, seed);
  }

 private:
  Buffer memory_;

 public:
  TensorView view = {};
};

constexpr std::int64_t kBlock = 32;

// Some columns become rows. Elements are copied as whole numbers of their size.
template <class Element>
void transpose(const ConstTensorView& from, const TensorView& to, Range columns) {
  for (std::int64_t first = 0; first < from.rows; first += kBlock) {
    const std::int64_t end = std::min(first + kBlock, from.rows);
    for (std::int64_t col = columns.begin; col < columns.end; ++col) {
      auto* const target = static_cast<Element*>(to.row(col));
      for (std::int64_t row = first; row < end; ++row)
        target[row] = static_cast<const Element*>(from.row(row))[col];
    }
  }
}

// One row is its own transposition.
ConstTensorView transposed(const ConstTensorView& from, const Operand& to, int threads) {
  if (from.rows == 1 || from.cols == 1) {
    return {.data = from.data,
            .dtype = from.dtype,
            .rows = from.cols,
            .cols = from.rows,
            .row_stride = from.rows};
  }
  base::parallel_for((from.cols + kBlock - 1) / kBlock, threads, [&](std::int64_t block) {
    const Range columns = {block * kBlock, std::min((block + 1) * kBlock, from.cols)};
    if (size_of(from.dtype) == sizeof(std::uint16_t))
      return transpose<std::uint16_t>(from, to.view, columns);
    transpose<std::uint32_t>(from, to.view, columns);
  });
  return to.view;
}

// The heads of one size on one rank.
class HeadsCase {
 public:
  HeadsCase(const HeadsSetup& setup, const OpSize& size, Communicator& comm)
      : setup_(setup),
        size_(size),
        comm_(comm),
        own_(ops::share_of(size.n, comm.rank(), comm.world())),
        x_(setup.x, size.m, size.k, 1),
        weight_(setup.x, own_, size.k, static_cast<std::uint64_t>(comm.rank()) + 2),
        packed_(plain(), setup.threads),
        gemm_(select_gemm(
            {.m = size.m, .n = own_, .k = size.k, .x = setup.x, .weight = setup.x, .out = setup.x},
            {.threads = setup.threads})) {}

  struct Calls {
    std::function<void()> call;
    std::function<void()> gathered;  // none: the head has no such form
    std::function<void()> products;
  };

  // The calls of one head, until those of another are prepared.
  Calls prepare(const std::string& head) {
    std::function<void()> call;
    std::function<void()> gathered;
    std::function<void()> products = [this] { product(); };
    logits_ = Operand(setup_.x, size_.m, own_, 3);
    if (head == "loss") {
      call = prepare_loss();
      products = [this] { products_of_loss(); };
    } else if (head == "loss-alone" || head == "log-probs") {
      prepare_targets();
      call = [this, probs = head == "log-probs"] {
        (probs ? matmul_log_probs : matmul_cross_entropy)(
            {.x = x_.view, .weight = packed_, .targets = targets_, .out = loss_}, comm_,
            {.vocabulary = options()});
      };
    } else {
      all_ = Operand(setup_.x, size_.m, size_.n);
      turned_ = Operand(setup_.x, own_, size_.m);
      all_turned_ = Operand(setup_.x, size_.n, size_.m);
      values_.resize(static_cast<std::size_t>(size_.m * setup_.top));
      ids_.resize(values_.size());
      call = call_of(head);
      gathered = [this, head] {
        if (head != "columns") product();
        gather();
        if (head == "top") search();
      };
    }
    return {.call = call, .gathered = gathered, .products = products};
  }

  HeadTimes measure(const std::string& head) {
    CollectiveRace race(comm_, setup_.effort);
    const bool is_columns = head == "columns";
    const Calls calls = prepare(head);
    race.add(calls.call);
    if (calls.gathered) race.add(calls.gathered);
    if (!is_columns) {
      race.add(calls.products);
      const double weight = bytes(own_, size_.k, size_of(setup_.x));
      race.add(reading(static_cast<std::size_t>(weight), base::thread_count(setup_.threads)).call);
    }
    const std::vector<Times> times = race.run();
    HeadTimes result = {.head = head,
                        .size = size_,
                        .time = times[0],
                        .gathered = {},
                        .products = {},
                        .reading = {}};
    std::size_t next = 1;
    if (calls.gathered) result.gathered = times[next++];
    if (!is_columns) result.products = times[next++];
    if (!is_columns) result.reading = times[next++];
    return result;
  }

 private:
  WeightView plain() const { return {.view = weight_.view, .layout = WeightLayout::out_in}; }
  VocabularyOptions options() const {
    return {.first_id = ops::shard_of(size_.n, comm_.rank(), comm_.world()).begin,
            .logits = setup_.x,
            .threads = setup_.threads};
  }

  void product() {
    const Span span(comm_.trace(), Lane::compute, "product",
                    {.flops = 2 * size_.m * own_ * size_.k});
    gemm_.run({.x = {x_.view}, .weight = packed_, .out = logits_.view});
  }

  std::function<void()> call_of(const std::string& head) {
    if (head == "columns") return [this] { all_gather_columns(logits_.view, all_.view, comm_); };
    if (head == "logits") {
      return [this] {
        matmul_all_gather_columns(x_.view, packed_, all_.view, comm_, {.threads = setup_.threads});
      };
    }
    return [this] {
      matmul_top(x_.view, packed_, {.k = setup_.top, .values = values_, .ids = ids_}, comm_,
                 options());
    };
  }

  // Frameworks gather the last dimension as the first one of the transposed matrix.
  void gather() {
    const ConstTensorView own = transposed(logits_.view, turned_, setup_.threads);
    const TensorView all = size_.m == 1 ? all_.view : all_turned_.view;
    const auto count = [&](std::int64_t columns) {
      return static_cast<std::size_t>(columns * size_.m);
    };
    std::vector<std::size_t> counts;
    counts.reserve(static_cast<std::size_t>(comm_.world()));
    for (int rank = 0; rank < comm_.world(); ++rank)
      counts.push_back(count(ops::share_of(size_.n, rank, comm_.world())));
    all_gather({own.data, count(own_), setup_.x}, {all.data, count(size_.n), setup_.x}, comm_,
               counts);
    if (size_.m > 1) transposed(all, all_, setup_.threads);
  }

  // The other way costs at least the search for the largest logit.
  void search() {
    base::parallel_for(size_.m, setup_.threads, [&](std::int64_t row) {
      std::vector<float> values(static_cast<std::size_t>(size_.n));
      convert(all_.view.row(row), setup_.x, values.data(), Dtype::f32, values.size());
      const auto largest = std::max_element(values.begin(), values.end());
      ids_[static_cast<std::size_t>(row * setup_.top)] = largest - values.begin();
    });
  }

  void prepare_targets() {
    const auto rows = static_cast<std::size_t>(size_.m);
    targets_.resize(rows);
    for (std::size_t i = 0; i < rows; ++i)
      targets_[i] = static_cast<std::int64_t>(i * 7919) % size_.n;
    loss_.resize(rows);
  }

  std::function<void()> prepare_loss() {
    prepare_targets();
    sums_.resize(loss_.size());
    weights_.assign(loss_.size(), 1.0F / static_cast<float>(loss_.size()));
    dx_ = Operand(setup_.x, size_.m, size_.k);
    dw_ = Operand(setup_.x, own_, size_.k);
    return [this] {
      matmul_cross_entropy_with_gradient({.x = x_.view,
                                          .weight = plain(),
                                          .targets = targets_,
                                          .log_sum_exp = {},
                                          .grad_loss = weights_,
                                          .dx = dx_.view,
                                          .dw = dw_.view},
                                         {.losses = loss_, .log_sum_exp = sums_}, comm_,
                                         {.vocabulary = options()});
    };
  }

  // Logits, and both gradients of them: what a loss over kept logits multiplies.
  void products_of_loss() {
    const GemmOptions how = {.threads = setup_.threads};
    const auto select = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
      return select_gemm(
          {.m = m, .n = n, .k = k, .x = setup_.x, .weight = setup_.x, .out = setup_.x}, how);
    };
    select(size_.m, own_, size_.k).run({.x = {x_.view}, .weight = plain(), .out = logits_.view});
    select(size_.m, size_.k, own_)
        .run({.x = {logits_.view}, .weight = plain().turned(), .out = dx_.view});
    select(own_, size_.k, size_.m)
        .run({.x = {.view = logits_.view, .transposed = true},
              .weight = WeightView{.view = x_.view, .layout = WeightLayout::in_out},
              .out = dw_.view});
  }

  const HeadsSetup& setup_;
  OpSize size_;
  Communicator& comm_;
  std::int64_t own_;
  Operand x_;
  Operand weight_;
  PackedWeight packed_;
  Gemm gemm_;
  Operand logits_, all_, turned_, all_turned_, dx_, dw_;
  std::vector<float> values_, loss_, sums_, weights_;
  std::vector<std::int64_t> ids_, targets_;
};

}  // namespace

const std::vector<std::string>& heads_words() {
  static const std::vector<std::string> words = {"top",  "logits",     "columns",
                                                 "loss", "loss-alone", "log-probs"};
  return words;
}

void check_memory(const HeadsSetup& setup, const OpSize& size, int world) {
  const std::size_t element = size_of(setup.x);
  // Each rank has its weight twice, dw, a block to read, and the logits of all ids three times.
  check_memory(4 * bytes(size.n, size.k, element) + 3 * world * bytes(size.m, size.n, element),
               base::sentence("m=", size.m, " n=", size.n, " k=", size.k));
}

std::vector<HeadTimes> measure(const HeadsSetup& setup, Communicator& comm) {
  Communicator linked = comm.with_link(setup.link);
  std::vector<HeadTimes> results;
  for (const OpSize& size : setup.sizes) {
    HeadsCase one(setup, size, linked);
    for (const std::string& head : setup.heads) results.push_back(one.measure(head));
  }
  return results;
}

Recorded record(const HeadsSetup& setup, Communicator& comm) {
  Recording recording(comm);
  {
    Communicator traced = comm.with_link(setup.link);
    HeadsCase one(setup, setup.sizes.front(), traced);
    const HeadsCase::Calls calls = one.prepare(setup.heads.front());
    const auto run = [&](const char* name, const std::function<void()>& call) {
      call();  // so that it is as warm as the measured runs
      recording.run(name, call);
    };
    if (calls.gathered) run("gathered", calls.gathered);
    run(setup.heads.front().c_str(), calls.call);
  }
  return recording.collect();
}

}  // namespace plait::measure
