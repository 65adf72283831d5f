#include "comm/flow/reduce_flow.h"

#include <algorithm>
#include <array>

#include "base/parallel.h"
#include "tensor/reduce.h"

namespace plait::comm {
namespace {

// Fewer elements are not worth waking a thread for.
constexpr std::int64_t kLeastPerThread = 32 * 1024;

// A sum that needs a temporary place before it is rounded is made so many columns at a time.
constexpr std::int64_t kColumnsAtOnce = 1024;

// Coded parts are decoded so many columns at a time.
constexpr std::int64_t kDecodedAtOnce = 4 * tensor::kScaleGroup;

}  // namespace

ReduceFlow::ReduceFlow(Lanes& lanes, const Hosts& hosts, const Partials& partials,
                       const Options& options)
    : lanes_(lanes),
      hosts_(hosts),
      partials_(partials),
      wire_(options.wire),
      across_(adds_up_first() ? Dtype::f32 : options.wire),
      is_coded_(options.is_coded),
      threads_(options.threads),
      is_in_place_(options.is_in_place),
      world_(static_cast<std::size_t>(lanes.world())),
      places_(world_ * static_cast<std::size_t>(threads_ + 1)),
      decoded_(is_coded_ ? world_ * static_cast<std::size_t>(threads_) * kDecodedAtOnce : 0),
      from_mates_(hosts, partials, lanes.rank(), MateBlocks::First::next_host) {
  for (const int mate : hosts.mates())
    to_mates_.emplace_back(hosts, partials, mate, MateBlocks::First::next_host);
}

void ReduceFlow::begin() {
  ready_ = 0;
  summed_ = 0;
  own_chunks_ = partials_.chunks(lanes_.rank());
  to_send_ = 0;
  for (const int counterpart : hosts_.counterparts()) to_send_ += partials_.chunks(counterpart);
  if (!adds_up_first()) return;
  for (MateBlocks& blocks : to_mates_) blocks.begin();
  from_mates_.begin();
}

bool ReduceFlow::has_room() const {
  return std::all_of(lanes_.peers().begin(), lanes_.peers().end(),
                     [&](int peer) { return lanes_.vacant(Way::out, peer); });
}

TensorView ReduceFlow::slot(int peer) {
  const Extent block = partials_.extent(ready_, peer);
  return {.data = lanes_.outbox(Way::out, peer),
          .dtype = wire_,
          .rows = block.rows,
          .cols = block.cols,
          .row_stride = block.cols};
}

void ReduceFlow::posted() {
  for (const int peer : lanes_.peers()) lanes_.post(Way::out, peer, bytes(ready_, peer, wire_));
  to_send_ -= lanes_.peers().size();
  ++ready_;
}

bool ReduceFlow::step_once() {
  bool moved = false;
  for (std::size_t i = 0; i < to_mates_.size(); ++i) moved |= send_to_mate(i);
  if (to_send_ > 0) {
    for (const int counterpart : hosts_.counterparts()) moved |= send_across(counterpart);
  }
  return sum_next() || moved;
}

bool ReduceFlow::mates_have_brought(std::uint32_t chunk, int owner) const {
  return from_mates_.is_at(chunk, owner) &&
         std::all_of(hosts_.mates().begin(), hosts_.mates().end(),
                     [&](int mate) { return lanes_.arrived(Way::out, mate); });
}

void ReduceFlow::find_mates_blocks(std::size_t bytes) {
  for (const int mate : hosts_.mates())
    places_[part_of(mate)] = lanes_.inbox(Way::out, mate, bytes);
}

void ReduceFlow::release_mates() {
  for (const int mate : hosts_.mates()) lanes_.release(Way::out, mate);
  from_mates_.advance();
}

bool ReduceFlow::send_to_mate(std::size_t index) {
  MateBlocks& next = to_mates_[index];
  const int mate = hosts_.mates()[index];
  if (next.done() || next.chunk() >= ready_ || !lanes_.vacant(Way::out, mate)) return false;
  send_block(lanes_, {.way = Way::out, .peer = mate, .chunk = next.chunk()},
             partials_.part(next.chunk(), next.owner()), partials_.handling(next.owner()));
  next.advance();
  return true;
}

bool ReduceFlow::send_across(int counterpart) {
  const std::uint32_t chunk = lanes_.posted(Way::out, counterpart);
  if (chunk >= std::min(ready_, partials_.chunks(counterpart)) ||
      !lanes_.vacant(Way::out, counterpart))
    return false;
  if (is_coded_) {
    send_coded(chunk, counterpart);
    --to_send_;
    return true;
  }
  if (!adds_up_first()) {
    send_block(lanes_, {.way = Way::out, .peer = counterpart, .chunk = chunk},
               partials_.part(chunk, counterpart), partials_.handling(counterpart));
    --to_send_;
    return true;
  }
  if (!mates_have_brought(chunk, counterpart)) return false;
  const std::size_t size = bytes(chunk, counterpart, across_);
  const Span span(lanes_.trace(), Lane::comm, "sum",
                  {.bytes = static_cast<std::int64_t>(size),
                   .peer = counterpart,
                   .chunk = static_cast<std::int32_t>(chunk)});
  find_mates_blocks(bytes(chunk, counterpart, wire_));
  sum_mates(partials_.part(chunk, counterpart), lanes_.outbox(Way::out, counterpart));
  lanes_.post(Way::out, counterpart, size);
  --to_send_;
  release_mates();
  return true;
}

// Coding is work for this rank, whatever the peer's memory is.
void ReduceFlow::send_coded(std::uint32_t chunk, int counterpart) {
  const ConstTensorView part = partials_.part(chunk, counterpart);
  const std::size_t size = bytes_across(chunk, counterpart);
  const auto sent = static_cast<std::int64_t>(size);
  const SpanArgs args = {
      .bytes = sent, .peer = counterpart, .chunk = static_cast<std::int32_t>(chunk)};
  const Span span(lanes_.trace(), Lane::comm, "copy", args);
  const auto work = [&] {
    const auto read = static_cast<std::int64_t>(part.bytes());
    return MemoryWork{.label = "copy", .read = read, .written = sent, .args = args};
  };
  lanes_.run(work, [&] {
    if (size == 0) return;
    std::byte* const slot = lanes_.outbox(Way::out, counterpart);
    in_shares(part, [&](Rows rows, const void** /*at*/) {
      tensor::encode_rows(part.row_range(rows.begin, rows.end),
                          {.rows = part.rows, .columns = part.cols}, rows.begin, slot);
    });
  });
  lanes_.post(Way::out, counterpart, size);
}

bool ReduceFlow::sum_next() {
  if (summed_ >= std::min(ready_, own_chunks_)) return false;
  if (adds_up_first() && !mates_have_brought(summed_, lanes_.rank())) return false;
  for (const int counterpart : hosts_.counterparts()) {
    if (is_in_place_ && lanes_.posted(Way::out, counterpart) <= summed_) return false;
    if (!lanes_.arrived(Way::out, counterpart)) return false;
  }
  if (adds_up_first()) find_mates_blocks(bytes(summed_, lanes_.rank(), wire_));
  const std::size_t size = bytes_across(summed_, lanes_.rank());
  for (const int counterpart : hosts_.counterparts())
    places_[part_of(counterpart)] = lanes_.inbox(Way::out, counterpart, size);
  sum_chunk();
  if (adds_up_first()) release_mates();
  for (const int counterpart : hosts_.counterparts()) lanes_.release(Way::out, counterpart);
  ++summed_;
  return true;
}

void ReduceFlow::sum_chunk() {
  const int rank = lanes_.rank();
  const ConstTensorView own = partials_.part(summed_, rank);
  const auto size =
      static_cast<std::int64_t>(is_coded_ ? bytes_across(summed_, rank) : own.bytes());
  const SpanArgs args = {.bytes = size, .chunk = static_cast<std::int32_t>(summed_)};
  const Span span(lanes_.trace(), Lane::comm, "sum", args);
  if (own.bytes() == 0) return;
  const auto work = [&] {
    return MemoryWork{.label = "sum",
                      .read = size * (lanes_.world() - 1) + static_cast<std::int64_t>(own.bytes()),
                      .written = static_cast<std::int64_t>(partials_.sum(summed_).bytes()),
                      .args = args,
                      .must_be_done = partials_.handling(rank).must_be_done};
  };
  lanes_.run(work,
             [&] { in_shares(own, [&](Rows rows, const void** at) { sum_rows(own, rows, at); }); });
}

// Calls sum(rows, places for a pointer to each rank's part) for some of the rows at a time.
template <class F>
void ReduceFlow::in_shares(const ConstTensorView& own, const F& sum) {
  const std::int64_t shares = std::clamp<std::int64_t>(own.rows * own.cols / kLeastPerThread, 1,
                                                       std::min<std::int64_t>(own.rows, threads_));
  if (shares == 1) return sum(Rows{0, own.rows}, places_.data());
  base::parallel_for(shares, threads_, [&](std::int64_t i) {
    sum(Rows{own.rows * i / shares, own.rows * (i + 1) / shares},
        places_.data() + static_cast<std::size_t>(i) * world_);
  });
}

// The node of this host, of a block that mates have brought.
void ReduceFlow::sum_mates(const ConstTensorView& own, std::byte* to) {
  if (own.rows * own.cols == 0) return;
  const int first = hosts_.here() * hosts_.per_host();
  const auto row_bytes = static_cast<std::int64_t>(own.row_bytes());
  const std::int64_t node_bytes = own.cols * static_cast<std::int64_t>(size_of(across_));
  in_shares(own, [&](Rows rows, const void** at) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      for (int rank = first; rank < first + hosts_.per_host(); ++rank) {
        at[rank - first] = rank == lanes_.rank() ? own.row(row) : came_from(rank) + row * row_bytes;
      }
      tensor::sum_as_tree(to + row * node_bytes, across_, at, hosts_.per_host(), wire_,
                          static_cast<std::size_t>(own.cols));
    }
  });
}

// Some columns of a row of a part that travelled coded, or of this rank's own as if it had.
const float* ReduceFlow::decoded(const ConstTensorView& own, const tensor::CodedPiece& piece,
                                 int source, float* to) const {
  if (source == lanes_.rank()) {
    tensor::round_as_coded(static_cast<const float*>(own.row(piece.row)) + piece.column, to,
                           piece.n);
  } else {
    tensor::decode(came_from(source), {.rows = own.rows, .columns = own.cols}, piece, to);
  }
  return to;
}

// round((((part 0 + part 1) + (part 2 + part 3)) + ...) + bias): where there is a bias, the sum
// waits for it in f32. So does the sum of this host's parts, where other hosts have sent such sums.
void ReduceFlow::sum_rows(const ConstTensorView& own, Rows rows, const void** at) {
  const int rank = lanes_.rank();
  const TensorView out = partials_.sum(summed_);
  const float* const bias = partials_.bias(summed_);
  const std::int64_t columns = own.cols;
  const bool has_node = adds_up_first();
  const std::int64_t most = is_coded_ ? kDecodedAtOnce : kColumnsAtOnce;
  const std::int64_t step = bias == nullptr && !has_node && !is_coded_ ? columns : most;
  // Each share of rows has places of its own in `decoded_`, as it has in `places_`.
  float* const places =
      is_coded_ ? decoded_.data() + (at - places_.data()) * kDecodedAtOnce : nullptr;
  std::array<float, kColumnsAtOnce> node;
  std::array<float, kColumnsAtOnce> sums;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    for (std::int64_t column = 0; column < columns; column += step) {
      const auto n = static_cast<std::size_t>(std::min(step, columns - column));
      const auto part = [&](int source, Dtype dtype) -> const void* {
        if (is_coded_) {
          return decoded(own, {.row = row, .column = column, .n = static_cast<std::int64_t>(n)},
                         source, places + source * kDecodedAtOnce);
        }
        const auto size = static_cast<std::int64_t>(size_of(dtype));
        if (source == rank) return static_cast<const std::byte*>(own.row(row)) + column * size;
        return came_from(source) + (row * columns + column) * size;
      };
      if (has_node) {
        for (int mate = 0; mate < hosts_.per_host(); ++mate)
          at[mate] = part(hosts_.here() * hosts_.per_host() + mate, wire_);
        tensor::sum_as_tree(node.data(), Dtype::f32, at, hosts_.per_host(), wire_, n);
      }
      for (int host = 0; host < hosts_.count(); ++host) {
        at[host] = has_node && host == hosts_.here()
                       ? node.data()
                       : part(hosts_.counterpart_of(rank, host), across_);
      }
      std::byte* const place = static_cast<std::byte*>(out.row(row)) +
                               column * static_cast<std::int64_t>(size_of(out.dtype));
      if (bias == nullptr) {
        tensor::sum_as_tree(place, out.dtype, at, hosts_.count(), across_, n);
        continue;
      }
      tensor::sum_as_tree(sums.data(), Dtype::f32, at, hosts_.count(), across_, n);
      const std::array<const void*, 2> both = {sums.data(), bias + column};
      tensor::sum_as_tree(place, out.dtype, both.data(), 2, Dtype::f32, n);
    }
  }
}

std::uint32_t ReduceFlow::retired() const {
  std::uint32_t past = summed_;
  for (const MateBlocks& next : to_mates_) past = std::min(past, next.chunk());
  for (const int counterpart : hosts_.counterparts())
    past = std::min(past, lanes_.posted(Way::out, counterpart));
  return past;
}

bool ReduceFlow::done() const {
  return summed_ == own_chunks_ && to_send_ == 0 && from_mates_.done() &&
         std::all_of(to_mates_.begin(), to_mates_.end(),
                     [](const MateBlocks& next) { return next.done(); });
}

Awaited ReduceFlow::awaited() const {
  const bool has_more = summed_ < own_chunks_ || !from_mates_.done();
  if (summed_ < std::min(own_chunks_, ready_)) {
    if (const auto chunk = missing()) return *chunk;
  }
  for (std::size_t i = 0; i < to_mates_.size(); ++i) {
    const int mate = hosts_.mates()[i];
    if (!to_mates_[i].done() && !lanes_.vacant(Way::out, mate))
      return lanes_.room_at(Way::out, mate);
  }
  for (const int counterpart : hosts_.counterparts()) {
    if (lanes_.posted(Way::out, counterpart) < partials_.chunks(counterpart) &&
        !lanes_.vacant(Way::out, counterpart))
      return lanes_.room_at(Way::out, counterpart);
  }
  if (has_more) {
    if (const auto chunk = missing()) return *chunk;
  }
  return lanes_.nothing_awaited();
}

// The first peer's chunk that this rank needs and that has not come.
std::optional<Awaited> ReduceFlow::missing() const {
  if (!from_mates_.done()) {
    for (const int mate : hosts_.mates()) {
      if (!lanes_.arrived(Way::out, mate)) return lanes_.chunk_from(Way::out, mate);
    }
  }
  if (summed_ == own_chunks_) return {};
  for (const int counterpart : hosts_.counterparts()) {
    if (!lanes_.arrived(Way::out, counterpart)) return lanes_.chunk_from(Way::out, counterpart);
  }
  return {};
}

}  // namespace plait::comm
