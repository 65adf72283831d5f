#include "comm/modelled/stage.h"

#include <algorithm>

#include "base/check.h"
#include "comm/modelled/slots.h"

namespace plait::comm::modelled {

World::Stage::Stage(const WorldOptions& options)
    : options_(options), wires_(options.network, options.ranks), meeting_(next_meeting()) {
  for (int rank = 0; rank < world(); ++rank) seats_.push_back(std::make_unique<Seat>(*this, rank));
}

World::Stage::~Stage() = default;

void World::Stage::play(const std::function<void(int)>& be_rank) {
  for (const auto& seat : seats_) {
    seat->fiber_ =
        std::make_unique<base::Fiber>([&be_rank, rank = seat->rank()] { be_rank(rank); });
    agenda_.emplace(0, seat->rank());
  }
  for (std::size_t playing = seats_.size(); playing > 0;) {
    if (agenda_.empty()) refuse_deadlock();
    const auto [at, rank] = *agenda_.begin();
    agenda_.erase(agenda_.begin());
    Seat& next = seat(rank);
    next.now_ = at;
    next.fiber_->go_on();
    if (next.fiber_->ended()) --playing;
  }
}

// A rank that is still the earliest goes on without a switch of fibers.
void World::Stage::sleep(Seat& seat, Nanoseconds until) {
  until = std::max(until, seat.now_);
  const std::pair mine(until, seat.rank());
  if (until != kNever && (agenda_.empty() || mine < *agenda_.begin())) {
    seat.now_ = until;
    return;
  }
  seat.wakes_at_ = until;
  if (until != kNever) agenda_.insert(mine);
  seat.fiber_->leave();
}

void World::Stage::wake(Seat& seat, Nanoseconds at) {
  if (at >= seat.wakes_at_) return;
  if (seat.wakes_at_ != kNever) agenda_.erase({seat.wakes_at_, seat.rank()});
  seat.wakes_at_ = at;
  agenda_.emplace(at, seat.rank());
}

std::shared_ptr<World::Stage::Meeting> World::Stage::next_meeting() const {
  const auto world = static_cast<std::size_t>(options_.ranks);
  return std::make_shared<Meeting>(
      Meeting{.gifts = std::make_shared<std::vector<std::string>>(world),
              .here = std::vector<bool>(world)});
}

World::Stage::Gifts World::Stage::meet(Seat& seat, const std::string& mine, const Tag& tag) {
  const std::shared_ptr<Meeting> meeting = meeting_;
  const auto rank = static_cast<std::size_t>(seat.rank());
  (*meeting->gifts)[rank] = mine;
  meeting->here[rank] = true;
  if (++meeting->count == world()) {
    meeting->over = true;
    meeting_ = next_meeting();
    wake_all(seat.now());
  }
  const auto ready = [&] { return meeting->over; };
  const auto due = [] { return kNever; };
  const auto awaited = [&] {
    const auto absent = std::find(meeting->here.begin(), meeting->here.end(), false);
    return Awaited{.peer = static_cast<int>(absent - meeting->here.begin()), .tag = tag};
  };
  seat.wait({ready, due, awaited});
  return meeting->gifts;
}

Slots& World::Stage::slots(const Which& which, const MailboxDesc& desc) {
  std::unique_ptr<Slots>& slots = slots_[which];
  if (slots == nullptr)
    slots = std::make_unique<Slots>(desc, world(), options_.hollow && which.number > 0);
  return *slots;
}

void World::Stage::end(End end, const Failure& failure) {
  std::vector<Failure>& record = records_[static_cast<std::size_t>(end)];
  if (record.empty()) record.push_back(failure);
  wake_all(0);
}

void World::Stage::wake_all(Nanoseconds at) {
  for (const auto& one : seats_) {
    if (one->rests_) wake(*one, std::max(at, one->now()));
  }
}

void World::Stage::raise_if_ended() const {
  if (!has_ended(End::failure)) return;
  const Failure& why = record_of(End::failure);
  throw Error(why.code, why.sentence, why.culprit);
}

// Each waits for another: it is said of the first few.
void World::Stage::refuse_deadlock() {
  constexpr std::size_t kSaid = 4;
  std::string sentence = base::sentence("no modelled rank of ", world(), " can go on");
  Awaited first = {.peer = Error::kNobody, .tag = {}};
  std::size_t waiting = 0;
  for (const auto& one : seats_) {
    if (one->question_ == nullptr) continue;
    const Awaited awaited = one->question_->awaited();
    if (waiting == 0) first = awaited;
    if (++waiting <= kSaid) sentence += base::sentence("; ", describe(awaited, one->rank()));
  }
  if (waiting > kSaid) sentence += base::sentence("; and ", waiting - kSaid, " more wait");
  end(End::failure, {.code = Code::timeout, .culprit = first.peer, .sentence = sentence});
}

}  // namespace plait::comm::modelled
