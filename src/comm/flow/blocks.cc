#include "comm/flow/blocks.h"

#include <cstring>

#include "tensor/copy.h"

namespace plait::comm {
namespace {

SpanArgs args_of(const Route& route, std::size_t bytes) {
  return {.bytes = static_cast<std::int64_t>(bytes),
          .peer = route.peer,
          .chunk = static_cast<std::int32_t>(route.chunk)};
}

void copy_block(const ConstTensorView& from, std::byte* to) {
  if (from.bytes() == 0) return;
  if (from.is_contiguous()) {
    std::memcpy(to, from.data, from.bytes());
    return;
  }
  for (std::int64_t row = 0; row < from.rows; ++row, to += from.row_bytes())
    std::memcpy(to, from.row(row), from.row_bytes());
}

void copy_block(const std::byte* from, const TensorView& to) {
  if (to.bytes() == 0) return;
  if (to.is_contiguous()) {
    std::memcpy(to.data, from, to.bytes());
    return;
  }
  for (std::int64_t row = 0; row < to.rows; ++row, from += to.row_bytes())
    std::memcpy(to.row(row), from, to.row_bytes());
}

}  // namespace

void copy_to_slot(std::byte* slot, const ConstTensorView& block, Handling how) {
  if (how.is_large) {
    tensor::copy_ahead(slot, block.data, block.bytes());
  } else {
    copy_block(block, slot);
  }
}

void copy_from_slot(const std::byte* slot, const TensorView& place, Handling how) {
  if (how.is_large) {
    tensor::stream_copy(place.data, slot, place.bytes());
  } else {
    copy_block(slot, place);
  }
}

void send_block(Lanes& lanes, const Route& to, const ConstTensorView& block, Handling how) {
  const std::size_t bytes = block.bytes();
  const SpanArgs args = args_of(to, bytes);
  const Span span(lanes.trace(), Lane::comm, "copy", args);
  std::byte* const slot = lanes.outbox(to.way, to.peer);
  const auto work = [&] {
    return MemoryWork{.label = "copy",
                      .read = args.bytes,
                      .written = args.bytes,
                      .args = args,
                      .to_peer = true,
                      .must_be_done = how.must_be_done};
  };
  lanes.run(work, [&] { copy_to_slot(slot, block, how); });
  lanes.post(to.way, to.peer, bytes);
}

void take_block(Lanes& lanes, const Route& from, const TensorView& place, Handling how,
                bool is_last) {
  const std::size_t bytes = place.bytes();
  const std::byte* const came = lanes.inbox(from.way, from.peer, bytes);
  const Span span(lanes.trace(), Lane::comm, "take", args_of(from, bytes));
  take_copy(lanes, came, place, how, is_last);
  lanes.release(from.way, from.peer);
}

void take_copy(Lanes& lanes, const std::byte* from, const TensorView& place, Handling how,
               bool is_last) {
  const auto work = [&] {
    const auto size = static_cast<std::int64_t>(place.bytes());
    return MemoryWork{
        .label = "take", .read = size, .written = size, .must_be_done = how.must_be_done};
  };
  lanes.run(work, [&] {
    copy_from_slot(from, place, how);
    if (how.is_large && is_last) tensor::stream_fence();
  });
}

}  // namespace plait::comm
