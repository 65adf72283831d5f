#include "comm/session/state.h"

#include "base/check.h"
#include "comm/core/living.h"
#include "comm/session/same_link.h"

namespace plait {

Communicator::State::State(std::string transport_name, std::unique_ptr<comm::Transport> transport,
                           Trace* trace)
    : transport_name_(std::move(transport_name)),
      transport_(std::move(transport)),
      trace_(trace),
      membership_(*transport_),
      tasks_(membership_, calls_),
      started_(std::make_shared<comm::StartedTasks>(membership_, tasks_)),
      mailboxes_(*transport_, membership_, tasks_) {
  group().set_trace(trace);
  comm::Living::here().add(*this, transport_name_);
}

Communicator::State::~State() {
  comm::Living::here().remove(*this);
  const bool in_child = group().in_child();
  if (!in_child) started_->close();
  tasks_.abandon();
  if (in_child) {
    started_->forget();
    // The memory is shared with the ranks, and the locks may be held by threads that this process
    // does not have: a child can only let go of the communicator, not close it.
    mailboxes_.forget();
    [[maybe_unused]] const auto* leaked = transport_.release();
    return;
  }
  kept_.clear();
  mailboxes_.clear();
  leave();
}

void Communicator::State::set_trace(Trace* trace) {
  const Use use(*this);
  tasks_.stop_recording();
  trace_ = trace;
  group().set_trace(trace);
}

std::unique_ptr<Communicator::State> Communicator::State::connect(const Connection& wanted,
                                                                  Create create) {
  comm::WaitPolicy connecting = wanted.policy;
  const auto left = [&] {
    const comm::Nanoseconds whole = connecting.connect_timeout;
    return wanted.began_at ? comm::left_of(whole, *wanted.began_at) : whole;
  };
  connecting.timeout = left();
  auto state = std::make_unique<State>(wanted.transport_name, create(connecting), wanted.trace);
  // If the system doesn't tell one host from another, a name doesn't either.
  if (!wanted.host.empty() && !state->host_.empty()) state->host_ += '/' + wanted.host;
  state->set_timeout(left());
  state->open(wanted.link);
  state->set_timeout(wanted.policy.timeout);
  return state;
}

void Communicator::State::open(std::optional<comm::LinkView> link) {
  placement_ = find_placement(link);
  // One clock tells both ends when a chunk arrives.
  PLAIT_CHECK(!link || hosts() == 1, "connect: an emulated link needs the ranks on one host, not ",
              hosts());
  host_ranks_ = std::make_unique<comm::Hosts>(group().rank(), group().world(), ranks_per_host());
  lane_capacity_ = comm::lane_capacity_for(group().world());
  mailboxes_.open(std::move(link), lane_capacity_.mailbox());
  lanes_ = std::make_unique<comm::Lanes>(
      group(), comm::Lanes::Shape{.ways = 2, .per_lane = lane_capacity_.per_lane});
  tasks_.use(*lanes_, mailbox());
}

// Ranks that emulate different links would take different times for one chunk's arrival.
comm::Placement Communicator::State::find_placement(const std::optional<comm::LinkView>& link) try {
  auto texts = transport_->all_gather(comm::link_and(link, host_));
  comm::take_links_off(texts);
  return comm::placement_of(texts, shares_clock());
} catch (const Error& error) {
  membership_.fail_together(error);
}

void Communicator::State::show_wait_elsewhere(const comm::Group& other,
                                              const comm::Awaited* awaited) noexcept {
  const std::uintptr_t me = comm::ThreadGuard::this_thread();
  const bool is_mine = awaited == nullptr ? waits_elsewhere_ == me
                                          : &group() != &other && started_->guard().was_used_last();
  if (!is_mine || !membership_.is_usable()) return;
  waits_elsewhere_ = awaited == nullptr ? 0 : me;
  group().show_wait_elsewhere(&other, awaited);
}

void Communicator::State::abort(std::string_view reason) {
  check_not_forked();
  const int rank = group().rank();
  group().abort({.code = Code::peer_lost,
                 .culprit = rank,
                 .sentence = base::sentence("rank ", rank, " aborted: ", reason)});
}

void Communicator::State::check_ranks() {
  const Use use(*this);
  membership_.check_usable();
  group().examine(nullptr, [] { return false; });
  group().raise_if_failed();
}

std::unique_ptr<Communicator::State> Communicator::State::split(int color, int key) {
  return make_part(Operation::split, {.color = color, .key = key}, mailboxes_.link());
}

std::unique_ptr<Communicator::State> Communicator::State::with_link(
    std::optional<comm::LinkView> link) {
  return make_part(Operation::with_link, {.color = 0, .key = group().rank()}, std::move(link));
}

std::unique_ptr<Communicator::State> Communicator::State::make_part(
    Operation call, const comm::SplitClaim& claim, std::optional<comm::LinkView> link) {
  const Use use(*this);
  tasks_.begin_call({.operation = call});
  try {
    const std::vector<int> members =
        comm::members_of(transport_->all_gather(claim.bytes()), claim.color);
    auto transport = transport_->subgroup(members);
    if (transport == nullptr) return nullptr;
    auto state = std::make_unique<State>(transport_name_, std::move(transport), trace_);
    state->set_host(host_);
    open_part(*state, link ? std::optional(link->of(members)) : std::nullopt, members);
    return state;
  } catch (const Error& error) {
    membership_.fail_together(error);
  }
}

// If the caller interrupts the set-up of the new group, the call that ends is this group's, and its
// ranks are told.
void Communicator::State::open_part(State& part, std::optional<comm::LinkView> link,
                                    const std::vector<int>& members) try {
  try {
    part.open(std::move(link));
  } catch (const Error& error) {
    if (part.group().was_interrupted()) throw;
    throw comm::seen_from_parent(error, members);
  }
} catch (...) {
  if (part.group().was_interrupted()) group().note_interruption(nullptr);
  throw;
}

}  // namespace plait
