#include "simulation/simulation.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "comm/core/transport.h"
#include "comm/session/state.h"
#include "simulation/modelled_slots.h"
#include "simulation/scheduler.h"

namespace plait::comm::modelled {
namespace {

// All ranks share one process: announcements are not needed, and no rank can be lost.
class ModelledGroup final : public Group {
 public:
  ModelledGroup(std::shared_ptr<Scheduler> scheduler, int rank)
      : Group(rank, scheduler->world(), {.polls = 1}),
        scheduler_(std::move(scheduler)),
        me_(scheduler_->rank(rank)) {
    set_executor(&me_);
  }

  SimRank& me() const { return me_; }

  void announce(const Tag& /*tag*/) noexcept override {}
  int begin_waiting(const Awaited& /*awaited*/, int /*ticket*/) noexcept override { return 0; }
  void end_waiting(int /*ticket*/) noexcept override {}

  void give_up(const Awaited& awaited, base::FunctionRef<bool()> /*ready*/) override {
    fail_and_raise({.code = Code::timeout,
                    .culprit = awaited.peer,
                    .sentence = plait::comm::describe(awaited, rank())});
  }

  void sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) override {
    if (!ready()) me_.idle_until(until);
  }

 protected:
  void examine_peers(const Awaited* /*awaited*/, base::FunctionRef<bool()> /*ready*/) override {}
  bool has_ended(End end) const noexcept override { return scheduler_->has_ended(end); }
  void end(End end, const Failure& failure) noexcept override { scheduler_->end(end, failure); }
  Failure record_of(End end) const override { return scheduler_->record_of(end); }

 private:
  std::shared_ptr<Scheduler> scheduler_;
  SimRank& me_;
};

class ModelledTransport final : public Transport {
 public:
  ModelledTransport(const std::shared_ptr<Scheduler>& scheduler, int rank)
      : scheduler_(scheduler),
        group_(scheduler, rank),
        number_(scheduler->rank(rank).next_group()) {}

  Group& group() override { return group_; }

  std::vector<std::string> all_gather(const std::string& mine) override {
    return *scheduler_->meet(me(), mine, {.operation = Operation::split});
  }

  std::unique_ptr<SlotTransport> make_slots(const MailboxDesc& desc) override {
    const std::string mine = describe(desc);
    const auto purposes = scheduler_->meet(me(), mine, {.operation = Operation::make_mailbox});
    for (int peer = 0; peer < group_.world(); ++peer)
      check_same_purpose(group_.rank(), mine, peer, (*purposes)[static_cast<std::size_t>(peer)]);
    return std::make_unique<ModelledSlots>(
        scheduler_, group_.rank(),
        scheduler_->slots({.group = number_, .number = mailboxes_++}, desc));
  }

  // A sub-group has all ranks in the same order; nothing else can be modelled.
  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override {
    for (int rank = 0; rank < group_.world(); ++rank) {
      const bool same = static_cast<int>(members.size()) == group_.world() && members[rank] == rank;
      PLAIT_CHECK(same, "split: modelled ranks stay together, and in their order");
    }
    return std::make_unique<ModelledTransport>(scheduler_, group_.rank());
  }

  std::optional<Link> link() const override { return scheduler_->wires().network().link; }
  void leave() noexcept override {}

 private:
  SimRank& me() { return scheduler_->rank(group_.rank()); }

  std::shared_ptr<Scheduler> scheduler_;
  ModelledGroup group_;
  int number_;
  int mailboxes_ = 0;
};

}  // namespace

Simulation::Simulation(const SimulationOptions& options) {
  PLAIT_CHECK(options.ranks > 0 && options.ranks <= kMostRanks, "a world of ", options.ranks,
              " modelled ranks; there may be 1 to ", kMostRanks);
  scheduler_ = std::make_shared<Scheduler>(options);
}

Simulation::~Simulation() = default;

SimRank& Simulation::rank_of(Communicator& comm) {
  return dynamic_cast<ModelledGroup&>(comm.state().group()).me();
}

void Simulation::run(const std::function<void(Communicator&)>& body) {
  std::exception_ptr first;
  const auto keep = [&] {
    if (first == nullptr) first = std::current_exception();
  };
  scheduler_->run([&](int rank) {
    try {
      auto state = std::make_unique<Communicator::State>(
          "modelled", std::make_unique<ModelledTransport>(scheduler_, rank), nullptr);
      state->open(std::nullopt);
      Communicator comm(std::move(state));
      try {
        body(comm);
      } catch (const std::exception& error) {
        keep();
        comm.abort(error.what());
      }
    } catch (...) {
      keep();
    }
  });
  if (first != nullptr) std::rethrow_exception(first);
}

base::Nanoseconds Simulation::end() const {
  base::Nanoseconds end = 0;
  for (int rank = 0; rank < scheduler_->world(); ++rank)
    end = std::max(end, scheduler_->rank(rank).now());
  return end;
}

base::Nanoseconds Simulation::network_work() const {
  base::Nanoseconds most = 0;
  for (int rank = 0; rank < scheduler_->world(); ++rank)
    most = std::max(most, scheduler_->wires().worked_until(rank, kNever));
  return most;
}

std::vector<trace::RankRecords> Simulation::take_records() {
  std::vector<trace::RankRecords> all;
  all.reserve(static_cast<std::size_t>(scheduler_->world()));
  for (int rank = 0; rank < scheduler_->world(); ++rank)
    all.push_back(scheduler_->rank(rank).take_records());
  return all;
}

}  // namespace plait::comm::modelled
