#include "comm/flow/answer_flow.h"

#include <cstring>

#include "tensor/copy.h"
#include "tensor/reduce.h"

namespace plait::comm {

bool AnswerFlow::step_once() {
  bool moved = false;
  if (to_ask_ > 0) {
    for (const int peer : lanes_.peers()) moved |= ask_next(peer);
  }
  moved |= answer_next();
  if (to_take_ > 0) {
    for (const int peer : lanes_.peers()) moved |= take_answer(peer);
  }
  return moved;
}

// One chunk a slot: the answer is read before the slot is written again.
bool AnswerFlow::ask_next(int peer) {
  const std::uint32_t chunk = lanes_.posted(Way::out, peer);
  if (chunk >= partials_.chunks(peer) ||
      chunk - lanes_.answered(Way::out, peer) >= lanes_.per_lane() ||
      !lanes_.vacant(Way::out, peer))
    return false;
  send_block(lanes_, {.way = Way::out, .peer = peer, .chunk = chunk}, partials_.part(chunk, peer),
             partials_.handling(peer));
  --to_ask_;
  return true;
}

bool AnswerFlow::answer_next() {
  const int rank = lanes_.rank();
  if (summed_ >= own_chunks_) return false;
  for (const int peer : lanes_.peers()) {
    if (!lanes_.arrived(Way::out, peer)) return false;
  }
  const ConstTensorView own = partials_.part(summed_, rank);
  const std::size_t bytes = own.bytes();
  parts_[static_cast<std::size_t>(rank)] = own.data;
  for (const int peer : lanes_.peers())
    parts_[static_cast<std::size_t>(peer)] = lanes_.inbox(Way::out, peer, bytes);
  if (bytes > 0) {
    std::byte* const first = lanes_.answer_box(Way::out, lanes_.peers().front());
    sum_twice(own, first);
    for (const int peer : lanes_.peers()) {
      std::byte* const box = lanes_.answer_box(Way::out, peer);
      if (box != first) std::memcpy(box, first, bytes);
    }
  }
  for (const int peer : lanes_.peers()) lanes_.release(Way::out, peer);
  ++summed_;
  return true;
}

// The sum may go to this rank's own part, so that it is written last.
void AnswerFlow::sum_twice(const ConstTensorView& own, std::byte* kept) {
  const auto count = static_cast<std::size_t>(own.cols);
  void* const out = partials_.sum(summed_).data;
  if (partials_.handling(lanes_.rank()).is_large && own.data != out) {
    tensor::streamed_sum_as_tree({.out = out, .kept = kept}, own.dtype, parts_.data(),
                                 lanes_.world(), count);
    if (summed_ + 1 == own_chunks_) tensor::stream_fence();
    return;
  }
  tensor::sum_as_tree(kept, own.dtype, parts_.data(), lanes_.world(), own.dtype, count);
  std::memcpy(out, kept, own.bytes());
}

bool AnswerFlow::take_answer(int peer) {
  const std::uint32_t chunk = lanes_.answered(Way::out, peer);
  if (chunk == lanes_.posted(Way::out, peer)) return false;
  const std::byte* const answer = lanes_.answer(Way::out, peer);
  if (answer == nullptr) return false;
  take_copy(lanes_, answer, shares_.place(chunk, peer), shares_.handling(peer),
            chunk + 1 == shares_.chunks(peer));
  lanes_.take_answer(Way::out, peer);
  --to_take_;
  return true;
}

Awaited AnswerFlow::awaited() const {
  if (summed_ < own_chunks_) {
    for (const int peer : lanes_.peers()) {
      if (!lanes_.arrived(Way::out, peer)) return lanes_.chunk_from(Way::out, peer);
    }
  }
  for (const int peer : lanes_.peers()) {
    if (lanes_.answered(Way::out, peer) < partials_.chunks(peer))
      return lanes_.answer_from(Way::out, peer);
  }
  return lanes_.nothing_awaited();
}

}  // namespace plait::comm
