#include "comm/control/chunk_order_gate.h"

#include <algorithm>
#include <utility>

namespace plait::comm::tcp {

// The difference of two counts is right also where one of them has gone on at 0.
bool ChunkOrderGate::may_pass(int process, const Frame& frame) const {
  return static_cast<std::int32_t>(frame.slot - carrier_.come_from(process)) <= 0;
}

bool ChunkOrderGate::hand_on(int process, const Frame& frame, std::string text) {
  Receiver* receiver = find_(frame.receiver);
  return receiver == nullptr || receiver->receive(process, frame, std::move(text));
}

bool ChunkOrderGate::receive(int process, const Frame& frame, std::string text) {
  if (frame.kind == Kind::credit) carrier_.note_credit(process);
  std::deque<KeptFrame>& kept = kept_[process];
  const bool waits_for_chunks = is_ordered(frame.kind) && !may_pass(process, frame);
  const bool keeps_order = is_ordered(frame.kind) || frame.kind == Kind::agreement;
  if (waits_for_chunks || (keeps_order && !kept.empty())) {
    kept.push_back({frame, std::move(text)});
    return true;
  }
  return hand_on(process, frame, std::move(text));
}

bool ChunkOrderGate::open() {
  bool is_news = false;
  for (int process = 0; process < static_cast<int>(kept_.size()); ++process) {
    std::deque<KeptFrame>& kept = kept_[process];
    while (!kept.empty() && may_pass(process, kept.front().frame)) {
      KeptFrame first = std::move(kept.front());
      kept.pop_front();
      hand_on(process, first.frame, std::move(first.text));
      is_news = true;
    }
  }
  return is_news;
}

bool ChunkOrderGate::keeps_farewell(int process, std::uint32_t receiver) const {
  const std::deque<KeptFrame>& kept = kept_[process];
  return std::any_of(kept.begin(), kept.end(), [receiver](const KeptFrame& one) {
    return one.frame.kind == Kind::farewell && one.frame.receiver == receiver;
  });
}

}  // namespace plait::comm::tcp
