// What a machine can do, in the few figures that a plan's time depends on.
//
//   MachineProfile profile = parse_profile(text);        // what plait tune has measured
//   double ns = profile.product({.rows = 512, .columns = 4096, .k = 4096}, key);
//
// Rates are of one rank, while as many others work beside it. Nothing here is precise: a profile
// says which plans are worth trying, and how far its word goes (`uncertainty`).
#pragma once

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "plait/plan.h"

namespace plait {

// How fast a product of so many rows is, by weights that do not fit the caches.
struct ProductRate {
  std::string kind;  // product_kind()
  std::int64_t rows;
  double flops_per_ns;

  bool operator==(const ProductRate&) const = default;
};

// Between two ranks, for bytes that nobody's processor has to move.
struct TransportFigures {
  std::string name;
  double latency = 0;       // ns until a chunk that was posted can be seen
  double bytes_per_ns = 0;  // 0: it is there as soon as it was written

  bool operator==(const TransportFigures&) const = default;
};

// Partial sums lie somewhere between the product that makes them and who copies them or adds them
// up: the more of them there are, the farther from the processor. A rank that keeps so many bytes
// of them takes so many times as long for both as it does without a product.
struct KeptSums {
  std::int64_t bytes;
  double times;

  bool operator==(const KeptSums&) const = default;
};

// Rows by columns of a product.
struct ProductSize {
  std::int64_t rows;
  std::int64_t columns;
  std::int64_t k;
};

// How far the word of figures goes that are another world's, or nobody's.
inline constexpr double kElsewhere = 0.1;

struct MachineProfile {
  std::string machine;  // machine_fingerprint() of where it was measured; empty: built in
  int ranks = 2;        // how many worked at once, with so many threads each, on so many hosts
  int threads = 1;
  int hosts = 1;
  std::vector<ProductRate> products;  // by kind, then by rows
  std::vector<TransportFigures> transports;
  std::vector<KeptSums> kept;       // by bytes; none: nothing is known of caches
  double copy = 4;                  // bytes per ns that a rank copies to another
  double sum = 8;                   // bytes per ns that it reads and writes when it adds up
  double chunk = 500;               // ns of work that a chunk costs besides
  double start = 3000;              // ns that a product takes however small it is
  double narrow = 0.1;              // by how much a product by 64 columns at a time is slower
  double beside = 1.3;              // how many times as long copies and sums take amid a product
  double uncertainty = kElsewhere;  // by how much, relatively, predictions may be wrong

  // The same of this problem: what was measured with other ranks, threads or hosts, or with a
  // backend of its own, tells less of it.
  double uncertainty_of(const PlanKey& key) const {
    const bool is_theirs =
        key.world == ranks && key.threads == threads && key.hosts == hosts && key.backend.empty();
    return is_theirs ? uncertainty : std::max(uncertainty, kElsewhere);
  }

  bool is_measured() const { return !machine.empty(); }
  bool operator==(const MachineProfile&) const = default;

  // Nanoseconds, with what the first rows of a call cost.
  double product(const ProductSize& size, const PlanKey& key) const;

  // How many times as long a rank copies and adds up that keeps so many bytes of partial sums.
  double times_as_long(double kept_bytes) const;

  // Of the problem's transport; the usual ones where that was never measured between so many hosts.
  TransportFigures transport(const PlanKey& key) const;
};

// Which of a profile's rates is this problem's: "f32", "bf16", "s8" or "s4".
std::string product_kind(const PlanKey& key);

// Figures of no particular machine, rather slow: where nothing was measured.
MachineProfile built_in_profile();

// "plait profile 2", the machine, then a line for each figure, in one order.
std::string text_of(const MachineProfile& profile);

// The inverse. Error{invalid_argument} says which line can't be read.
MachineProfile parse_profile(std::string_view text);

}  // namespace plait
