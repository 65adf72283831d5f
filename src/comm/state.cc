#include "comm/state.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <set>

#include "base/check.h"
#include "comm/emulated/emulated_slots.h"
#include "comm/living.h"
#include "comm/placement.h"

namespace plait {

Communicator::State::State(std::string transport_name, std::unique_ptr<comm::Transport> transport,
                           Trace* trace)
    : transport_name_(std::move(transport_name)),
      transport_(std::move(transport)),
      trace_(trace),
      patience_(transport_->group().policy(), comm::kAtOnce),
      polling_(transport_->group()) {
  group().set_trace(trace);
  comm::Living::here().add(*this, transport_name_);
}

namespace {

// Leaks the object on purpose.
template <class Owned>
void let_go(std::unique_ptr<Owned> owned) {
  [[maybe_unused]] const Owned* forgotten = owned.release();
}

}  // namespace

Communicator::State::~State() {
  comm::Living::here().remove(*this);
  for (const auto& task : queue_) task->set_fate(Task::Fate::abandoned);
  polling_.end();
  if (group().in_child()) {
    // The memory is shared with the ranks, and the locks may be held by threads that this process
    // does not have: a child can only let go of the communicator, not close it.
    for (auto& [desc, mailbox] : cache_) let_go(std::move(mailbox));
    for (auto& mailbox : operator_mailboxes_) let_go(std::move(mailbox));
    let_go(std::move(collective_mailbox_));
    let_go(std::move(transport_));
    return;
  }
  kept_.clear();
  // Mailboxes first: they see to it that what was posted goes out.
  cache_.clear();
  operator_mailboxes_.clear();
  collective_mailbox_.reset();
  leave();
}

// Memory ordering: relaxed; the calls of this process read it for a refusal, and nothing else.
void Communicator::State::leave() noexcept {
  if (group().in_child() || has_left_.exchange(true, std::memory_order_relaxed)) return;
  transport_->leave();
}

void Communicator::State::set_trace(Trace* trace) {
  for (const auto& task : queue_) task->stop_recording();
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
  // Where the system doesn't tell one host from another, a name doesn't either.
  if (!wanted.host.empty() && !state->host_.empty()) state->host_ += '/' + wanted.host;
  state->set_timeout(left());
  state->open(wanted.link);
  state->set_timeout(wanted.policy.timeout);
  return state;
}

void Communicator::State::open(std::optional<comm::LinkView> link) {
  hosts_ = count_hosts();
  // One clock tells both ends when a chunk arrives.
  PLAIT_CHECK(!link || hosts_ == 1, "connect: an emulated link needs the ranks on one host, not ",
              hosts_);
  link_ = std::move(link);
  host_ranks_ = std::make_unique<comm::Hosts>(group().rank(), group().world(), ranks_per_host_);
  room_ = comm::room_for(group().world());
  collective_mailbox_ = build_mailbox(room_.mailbox());
  lanes_ = std::make_unique<comm::Lanes>(group(),
                                         comm::Lanes::Shape{.ways = 2, .per_lane = room_.per_lane});
  lanes_->use(*collective_mailbox_);
}

void Communicator::State::check_not_forked() const {
  PLAIT_CHECK(!group().in_child(), "this process was forked from rank ", group().rank(),
              ", whose communicators it cannot use");
}

// The other thread's call goes on: it has done nothing wrong so far.
void Communicator::State::refuse_two_threads() const {
  check_not_forked();  // the parent may have been in a call
  base::fail(Code::invalid_argument, "two threads use this communicator (rank ", group().rank(),
             " of ", group().world(),
             ") at once: let one call end before the other begins, or give each thread a "
             "communicator of its own (split)");
}

void Communicator::State::check_usable() const {
  check_not_forked();
  PLAIT_CHECK(!has_left_.load(std::memory_order_relaxed), "this process is about to end, and rank ",
              group().rank(), " has left its groups");
  group().raise_if_failed();
}

void Communicator::State::abort(std::string_view reason) {
  check_not_forked();
  const int rank = group().rank();
  group().abort({.code = Code::peer_lost,
                 .culprit = rank,
                 .sentence = base::sentence("rank ", rank, " aborted: ", reason)});
}

void Communicator::State::announce(const Tag& tag) { group().announce(tag); }

std::unique_ptr<Mailbox> Communicator::State::make_mailbox(const MailboxDesc& desc) {
  return std::make_unique<Mailbox>(
      make_mailbox(desc, {.operation = Operation::make_mailbox,
                          .sizes = {desc.slots, static_cast<std::int64_t>(desc.slot_bytes)}}));
}

std::unique_ptr<Mailbox::State> Communicator::State::make_mailbox(const MailboxDesc& desc,
                                                                  Tag why) {
  const Use use(*this);
  comm::check_desc(desc, group().world());
  check_usable();
  drain();
  why.call = ++calls_;
  announce(why);
  return build_mailbox(desc);
}

// A rank that fails here tells the others, who may be waiting for it elsewhere; where another was
// first, all say the same.
std::unique_ptr<Mailbox::State> Communicator::State::build_mailbox(const MailboxDesc& desc) try {
  auto slots = transport_->make_slots(link_ ? comm::widened(desc) : desc);
  if (link_) slots = comm::make_emulated_slots(std::move(slots), group(), desc, *link_);
  return std::make_unique<Mailbox::State>(group(), desc, std::move(slots), mailbox_bytes_);
} catch (const Error& error) {
  if (group().was_interrupted()) throw;
  group().fail_and_raise(comm::failure_of(error));
}

Mailbox& Communicator::State::cached_mailbox(const MailboxDesc& desc) {
  const Use use(*this);
  if (Mailbox* known = find_mailbox(desc)) return *known;
  cache_.emplace_back(desc, make_mailbox(desc));
  return *cache_.back().second;
}

Mailbox* Communicator::State::find_mailbox(const MailboxDesc& desc) {
  check_usable();
  for (const auto& [known, mailbox] : cache_) {
    if (known == desc) return mailbox.get();
  }
  return nullptr;
}

namespace {

struct Claim {
  std::int32_t color;
  std::int32_t key;
};

Claim claim_in(const std::string& bytes) {
  Claim claim = {};
  PLAIT_CHECK(bytes.size() == sizeof(claim), "split: a rank sent ", bytes.size(), " bytes");
  std::memcpy(&claim, bytes.data(), sizeof(claim));
  return claim;
}

}  // namespace

std::vector<int> Communicator::State::members_of(const std::vector<std::string>& claims,
                                                 int color) {
  std::vector<int> members;
  for (int rank = 0; color >= 0 && rank < static_cast<int>(claims.size()); ++rank) {
    if (claim_in(claims[rank]).color == color) members.push_back(rank);
  }
  std::stable_sort(members.begin(), members.end(),
                   [&](int a, int b) { return claim_in(claims[a]).key < claim_in(claims[b]).key; });
  return members;
}

// A rank that doesn't know its host is on one of its own, but where all have one clock.
int Communicator::State::count_hosts() try {
  std::set<std::string> known;
  int unknown = 0;
  const auto hosts = transport_->all_gather(host_);
  for (const std::string& host : hosts) {
    if (host.empty()) {
      ++unknown;
    } else {
      known.insert(host);
    }
  }
  ranks_per_host_ = comm::ranks_per_host(hosts);
  if (unknown > 0 && shares_clock()) return 1;
  return static_cast<int>(known.size()) + unknown;
} catch (const Error& error) {
  if (group().was_interrupted()) throw;
  group().fail_and_raise(comm::failure_of(error));
}

void Communicator::State::check_ranks() {
  const Use use(*this);
  check_usable();
  group().examine(nullptr, [] { return false; });
  group().raise_if_failed();
}

std::unique_ptr<Communicator::State> Communicator::State::split(int color, int key) {
  return split(color, key, link_);
}

std::unique_ptr<Communicator::State> Communicator::State::split(
    int color, int key, std::optional<comm::LinkView> link) {
  const Use use(*this);
  check_usable();
  drain();
  announce({.operation = Operation::split, .call = ++calls_});
  try {
    const Claim mine = {.color = color, .key = key};
    std::string bytes(sizeof(mine), '\0');
    std::memcpy(bytes.data(), &mine, sizeof(mine));
    const auto claims = transport_->all_gather(bytes);
    // A rank that sent anything else is in another call: its announcement says in which.
    if (std::any_of(claims.begin(), claims.end(),
                    [](const std::string& claim) { return claim.size() != sizeof(Claim); })) {
      const comm::Awaited nobody = {.peer = group().rank(), .tag = {.operation = Operation::split}};
      group().examine(&nobody, [] { return true; });
    }
    const std::vector<int> members = members_of(claims, color);
    std::optional<comm::LinkView> view;
    if (link) {
      view = comm::LinkView{.clock = link->clock, .ranks = {}};
      for (const int member : members) view->ranks.push_back(link->ranks[member]);
    }
    auto transport = transport_->subgroup(members);
    if (transport == nullptr) return nullptr;
    auto state = std::make_unique<State>(transport_name_, std::move(transport), trace_);
    state->set_host(host_);
    open_part(*state, std::move(view), members);
    return state;
  } catch (const Error& error) {
    if (group().was_interrupted()) throw;
    group().fail_and_raise(comm::failure_of(error));
  }
}

// Where the caller interrupts the set-up of the new group, the call that ends is this group's, and
// its ranks are told.
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

void Communicator::State::begin(Task& task) {
  announce(task.tag());
  patience_.renew(base::now());
  lanes_->begin(task.tag());
  task.begin();
}

Tag Communicator::State::begin_call(Tag tag) {
  check_usable();
  drain();
  tag.call = ++calls_;
  announce(tag);
  return tag;
}

Mailbox::State& Communicator::State::operator_mailbox(const MailboxDesc& least,
                                                      const MailboxDesc& wanted, const Tag& why) {
  const Use use(*this);
  check_usable();
  for (const auto& made : operator_mailboxes_) {
    if (made->desc().slots >= least.slots && made->desc().slot_bytes >= least.slot_bytes)
      return *made;
  }
  operator_mailboxes_.push_back(make_mailbox(wanted, why));
  return *operator_mailboxes_.back();
}

void Communicator::State::run(Task& task) {
  const Use use(*this);
  check_usable();
  drain();
  task.set_call(++calls_);
  begin(task);
  comm::wait_until(
      group(), [&] { return task.step(); }, [&] { return mailbox().take_due(); },
      [&] { return task.awaited(); }, &lanes_->moves());
  note_task_completed();
}

void Communicator::State::start(std::shared_ptr<Task> task) {
  const Use use(*this);
  check_usable();
  task->set_call(++calls_);
  queue_.push_back(std::move(task));
  if (queue_.size() == 1) begin(*queue_.front());
  advance(*queue_.back());
}

bool Communicator::State::is_queued(const Task& task) const {
  return std::any_of(queue_.begin(), queue_.end(),
                     [&](const auto& queued) { return queued.get() == &task; });
}

bool Communicator::State::advance(const Task& task) {
  check_usable();
  while (!queue_.empty() && queue_.front()->step()) {
    queue_.front()->set_fate(Task::Fate::done);
    queue_.pop_front();
    note_task_completed();
    if (!queue_.empty()) begin(*queue_.front());
  }
  const bool done = !is_queued(task);
  if (!done) mailbox().help();
  return done;
}

bool Communicator::State::poll(const Task& task) {
  const Use use(*this);
  const bool done = advance(task);
  if (done) {
    polling_.end();
  } else {
    look_around();
  }
  return done;
}

// What the wait loop does for a rank that sleeps.
void Communicator::State::look_around() {
  const comm::Nanoseconds now = base::now();
  patience_.note_poll(now, true);
  if (polled_moves_ != lanes_->moves()) patience_.renew(now);
  polled_moves_ = lanes_->moves();
  if (!patience_.must_poll_peers(now)) return;
  Task& front = *queue_.front();
  // A peer whose chunk is known to be on its way is not late.
  if (!front.step() && mailbox().take_due() != comm::kNever) patience_.renew(now);
  const comm::Awaited awaited = front.awaited();
  polling_.publish(awaited);
  // Nor has such a peer left anything undone.
  group().examine(&awaited, [&] {
    return front.step() || front.awaited().peer != awaited.peer ||
           mailbox().take_due() != comm::kNever;
  });
  if (patience_.is_over(now) && !front.step()) group().give_up(awaited);
}

void Communicator::State::wait(const Task& task) {
  const Use use(*this);
  comm::wait_until(
      group(), [&] { return advance(task); }, [&] { return mailbox().take_due(); },
      [&] { return queue_.front()->awaited(); }, &lanes_->moves());
}

void Communicator::State::drain() {
  while (!queue_.empty()) wait(*queue_.back());
}

}  // namespace plait
