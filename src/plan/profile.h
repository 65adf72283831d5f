// The performance of a machine, in the few figures that a plan's time depends on.
//
//   MachineProfile profile = parse_profile(text);        // from plait tune
//   double ns = profile.product({.rows = 512, .columns = 4096, .k = 4096}, key);
//
// Rates are those of one rank while the other ranks work too. The figures are approximate: they
// tell which plans are worth trying, and `uncertainty` tells how far they can be trusted.
#pragma once

#include <algorithm>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "plait/plan.h"

namespace plait::plan {

// The rate of a product with so many rows, and a weight that does not fit into the caches.
struct ProductRate {
  std::string kind;  // product_kind()
  std::int64_t rows;
  double flops_per_ns;

  bool operator==(const ProductRate&) const = default;
};

// The transfer between two ranks, for bytes that no processor copies.
struct TransportFigures {
  std::string name = {};
  double latency = 0;       // ns from posting a chunk until the peer sees it
  double bytes_per_ns = 0;  // 0: a chunk is there as soon as it is written
  double processor = 0;     // ns of the rank's processor for each byte that it sends or receives

  bool operator==(const TransportFigures&) const = default;
};

// The effect of caches on partial sums. Sums wait in a cache, or in memory, between the product and
// the copy or sum that reads them; the more there are, the slower they are to read. A rank that
// holds `bytes` of them takes `times` as long for copies and sums as without a product.
struct KeptSums {
  std::int64_t bytes;
  double times;

  bool operator==(const KeptSums&) const = default;
};

// The sizes of a product.
struct ProductSize {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t k;
};

// The kernel's work for a byte between hosts, in ns, on the core that multiplies
// (docs/lab/hosts.md).
inline constexpr double kUsualProcessor = 0.4;

// The uncertainty of figures of another world, of a disturbed measurement, or of no machine.
inline constexpr double kElsewhere = 0.1;

struct MachineProfile {
  std::string machine;  // machine_fingerprint() where it was measured; empty: built in
  int ranks = 2;        // how many ranks were measured at once, their threads, and their hosts
  int threads = 1;
  int hosts = 1;
  std::vector<ProductRate> products;  // sorted by kind, then by rows
  std::vector<TransportFigures> transports;
  // Between the hosts of a running program, measured by its ranks. No file has it.
  std::optional<TransportFigures> network = {};
  std::vector<KeptSums> kept;       // sorted by bytes; empty: the effect of caches is unknown
  double copy = 4;                  // bytes per ns that a rank copies to another
  double sum = 8;                   // bytes per ns that a rank reads and writes while it sums
  double chunk = 500;               // ns that a chunk costs in addition
  double start = 3000;              // ns that even the smallest product takes
  double narrow = 0.1;              // how much slower a product in windows of 64 columns is
  double beside = 1.3;              // how many times as long copies and sums take within a product
  double uncertainty = kElsewhere;  // how wrong predictions may be, as a share

  // The uncertainty for this problem. It is at least kElsewhere if the ranks, threads or hosts
  // differ from those measured, or if the problem names a backend.
  double uncertainty_of(const PlanKey& key) const {
    const bool is_as_measured =
        key.world == ranks && key.threads == threads && key.hosts == hosts && key.backend.empty();
    return is_as_measured ? uncertainty : std::max(uncertainty, kElsewhere);
  }

  bool is_measured() const { return !machine.empty(); }
  bool operator==(const MachineProfile&) const = default;

  // The nanoseconds of a product, with the cost of the first rows of a call.
  double product(const ProductSize& size, const PlanKey& key) const;

  // How many times as long copies and sums take on a rank that holds so many bytes of partial sums.
  double times_as_long(double kept_bytes) const;

  // The figures of the problem's transport: those of the network if the ranks are on several hosts
  // and it is known, or the usual ones if it was not measured with so many hosts.
  TransportFigures transport(const PlanKey& key) const;

  // True if the link that carries the problem's chunks was measured, or is named by the problem.
  bool knows_link(const PlanKey& key) const;
};

// The kind of rate that applies to this problem: "f32", "bf16", "s8" or "s4".
std::string product_kind(const PlanKey& key);

// Rather slow figures of no particular machine, used if nothing was measured.
MachineProfile built_in_profile();

// "plait profile 2", the machine, then one line per figure, in a fixed order.
std::string text_of(const MachineProfile& profile);

// The inverse of text_of(). Error{invalid_argument} names the line that can't be read.
MachineProfile parse_profile(std::string_view text);

}  // namespace plait::plan
