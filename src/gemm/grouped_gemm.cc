#include "plait/grouped_gemm.h"

#include <algorithm>
#include <atomic>
#include <numeric>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/parallel.h"
#include "base/text.h"
#include "gemm/checks.h"
#include "gemm/kernel.h"
#include "gemm/running.h"

namespace plait {
namespace gemm {

// Columns of one group.
struct PartOfGroup {
  std::int64_t group;
  Range columns;
};

}  // namespace gemm
namespace {

using gemm::kPanelColumns;
using Part = gemm::PartOfGroup;

// Up to this many rows take as long as one: the weight comes from memory meanwhile.
constexpr std::int64_t kFewRows = 8;

// Each thread gets so many parts or more, where that is possible, so that none waits long for the
// last one. A part of fewer panels reads memory in runs that are too short.
constexpr std::int64_t kPartsEach = 4;
constexpr std::int64_t kLeastPanels = 4;

std::int64_t cost_of(std::int64_t rows) { return rows == 0 ? 0 : std::max(rows, kFewRows); }

// Cuts the groups' columns so that parts cost about the same; the largest come first.
void cut(const GroupedGemmCall& call, std::int64_t n, int threads, std::vector<Part>& parts) {
  parts.clear();
  const std::int64_t panels = (n + kPanelColumns - 1) / kPanelColumns;
  if (panels == 0) return;
  const std::int64_t cost =
      std::accumulate(call.rows.begin(), call.rows.end(), std::int64_t{0},
                      [](std::int64_t sum, std::int64_t rows) { return sum + cost_of(rows); });
  const std::int64_t wanted = threads == 1 ? 1 : threads * kPartsEach;
  for (std::int64_t group = 0; group < std::ssize(call.rows); ++group) {
    const std::int64_t own = cost_of(call.rows[group]);
    if (own == 0) continue;
    const std::int64_t most =
        std::max(panels / kLeastPanels, std::min<std::int64_t>(panels, threads));
    const std::int64_t count = std::clamp<std::int64_t>((own * wanted + cost - 1) / cost, 1, most);
    for (std::int64_t i = 0; i < count; ++i) {
      parts.push_back({.group = group,
                       .columns = {panels * i / count * kPanelColumns,
                                   std::min(panels * (i + 1) / count * kPanelColumns, n)}});
    }
  }
  std::stable_sort(parts.begin(), parts.end(), [&](const Part& one, const Part& other) {
    const auto size = [&](const Part& part) {
      return cost_of(call.rows[part.group]) * (part.columns.end - part.columns.begin);
    };
    return size(one) > size(other);
  });
}

}  // namespace

// A product for each thread, which multiplies alone.
class GroupedGemm::State {
 public:
  State(const GemmDesc& desc, const GemmOptions& options) try : options_(options) {
    const GemmOptions alone = {.backend = options.backend, .threads = 1};
    gemms_.push_back(select_gemm(desc, alone));
  } catch (const Error& error) {
    throw Error(error.code(), base::sentence("grouped ", error.what()));
  }

  const Gemm& first() const { return gemms_.front(); }
  std::size_t held_bytes() const {
    return std::accumulate(gemms_.begin(), gemms_.end(), std::size_t{0},
                           [](std::size_t sum, const Gemm& one) { return sum + one.held_bytes(); });
  }

  void run(const GroupedGemmCall& call) {
    const gemm::Running running(is_running_, "grouped matmul: this GroupedGemm");
    find_rows(call);
    const int threads = base::thread_count(options_.threads);
    cut(call, first().desc().n, threads, parts_);
    const auto count = static_cast<int>(std::min<std::size_t>(threads, parts_.size()));
    while (static_cast<int>(gemms_.size()) < count)
      gemms_.push_back(select_gemm(first().desc(), {.backend = options_.backend, .threads = 1}));
    std::atomic<std::size_t> next{0};
    std::atomic<bool> failed{false};
    // Relaxed: the counter only hands out numbers, and the flag only saves work.
    base::on_threads(count, [&](int thread) {
      try {
        while (!failed.load(std::memory_order_relaxed)) {
          const std::size_t part = next.fetch_add(1, std::memory_order_relaxed);
          if (part >= parts_.size()) break;
          gemms_[static_cast<std::size_t>(thread)].run(call_of(call, parts_[part]));
        }
      } catch (...) {
        failed.store(true, std::memory_order_relaxed);
        throw;
      }
    });
  }

 private:
  // Checks all groups before any is multiplied.
  void find_rows(const GroupedGemmCall& call) {
    const std::int64_t groups = std::ssize(call.rows);
    PLAIT_CHECK(std::ssize(call.weights) == groups,
                "grouped matmul: ", base::show_count(call.weights.size(), "weight"), " for ",
                base::show_count(call.rows.size(), "group"));
    PLAIT_CHECK(call.biases.empty() || std::ssize(call.biases) == groups,
                "grouped matmul: ", base::show_count(call.biases.size(), "bias"), " for ",
                base::show_count(call.rows.size(), "group"));
    first_rows_.clear();
    std::int64_t all = 0;
    for (std::int64_t group = 0; group < groups; ++group) {
      const std::int64_t rows = call.rows[group];
      PLAIT_CHECK(rows >= 0, "grouped matmul: group ", group, " has ", rows, " rows");
      PLAIT_CHECK(rows <= call.x.rows - all, "grouped matmul: group ", group, " has ",
                  base::show_count(rows, "row"), ", and ", all, " of ", call.x.rows,
                  " are taken before it");
      first_rows_.push_back(all);
      all += rows;
    }
    PLAIT_CHECK(all == call.x.rows && call.out.rows == all, "grouped matmul: the groups have ", all,
                " rows, x ", call.x.rows, " and out ", call.out.rows);
    for (std::int64_t group = 0; group < groups; ++group) check_group(call, group);
  }

  // All rows are checked with each weight: no group may write where another one's weight is.
  void check_group(const GroupedGemmCall& call, std::int64_t group) const {
    GemmCall one = {.x = {.view = call.x}, .weight = call.weights[group], .out = call.out};
    if (!call.biases.empty()) one.bias = call.biases[group];
    try {
      if (group == 0) {
        gemm::check(first().desc(), one);
      } else {
        gemm::check_weight_and_bias(first().desc(), one);  // x and out are those of group 0
      }
    } catch (const Error& error) {
      throw Error(error.code(), base::sentence("grouped ", error.what(), " (group ", group, ')'));
    }
  }

  GemmCall call_of(const GroupedGemmCall& call, const Part& part) const {
    const std::int64_t first = first_rows_[static_cast<std::size_t>(part.group)];
    const std::int64_t end = first + call.rows[part.group];
    GemmCall one = {
        .x = {.view = call.x.row_range(first, end)},
        .weight = call.weights[part.group],
        .out = call.out.row_range(first, end).column_range(part.columns.begin, part.columns.end),
        .window = {.columns = part.columns}};
    if (!call.biases.empty()) one.bias = call.biases[part.group];
    if (call.on_tile) {
      one.on_tile = [&call, group = part.group](const Tile& tile) { call.on_tile(group, tile); };
    }
    return one;
  }

  GemmOptions options_;
  std::vector<Gemm> gemms_;
  std::vector<std::int64_t> first_rows_;  // of each group
  std::vector<Part> parts_;
  std::atomic<bool> is_running_{false};
};

GroupedGemm::GroupedGemm(std::unique_ptr<State> state) : state_(std::move(state)) {}
GroupedGemm::GroupedGemm(GroupedGemm&&) noexcept = default;
GroupedGemm& GroupedGemm::operator=(GroupedGemm&&) noexcept = default;
GroupedGemm::~GroupedGemm() = default;

const GemmDesc& GroupedGemm::desc() const { return state_->first().desc(); }
std::string_view GroupedGemm::backend() const { return state_->first().backend(); }
std::size_t GroupedGemm::held_bytes() const { return state_->held_bytes(); }
void GroupedGemm::run(const GroupedGemmCall& call) { state_->run(call); }

GroupedGemm select_grouped_gemm(const GemmDesc& desc, const GemmOptions& options) {
  base::check_threads(options.threads, "grouped matmul");
  return GroupedGemm(std::make_unique<GroupedGemm::State>(desc, options));
}

}  // namespace plait
