#include "plan/profile.h"

#include <algorithm>
#include <cmath>

#include "plan/sizes.h"
#include "plan/weight_kind.h"

namespace plait::plan {
namespace {

// Products of a kind that was not measured count as f32, the slowest dense one.
constexpr std::string_view kFallback = "f32";

struct Point {
  double at;
  double value;
};

// Interpolates between two points on a straight line of logarithms.
double between(const Point& low, const Point& high, double at) {
  if (low.at == high.at) return low.value;
  const double share = std::log(at / low.at) / std::log(high.at / low.at);
  return low.value * std::pow(high.value / low.value, share);
}

// Interpolates between two measured numbers of rows. With more rows than measured, time is
// proportional to rows; with fewer, time is the same as with the fewest measured.
double rate_at(const std::vector<ProductRate>& rates, std::string_view kind, std::int64_t rows) {
  const ProductRate* below = nullptr;
  const ProductRate* above = nullptr;
  for (const ProductRate& rate : rates) {
    if (rate.kind != kind) continue;
    if (rate.rows <= rows && (below == nullptr || rate.rows > below->rows)) below = &rate;
    if (rate.rows >= rows && (above == nullptr || rate.rows < above->rows)) above = &rate;
  }
  if (below == nullptr && above == nullptr) return 0;
  if (above == nullptr) return below->flops_per_ns;
  const auto at = static_cast<double>(rows);
  if (below == nullptr) return above->flops_per_ns * at / static_cast<double>(above->rows);
  return between({static_cast<double>(below->rows), below->flops_per_ns},
                 {static_cast<double>(above->rows), above->flops_per_ns}, at);
}

// Assumes ten gigabits a second between hosts, and shared memory within one.
std::vector<TransportFigures> usual_transports() {
  const auto between_hosts = [](const char* name) {
    return TransportFigures{
        .name = name, .latency = 20'000, .bytes_per_ns = 1.25, .processor = kUsualProcessor};
  };
  return {between_hosts("mpi"),
          {.name = "shm", .latency = 1000, .bytes_per_ns = 0},
          between_hosts("tcp"),
          {.name = "threads", .latency = 1000, .bytes_per_ns = 0},
          between_hosts("ucx")};
}

}  // namespace

std::string product_kind(const PlanKey& key) {
  for (const char* scheme : {"s8", "s4"}) {
    if (key.weight.starts_with(scheme)) return scheme;
  }
  // A plain weight is packed once per call in every plan, so it makes no difference between plans.
  const bool is_bf16 = key.weight == "bf16" || plain_dtype(key.weight) == Dtype::bf16;
  return key.x == Dtype::bf16 && is_bf16 ? "bf16" : "f32";
}

double MachineProfile::product(const ProductSize& size, const PlanKey& key) const {
  if (size.rows <= 0 || size.columns <= 0 || size.k <= 0) return start;
  double rate = rate_at(products, product_kind(key), size.rows);
  if (rate <= 0) rate = rate_at(products, kFallback, size.rows);
  // A panel is multiplied whole, even if only some of its columns are needed.
  const std::int64_t panels = (size.columns + kPanel - 1) / kPanel;
  const auto columns = static_cast<double>(panels * kPanel);
  const double flops = 2 * static_cast<double>(size.rows) * columns * static_cast<double>(size.k);
  // 64 columns cost all of `narrow`, 128 a third of it, 256 nothing.
  const auto wide = static_cast<double>(kFullSpeed);
  const double most = wide / static_cast<double>(kPanel) - 1;
  const double slower = narrow * std::clamp((wide / columns - 1) / most, 0.0, 1.0);
  // Assumes that twice as many threads take half as long. Requested threads are rarely other than
  // the measured ones.
  if (key.threads > 0) rate *= static_cast<double>(key.threads) / std::max(threads, 1);
  return start + flops / std::max(rate, 1e-6) * (1 + slower);
}

// Interpolates between two measured sizes. Beyond them, the nearest one applies: smaller sums are
// in the L2 cache anyway, larger ones come from memory.
double MachineProfile::times_as_long(double kept_bytes) const {
  const KeptSums* below = nullptr;
  const KeptSums* above = nullptr;
  for (const KeptSums& one : kept) {
    const auto size = static_cast<double>(one.bytes);
    if (size <= kept_bytes && (below == nullptr || one.bytes > below->bytes)) below = &one;
    if (size >= kept_bytes && (above == nullptr || one.bytes < above->bytes)) above = &one;
  }
  if (below == nullptr && above == nullptr) return 1;
  if (below == nullptr) return above->times;
  if (above == nullptr) return below->times;
  return between({static_cast<double>(below->bytes), below->times},
                 {static_cast<double>(above->bytes), above->times}, kept_bytes);
}

// For a transport that was not measured, the usual figures are better than none. An unknown
// transport counts as the slowest.
TransportFigures MachineProfile::transport(const PlanKey& key) const {
  const std::vector<TransportFigures> usual = usual_transports();
  const auto named = [&](const TransportFigures& figures) { return figures.name == key.transport; };
  if (key.hosts > 1 && network) return *network;
  if (key.hosts > 1 && key.link) {
    return {.name = key.transport,
            .latency = static_cast<double>(key.link->latency_ns),
            .bytes_per_ns = key.link->bytes_per_second / 1e9,
            .processor = kUsualProcessor};
  }
  if (key.hosts == hosts) {
    const auto found = std::find_if(transports.begin(), transports.end(), named);
    if (found != transports.end()) return *found;
  }
  const auto found = std::find_if(usual.begin(), usual.end(), named);
  return found != usual.end() ? *found : usual.front();
}

bool MachineProfile::knows_link(const PlanKey& key) const {
  const auto named = [&](const TransportFigures& figures) { return figures.name == key.transport; };
  return key.hosts == 1 || network || key.link ||
         (key.hosts == hosts && std::any_of(transports.begin(), transports.end(), named));
}

MachineProfile built_in_profile() {
  MachineProfile profile;
  for (const std::int64_t rows : {1, 16, 64, 256, 1024}) {
    const double share = std::min(1.0, static_cast<double>(rows) / 64);
    profile.products.push_back({.kind = "bf16", .rows = rows, .flops_per_ns = 120 * share + 4});
    profile.products.push_back({.kind = "f32", .rows = rows, .flops_per_ns = 60 * share + 2});
    profile.products.push_back({.kind = "s4", .rows = rows, .flops_per_ns = 110 * share + 12});
    profile.products.push_back({.kind = "s8", .rows = rows, .flops_per_ns = 110 * share + 8});
  }
  profile.transports = usual_transports();
  return profile;
}

}  // namespace plait::plan
