#include "plan/schedule_model.h"

#include <algorithm>
#include <cmath>

#include "base/round_up.h"
#include "plan/sizes.h"

namespace plait::plan {
namespace {

// If a part has more chunks, they are modelled as this many larger ones. The total stays the same.
constexpr std::int64_t kMostChunks = 128;

// Narrower chunks of a product are modelled as this many wider ones, in case a plan asks for
// "chunk=1" of a huge problem.
constexpr std::int64_t kMostProducts = std::int64_t{1} << 16;

// The number of parts whose sums may be under way while the next part is multiplied.
constexpr std::size_t kKeptParts = 2;

std::int64_t share(std::int64_t whole, int world) { return base::ceil_div(whole, world); }

double bytes_of(Dtype dtype) { return static_cast<double>(size_of(dtype)); }

// Partial sums as the product leaves them.
double partial_bytes(Dtype wire) { return bytes_of(partial_dtype(wire)); }

RankModel::LinkModel link_model_of(const MachineProfile& profile, const PlanKey& key,
                                   const Plan& plan) {
  const TransportFigures transport = profile.transport(key);
  RankModel::LinkModel link = {
      .latency = transport.latency,
      .ns_per_byte = transport.bytes_per_ns > 0 ? 1 / transport.bytes_per_ns : 0,
      .poll_interval = static_cast<double>(plan.poll) * 1000,
      .slower = plan.schedule == Schedule::serial ? 1 : profile.beside};
  if (key.link && key.hosts == 1) {
    link.latency += static_cast<double>(key.link->latency_ns);
    link.ns_per_byte += 1e9 / key.link->bytes_per_second;
  }
  return link;
}

}  // namespace

ScheduleModel::ScheduleModel(const MachineProfile& profile, const PlanKey& key, const Plan& plan)
    : profile_(profile),
      key_(key),
      traits_(traits_of(key.op)),
      plan_(plan),
      peers_(key.world - 1),
      shard_(share(key.m, key.world)),
      n_(traits_.shares_n ? share(key.n, key.world) : key.n),
      k_(traits_.shares_k ? share(key.k, key.world) : key.k),
      processor_(profile.transport(key).processor),
      one_step_(traits_.shares_k && traits_.gathers &&
                is_one_step({.m = key.m, .n = key.n, .dtype = key.wire}, key.world)),
      linked_(key.link || key.hosts > 1),
      rank_(link_model_of(profile, key, plan)) {}

Prediction ScheduleModel::run() {
  if (peers_ == 0 || !traits_.communicates()) {
    rank_.multiply(product(key_.m, n_));
  } else if (traits_.compute_first) {
    compute_first();
  } else {
    comm_first();
  }
  return {.total = rank_.now(),
          .product = rank_.product(),
          .work = rank_.worked(),
          .waited = rank_.waited(),
          .transfer = rank_.transfer(),
          .kept = kept_};
}

double ScheduleModel::product(std::int64_t rows, std::int64_t columns, std::int64_t runs) const {
  const double once = profile_.product({.rows = rows, .columns = columns, .k = k_}, key_);
  return once * static_cast<double>(runs);
}

double ScheduleModel::copies(double bytes) const {
  return static_cast<double>(peers_) * (bytes / profile_.copy + profile_.chunk);
}

// The processor's work for bytes that go to all peers, or come from all of them.
double ScheduleModel::carriage(double bytes) const {
  return static_cast<double>(peers_) * bytes * processor_;
}

// Adds what the network takes of the processor.
ChunkCost ScheduleModel::carried(ChunkCost one) const {
  one.pack += carriage(one.bytes);
  one.land += carriage(one.bytes);
  one.back_pack += carriage(one.back_bytes);
  one.take += carriage(one.back_bytes);
  return one;
}

// Divides the product's columns; each part has the rows of all ranks.
std::vector<ScheduleModel::Part> ScheduleModel::parts_by_columns() const {
  const std::int64_t multiplied = sums() ? key_.m : shard_;
  std::vector<Range> ranges = {{0, n_}};
  if (plan_.schedule == Schedule::pipelined) ranges = column_parts(n_, plan_, key_.wire);
  if (is_fused()) {
    const PartialSums all = {.m = key_.m, .n = n_, .dtype = key_.wire};
    const std::int64_t width = plan_.chunk > 0
                                   ? std::max<std::int64_t>(plan_.chunk, n_ / kMostProducts)
                                   : suitable_chunk(all, key_.world, linked_);
    ranges = column_chunks(n_, width, key_.wire);
  }
  std::vector<Part> parts;
  parts.reserve(ranges.size());
  for (const Range& range : ranges) {
    parts.push_back({.product = product(multiplied, length(range)),
                     .rows = one_step_ ? key_.m : shard_,
                     .columns = length(range)});
  }
  return parts;
}

// Divides the rows of every rank. Each rank's rows are a product of their own if there are several
// parts.
std::vector<ScheduleModel::Part> ScheduleModel::parts_by_rows() const {
  const std::int64_t rows = one_step_ ? key_.m : shard_;
  const std::int64_t runs = one_step_ || !sums() ? 1 : key_.world;
  std::vector<Part> parts;
  for (const Range& range : ranges_of(rows, plan_, /*unit=*/1)) {
    parts.push_back(
        {.product = product(length(range), n_, runs), .rows = length(range), .columns = n_});
  }
  return parts;
}

// The most bytes that this rank's product has written and that have not been read yet. Caches treat
// bytes in the rank's own memory and in its peers' slots alike.
double ScheduleModel::most_kept(const std::vector<Part>& parts) const {
  std::int64_t most = 0;
  for (const Part& part : parts) {
    const std::int64_t rows = one_step_ ? part.rows : part.rows * key_.world;
    most = std::max(most, rows * part.columns);
  }
  const auto places = static_cast<double>(std::min(parts.size(), kKeptParts));
  return static_cast<double>(most) * partial_bytes(key_.wire) * places;
}

std::size_t ScheduleModel::chunks_of(const Part& part, Dtype dtype) const {
  const double elements = static_cast<double>(part.rows) * static_cast<double>(part.columns);
  const double chunks = std::ceil(elements / static_cast<double>(copied_elements(dtype)));
  return static_cast<std::size_t>(std::clamp<double>(chunks, 1, kMostChunks));
}

// The cost of a chunk with so many elements of the product.
ChunkCost ScheduleModel::chunk_cost(double elements) const {
  const double wire = wire_bytes_per_element(key_.wire);
  const double partial = partial_bytes(key_.wire);
  const double out = bytes_of(key_.out);
  if (!sums()) {
    const double bytes = elements * out;
    return carried({.pack = copies(bytes), .bytes = bytes, .land = copies(bytes)});
  }
  // Blocks of an s8 wire are read, decoded and added in the time that f32 take in a cache.
  const double read = elements * (static_cast<double>(key_.world) * partial + out);
  // Results that go back are read right after they are summed, wherever the partial sums are.
  // A copy reads as many bytes as it writes. Coding for an s8 wire reads f32 and writes bytes.
  ChunkCost one = {.pack = copies(elements * (partial + wire) / 2 * times_as_long_),
                   .bytes = elements * wire,
                   .land = read * times_as_long_ / profile_.sum + profile_.chunk};
  // Tiles are written into the peers' slots directly, unless there are few.
  if (is_fused() && key_.wire != Dtype::s8 &&
      !are_copied_at_once({.m = key_.m, .n = n_, .dtype = key_.wire}))
    one.pack = profile_.chunk;
  if (traits_.gathers && !one_step_) {
    one.returns = true;
    one.back_bytes = elements * out;
    one.back_pack = copies(one.back_bytes);
    one.take = copies(one.back_bytes);
  }
  return carried(one);
}

void ScheduleModel::compute_first() {
  const bool by_rows = plan_.schedule == Schedule::pipelined && plan_.axis == Axis::rows;
  const std::vector<Part> parts = by_rows ? parts_by_rows() : parts_by_columns();
  if (sums()) {
    kept_ = most_kept(parts);
    times_as_long_ = profile_.times_as_long(kept_);
  }
  std::vector<std::size_t> ends;  // the number of chunks up to the end of each part
  for (std::size_t i = 0; i < parts.size(); ++i) {
    const Part& part = parts[i];
    if (is_fused()) {
      rank_.wait_for_room();
    } else if (sums() && i >= kKeptParts) {
      rank_.wait_for_landed(ends[i - kKeptParts]);
    }
    rank_.multiply(part.product);
    const std::size_t chunks = is_fused() ? 1 : chunks_of(part, sums() ? key_.wire : key_.out);
    const double elements = static_cast<double>(part.rows) * static_cast<double>(part.columns) /
                            static_cast<double>(chunks);
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) rank_.post(chunk_cost(elements));
    ends.push_back(rank_.posted());
  }
  rank_.wait_for_all();
}

// The cost of a chunk with so many elements of X.
ChunkCost ScheduleModel::cost_of_x_chunk(double elements) const {
  const double bytes = elements * bytes_of(key_.x);
  if (!sums()) return carried({.pack = copies(bytes), .bytes = bytes, .land = copies(bytes)});
  ChunkCost one = {
      .pack = copies(bytes),
      .bytes = bytes,
      .land = bytes * static_cast<double>(key_.world + 1) / profile_.sum + profile_.chunk};
  if (traits_.gathers) {
    one.returns = true;
    one.back_bytes = bytes;
    one.back_pack = copies(bytes);
    one.take = copies(bytes);
  }
  return carried(one);
}

// Divides X's rows. A part is one product if there is only one part; otherwise every rank's rows
// are a product.
std::vector<ScheduleModel::Part> ScheduleModel::parts_of_x() const {
  const bool own = traits_.has_own_out();
  const bool whole = plan_.schedule != Schedule::pipelined || plan_.parts == 1;
  if (whole)
    return {{.product = product(own ? shard_ : key_.m, n_), .rows = shard_, .columns = k_}};
  std::vector<Part> parts;
  for (const Range& range : ranges_of(shard_, plan_, /*unit=*/1)) {
    parts.push_back({.product = product(length(range), n_, own ? 1 : key_.world),
                     .rows = length(range),
                     .columns = k_});
  }
  return parts;
}

void ScheduleModel::comm_first() {
  if (is_fused() && !gathers_all_first({.m = key_.m, .n = n_}, key_.world, linked_))
    return gather_beside_product();
  std::vector<std::size_t> ends;
  const std::vector<Part> parts = parts_of_x();
  for (const Part& part : parts) {
    const std::size_t chunks = chunks_of(part, key_.x);
    const double elements = static_cast<double>(part.rows) * static_cast<double>(part.columns) /
                            static_cast<double>(chunks);
    for (std::size_t chunk = 0; chunk < chunks; ++chunk) rank_.post(cost_of_x_chunk(elements));
    ends.push_back(rank_.posted());
  }
  for (std::size_t i = 0; i < parts.size(); ++i) {
    // This rank's own rows are copied next to those of the others.
    if (!sums()) {
      rank_.work(static_cast<double>(parts[i].rows) * static_cast<double>(k_) * bytes_of(key_.x) /
                 profile_.copy);
    }
    rank_.wait_for_finished(ends[i]);
    rank_.multiply(parts[i].product);
  }
}

// Multiplies the rank's own rows first; then, repeatedly, the rows of all peers that have arrived.
void ScheduleModel::gather_beside_product() {
  const Part all = {.product = 0, .rows = shard_, .columns = k_};
  std::size_t chunks = chunks_of(all, key_.x);
  if (plan_.chunk > 0) {
    const std::int64_t wanted = base::ceil_div(shard_, plan_.chunk);
    chunks = static_cast<std::size_t>(std::clamp<std::int64_t>(wanted, 1, kMostChunks));
  }
  const double rows = static_cast<double>(shard_) / static_cast<double>(chunks);
  for (std::size_t chunk = 0; chunk < chunks; ++chunk)
    rank_.post(cost_of_x_chunk(rows * static_cast<double>(k_)));
  rank_.multiply(product(shard_, n_));
  for (std::size_t computed = 0; computed < chunks;) {
    rank_.wait_for_finished(computed + 1);
    const std::size_t come = std::max(rank_.finished(), computed + 1);
    // Each peer's rows are one product; if all have arrived, only two: those before this rank's and
    // those after.
    const auto new_chunks = static_cast<std::int64_t>(come - computed);
    const std::int64_t runs =
        computed == 0 && come == chunks ? std::min<std::int64_t>(peers_, 2) : peers_;
    const double run = rows * static_cast<double>(new_chunks * peers_) / static_cast<double>(runs);
    rank_.multiply(product(std::max<std::int64_t>(1, std::llround(run)), n_, runs));
    computed = come;
  }
}

}  // namespace plait::plan
