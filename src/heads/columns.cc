#include "plait/columns.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <numeric>
#include <optional>
#include <typeinfo>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/parallel.h"
#include "base/round_up.h"
#include "comm/session/state.h"
#include "gemm/checks.h"
#include "heads/agreement.h"
#include "heads/gather_columns.h"
#include "heads/logits.h"
#include "ops/family_plan.h"
#include "overlap/multiplier.h"
#include "plait/collectives.h"
#include "plait/trace.h"
#include "plan/families.h"
#include "plan/sizes.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait {
namespace heads {
namespace {

constexpr const char* kGather = "all_gather_columns";
constexpr const char* kProduct = "matmul_all_gather_columns";
constexpr const char* kGatherFirst = "all_gather_columns_matmul";

// If columns are gathered before a product, rows arrive in blocks: usually at most so many, and
// each of at least so many rows, because the product of a block reads the whole weight.
constexpr std::int64_t kRowBlocks = 8;
constexpr std::int64_t kLeastRows = 64;

ColumnCut cut_of(const char* name, const TensorView& all, std::int64_t own, ColumnCounts given,
                 Communicator& comm) {
  PLAIT_CHECK(all.device == kCpu, name, ": the output is on ", plait::name(all.device),
              "; it must be on the CPU");
  PLAIT_CHECK(all.dtype <= Dtype::s8, name, ": the output has no dtype");
  PLAIT_CHECK(all.rows >= 0 && all.cols >= 0 && (all.rows <= 1 || all.row_stride >= all.cols), name,
              ": the output has ", all.rows, " rows of ", all.cols, " elements, ", all.row_stride,
              " apart");
  PLAIT_CHECK(all.data != nullptr || all.bytes() == 0, name, ": the output has no address");
  std::vector<std::int64_t> counts(given.begin(), given.end());
  for (int rank = 0; given.empty() && rank < comm.world(); ++rank)
    counts.push_back(static_cast<std::int64_t>(
        balanced_shard(static_cast<std::size_t>(all.cols), rank, comm.world()).count));
  PLAIT_CHECK(std::ssize(counts) == comm.world(), name, ": ", counts.size(), " counts for ",
              comm.world(), " ranks");
  std::int64_t left = all.cols;
  for (const std::int64_t count : counts) {
    PLAIT_CHECK(count >= 0 && count <= left, name, ": the counts don't add up to the ", all.cols,
                " columns of the output");
    left -= count;
  }
  PLAIT_CHECK(left == 0, name, ": the counts add up to ", all.cols - left, ", not to the ",
              all.cols, " columns of the output");
  const std::int64_t wanted = counts[static_cast<std::size_t>(comm.rank())];
  PLAIT_CHECK(own == wanted, name, ": rank ", comm.rank(), " has ", own, " columns, not ", wanted);
  return {all, std::move(counts), comm.state().lane_capacity().chunk_bytes};
}

// Puts this rank's columns in their place, unless they are there.
void put_own(const char* caller, const ConstTensorView& mine, const TensorView& all,
             Range columns) {
  PLAIT_CHECK(mine.dtype == all.dtype, caller, ": the input is ", name(mine.dtype),
              " but the output is ", name(all.dtype));
  PLAIT_CHECK(mine.rows == all.rows, caller, ": the input has ", mine.rows,
              " rows, and the output ", all.rows);
  tensor::validate_on_cpu(mine, base::sentence(caller, ": the input"));
  const TensorView place = all.column_range(columns.begin, columns.end);
  const bool is_there =
      place.data == mine.data && (mine.rows <= 1 || place.row_stride == mine.row_stride);
  PLAIT_CHECK(is_there || tensor::are_apart(all, mine), caller,
              ": the input overlaps the output, and is not this rank's part of it");
  for (std::int64_t row = 0; mine.cols > 0 && !is_there && row < mine.rows; ++row)
    std::memcpy(place.row(row), mine.row(row), mine.row_bytes());
}

// The product of the calls before, if it was alike.
struct KeptProduct {
  std::optional<GemmDesc> desc;
  GemmOptions options;
  std::unique_ptr<overlap::Multiplier> multiplier;

  static overlap::Multiplier& of(GemmDesc wanted, Communicator& comm, const ColumnsOptions& how) {
    std::shared_ptr<void>& memory = comm.state().kept(typeid(KeptProduct));
    if (memory == nullptr) memory = std::make_shared<KeptProduct>();
    auto& kept = *static_cast<KeptProduct*>(memory.get());
    const std::int64_t rows = std::exchange(wanted.m, 0);
    if (kept.desc == wanted && kept.options.threads == how.threads &&
        kept.options.backend == how.backend)
      return *kept.multiplier;
    kept.options = {.backend = how.backend, .threads = how.threads};
    kept.desc = wanted;
    wanted.m = rows;
    kept.multiplier = std::make_unique<overlap::Multiplier>(select_gemm(wanted, kept.options),
                                                            &comm.state().group());
    return *kept.multiplier;
  }
};

// x by some columns of the weight, into these columns of `out`.
void multiply(overlap::Multiplier& product, Range columns, const TensorView& out,
              overlap::Multiplier::PollStep poll_step) {
  const TensorView place = out.column_range(columns.begin, columns.end);
  product.multiply({.rows = {}, .columns = columns, .outs = {&place, 1}}, poll_step);
}

// The plan of a call, whose key has the operator and the sizes of all ranks together.
Plan plan_for(PlanKey key, const Weight& weight, Communicator& comm,
              const ColumnsOptions& options) {
  key.family = Family::columns;
  if (options.plan) {
    check(*options.plan, plan::call_name(key));
    return plan::followed_by(key, *options.plan);
  }
  if (options.plans == nullptr) return {};
  key.weight = name(weight.kind());
  key.threads = options.threads;
  key.backend = options.backend;
  return ops::plan_of_family(*options.plans, std::move(key), comm).value_or(Plan{});
}

std::int64_t most_of(const ColumnCut& cut) {
  return *std::max_element(cut.counts().begin(), cut.counts().end());
}

// The n of all ranks, for a plan's key.
std::int64_t whole_n(std::int64_t own, Communicator& comm) {
  std::vector<std::int64_t> all(static_cast<std::size_t>(comm.world()));
  all_gather({&own, sizeof(own), Dtype::s8}, {all.data(), all.size() * sizeof(own), Dtype::s8},
             comm);
  return std::accumulate(all.begin(), all.end(), std::int64_t{0});
}

// The ranges that a plan multiplies at once: at least one, which may be empty. `usual` is the size
// of a chunk if a fused plan does not say it, and borders are multiples of `unit`.
std::vector<Range> parts_of(std::int64_t total, const Plan& plan, std::int64_t usual,
                            std::int64_t unit) {
  std::vector<Range> parts;
  if (plan.schedule == Schedule::pipelined) {
    parts = plan::ranges_of(total, plan, unit);
    std::erase_if(parts, [](Range part) { return plan::length(part) == 0; });
  } else {
    const std::int64_t wanted = plan.chunk > 0 ? base::round_up(plan.chunk, unit) : usual;
    const std::int64_t size = plan.schedule == Schedule::fused ? wanted : total;
    for (std::int64_t begin = 0; begin < total; begin += size)
      parts.push_back({begin, std::min(begin + size, total)});
  }
  if (parts.empty()) parts.push_back({0, 0});
  return parts;
}

}  // namespace
}  // namespace heads

void all_gather_columns(const ConstTensorView& mine, const TensorView& all, Communicator& comm,
                        ColumnCounts counts) {
  using namespace heads;  // NOLINT(google-build-using-namespace): the call's own parts
  const Communicator::State::Use use(comm.state());
  const ColumnCut cut = cut_of(kGather, all, mine.cols, counts, comm);
  const Span span(comm.trace(), Lane::comm, kGather,
                  {.bytes = static_cast<std::int64_t>(all.bytes())});
  put_own(kGather, mine, all, cut.columns(comm.rank()));
  GatherColumns task(comm.state(), all, cut, {.rows = all.rows});
  task.ready(cut.windows(comm.rank()));
  comm.state().run(task);
}

void matmul_all_gather_columns(const ConstTensorView& x, const Weight& weight,
                               const TensorView& out, Communicator& comm,
                               const ColumnsOptions& options) {
  using namespace heads;  // NOLINT(google-build-using-namespace): the call's own parts
  const Communicator::State::Use use(comm.state());
  const base::DefaultFloats floats;
  const ColumnCut cut = cut_of(kProduct, out, weight.n(), options.counts, comm);
  base::check_threads(options.threads, kProduct);
  const Range own = cut.columns(comm.rank());
  const TensorView place = out.column_range(own.begin, own.end);
  const Plan plan = plan_for({.op = Operator::matmul_reduce_scatter,
                              .m = x.rows,
                              .n = out.cols,
                              .k = x.cols,
                              .x = x.dtype,
                              .out = out.dtype,
                              .columns = most_of(cut)},
                             weight, comm, options);
  const std::vector<Range> parts = parts_of(plan::length(own), plan, cut.width(), kPanel);
  overlap::Multiplier& product = KeptProduct::of(logits_of(x, weight, out.dtype), comm, options);
  product.begin({x, weight, options.bias}, {.poll = plan.poll});
  product.pack();
  // The first part refuses what a product refuses, before other ranks see a chunk.
  multiply(product, parts.front(), place, [] {});
  const auto task =
      std::make_shared<GatherColumns>(comm.state(), out, cut, Agreed{.rows = out.rows});
  task->ready_to(parts.front().end);
  Pending pending(task, comm);
  fail_together(kProduct, comm, [&] {
    for (std::size_t part = 1; part < parts.size(); ++part) {
      pending.progress();
      multiply(product, parts[part], place, [&] { pending.progress(); });
      task->ready_to(parts[part].end);
    }
  });
  pending.wait();
}

void all_gather_columns_matmul(const ConstTensorView& x, const Weight& weight,
                               const TensorView& gathered, const TensorView& out,
                               Communicator& comm, const ColumnsOptions& options) {
  using namespace heads;  // NOLINT(google-build-using-namespace): the call's own parts
  const Communicator::State::Use use(comm.state());
  const base::DefaultFloats floats;
  const ColumnCut cut = cut_of(kGatherFirst, gathered, x.cols, options.counts, comm);
  base::check_threads(options.threads, kGatherFirst);
  PLAIT_CHECK(out.rows == gathered.rows && out.cols == weight.n(), kGatherFirst,
              ": the output is [", out.rows, ", ", out.cols, "], not [", gathered.rows, ", ",
              weight.n(), ']');
  PLAIT_CHECK(tensor::are_apart(out, gathered) && tensor::are_apart(out, x), kGatherFirst,
              ": the output overlaps the input");
  const GemmDesc desc = logits_of(gathered, weight, out.dtype);
  overlap::Multiplier& product = KeptProduct::of(desc, comm, options);
  // All that a product refuses, before other ranks see a chunk; `gathered` is written too.
  gemm::check(desc, {.x = {.view = gathered}, .weight = weight, .out = out, .bias = options.bias});
  PLAIT_CHECK(weight.is_packed() || tensor::are_apart(gathered, weight.view().view), kGatherFirst,
              ": the place for all columns overlaps the weight");
  PLAIT_CHECK(tensor::are_apart(gathered, options.bias), kGatherFirst,
              ": the place for all columns overlaps the bias");
  const bool asks = !options.plan && options.plans != nullptr;
  const Plan plan = plan_for({.op = Operator::all_gather_matmul,
                              .m = gathered.rows,
                              .n = asks ? whole_n(weight.n(), comm) : 0,
                              .k = gathered.cols,
                              .x = x.dtype,
                              .out = out.dtype,
                              .columns = most_of(cut)},
                             weight, comm, options);
  const std::int64_t usual = std::max(kLeastRows, base::ceil_div(gathered.rows, kRowBlocks));
  const std::vector<Range> blocks = parts_of(gathered.rows, plan, usual, /*unit=*/1);
  put_own(kGatherFirst, x, gathered, cut.columns(comm.rank()));
  const auto rows_of = [](const TensorView& all, Range rows) {
    return all.row_range(rows.begin, rows.end);
  };
  const auto start = [&](Range rows) {
    const TensorView part = rows_of(gathered, rows);
    const ColumnCut cut_of_part(part, cut.counts(), comm.state().lane_capacity().chunk_bytes);
    const Agreed agreed = {.rows = gathered.rows, .plan = fingerprint(plan)};
    const auto task = std::make_shared<GatherColumns>(comm.state(), part, cut_of_part, agreed);
    task->ready(cut_of_part.windows(comm.rank()));
    return Pending(task, comm);
  };
  // Even no rows are one block, so that ranks that disagree about them notice.
  Pending arriving = start(blocks.front());
  fail_together(kGatherFirst, comm, [&] {
    for (std::size_t number = 0; number < blocks.size(); ++number) {
      const Range rows = blocks[number];
      arriving.wait();
      const bool is_last = number + 1 == blocks.size();
      if (!is_last) arriving = start(blocks[number + 1]);
      const auto poll_step = [&] {
        if (!is_last) arriving.progress();
      };
      product.begin({rows_of(gathered, rows), weight, options.bias}, {.poll = plan.poll});
      product.pack();
      for (std::int64_t begin = 0; begin < weight.n() && rows.begin < rows.end;
           begin += kLeastWindow) {
        poll_step();
        multiply(product, {begin, std::min(begin + kLeastWindow, weight.n())}, rows_of(out, rows),
                 poll_step);
      }
    }
  });
}

}  // namespace plait
