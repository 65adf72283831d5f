#include "plan/rank_model.h"

#include <algorithm>

namespace plait::plan {
namespace {

// A mailbox has slots for this many chunks: two for each of four lanes.
constexpr std::size_t kInFlight = 8;

}  // namespace

void RankModel::work(double ns) {
  const double taken = ns * link_.slower;
  worked_ += taken;
  now_ += taken;
}

// Transfers in one direction queue behind one another.
double RankModel::book(double bytes) {
  const double taken = bytes * link_.ns_per_byte;
  transfer_ += taken;
  link_free_ = std::max(link_free_, now_) + taken;
  return link_free_ + link_.latency;
}

void RankModel::post(const ChunkCost& chunk) {
  chunks_.push_back(chunk);
  step();
  send_what_has_room();
}

void RankModel::send_what_has_room() {
  while (sent_ < chunks_.size() && sent_ < landed_ + kInFlight) {
    const std::size_t chunk = sent_++;
    work(chunks_[chunk].pack);
    events_.push({book(chunks_[chunk].bytes), Stage::landed, chunk});
  }
}

void RankModel::handle_next() {
  const Event event = events_.top();
  events_.pop();
  const ChunkCost& chunk_cost = chunks_[event.chunk];
  if (event.stage == Stage::returned) {
    work(chunk_cost.take);
    ++finished_;
    return;
  }
  work(chunk_cost.land);
  ++landed_;
  if (chunk_cost.returns) {
    work(chunk_cost.back_pack);
    events_.push({book(chunk_cost.back_bytes), Stage::returned, event.chunk});
  } else {
    ++finished_;
  }
  send_what_has_room();
}

void RankModel::step() {
  while (!events_.empty() && events_.top().time <= now_) handle_next();
}

// A chunk that arrives during a product is noticed at the next poll: half an interval later, on
// average.
void RankModel::multiply(double ns) {
  product_ += ns;
  while (!events_.empty()) {
    const double ahead = std::max(0.0, events_.top().time + link_.poll_interval / 2 - now_);
    if (ahead > ns) break;
    now_ += ahead;
    ns -= ahead;
    handle_next();
  }
  now_ += ns;
  step();
}

template <class Ready>
void RankModel::wait(Ready ready) {
  while (!ready() && !events_.empty()) {
    const double idle = std::max(0.0, events_.top().time - now_);
    waited_ += idle;
    now_ += idle;
    handle_next();
  }
}

void RankModel::wait_for_landed(std::size_t chunks) {
  wait([&] { return landed_ >= chunks; });
}
void RankModel::wait_for_finished(std::size_t chunks) {
  wait([&] { return finished_ >= chunks; });
}
void RankModel::wait_for_room() {
  wait([&] { return chunks_.size() < landed_ + kInFlight; });
}

}  // namespace plait::plan
