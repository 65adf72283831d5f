#include "tune/measure_profile.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/parallel.h"
#include "comm/session/state.h"
#include "comm/session/transports.h"
#include "plait/collectives.h"
#include "plait/gemm.h"
#include "plan/cost_model.h"
#include "plan/machine.h"
#include "plan/sizes.h"
#include "tune/agree.h"
#include "tune/halving.h"
#include "tune/op_case.h"

namespace plait::tune {
namespace {

constexpr std::array<std::int64_t, 6> kRows = {1, 4, 16, 64, 256, 768};
constexpr std::array<const char*, 4> kWeights = {"bf16", "f32", "s4:group=128", "s8:channel"};

// Plans that hold ever fewer partial sums: from far more than the last-level cache, which cores
// share, to well below a core's L2 cache.
struct Keeping {
  std::int64_t sides;  // the problem's width
  std::int64_t chunk;  // 0: all, in a serial plan
};
constexpr std::array<Keeping, 5> kKeeping = {{{.sides = 4, .chunk = 0},
                                              {.sides = 2, .chunk = 0},
                                              {.sides = 2, .chunk = 2048},
                                              {.sides = 2, .chunk = 512},
                                              {.sides = 2, .chunk = 128}}};
constexpr int kFigures = static_cast<int>(kRows.size() * kWeights.size() + kKeeping.size()) + 6;

// Slower rates are never stored, because predictions divide by them.
constexpr double kLeastRate = 1e-3;

// A model is never more certain than this, however little the times scatter.
constexpr double kLeastUncertainty = 0.03;

// Short calls are repeated for at least so long. Beside another program, one of them then falls
// into a moment in which no rank waits for its core.
constexpr base::Nanoseconds kEnough = 30 * base::kMillisecond;

class Measuring {
 public:
  Measuring(Communicator& comm, const ProfileOptions& options) : comm_(comm), options_(options) {
    profile_ = plan::built_in_profile();
    profile_.machine = plan::machine_fingerprint();
    profile_.ranks = comm.world();
    profile_.threads = least(base::thread_count(options.threads), comm);
    profile_.hosts = comm.state().hosts();
    profile_.products.clear();
    profile_.transports.clear();
  }

  plan::MachineProfile run() {
    for (const char* weight : kWeights) measure_products(weight);
    measure_start();
    measure_narrow();
    measure_transport();
    if (comm_.world() > 1) {
      measure_work();
      measure_chunk();
      measure_kept();
      measure_beside();
    }
    judge();
    return profile_;
  }

 private:
  PlanKey key(Operator op, std::int64_t m, std::int64_t n, std::int64_t k) const {
    return {.op = op,
            .m = m,
            .n = n,
            .k = k,
            .world = comm_.world(),
            .hosts = profile_.hosts,
            .threads = profile_.threads,
            .transport = std::string(comm_.transport())};
  }

  void done() {
    if (options_.progress) options_.progress(std::min(++done_, kFigures), kFigures);
  }

  double most() const { return static_cast<double>(options_.longest); }

  // The shortest of at least `calls` calls, each timed by its slowest rank. Figures are compared
  // with one another, so all must come from undisturbed moments. Otherwise another process that
  // disturbs one of them would look like a property of the machine.
  double time(const std::function<void()>& call, int calls = 7) {
    std::vector<double> times;
    double spent = 0;  // all ranks agree on it
    for (int i = 0; (i <= calls || spent < kEnough) && (i < 2 || spent < most()); ++i) {
      const double taken = time_once(call);
      if (i > 0) times.push_back(taken);
      spent += taken;
    }
    const double middle = median(times);
    if (middle > base::kMillisecond && times.size() > 2)
      spread_.push_back(spread_of(times, middle));
    return std::max(*std::min_element(times.begin(), times.end()), 1.0);
  }

  double time_once(const std::function<void()>& call) {
    barrier(comm_);
    const base::Nanoseconds begin = base::now();
    call();
    return slowest(static_cast<double>(base::now() - begin), comm_);
  }

  // Runs a product, which waits for no other rank. The time in which its thread did not run is that
  // of other programs.
  void run_watched(OpCase::Runner& product) {
    const base::Nanoseconds begin = base::now();
    const base::Nanoseconds used_before = base::thread_time();
    product.run();
    elapsed_ += base::now() - begin;
    used_ += base::thread_time() - used_before;
  }

  // Half of the times are within this distance of the median.
  static double spread_of(const std::vector<double>& times, double middle) {
    std::vector<double> distances;
    distances.reserve(times.size());
    for (const double one : times) distances.push_back(std::abs(one - middle) / middle);
    return median(std::move(distances));
  }

  void measure_products(const std::string& weight) {
    PlanKey problem = key(Operator::matmul, kRows.back(), options_.side, options_.side);
    problem.weight = weight;
    if (weight == "f32") problem.x = problem.out = Dtype::f32;
    double rate = kLeastRate;
    for (const std::int64_t rows : kRows) {
      problem.m = rows;
      const OpCase one({.key = problem}, comm_);
      const auto product = one.product(comm_);
      const double taken = time([&] { run_watched(*product); }, rows < 64 ? 15 : 5);
      // More rows are never slower than fewer, so a lower rate is noise, and the model would choose
      // plans to avoid it.
      rate = std::max(rate, one.flops() / taken);
      profile_.products.push_back(
          {.kind = plan::product_kind(problem), .rows = rows, .flops_per_ns = rate});
      done();
    }
  }

  void measure_start() {
    const OpCase one({.key = key(Operator::matmul, 1, plan::kPanel, 64)}, comm_);
    const auto product = one.product(comm_);
    profile_.start = time([&] { product->run(); }, 101);
    done();
  }

  // Compares a product of one panel at a time with a product in one piece.
  void measure_narrow() {
    constexpr std::int64_t kM = 512;
    constexpr std::int64_t kN = 1024;
    const OpCase one({.key = key(Operator::matmul, kM, kN, options_.side)}, comm_);
    const Buffer weight = one.random_weight(Dtype::bf16);
    const PackedWeight packed(
        {.view = weight.view(Dtype::bf16, kN, options_.side), .layout = WeightLayout::out_in},
        profile_.threads);
    Buffer out = Buffer::for_tensor(Dtype::bf16, kM, kN);
    const TensorView y = out.view(Dtype::bf16, kM, kN);
    Gemm gemm = select_gemm({.m = kM, .n = kN, .k = options_.side}, {.threads = profile_.threads});
    PackedInput rows;
    gemm.pack({.view = one.x()}, rows);
    const auto multiply = [&](std::int64_t width) {
      for (std::int64_t at = 0; at < kN; at += width) {
        gemm.run({.x = {.view = one.x()},
                  .weight = packed,
                  .out = y.column_range(at, at + width),
                  .window = {.columns = {at, at + width}},
                  .packed_x = &rows});
      }
    };
    const double whole = time([&] { multiply(plan::kFullSpeed); }, 15);
    const double cut = time([&] { multiply(plan::kPanel); }, 15);
    profile_.narrow = std::clamp(cut / whole - 1, 0.0, 0.3);
    done();
  }

  // Measures the smallest message. Processors copy what shared memory transfers; for other
  // transports, a message is sent that is so large that nothing else counts.
  void measure_transport() {
    plan::TransportFigures figures = {.name = std::string(comm_.transport())};
    std::vector<float> all(static_cast<std::size_t>(comm_.world()));
    const float mine = 1;
    figures.latency = time([&] { all_gather({&mine, 1}, {all.data(), all.size()}, comm_); }, 101);
    if (comm::crosses_hosts(figures.name) && comm_.world() > 1) {
      constexpr std::size_t kFloats = std::size_t{1} << 21;
      const std::vector<float> much(kFloats, 1.0F);
      std::vector<float> back(kFloats * all.size());
      const double taken = time(
          [&] { all_gather({much.data(), much.size()}, {back.data(), back.size()}, comm_); }, 3);
      figures.bytes_per_ns = static_cast<double>(kFloats * sizeof(float)) / taken;
    }
    profile_.transports.push_back(figures);
    done();
  }

  double communicate(const PlanKey& problem, const char* plan) {
    const OpCase one({.key = problem}, comm_);
    const auto runner = one.runner(parse_plan(plan), comm_);
    return time([&] { runner->communicate(); });
  }

  // Operators without their products leave copies, or copies and sums.
  void measure_work() {
    const auto peers = static_cast<double>(comm_.world() - 1);
    const std::int64_t rows = std::int64_t{256} * comm_.world();
    // Each rank copies its rows to every peer, copies the peers' rows out, and copies its own next
    // to them.
    const double gather =
        communicate(key(Operator::all_gather_matmul, rows, 64, options_.side), "serial");
    const double shard = 256.0 * static_cast<double>(options_.side);
    profile_.copy = std::max((2 * peers + 1) * shard * 2 / gather, kLeastRate);
    const PlanKey sums = key(Operator::matmul_reduce_scatter, rows, options_.side, 512);
    const double scatter = communicate(sums, "serial");
    const double copies = peers * shard * 4 / profile_.copy;
    const double read = shard * (4 * (peers + 1) + 2);
    // A copy reads and writes each byte. A sum does more work with each of its bytes, so that a
    // higher rate than twice that of copies is noise in the difference of the two times.
    const double fastest = 2 * profile_.copy;
    profile_.sum = std::max(read / std::max(scatter - copies, read / fastest), kLeastRate);
    done();
  }

  // How many times as long as predicted copies and sums take together with their product. It
  // includes that sums are rounded and written later than the product would have written them. The
  // two are measured in turns, because their difference is a small part of either.
  double times_as_long(const PlanKey& problem, const Plan& plan) {
    constexpr int kLeastTurns = 3;
    constexpr int kTurns = 15;
    const OpCase one({.key = problem}, comm_);
    const auto product = one.product(comm_);
    const auto runner = one.runner(plan, comm_);
    time_once([&] { product->run(); });
    time_once([&] { runner->run(); });
    double alone = std::numeric_limits<double>::max();
    double both = alone;
    double spent = 0;
    for (int turn = 0; turn < kLeastTurns || (turn < kTurns && spent < most()); ++turn) {
      const double product_time = time_once([&] { product->run(); });
      const double whole = time_once([&] { runner->run(); });
      alone = std::min(alone, product_time);
      both = std::min(both, whole);
      spent += product_time + whole;
    }
    return (both - alone) / plan::CostModel(profile_).predict(problem, plan).work;
  }

  // The sizes are so small that the product's noise does not hide copies and sums.
  PlanKey scatter(std::int64_t sides) const {
    constexpr std::int64_t kM = 512;
    constexpr std::int64_t kDepth = 512;
    return key(Operator::matmul_reduce_scatter, kM, sides * options_.side, kDepth * comm_.world());
  }

  // Measures fused plans for few partial sums, as in practice, and serial ones for many.
  void measure_kept() {
    profile_.beside = 1;
    constexpr double kLeast = 0.1;
    constexpr double kMost = 5;  // memory is not slower than this, compared with a cache
    double times = kMost;
    std::vector<plan::KeptSums> kept;
    for (const Keeping& some : kKeeping) {
      const PlanKey problem = scatter(some.sides);
      const Plan plan = some.chunk > 0 ? Plan{.schedule = Schedule::fused, .chunk = some.chunk}
                                       : Plan{.schedule = Schedule::serial};
      // Fewer partial sums are never slower to read, so a higher value is noise.
      const double measured = times_as_long(problem, plan);
      is_possible_ = is_possible_ && measured < kMost;
      times = std::clamp(measured, kLeast, times);
      const double bytes = plan::CostModel(profile_).predict(problem, plan).kept;
      kept.push_back({.bytes = static_cast<std::int64_t>(bytes), .times = times});
      done();
    }
    profile_.kept.assign(kept.rbegin(), kept.rend());
  }

  // Uses a product that is divided where dividing costs nothing.
  void measure_beside() {
    const double times = times_as_long(scatter(2), parse_plan("pipelined parts=8"));
    profile_.beside = std::clamp(times, 1.0, 3.0);
    done();
  }

  // Figures from a disturbed measurement are trusted no more than those of another machine.
  void judge() {
    const auto elapsed = static_cast<double>(std::max<base::Nanoseconds>(elapsed_, 1));
    const double lost = slowest(1 - static_cast<double>(used_) / elapsed, comm_);
    const double error = is_possible_ ? std::max(2 * median(spread_), lost) : plan::kElsewhere;
    profile_.uncertainty = std::clamp(error, kLeastUncertainty, plan::kElsewhere);
  }

  // Compares many small chunks with few, to find the cost of a chunk of any size.
  void measure_chunk() {
    const PlanKey small =
        key(Operator::matmul_reduce_scatter, std::int64_t{4} * comm_.world(), options_.side, 64);
    const double many = communicate(small, "pipelined parts=64");
    const double few = communicate(small, "pipelined parts=1");
    // Each chunk is handed to every peer, and summed.
    profile_.chunk = std::clamp((many - few) / 63 / comm_.world(), 20.0, 20'000.0);
    done();
  }

  Communicator& comm_;
  const ProfileOptions& options_;
  plan::MachineProfile profile_;
  std::vector<double> spread_;
  base::Nanoseconds elapsed_ = 0;  // in run_watched()
  base::Nanoseconds used_ = 0;
  bool is_possible_ = true;  // true if each figure is one that a machine can have
  int done_ = 0;
};

}  // namespace

plan::MachineProfile measure_profile(Communicator& comm, const ProfileOptions& options) {
  return Measuring(comm, options).run();
}

}  // namespace plait::tune
