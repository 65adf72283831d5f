#include "comm/modelled/world.h"

#include <algorithm>
#include <exception>

#include "base/check.h"
#include "comm/modelled/modelled_slots.h"
#include "comm/modelled/stage.h"
#include "comm/state.h"
#include "comm/transport.h"

namespace plait::comm::modelled {
namespace {

// All ranks share one process: announcements are not needed, and no rank can be lost.
class ModelledGroup final : public Group {
 public:
  ModelledGroup(std::shared_ptr<World::Stage> stage, int rank)
      : Group(rank, stage->world(), {.polls = 1}), stage_(std::move(stage)) {
    set_clock(&stage_->seat(rank));
  }

  void announce(const Tag& /*tag*/) noexcept override {}
  int begin_waiting(const Awaited& /*awaited*/, int /*ticket*/) noexcept override { return 0; }
  void end_waiting(int /*ticket*/) noexcept override {}

  [[noreturn]] void give_up(const Awaited& awaited) override {
    fail_and_raise({.code = Code::timeout,
                    .culprit = awaited.peer,
                    .sentence = plait::comm::describe(awaited, rank())});
  }

  void sleep_until(Nanoseconds until, base::FunctionRef<bool()> ready) override {
    if (!ready()) clock()->spend(until - clock()->now());
  }

 protected:
  void examine_peers(const Awaited* /*awaited*/, base::FunctionRef<bool()> /*ready*/) override {}
  bool has_ended(End end) const noexcept override { return stage_->has_ended(end); }
  void end(End end, const Failure& failure) noexcept override { stage_->end(end, failure); }
  Failure record_of(End end) const override { return stage_->record_of(end); }

 private:
  std::shared_ptr<World::Stage> stage_;
};

class ModelledTransport final : public Transport {
 public:
  ModelledTransport(const std::shared_ptr<World::Stage>& stage, int rank)
      : stage_(stage), group_(stage, rank), number_(stage->seat(rank).next_group()) {}

  Group& group() override { return group_; }

  std::vector<std::string> all_gather(const std::string& mine) override {
    return *stage_->meet(seat(), mine, {.operation = Operation::split});
  }

  std::unique_ptr<SlotTransport> make_slots(const MailboxDesc& desc) override {
    const std::string mine = describe(desc);
    const auto purposes = stage_->meet(seat(), mine, {.operation = Operation::make_mailbox});
    for (int peer = 0; peer < group_.world(); ++peer)
      check_same_purpose(group_.rank(), mine, peer, (*purposes)[static_cast<std::size_t>(peer)]);
    return std::make_unique<ModelledSlots>(
        stage_, group_.rank(), stage_->slots({.group = number_, .number = mailboxes_++}, desc));
  }

  // A sub-group has all ranks in the same order; nothing else can be modelled.
  std::unique_ptr<Transport> subgroup(const std::vector<int>& members) override {
    for (int rank = 0; rank < group_.world(); ++rank) {
      const bool same = static_cast<int>(members.size()) == group_.world() && members[rank] == rank;
      PLAIT_CHECK(same, "split: modelled ranks stay together, and in their order");
    }
    return std::make_unique<ModelledTransport>(stage_, group_.rank());
  }

  std::optional<Link> link() const override { return stage_->wires().network().link; }
  void leave() noexcept override {}

 private:
  Seat& seat() { return stage_->seat(group_.rank()); }

  std::shared_ptr<World::Stage> stage_;
  ModelledGroup group_;
  int number_;
  int mailboxes_ = 0;
};

}  // namespace

World::World(const WorldOptions& options) {
  PLAIT_CHECK(options.ranks > 0 && options.ranks <= kMostRanks, "a world of ", options.ranks,
              " modelled ranks; there may be 1 to ", kMostRanks);
  stage_ = std::make_shared<Stage>(options);
}

World::~World() = default;

void World::run(const std::function<void(Communicator&)>& body) {
  std::exception_ptr first;
  const auto keep = [&] {
    if (first == nullptr) first = std::current_exception();
  };
  stage_->play([&](int rank) {
    try {
      auto state = std::make_unique<Communicator::State>(
          "modelled", std::make_unique<ModelledTransport>(stage_, rank), nullptr);
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

base::Nanoseconds World::end() const {
  base::Nanoseconds end = 0;
  for (int rank = 0; rank < stage_->world(); ++rank) end = std::max(end, stage_->seat(rank).now());
  return end;
}

std::vector<trace::RankRecords> World::take_records() {
  std::vector<trace::RankRecords> all;
  all.reserve(static_cast<std::size_t>(stage_->world()));
  for (int rank = 0; rank < stage_->world(); ++rank)
    all.push_back(stage_->seat(rank).take_records());
  return all;
}

}  // namespace plait::comm::modelled
