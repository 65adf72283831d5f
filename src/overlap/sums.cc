#include "overlap/sums.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "base/parallel.h"
#include "overlap/copy_block.h"
#include "plan/sizes.h"
#include "tensor/coded_rows.h"
#include "tensor/reduce.h"

namespace plait::overlap {
namespace {

// Fewer elements are not worth waking a thread for.
constexpr std::int64_t kLeastPerThread = 32 * 1024;

// A sum that needs a temporary place before it is rounded is made so many columns at a time.
constexpr std::int64_t kColumnsAtOnce = 1024;

// What has come on an s8 wire is decoded so many columns at a time.
constexpr std::int64_t kDecodedAtOnce = 4 * tensor::kScaleGroup;

}  // namespace

Sums::Sums(Exchange& exchange, const Cut& cut, Dtype wire, int threads, int per_host)
    : exchange_(exchange),
      cut_(cut),
      wire_(wire),
      threads_(threads),
      hosts_(exchange.rank(), exchange.world(), per_host),
      own_(cut.parts().size()),
      parts_(static_cast<std::size_t>(exchange.world())),
      places_(parts_.size() * static_cast<std::size_t>(threads)),
      decoded_(wire == Dtype::s8 ? places_.size() * kDecodedAtOnce : 0) {}

void Sums::begin(const Result& result) {
  result_ = result;
  made_ = 0;
  summed_ = 0;
}

void Sums::made(int part, const std::vector<ConstTensorView>& blocks) {
  const auto index = static_cast<std::size_t>(part);
  sources_.resize(own_.size() * blocks.size());  // by the first call
  std::copy(blocks.begin(), blocks.end(),
            sources_.begin() + static_cast<std::ptrdiff_t>(blocks.size() * index));
  own_[index] = blocks[static_cast<std::size_t>(exchange_.rank())];
  made_ = cut_.parts()[index].end_chunk();
}

bool Sums::has_room() const {
  return std::all_of(exchange_.peers().begin(), exchange_.peers().end(),
                     [&](int peer) { return exchange_.vacant(Way::out, peer); });
}

TensorView Sums::box(int peer) {
  const Block block = cut_.block(made_, peer);
  return {.data = exchange_.box(Way::out, peer),
          .dtype = wire_,
          .rows = length(block.rows),
          .cols = length(block.columns),
          .row_stride = length(block.columns)};
}

void Sums::posted(const ConstTensorView& own) {
  own_[static_cast<std::size_t>(cut_.part_of(made_))] = own;
  for (const int peer : exchange_.peers()) exchange_.post(Way::out, peer, wire_bytes(made_, peer));
  ++made_;
}

void Sums::step() {
  for (bool moved = true; moved;) {
    moved = false;
    for (const int mate : hosts_.mates()) moved |= send_to_mate(mate);
    for (const int counterpart : hosts_.counterparts()) moved |= send_across(counterpart);
    moved |= sum_next();
  }
}

// The number of a block in a mate's lane: those for other hosts in turn, then the one for this
// host.
std::uint32_t Sums::item(std::uint32_t chunk, int host) const {
  const int turn = hosts_.turn_of(host);
  return (chunk + (turn == 0 ? 1 : 0)) * per_lane() + static_cast<std::uint32_t>(turn) - 1;
}

bool Sums::mates_have_brought(std::uint32_t item) const {
  return std::all_of(hosts_.mates().begin(), hosts_.mates().end(), [&](int mate) {
    return exchange_.taken(Way::out, mate) == item && exchange_.arrived(Way::out, mate);
  });
}

void Sums::find_mates_blocks(std::size_t bytes) {
  for (const int mate : hosts_.mates())
    parts_[static_cast<std::size_t>(mate)] = exchange_.inbox(Way::out, mate, bytes);
}

bool Sums::send_to_mate(int mate) {
  const std::uint32_t next = exchange_.posted(Way::out, mate);
  const std::uint32_t chunk = next / per_lane();
  if (chunk >= made_ || !exchange_.vacant(Way::out, mate)) return false;
  const int host = hosts_.host_at(static_cast<int>(next % per_lane()) + 1);
  const int owner = hosts_.counterpart_of(mate, host);
  const std::size_t bytes = wire_bytes(chunk, owner);
  const Span span(exchange_.trace(), Lane::comm, "copy",
                  {.bytes = static_cast<std::int64_t>(bytes),
                   .peer = mate,
                   .chunk = static_cast<std::int32_t>(chunk)});
  copy_block(source(chunk, owner), exchange_.box(Way::out, mate));
  exchange_.post(Way::out, mate, bytes);
  return true;
}

bool Sums::send_across(int counterpart) {
  const std::uint32_t chunk = exchange_.posted(Way::out, counterpart);
  if (chunk >= made_ || !exchange_.vacant(Way::out, counterpart)) return false;
  if (!mates_have_brought(item(chunk, hosts_.of(counterpart)))) return false;
  const std::size_t bytes = wire_bytes(chunk, counterpart);
  const auto size = static_cast<std::int64_t>(bytes);
  const auto read = cut_.block(chunk, counterpart).elements() *
                    static_cast<std::int64_t>(size_of(partial_dtype(wire_)));
  const SpanArgs args = {
      .bytes = size, .peer = counterpart, .chunk = static_cast<std::int32_t>(chunk)};
  const Label label = hosts_.mates().empty() ? Label("copy") : Label("sum");
  const Span span(exchange_.trace(), Lane::comm, label, args);
  const ConstTensorView own = source(chunk, counterpart);
  if (!hosts_.mates().empty()) {
    find_mates_blocks(bytes);
    sum_mates(own, {.data = exchange_.box(Way::out, counterpart),
                    .dtype = wire_,
                    .rows = own.rows,
                    .cols = own.cols,
                    .row_stride = own.cols});
  } else if (!exchange_.is_played(
                 {.label = label,
                  .read = read,
                  .written = size,
                  .args = args,
                  .to_peer = wire_ != Dtype::s8})) {  // coding is work for this rank
    write(own, exchange_.box(Way::out, counterpart));
  }
  exchange_.post(Way::out, counterpart, bytes);
  for (const int mate : hosts_.mates()) exchange_.release(Way::out, mate);
  return true;
}

bool Sums::sum_next() {
  if (summed_ >= made_ || !mates_have_brought(item(summed_, hosts_.here()))) return false;
  for (const int counterpart : hosts_.counterparts()) {
    if (!exchange_.arrived(Way::out, counterpart)) return false;
  }
  const std::size_t bytes = wire_bytes(summed_, exchange_.rank());
  find_mates_blocks(bytes);
  for (const int counterpart : hosts_.counterparts())
    parts_[static_cast<std::size_t>(counterpart)] = exchange_.inbox(Way::out, counterpart, bytes);
  sum_chunk();
  for (const int mate : hosts_.mates()) exchange_.release(Way::out, mate);
  for (const int counterpart : hosts_.counterparts()) exchange_.release(Way::out, counterpart);
  ++summed_;
  return true;
}

void Sums::sum_chunk() {
  const int rank = exchange_.rank();
  const Block block = cut_.block(summed_, rank);
  const auto size = static_cast<std::int64_t>(wire_bytes(summed_, rank));
  const SpanArgs args = {.bytes = size, .chunk = static_cast<std::int32_t>(summed_)};
  const Span span(exchange_.trace(), Lane::comm, "sum", args);
  const auto written = block.elements() * static_cast<std::int64_t>(size_of(result_.out.dtype));
  const auto own_bytes =
      block.elements() * static_cast<std::int64_t>(size_of(partial_dtype(wire_)));
  const std::int64_t read = size * (exchange_.world() - 1) + own_bytes;
  if (block.elements() == 0) return;
  if (exchange_.is_played({.label = "sum", .read = read, .written = written, .args = args})) return;
  const ConstTensorView own = source(summed_, rank);
  in_shares(length(block.rows), block.elements(),
            [&](Range rows, const void** at) { sum_rows(block, own, rows, at); });
}

// Calls sum(rows, places for a pointer to each rank's part) for some of the rows at a time.
template <class F>
void Sums::in_shares(std::int64_t rows, std::int64_t elements, const F& sum) {
  const std::int64_t shares = std::clamp<std::int64_t>(elements / kLeastPerThread, 1,
                                                       std::min<std::int64_t>(rows, threads_));
  base::parallel_for(shares, threads_, [&](std::int64_t i) {
    sum({rows * i / shares, rows * (i + 1) / shares},
        places_.data() + static_cast<std::size_t>(i) * parts_.size());
  });
}

// A block as it is sent.
void Sums::write(const ConstTensorView& block, std::byte* to) {
  if (wire_ != Dtype::s8) return copy_block(block, to);
  if (block.rows * block.cols == 0) return;
  in_shares(block.rows, block.rows * block.cols, [&](Range rows, const void** /*at*/) {
    tensor::encode_rows(block.row_range(rows.begin, rows.end),
                        {.rows = block.rows, .columns = block.cols}, rows.begin, to);
  });
}

// The node of this host, of a block that mates have brought.
void Sums::sum_mates(const ConstTensorView& own, const TensorView& to) {
  if (own.rows * own.cols == 0) return;
  const int first = hosts_.here() * hosts_.per_host();
  const auto row_bytes = own.cols * static_cast<std::int64_t>(size_of(wire_));
  in_shares(own.rows, own.rows * own.cols, [&](Range rows, const void** at) {
    for (std::int64_t row = rows.begin; row < rows.end; ++row) {
      for (int rank = first; rank < first + hosts_.per_host(); ++rank) {
        at[rank - first] = rank == exchange_.rank()
                               ? own.row(row)
                               : parts_[static_cast<std::size_t>(rank)] + row * row_bytes;
      }
      tensor::sum_as_tree(to.row(row), wire_, at, hosts_.per_host(), wire_,
                          static_cast<std::size_t>(own.cols));
    }
  });
}

// round((((part 0 + part 1) + (part 2 + part 3)) + ...) + bias): where there is a bias, the sum
// waits for it in f32. So does the sum of this host's parts, where other hosts have sent such sums.
void Sums::sum_rows(const Block& block, const ConstTensorView& own, Range rows, const void** at) {
  const int rank = exchange_.rank();
  const std::int64_t columns = length(block.columns);
  const TensorView out = result_.out.column_range(block.columns.begin, block.columns.end);
  const auto wire = static_cast<std::int64_t>(size_of(wire_));
  const bool has_node = hosts_.per_host() > 1;
  const bool is_coded = wire_ == Dtype::s8;
  const bool is_at_once = result_.bias == nullptr && !has_node && !is_coded;
  const std::int64_t at_once = is_coded ? kDecodedAtOnce : kColumnsAtOnce;
  // This share's places are `at`, and those for what it decodes lie alike.
  float* const decoded = decoded_.data() + (is_coded ? (at - places_.data()) * kDecodedAtOnce : 0);
  std::array<float, kColumnsAtOnce> node;
  std::array<float, kColumnsAtOnce> sums;
  for (std::int64_t row = rows.begin; row < rows.end; ++row) {
    auto* to = static_cast<std::byte*>(out.row(block.rows.begin - result_.first_row + row));
    const std::int64_t step = is_at_once ? columns : at_once;
    for (std::int64_t column = 0; column < columns; column += step) {
      const std::int64_t count = std::min(step, columns - column);
      const auto n = static_cast<std::size_t>(count);
      const auto part = [&](int source) -> const void* {
        if (is_coded) {
          float* const place = decoded + source * kDecodedAtOnce;
          if (source == rank) {
            tensor::round_as_coded(static_cast<const float*>(own.row(row)) + column, place, count);
          } else {
            tensor::decode(parts_[static_cast<std::size_t>(source)],
                           {.rows = own.rows, .columns = columns},
                           {.row = row, .column = column, .n = count}, place);
          }
          return place;
        }
        if (source == rank) return static_cast<const std::byte*>(own.row(row)) + column * wire;
        return parts_[static_cast<std::size_t>(source)] + (row * columns + column) * wire;
      };
      if (has_node) {
        for (int mate = 0; mate < hosts_.per_host(); ++mate)
          at[mate] = part(hosts_.here() * hosts_.per_host() + mate);
        tensor::sum_as_tree(node.data(), Dtype::f32, at, hosts_.per_host(), wire_, n);
      }
      for (int host = 0; host < hosts_.count(); ++host) {
        at[host] = has_node && host == hosts_.here() ? node.data()
                                                     : part(hosts_.counterpart_of(rank, host));
      }
      std::byte* place = to + column * static_cast<std::int64_t>(size_of(out.dtype));
      if (result_.bias == nullptr) {
        tensor::sum_as_tree(place, out.dtype, at, hosts_.count(), partial_dtype(wire_), n);
        continue;
      }
      tensor::sum_as_tree(sums.data(), Dtype::f32, at, hosts_.count(), partial_dtype(wire_), n);
      const std::array<const void*, 2> both = {sums.data(),
                                               result_.bias + block.columns.begin + column};
      tensor::sum_as_tree(place, out.dtype, both.data(), 2, Dtype::f32, n);
    }
  }
}

// The block of a chunk in that of its part.
ConstTensorView Sums::source(std::uint32_t chunk, int rank) const {
  const auto part = static_cast<std::size_t>(cut_.part_of(chunk));
  const ConstTensorView& from =
      rank == exchange_.rank() ? own_[part]
                               : sources_[part * parts_.size() + static_cast<std::size_t>(rank)];
  const Cut::Part& whole = cut_.parts()[part];
  const Block block = cut_.block(chunk, rank);
  const std::int64_t row = block.rows.begin - whole.rows()[static_cast<std::size_t>(rank)].begin;
  const std::int64_t column = block.columns.begin - whole.columns.begin;
  return from.row_range(row, row + length(block.rows))
      .column_range(column, column + length(block.columns));
}

std::size_t Sums::wire_bytes(std::uint32_t chunk, int rank) const {
  const Block block = cut_.block(chunk, rank);
  return static_cast<std::size_t>(
      plait::wire_bytes(wire_, length(block.rows), length(block.columns)));
}

std::uint32_t Sums::past() const {
  std::uint32_t past = summed_;
  for (const int mate : hosts_.mates())
    past = std::min(past, exchange_.posted(Way::out, mate) / per_lane());
  for (const int counterpart : hosts_.counterparts())
    past = std::min(past, exchange_.posted(Way::out, counterpart));
  return past;
}

comm::Awaited Sums::awaited() const {
  if (summed_ < made_) {
    if (const auto chunk = missing()) return *chunk;
  }
  const auto lacks_room = [&](int peer, std::uint32_t all) {
    return exchange_.posted(Way::out, peer) < all && !exchange_.vacant(Way::out, peer);
  };
  for (const int mate : hosts_.mates()) {
    if (lacks_room(mate, cut_.chunks() * per_lane())) return exchange_.room_at(Way::out, mate);
  }
  for (const int counterpart : hosts_.counterparts()) {
    if (lacks_room(counterpart, cut_.chunks())) return exchange_.room_at(Way::out, counterpart);
  }
  if (summed_ < cut_.chunks()) {
    if (const auto chunk = missing()) return *chunk;
  }
  return exchange_.nothing_awaited();
}

// The first peer's part of the next sum that has not come.
std::optional<comm::Awaited> Sums::missing() const {
  for (const auto* peers : {&hosts_.mates(), &hosts_.counterparts()}) {
    for (const int peer : *peers) {
      if (!exchange_.arrived(Way::out, peer)) return exchange_.chunk_from(Way::out, peer);
    }
  }
  return {};
}

}  // namespace plait::overlap
