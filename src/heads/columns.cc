#include "plait/columns.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <optional>
#include <typeinfo>
#include <vector>

#include "base/check.h"
#include "base/default_floats.h"
#include "base/fingerprint.h"
#include "base/parallel.h"
#include "comm/flow/gather_flow.h"
#include "comm/session/state.h"
#include "gemm/checks.h"
#include "heads/agreement.h"
#include "heads/logits.h"
#include "plait/trace.h"
#include "tensor/apart.h"
#include "tensor/validate.h"

namespace plait {
namespace heads {
namespace {

constexpr const char* kGather = "all_gather_columns";
constexpr const char* kProduct = "matmul_all_gather_columns";
constexpr const char* kGatherFirst = "all_gather_columns_matmul";

// Windows of fewer columns take the product longer, and their rows are short runs of bytes.
constexpr std::int64_t kLeastWindow = 512;

// If columns are gathered before a product, rows arrive in blocks: at most so many, and each of at
// least so many rows, because the product of a block reads the whole weight.
constexpr std::int64_t kRowBlocks = 8;
constexpr std::int64_t kLeastRows = 64;

// How a matrix is cut: each rank's columns in windows, and a window's rows in chunks.
class ColumnCut {
 public:
  ColumnCut(const TensorView& all, std::vector<std::int64_t> counts, std::size_t chunk_bytes)
      : rows_(all.rows), counts_(std::move(counts)) {
    std::int64_t first = 0;
    for (const std::int64_t count : counts_) {
      firsts_.push_back(first);
      first += count;
    }
    const auto elements = static_cast<std::int64_t>(chunk_bytes / size_of(all.dtype));
    const std::int64_t wanted = elements / std::max<std::int64_t>(rows_, 1) / kPanel * kPanel;
    window_ = std::clamp(wanted, kLeastWindow, elements / kPanel * kPanel);
    rows_of_chunk_ = std::max<std::int64_t>(elements / window_, 1);
    chunks_of_window_ = std::max<std::int64_t>((rows_ + rows_of_chunk_ - 1) / rows_of_chunk_, 1);
  }

  Range columns(int rank) const {
    const auto at = static_cast<std::size_t>(rank);
    return {firsts_[at], firsts_[at] + counts_[at]};
  }
  const std::vector<std::int64_t>& counts() const { return counts_; }

  // Even nothing is one window, so that ranks that disagree about it notice.
  std::int64_t windows(int rank) const {
    const std::int64_t count = counts_[static_cast<std::size_t>(rank)];
    return std::max<std::int64_t>((count + window_ - 1) / window_, 1);
  }
  Range window(int rank, std::int64_t number) const {
    const Range own = columns(rank);
    const std::int64_t begin = std::min(own.begin + number * window_, own.end);
    return {begin, std::min(begin + window_, own.end)};
  }

  std::uint32_t chunks(int rank) const { return chunks_until(windows(rank)); }
  std::uint32_t chunks_until(std::int64_t window) const {
    return static_cast<std::uint32_t>(window * chunks_of_window_);
  }
  TensorView block(const TensorView& all, int rank, std::uint32_t chunk) const {
    const Range columns = window(rank, chunk / chunks_of_window_);
    const std::int64_t first = chunk % chunks_of_window_ * rows_of_chunk_;
    return all.row_range(first, std::min(first + rows_of_chunk_, rows_))
        .column_range(columns.begin, columns.end);
  }

 private:
  std::int64_t rows_;
  std::vector<std::int64_t> counts_, firsts_;
  std::int64_t window_, rows_of_chunk_, chunks_of_window_;
};

// Brings the windows of all ranks to their places; this rank's are there already. `rows` are those
// of the whole call, about which ranks must agree.
class GatherColumns final : public Pending::Task, private comm::Shares {
 public:
  GatherColumns(Communicator::State& state, const TensorView& all, const ColumnCut& cut,
                std::int64_t rows)
      : Task({.operation = Operation::all_gather,
              .dtype = all.dtype,
              .wire = all.dtype,
              .sizes = {rows * all.cols, fingerprint_of(cut, rows), 1}}),
        rank_(state.group().rank()),
        all_(all),
        cut_(cut),
        flow_(state.lanes(), state.host_ranks(), *this) {
    flow_.begin();
  }

  void ready(std::int64_t windows) { ready_ = cut_.chunks_until(windows); }

 private:
  static std::int64_t fingerprint_of(const ColumnCut& cut, std::int64_t rows) {
    const std::uint64_t of_rows = base::fingerprint(std::vector<std::int64_t>{rows});
    return static_cast<std::int64_t>(base::fingerprint(cut.counts(), of_rows));
  }

  std::uint32_t chunks(int owner) const override { return cut_.chunks(owner); }
  ConstTensorView own(std::uint32_t chunk) const override { return cut_.block(all_, rank_, chunk); }
  TensorView place(std::uint32_t chunk, int owner) const override {
    return cut_.block(all_, owner, chunk);
  }

  bool advance() override {
    flow_.ready(ready_);
    flow_.step();
    return ready_ == cut_.chunks(rank_) && flow_.done();
  }
  comm::Awaited awaited() const override { return flow_.awaited(); }

  int rank_;
  TensorView all_;
  ColumnCut cut_;
  comm::GatherFlow flow_;
  std::uint32_t ready_ = 0;
};

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
struct KeptGemm {
  std::optional<GemmDesc> desc;
  GemmOptions options;
  std::unique_ptr<Gemm> gemm;
  PackedInput packed;

  static KeptGemm& of(Communicator& comm) {
    std::shared_ptr<void>& kept = comm.state().kept(typeid(KeptGemm));
    if (kept == nullptr) kept = std::make_shared<KeptGemm>();
    return *static_cast<KeptGemm*>(kept.get());
  }

  void prepare(GemmDesc wanted, const ColumnsOptions& how) {
    const std::int64_t rows = std::exchange(wanted.m, 0);
    if (desc == wanted && options.threads == how.threads && options.backend == how.backend) return;
    options = {.backend = how.backend, .threads = how.threads};
    desc = wanted;
    wanted.m = rows;
    gemm = std::make_unique<Gemm>(select_gemm(wanted, options));
  }
};

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
  GatherColumns task(comm.state(), all, cut, all.rows);
  task.ready(cut.windows(comm.rank()));
  comm.state().run(task);
}

void matmul_all_gather_columns(const ConstTensorView& x, const Weight& weight,
                               const TensorView& out, Communicator& comm,
                               const ColumnsOptions& options) {
  using namespace heads;  // NOLINT(google-build-using-namespace): the call's own parts
  const Communicator::State::Use use(comm.state());
  const base::DefaultFloats floats;
  const int rank = comm.rank();
  const ColumnCut cut = cut_of(kProduct, out, weight.n(), options.counts, comm);
  base::check_threads(options.threads, kProduct);
  const Range own = cut.columns(rank);
  const TensorView place = out.column_range(own.begin, own.end);
  const auto run_window = [&](Gemm& gemm, Range window, const PackedInput* packed) {
    const Span span(comm.trace(), Lane::compute, "product",
                    {.flops = 2 * x.rows * x.cols * (window.end - window.begin)});
    const Range columns = {window.begin - own.begin, window.end - own.begin};
    gemm.run({.x = {.view = x},
              .weight = weight,
              .out = place.column_range(columns.begin, columns.end),
              .window = {.columns = columns},
              .bias = options.bias,
              .packed_x = packed});
  };
  KeptGemm& kept = KeptGemm::of(comm);
  kept.prepare(logits_of(x, weight, out.dtype), options);
  kept.gemm->pack({.view = x}, kept.packed);
  // The first window refuses what a product refuses, before other ranks see a chunk.
  run_window(*kept.gemm, cut.window(rank, 0), &kept.packed);
  const auto task = std::make_shared<GatherColumns>(comm.state(), out, cut, out.rows);
  task->ready(1);
  Pending pending(task, comm);
  fail_together(kProduct, comm, [&] {
    for (std::int64_t window = 1; window < cut.windows(rank); ++window) {
      pending.progress();
      run_window(*kept.gemm, cut.window(rank, window), &kept.packed);
      task->ready(window + 1);
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
  KeptGemm& kept = KeptGemm::of(comm);
  kept.prepare(logits_of(gathered, weight, out.dtype), options);
  const auto run_window = [&](Range rows, Range columns, const PackedInput* packed) {
    const TensorView x_of_rows = gathered.row_range(rows.begin, rows.end);
    const Span span(comm.trace(), Lane::compute, "product",
                    {.flops = 2 * x_of_rows.rows * x_of_rows.cols * (columns.end - columns.begin)});
    kept.gemm->run(
        {.x = {.view = x_of_rows},
         .weight = weight,
         .out = out.row_range(rows.begin, rows.end).column_range(columns.begin, columns.end),
         .window = {.columns = columns},
         .bias = options.bias,
         .packed_x = packed});
  };
  // All that a product refuses, before other ranks see a chunk; `gathered` is written too.
  gemm::check(kept.gemm->desc(),
              {.x = {.view = gathered}, .weight = weight, .out = out, .bias = options.bias});
  PLAIT_CHECK(weight.is_packed() || tensor::are_apart(gathered, weight.view().view), kGatherFirst,
              ": the place for all columns overlaps the weight");
  PLAIT_CHECK(tensor::are_apart(gathered, options.bias), kGatherFirst,
              ": the place for all columns overlaps the bias");
  put_own(kGatherFirst, x, gathered, cut.columns(comm.rank()));
  const auto block = [&](std::int64_t number) {
    const std::int64_t rows = std::max(kLeastRows, (gathered.rows + kRowBlocks - 1) / kRowBlocks);
    const std::int64_t begin = std::min(number * rows, gathered.rows);
    return Range{begin, std::min(begin + rows, gathered.rows)};
  };
  const auto start = [&](Range rows) {
    const TensorView part = gathered.row_range(rows.begin, rows.end);
    const ColumnCut cut_of_part(part, cut.counts(), comm.state().lane_capacity().chunk_bytes);
    const auto task =
        std::make_shared<GatherColumns>(comm.state(), part, cut_of_part, gathered.rows);
    task->ready(cut_of_part.windows(comm.rank()));
    return Pending(task, comm);
  };
  // Even no rows are one block, so that ranks that disagree about them notice.
  Pending arriving = start(block(0));
  fail_together(kGatherFirst, comm, [&] {
    for (std::int64_t number = 0;; ++number) {
      const Range rows = block(number);
      arriving.wait();
      const bool is_last = rows.end == gathered.rows;
      if (!is_last) arriving = start(block(number + 1));
      kept.gemm->pack({.view = gathered.row_range(rows.begin, rows.end)}, kept.packed);
      for (std::int64_t begin = 0; begin < weight.n() && rows.begin < rows.end;
           begin += kLeastWindow) {
        if (!is_last) arriving.progress();
        run_window(rows, {begin, std::min(begin + kLeastWindow, weight.n())}, &kept.packed);
      }
      if (is_last) return;
    }
  });
}

}  // namespace plait
