#include "simulation/scheduler.h"

#include <algorithm>

#include "base/check.h"
#include "simulation/slots.h"

namespace plait::comm::modelled {

Scheduler::Scheduler(const SimulationOptions& options)
    : options_(options), wires_(options.network, options.ranks), gathering_(next_gathering()) {
  for (int rank = 0; rank < world(); ++rank)
    ranks_.push_back(std::make_unique<SimRank>(*this, rank));
}

Scheduler::~Scheduler() = default;

void Scheduler::run(const std::function<void(int)>& body) {
  for (const auto& one : ranks_) {
    one->fiber_ = std::make_unique<base::Fiber>([&body, rank = one->rank()] { body(rank); });
    wakeups_.emplace(0, one->rank());
  }
  for (std::size_t running = ranks_.size(); running > 0;) {
    if (wakeups_.empty()) refuse_deadlock();
    const auto [at, rank] = *wakeups_.begin();
    wakeups_.erase(wakeups_.begin());
    SimRank& next = this->rank(rank);
    next.now_ = at;
    next.fiber_->go_on();
    if (next.fiber_->ended()) --running;
  }
}

// A rank that is still the earliest goes on without a switch of fibers.
void Scheduler::sleep(SimRank& self, Nanoseconds until) {
  until = std::max(until, self.now_);
  const std::pair mine(until, self.rank());
  if (until != kNever && (wakeups_.empty() || mine < *wakeups_.begin())) {
    self.now_ = until;
    return;
  }
  self.wakes_at_ = until;
  if (until != kNever) wakeups_.insert(mine);
  self.fiber_->leave();
}

void Scheduler::wake(SimRank& self, Nanoseconds at) {
  if (at >= self.wakes_at_) return;
  if (self.wakes_at_ != kNever) wakeups_.erase({self.wakes_at_, self.rank()});
  self.wakes_at_ = at;
  wakeups_.emplace(at, self.rank());
}

std::shared_ptr<Scheduler::Gathering> Scheduler::next_gathering() const {
  const auto world = static_cast<std::size_t>(options_.ranks);
  return std::make_shared<Gathering>(
      Gathering{.contributions = std::make_shared<std::vector<std::string>>(world),
                .here = std::vector<bool>(world)});
}

Scheduler::Contributions Scheduler::meet(SimRank& self, const std::string& mine, const Tag& tag) {
  const std::shared_ptr<Gathering> gathering = gathering_;
  const auto rank = static_cast<std::size_t>(self.rank());
  (*gathering->contributions)[rank] = mine;
  gathering->here[rank] = true;
  if (++gathering->count == world()) {
    gathering->over = true;
    gathering_ = next_gathering();
    wake_all(self.now());
  }
  const auto ready = [&] { return gathering->over; };
  const auto due = [] { return kNever; };
  const auto awaited = [&] {
    const auto absent = std::find(gathering->here.begin(), gathering->here.end(), false);
    return Awaited{.peer = static_cast<int>(absent - gathering->here.begin()), .tag = tag};
  };
  self.wait({ready, due, awaited});
  return gathering->contributions;
}

Slots& Scheduler::slots(const Which& which, const MailboxDesc& desc) {
  std::unique_ptr<Slots>& slots = slots_[which];
  if (slots == nullptr)
    slots = std::make_unique<Slots>(desc, world(), options_.no_storage && which.number > 0);
  return *slots;
}

void Scheduler::end(End end, const Failure& failure) {
  std::vector<Failure>& record = records_[static_cast<std::size_t>(end)];
  if (record.empty()) record.push_back(failure);
  wake_all(0);
}

void Scheduler::wake_all(Nanoseconds at) {
  for (const auto& one : ranks_) {
    if (one->rests_) wake(*one, std::max(at, one->now()));
  }
}

void Scheduler::raise_if_ended() const {
  if (!has_ended(End::failure)) return;
  const Failure& why = record_of(End::failure);
  throw Error(why.code, why.sentence, why.culprit);
}

// Each rank waits for another; the sentence names the first few.
void Scheduler::refuse_deadlock() {
  constexpr std::size_t kSaid = 4;
  std::string sentence = base::sentence("no modelled rank of ", world(), " can go on");
  Awaited first = {.peer = Error::kNoRank, .tag = {}};
  std::size_t waiting = 0;
  for (const auto& one : ranks_) {
    if (one->question_ == nullptr) continue;
    const Awaited awaited = one->question_->awaited();
    if (waiting == 0) first = awaited;
    if (++waiting <= kSaid) sentence += base::sentence("; ", describe(awaited, one->rank()));
  }
  if (waiting > kSaid) sentence += base::sentence("; and ", waiting - kSaid, " more wait");
  end(End::failure, {.code = Code::timeout, .culprit = first.peer, .sentence = sentence});
}

}  // namespace plait::comm::modelled
