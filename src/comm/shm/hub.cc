#include "comm/shm/hub.h"

#include <unistd.h>

#include <algorithm>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"
#include "base/function_ref.h"
#include "base/host.h"
#include "base/process.h"
#include "base/text.h"
#include "comm/group.h"
#include "comm/interruption.h"

namespace plait::comm::shm {

using base::Delivery;
using base::Fd;
using base::Message;
using base::Nanoseconds;
using base::sentence;

namespace {

// Before a message's bytes, so that none looks like a failure.
constexpr char kData = '+';
constexpr Nanoseconds kGrace =
    base::kSecond;  // the others wait longer than the centre, to hear its verdict
constexpr Nanoseconds kBetweenLooks = 20 * base::kMillisecond;
constexpr unsigned kUntilTaken = 500;  // microseconds
constexpr Nanoseconds kUnderWay = 100 * base::kMillisecond;

void look(const Rendezvous::Watch& watch, int peer) {
  if (watch) watch(peer);
}

// The centre sends what all have brought to one rank after another, and the first to hear of it may
// have ended the group before the last does. To the others a refusal counts when nothing has come
// for a while after it: a meeting that took place took place for all.
class PatientWatch {
 public:
  PatientWatch(const Rendezvous::Watch& watch, bool is_centre)
      : watch_(watch), patience_(is_centre ? 0 : kUnderWay) {}

  void look(int peer) {
    try {
      shm::look(watch_, peer);
    } catch (const Error&) {
      if (interruption_.has_come()) throw;
      const Nanoseconds now = base::now();
      if (refused_at_ == 0) refused_at_ = now;
      if (now - refused_at_ >= patience_) throw;
    }
  }

 private:
  const Rendezvous::Watch& watch_;
  Nanoseconds patience_;
  Nanoseconds refused_at_ = 0;
  Interruption interruption_;
};

// The sockets of a process close a moment before it has ended. The rank that tells of its death
// waits for that: the others, which see only the teller leave, would blame the teller.
void await_end(base::FunctionRef<bool()> ended) {
  const Nanoseconds deadline = base::now() + 50 * base::kMillisecond;
  while (!ended() && base::now() < deadline) ::usleep(500);
}

// What pids and starts of this process mean something in: two pid namespaces have the same pids.
std::string realm_of_pids() {
  return sentence(base::namespace_id("pid"), ' ', base::namespace_id("time"));
}

Hub::Star star_of(std::vector<Fd> sockets, int world) {
  std::vector<int> lines(world);
  std::iota(lines.begin(), lines.end(), 0);
  return {.connections = std::make_shared<Connections>(std::move(sockets)),
          .channel = Connections::kFirst,
          .lines = std::move(lines)};
}

std::string introduce_process() {
  return sentence(::getpid(), ' ', base::start_of(::getpid()), ' ', realm_of_pids());
}

Lives::Process process_behind(const std::string& introduction) {
  const auto words = base::split(introduction, ' ');
  const auto number = [&](std::size_t word) {
    return words.size() > word ? base::parse_int(words[word]).value_or(0) : 0;
  };
  return {.pid = static_cast<pid_t>(number(0)),
          .start = static_cast<std::uint64_t>(number(1)),
          .visible = number(1) != 0 && introduction.ends_with(' ' + realm_of_pids())};
}

}  // namespace

template <class F>
auto Hub::telling_all(F&& f) {
  const Interruption interruption;
  try {
    return f();
  } catch (const Error& error) {
    if (interruption.has_come() || error.code() != Code::system) throw;
    tell_and_raise(error);
  }
}

Hub::Hub(const Seat& seat, std::vector<Fd> sockets, const Watch& watch)
    : seat_(seat), star_(star_of(std::move(sockets), seat.world)), numbers_(star_.lines) {
  lives_ = telling_all([&] { return meet_as_processes(watch); });
}

std::shared_ptr<const Lives> Hub::meet_as_processes(const Watch& watch) {
  Message mine = {.bytes = introduce_process(), .fd = Fd()};
  if (is_centre()) mine.fd = base::make_anonymous_file("plait", seat_.world);
  auto all = meet(std::move(mine), watch);
  std::vector<Lives::Process> processes;
  processes.reserve(all.size());
  for (const Message& one : all) processes.push_back(process_behind(one.bytes));
  auto lives = std::make_shared<Lives>(base::LifeFile(std::move(all[0].fd)), std::move(processes));
  lives->file.lock(rank());
  // No rank asks whether a process lives before that process has locked its place.
  meet({.bytes = "locked", .fd = Fd()}, watch);
  return lives;
}

Hub::Hub(Seat seat, Star star, std::shared_ptr<const Lives> lives, std::vector<int> numbers)
    : seat_(std::move(seat)),
      star_(std::move(star)),
      centre_(static_cast<int>(std::find(star_.lines.begin(), star_.lines.end(), 0) -
                               star_.lines.begin())),
      lives_(std::move(lives)),
      numbers_(std::move(numbers)) {}

Hub::~Hub() {
  try {
    std::vector<int> lines;
    for (const int peer : neighbours()) lines.push_back(star_.lines[peer]);
    star_.connections->close(star_.channel, lines);
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): no memory to tell them
  }
}

std::vector<int> Hub::neighbours() const {
  if (!is_centre()) return {centre_};
  std::vector<int> all;
  for (int peer = 0; peer < world(); ++peer) {
    if (peer != rank()) all.push_back(peer);
  }
  return all;
}

pid_t Hub::pid_of(int peer) const {
  return lives_ == nullptr ? 0 : lives_->processes[numbers_[peer]].pid;
}

bool Hub::has_ended(int peer) const {
  if (lives_ == nullptr) return false;
  const int number = numbers_[peer];
  if (const auto lives = lives_->file.is_locked(number)) return !*lives;
  const Lives::Process& process = lives_->processes[number];
  return process.visible && base::has_ended(Fd(), process.pid, process.start);
}

std::string Hub::describe(int peer) const {
  const pid_t pid = pid_of(peer);
  if (pid == 0) return "its pid is not known yet";
  const std::string state = base::state_of(pid);
  return sentence("pid ", pid, state.empty() || state == "dead" ? "" : ", ",
                  state == "dead" ? "" : state);
}

std::vector<std::string> Hub::all_gather(const std::string& mine, const Watch& watch) {
  return telling_all([&] {
    std::vector<std::string> all;
    for (Message& message : meet({mine, Fd()}, watch)) all.push_back(std::move(message.bytes));
    return all;
  });
}

std::vector<base::Region> Hub::share(std::size_t bytes, const std::string& purpose,
                                     const Watch& watch) {
  return telling_all([&] {
    const auto all = meet({purpose, base::make_anonymous_file("plait", bytes)}, watch);
    std::vector<base::Region> regions;
    for (int peer = 0; peer < world(); ++peer) {
      if (all[peer].bytes != purpose) look(watch, rank());  // it may know which calls these are
      check_same_purpose(rank(), purpose, peer, all[peer].bytes);
      regions.push_back(base::Region::map(all[peer].fd, bytes, sentence("rank ", peer)));
    }
    return regions;
  });
}

Seat Hub::seat_among(const std::vector<int>& members) const {
  const auto me = std::find(members.begin(), members.end(), rank()) - members.begin();
  return {.rank = static_cast<int>(me),
          .world = static_cast<int>(members.size()),
          .timeout = seat_.timeout,
          .in_group = true};
}

std::vector<int> Hub::numbers_of(const std::vector<int>& members) const {
  std::vector<int> numbers;
  numbers.reserve(members.size());
  for (const int member : members) numbers.push_back(numbers_[member]);
  return numbers;
}

// Ranks that are in no group together with the centre meet where the first of them listens.
std::unique_ptr<Rendezvous> Hub::subgroup(const std::vector<int>& members, const Watch& watch) {
  const bool shares = std::find(members.begin(), members.end(), centre_) != members.end();
  const bool leads = !shares && !members.empty() && members.front() == rank();
  std::string mine;
  std::optional<MeetingPlace> place;
  if (leads) {
    mine = make_secret_name();
    // Listening before the name is known, so that no rank calls in vain.
    place.emplace(mine, base::now() + seat_.timeout);
  } else if (shares && is_centre()) {
    mine = std::to_string(star_.connections->make_channel());
  }
  const auto all = all_gather(mine, watch);
  if (members.empty()) return nullptr;
  if (!shares) return meet_members(members, all[members.front()], std::move(place), watch);
  const auto channel = base::parse_int(all[centre_]);
  if (!channel) {
    look(watch, rank());  // it may know which calls these are
    throw Error(Code::mismatch, sentence("rank ", centre_, " is splitting no group"), centre_);
  }
  Star star = {.connections = star_.connections,
               .channel = static_cast<Connections::Channel>(*channel),
               .lines = {}};
  for (const int member : members) star.lines.push_back(star_.lines[member]);
  return std::make_unique<Hub>(seat_among(members), std::move(star), lives_, numbers_of(members));
}

std::unique_ptr<Rendezvous> Hub::regroup(const std::vector<int>& members,
                                         Regrouping::Exchange exchange, const Watch& watch) {
  const bool leads = members.front() == rank();
  const std::string name = leads ? make_secret_name() : "";
  std::optional<MeetingPlace> place;
  if (leads) place.emplace(name, base::now() + seat_.timeout);
  return meet_members(members, exchange(name).front(), std::move(place), watch);
}

std::unique_ptr<Rendezvous> Hub::meet_members(const std::vector<int>& members,
                                              const std::string& name,
                                              std::optional<MeetingPlace> place,
                                              const Watch& watch) {
  const Seat seat = seat_among(members);
  const Interruption interruption;
  try {
    const Watch from_here = [&](int member) { look(watch, members[member]); };
    std::vector<Fd> sockets;
    if (place) {
      sockets = assemble(std::move(*place), seat, from_here);
    } else {
      sockets.push_back(attend(name, seat, from_here));
    }
    return std::make_unique<Hub>(seat, star_of(std::move(sockets), seat.world), lives_,
                                 numbers_of(members));
  } catch (const Error& error) {
    if (interruption.has_come()) throw;
    await_end([&] {
      look(watch, rank());  // throws what the whole group knows of it
      return error.code() != Code::peer_lost;
    });
    throw seen_from_parent(error, members);
  }
}

// If the system refuses something to one rank, the centre hears of it and tells all ranks, which
// would otherwise take that rank for lost. An error that blames a rank has come from another rank,
// or is known to all.
void Hub::tell_and_raise(const Error& error) {
  if (error.culprit() != Error::kNobody) {
    if (is_centre()) tell(error);
    throw;
  }
  const std::string what = sentence("rank ", rank(), " (pid ", ::getpid(), "): ", error.what());
  tell(Error(Code::system, what, rank()));
  if (!is_centre()) await_verdict();
  throw Error(Code::system, what, rank());
}

// The rank to blame hears last: once it hears it may go, and no other is to miss it before.
void Hub::tell(const Error& error) noexcept try {
  const std::string message = encode_failure(error);
  std::vector<int> peers = neighbours();
  std::stable_partition(peers.begin(), peers.end(),
                        [&](int peer) { return peer != error.culprit(); });
  for (const int peer : peers) {
    star_.connections->send(star_.channel, star_.lines[peer], message, Fd());
  }
} catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): can't be told nor helped
}

// Stays until the centre has told all: a rank that saw this one end before would not wait for the
// reason.
void Hub::await_verdict() noexcept {
  const Nanoseconds deadline = base::now() + kGrace;
  while (base::now() < deadline) {
    try {
      Message message;
      const Delivery delivery = receive_now(centre_, message);
      if (delivery == Delivery::closed || is_failure(message.bytes)) return;
      if (delivery == Delivery::not_yet) wait_readable({centre_}, kBetweenLooks);
    } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): a message that had no room
    }
  }
}

std::vector<Message> Hub::meet(Message mine, const Watch& watch) {
  mine.bytes.insert(mine.bytes.begin(), kData);
  std::vector<Message> all;
  if (is_centre()) {
    all = collect_and_spread(std::move(mine), watch);
  } else {
    const Nanoseconds deadline = base::now() + seat_.timeout + kGrace;
    send(centre_, mine, deadline, watch);
    while (static_cast<int>(all.size()) < world()) all.push_back(receive(centre_, deadline, watch));
  }
  for (Message& message : all) message.bytes.erase(0, 1);
  return all;
}

// Messages are taken in whatever order they come: the user may have only so many descriptors on
// their way, so that one rank's message may wait until another's has been taken.
std::vector<Message> Hub::collect_and_spread(Message mine, const Watch& watch) {
  const Nanoseconds deadline = base::now() + seat_.timeout;
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

// Whether a message has come.
bool Hub::take(int from, Message& message, const Watch& watch) {
  const Delivery delivery = receive_now(from, message);
  if (delivery == Delivery::closed) lose(from, watch);
  if (delivery != Delivery::done) return false;
  if (is_failure(message.bytes)) raise_failure(message.bytes);
  return true;
}

// A little, for a message from one of them; the first is made known as the one that is waited for.
void Hub::await(const std::vector<int>& peers, Nanoseconds deadline, const Watch& watch) {
  look(watch, peers.front());
  const Nanoseconds now = base::now();
  if (now >= deadline) {
    refuse(Code::timeout, peers.front(),
           sentence("rank ", peers.front(), " has not joined the others within ",
                    base::show_duration(seat_.timeout), " (", describe(peers.front()), ")"));
  }
  wait_readable(peers, std::min(deadline - now, kBetweenLooks));
}

Delivery Hub::receive_now(int from, Message& message) {
  return star_.connections->receive(star_.channel, star_.lines[from], message);
}

// Another thread of this rank may take the message that is waited for, so never for long.
void Hub::wait_readable(const std::vector<int>& peers, Nanoseconds longest) {
  std::vector<const Fd*> sockets;
  sockets.reserve(peers.size());
  for (const int peer : peers) {
    sockets.push_back(&star_.connections->socket(star_.lines[peer]));
  }
  base::wait_readable(sockets, std::min(longest, kBetweenLooks));
}

Message Hub::receive(int from, Nanoseconds deadline, const Watch& watch) {
  PatientWatch patient(watch, is_centre());
  Message message;
  const Watch patiently = [&](int peer) { patient.look(peer); };
  while (!take(from, message, watch)) await({from}, deadline, patiently);
  return message;
}

void Hub::send(int to, const Message& message, Nanoseconds deadline, const Watch& watch) {
  for (;;) {
    const Delivery delivery =
        star_.connections->send(star_.channel, star_.lines[to], message.bytes, message.fd);
    if (delivery == Delivery::done) return;
    if (delivery == Delivery::closed) hear_verdict();
    look(watch, to);
    if (delivery == Delivery::closed) lose(to, watch);
    const bool throttled = delivery == Delivery::too_many_on_their_way;
    const Nanoseconds now = base::now();
    if (now >= deadline) {
      const std::string why = throttled ? "; too many descriptors of this user are on their way, "
                                          "for its limit of open files"
                                        : "";
      refuse(Code::timeout, to,
             sentence("rank ", to, " has taken nothing for ", base::show_duration(seat_.timeout),
                      " (", describe(to), ')', why));
    }
    if (throttled) {
      ::usleep(kUntilTaken);
    } else {
      base::wait_writable(star_.connections->socket(star_.lines[to]),
                          std::min(deadline - now, kBetweenLooks));
    }
  }
}

// A centre that has given up has said why before it went.
void Hub::hear_verdict() {
  Message message;
  while (!is_centre() && receive_now(centre_, message) == Delivery::done) {
    if (is_failure(message.bytes)) raise_failure(message.bytes);
  }
}

// Nothing can come any more, so that the group may know of a death at once.
void Hub::lose(int peer, const Watch& watch) {
  await_end([&] {
    look(watch, peer);
    return has_ended(peer);
  });
  look(watch, peer);
  refuse(Code::peer_lost, peer,
         sentence("rank ", peer, " (", describe(peer), ") has ",
                  has_ended(peer) ? "died or left" : "left or closed its connection"));
}

// The centre knows; the others hear from it, or know by themselves that it is gone.
void Hub::refuse(Code code, int culprit, const std::string& reason) {
  if (is_centre()) tell(Error(code, reason, culprit));
  throw Error(code, reason, culprit);
}

std::unique_ptr<Rendezvous> meet_at(const std::string& name, const Seat& seat, const Watch& watch) {
  std::vector<Fd> sockets;
  if (seat.rank == 0) {
    sockets = assemble(MeetingPlace(name, base::now() + seat.timeout, watch), seat, watch);
  } else {
    sockets.push_back(attend(name, seat, watch));
  }
  return std::make_unique<Hub>(seat, std::move(sockets), watch);
}

}  // namespace plait::comm::shm
