#include "comm/meet/socket_rendezvous.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/function_ref.h"
#include "base/text.h"
#include "comm/core/group.h"
#include "comm/core/interruption.h"
#include "comm/core/started.h"
#include "comm/meet/patient_watch.h"

namespace plait::comm::shm {

using base::Delivery;
using base::Fd;
using base::Message;
using base::Nanoseconds;
using base::sentence;

namespace {

// Precedes a message's bytes, so that none can be taken for a failure.
constexpr char kData = '+';

// How much longer than the coordinator the other ranks wait, so that they hear its verdict.
constexpr Nanoseconds kGrace = base::kSecond;

constexpr Nanoseconds kPollInterval = 20 * base::kMillisecond;
constexpr unsigned kUntilTaken = 500;  // microseconds

// The sockets of a process close a moment before it has ended. The rank that reports its death
// waits for that: the others see only the reporting rank leave, and would blame it.
void await_end(base::FunctionRef<bool()> ended) {
  const Nanoseconds deadline = base::now() + 50 * base::kMillisecond;
  while (!ended() && base::now() < deadline) ::usleep(500);
}

}  // namespace

template <class F>
auto SocketRendezvous::telling_all(F&& f) {
  const Interruption interruption;
  try {
    return f();
  } catch (const Error& error) {
    if (interruption.has_come() || error.code() != Code::system) throw;
    announce_and_raise(error);
  }
}

SocketRendezvous::SocketRendezvous(const Endpoint& endpoint, std::vector<Fd> sockets,
                                   const Watch& watch)
    : endpoint_(endpoint), channel_(std::move(sockets), endpoint.world), numbers_(endpoint.world) {
  std::iota(numbers_.begin(), numbers_.end(), 0);
  processes_ = telling_all([&] { return meet_as_processes(watch); });
}

std::shared_ptr<const ProcessTable> SocketRendezvous::meet_as_processes(const Watch& watch) {
  Message mine = {.bytes = base::mark_of_this_process(), .fd = Fd()};
  if (is_coordinator()) mine.fd = base::make_anonymous_file("plait", endpoint_.world);
  auto all = meet(std::move(mine), watch);
  std::vector<std::string> introductions;
  introductions.reserve(all.size());
  for (Message& one : all) introductions.push_back(std::move(one.bytes));
  auto processes = std::make_shared<ProcessTable>(std::move(all[0].fd), introductions);
  processes->lock(rank());
  // No rank asks whether a process lives before that process has locked its place.
  meet({.bytes = "locked", .fd = Fd()}, watch);
  return processes;
}

SocketRendezvous::SocketRendezvous(Endpoint endpoint, GroupChannel channel,
                                   std::shared_ptr<const ProcessTable> processes,
                                   std::vector<int> numbers)
    : endpoint_(std::move(endpoint)),
      channel_(std::move(channel)),
      processes_(std::move(processes)),
      numbers_(std::move(numbers)) {}

SocketRendezvous::~SocketRendezvous() {
  try {
    channel_.close(neighbours());
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory to tell them
  }
}

std::vector<int> SocketRendezvous::neighbours() const {
  if (!is_coordinator()) return {coordinator()};
  std::vector<int> all;
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) all.push_back(peer);
  }
  return all;
}

bool SocketRendezvous::has_ended(int peer) const {
  return processes_ != nullptr && processes_->has_ended(numbers_[peer]);
}

std::string SocketRendezvous::describe(int peer) const {
  if (processes_ != nullptr) return processes_->describe(numbers_[peer]);
  return describe_process(base::credentials_of(channel_.socket_to(peer)).pid);
}

std::vector<std::string> SocketRendezvous::all_gather(const std::string& mine, const Watch& watch) {
  return telling_all([&] {
    std::vector<std::string> all;
    for (Message& message : meet({mine, Fd()}, watch)) all.push_back(std::move(message.bytes));
    return all;
  });
}

std::vector<base::Region> SocketRendezvous::share(std::size_t bytes, const std::string& purpose,
                                                  const Watch& watch) {
  return telling_all([&] {
    const auto all = meet({purpose, base::make_anonymous_file("plait", bytes)}, watch);
    std::vector<base::Region> regions;
    for (int peer = 0; peer < world(); ++peer) {
      if (all[peer].bytes != purpose) poll(watch, rank());  // it may know which calls these are
      check_same_purpose(rank(), purpose, peer, all[peer].bytes);
      regions.push_back(base::Region::map(all[peer].fd, bytes, sentence("rank ", peer)));
    }
    return regions;
  });
}

Endpoint SocketRendezvous::endpoint_among(const std::vector<int>& members) const {
  const auto me = std::find(members.begin(), members.end(), rank()) - members.begin();
  return {.rank = static_cast<int>(me),
          .world = static_cast<int>(members.size()),
          .timeout = endpoint_.timeout,
          .in_group = true};
}

std::vector<int> SocketRendezvous::numbers_of(const std::vector<int>& members) const {
  std::vector<int> numbers;
  numbers.reserve(members.size());
  for (const int member : members) numbers.push_back(numbers_[member]);
  return numbers;
}

// Ranks of a sub-group without the coordinator meet where the first of them listens.
std::unique_ptr<Rendezvous> SocketRendezvous::subgroup(const std::vector<int>& members,
                                                       const Watch& watch) {
  const bool shares = std::find(members.begin(), members.end(), coordinator()) != members.end();
  const bool leads = !shares && !members.empty() && members.front() == rank();
  std::string mine;
  std::optional<MeetingPlace> place;
  if (leads) {
    mine = make_secret_name();
    // Listening before the name is known, so that no rank calls in vain.
    place.emplace(mine, base::now() + endpoint_.timeout);
  } else if (shares && is_coordinator()) {
    mine = std::to_string(channel_.make_number());
  }
  const auto all = all_gather(mine, watch);
  if (members.empty()) return nullptr;
  if (!shares) return meet_members(members, all[members.front()], std::move(place), watch);
  const auto number = base::parse_int(all[coordinator()]);
  if (!number) {
    poll(watch, rank());  // it may know which calls these are
    throw Error(Code::mismatch, sentence("rank ", coordinator(), " does not split the group"),
                coordinator());
  }
  return std::make_unique<SocketRendezvous>(
      endpoint_among(members), channel_.among(members, static_cast<Connections::Channel>(*number)),
      processes_, numbers_of(members));
}

std::unique_ptr<Rendezvous> SocketRendezvous::regroup(const std::vector<int>& members,
                                                      Regrouping::Exchange exchange,
                                                      const Watch& watch) {
  const bool leads = members.front() == rank();
  const std::string name = leads ? make_secret_name() : "";
  std::optional<MeetingPlace> place;
  if (leads) place.emplace(name, base::now() + endpoint_.timeout);
  return meet_members(members, exchange(name).front(), std::move(place), watch);
}

std::unique_ptr<Rendezvous> SocketRendezvous::meet_members(const std::vector<int>& members,
                                                           const std::string& name,
                                                           std::optional<MeetingPlace> place,
                                                           const Watch& watch) {
  const Endpoint endpoint = endpoint_among(members);
  const Interruption interruption;
  try {
    const Watch from_here = [&](int member) { poll(watch, members[member]); };
    std::vector<Fd> sockets;
    if (place) {
      sockets = assemble(std::move(*place), endpoint, from_here);
    } else {
      sockets.push_back(attend(name, endpoint, from_here));
    }
    return std::make_unique<SocketRendezvous>(endpoint,
                                              GroupChannel(std::move(sockets), endpoint.world),
                                              processes_, numbers_of(members));
  } catch (const Error& error) {
    if (interruption.has_come()) throw;
    await_end([&] {
      poll(watch, rank());  // throws what the whole group knows of it
      return error.code() != Code::peer_lost;
    });
    throw seen_from_parent(error, members);
  }
}

// If the system refuses something to one rank, the coordinator learns of it and tells all ranks,
// which would otherwise take that rank for lost. An error that blames a rank has come from another
// rank, or is known to all.
void SocketRendezvous::announce_and_raise(const Error& error) {
  if (error.culprit() != Error::kNoRank) {
    if (is_coordinator()) announce(error);
    throw;
  }
  const std::string what = sentence("rank ", rank(), " (pid ", ::getpid(), "): ", error.what());
  announce(Error(Code::system, what, rank()));
  if (!is_coordinator()) await_verdict();
  throw Error(Code::system, what, rank());
}

// The rank to blame is told last: it may end as soon as it is told, and no other rank is to see
// that before it knows the reason.
void SocketRendezvous::announce(const Error& error) noexcept try {
  const std::string message = encode_failure(error);
  std::vector<int> peers = neighbours();
  std::stable_partition(peers.begin(), peers.end(),
                        [&](int peer) { return peer != error.culprit(); });
  for (const int peer : peers) {
    channel_.send(peer, message, Fd());
  }
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): can't be told nor helped
}

// Stays until the coordinator has told all ranks: a rank that saw this one end before would not
// wait for the reason.
void SocketRendezvous::await_verdict() noexcept {
  const Nanoseconds deadline = base::now() + kGrace;
  while (base::now() < deadline) {
    try {
      Message message;
      const Delivery delivery = channel_.receive(coordinator(), message);
      if (delivery == Delivery::closed || is_failure(message.bytes)) return;
      if (delivery == Delivery::not_yet) channel_.wait_readable({coordinator()}, kPollInterval);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a message that had no room
    }
  }
}

std::vector<Message> SocketRendezvous::meet(Message mine, const Watch& watch) {
  mine.bytes.insert(mine.bytes.begin(), kData);
  std::vector<Message> all;
  if (is_coordinator()) {
    all = collect_and_distribute(std::move(mine), watch);
  } else {
    Deadline deadline(endpoint_.timeout + kGrace);
    send(coordinator(), mine, deadline, watch);
    while (static_cast<int>(all.size()) < world())
      all.push_back(receive(coordinator(), deadline, watch));
  }
  for (Message& message : all) message.bytes.erase(0, 1);
  return all;
}

// Takes messages in whatever order they come: the user may have only so many descriptors on their
// way, so one rank's message may wait until another's has been taken.
std::vector<Message> SocketRendezvous::collect_and_distribute(Message mine, const Watch& watch) {
  Deadline deadline(endpoint_.timeout);
  std::vector<Message> all(world());
  all[rank()] = std::move(mine);
  const std::vector<int> peers = neighbours();
  std::vector<int> silent = peers;
  while (!silent.empty()) {
    std::erase_if(silent, [&](int peer) { return take(peer, all[peer], watch); });
    if (!silent.empty()) await(silent, deadline, watch);
  }
  for (const int peer : peers) {
    for (const Message& message : all) send(peer, message, deadline, watch);
  }
  return all;
}

// True if a message has come. A peer that leaves says so in a last message, unless its socket is
// full then. If this rank receives nothing after it has seen the peer leave, nothing comes any
// more.
bool SocketRendezvous::take(int from, Message& message, const Watch& watch) {
  const bool had_left = has_left_ && has_left_(from);
  const Delivery delivery = channel_.receive(from, message);
  const bool is_over = had_left && delivery == Delivery::not_yet;
  if (is_over || delivery == Delivery::closed) lose(from, watch);
  if (delivery != Delivery::done) return false;
  if (is_failure(message.bytes)) raise_failure(message.bytes);
  return true;
}

// Waits a little for a message from one of them; the first is published as the one that is waited
// for. Never for long, because another thread of this rank may take the message.
void SocketRendezvous::await(const std::vector<int>& peers, Deadline& deadline,
                             const Watch& watch) {
  poll(watch, peers.front());
  const Nanoseconds now = base::now();
  if (deadline.is_over(now)) {
    refuse(Code::timeout, peers.front(),
           sentence("rank ", peers.front(), " has not joined the others within ",
                    base::show_duration(endpoint_.timeout), " (", describe(peers.front()), ")"));
  }
  channel_.wait_readable(peers, std::min(deadline.at() - now, nap_of(kPollInterval)));
}

Message SocketRendezvous::receive(int from, Deadline& deadline, const Watch& watch) {
  PatientWatch patient(watch, is_coordinator());
  Message message;
  const Watch patiently = [&](int peer) { patient.poll(peer); };
  while (!take(from, message, watch)) await({from}, deadline, patiently);
  return message;
}

void SocketRendezvous::send(int to, const Message& message, Deadline& deadline,
                            const Watch& watch) {
  for (;;) {
    const Delivery delivery = channel_.send(to, message.bytes, message.fd);
    if (delivery == Delivery::done) return;
    if (delivery == Delivery::closed) receive_verdict();
    poll(watch, to);
    if (delivery == Delivery::closed) lose(to, watch);
    const bool throttled = delivery == Delivery::too_many_on_their_way;
    const Nanoseconds now = base::now();
    if (deadline.is_over(now)) {
      const std::string why = throttled ? "; too many descriptors of this user are on their way, "
                                          "for its limit of open files"
                                        : "";
      refuse(Code::timeout, to,
             sentence("rank ", to, " has taken nothing for ",
                      base::show_duration(endpoint_.timeout), " (", describe(to), ')', why));
    }
    if (throttled) {
      ::usleep(kUntilTaken);
    } else {
      base::wait_writable(channel_.socket_to(to),
                          std::min(deadline.at() - now, nap_of(kPollInterval)));
    }
  }
}

// A coordinator that has given up has sent the reason before it left.
void SocketRendezvous::receive_verdict() {
  Message message;
  while (!is_coordinator() && channel_.receive(coordinator(), message) == Delivery::done) {
    if (is_failure(message.bytes)) raise_failure(message.bytes);
  }
}

// Nothing can come any more, so the group may know of a death at once.
void SocketRendezvous::lose(int peer, const Watch& watch) {
  await_end([&] {
    poll(watch, peer);
    return has_ended(peer);
  });
  poll(watch, peer);
  refuse(Code::peer_lost, peer,
         sentence("rank ", peer, " (", describe(peer), ") has ",
                  has_ended(peer) ? "died or left" : "left or closed its connection"));
}

// The other ranks learn the reason from the coordinator, or see by themselves that it is gone.
void SocketRendezvous::refuse(Code code, int culprit, const std::string& reason) {
  if (is_coordinator()) announce(Error(code, reason, culprit));
  throw Error(code, reason, culprit);
}

std::unique_ptr<Rendezvous> meet_at(const std::string& name, const Endpoint& endpoint,
                                    const Watch& watch) {
  std::vector<Fd> sockets;
  if (endpoint.rank == 0) {
    sockets = assemble(MeetingPlace(name, base::now() + endpoint.timeout, watch), endpoint, watch);
  } else {
    sockets.push_back(attend(name, endpoint, watch));
  }
  return std::make_unique<SocketRendezvous>(endpoint, std::move(sockets), watch);
}

}  // namespace plait::comm::shm
