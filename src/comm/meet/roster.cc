#include "comm/meet/roster.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "comm/control/address.h"
#include "comm/control/failure_frame.h"
#include "comm/core/group.h"
#include "comm/meet/peer_info.h"

namespace plait::comm::tcp {

using base::Nanoseconds;
using base::sentence;

namespace {

std::string answer_of(const Error& why) { return sentence(why.culprit(), ' ', why.what()); }

// The addresses at which the rank of `info` listens, as far as `mine` could reach it; a few
// addresses are enough.
std::string show_addresses(const PeerInfo& info, const PeerInfo& mine) {
  constexpr std::size_t kMost = 4;
  std::vector<std::string> hosts;
  for (const Address& address : addresses_of(info, mine)) {
    std::string host = show_host(address);
    if (std::find(hosts.begin(), hosts.end(), host) == hosts.end())
      hosts.push_back(std::move(host));
  }
  if (hosts.empty()) return info.hosts;
  std::string list;
  for (std::size_t i = 0; i < std::min(hosts.size(), kMost); ++i)
    list += (i == 0 ? "" : ", ") + hosts[i];
  if (hosts.size() > kMost) list += sentence(" and ", hosts.size() - kMost, " more");
  return list;
}

}  // namespace

Roster::Roster(Identity mine, std::optional<Rendezvous> place)
    : self(std::move(mine)),
      rendezvous(std::move(place)),
      lines(self.world),
      infos(self.world),
      ends(self.world, [this](int rank) { return addresses_of(infos[rank], self.info); }) {}

void Roster::set_info(PeerInfo info) {
  self.info = std::move(info);
  infos[self.rank] = self.info;
}

std::vector<int> Roster::find_missing() const {
  std::vector<int> missing;
  for (int rank = 0; rank < self.world; ++rank) {
    if (rank != self.rank && !lines.has(rank)) missing.push_back(rank);
  }
  return missing;
}

// A rank that calls again has closed its first connection.
std::optional<Error> Roster::find_second_claim(int rank, const PeerInfo& info) const {
  const PeerInfo& first = infos[rank];
  if (!lines.has(rank) || is_same_process(first, info) || is_closed_by_peer(lines[rank]))
    return std::nullopt;
  return Error(Code::mismatch,
               sentence("two processes (pid ", first.pid, " on ", first.name, " and pid ", info.pid,
                        " on ", info.name, ") claim rank ", rank, " of ", self.world),
               rank);
}

Error Roster::timed_out(Nanoseconds timeout) const {
  const std::vector<int> missing = find_missing();
  const std::string within = " within " + base::show_duration(timeout);
  const std::string known = hints.about(missing);
  if (knows_all_infos()) return not_connected(missing, within, known);
  const std::string why = known.empty() ? advice() : known;
  const std::string doubt = why.empty() ? "" : "; " + why;
  if (rendezvous && self.rank != 0) return not_met(*rendezvous, within, doubt);
  return {Code::timeout,
          sentence(missing.size() > 1 ? "ranks " : "rank ", base::show_list(missing), " of ",
                   self.world, show_hosts_of(missing, self.world),
                   missing.size() > 1 ? " have" : " has", " not come", within, show_gone(), doubt),
          missing.front()};
}

// Ranks that rank 0 has met, and that may never come again.
std::string Roster::show_gone() const {
  std::vector<int> gone;
  for (int rank = 0; rank < self.world; ++rank) {
    if (lines.has(rank) && is_closed_by_peer(lines[rank])) gone.push_back(rank);
  }
  if (gone.empty()) return "";
  return sentence(gone.size() > 1 ? ", and ranks " : ", and rank ", base::show_list(gone),
                  gone.size() > 1 ? " have" : " has", " come and gone");
}

std::string Roster::show_last_call(int rank) const {
  const auto call = std::find_if(calls.begin(), calls.end(), [rank](const OutgoingHandshake& one) {
    return one.rank() == rank;
  });
  return call == calls.end() || call->outcome().empty() ? "" : "; " + call->outcome();
}

// Advice for the user if ranks that meet at the rendezvous are missing.
std::string Roster::advice() const {
  const PeerInfo& info = self.info;
  if (!rendezvous || info.transport == kUnknown) return "";
  if (self.rank == 0) {
    return sentence("rank 0 uses the transport ", info.transport, " and listens on ", info.name,
                    " at port ", info.port,
                    ": check PLAIT_TRANSPORT and the address of rank 0 on the others");
  }
  return sentence("check that rank 0 runs there and uses the transport ", info.transport,
                  ", that no other program has this port and that no firewall closes it");
}

Error Roster::not_met(const Rendezvous& place, const std::string& within,
                      const std::string& doubt) const {
  return {
      Code::timeout,
      sentence("rank 0 of ", self.world, show_hosts_of({0}, self.world), " has not been met at ",
               place.host, ':', place.port, within, show_last_call(0), doubt),
      0};
}

bool Roster::knows_all_infos() const {
  return std::none_of(infos.begin(), infos.end(),
                      [](const PeerInfo& info) { return info.hosts.empty(); });
}

// These ranks are there. Of two ranks the higher one calls the lower one.
Error Roster::not_connected(const std::vector<int>& missing, const std::string& within,
                            const std::string& known) const {
  const int other = missing.front();
  const PeerInfo& listener = infos[std::min(other, self.rank)];
  const PeerInfo& caller = infos[std::max(other, self.rank)];
  return {Code::timeout,
          sentence(
              missing.size() > 1 ? "ranks " : "rank ", base::show_list(missing), " of ", self.world,
              show_hosts_of(missing, self.world), missing.size() > 1 ? " have" : " has",
              " started, and not connected to rank ", self.rank, within, "; rank ",
              std::min(other, self.rank), " listens on ", listener.name, " at port ", listener.port,
              " of ", show_addresses(listener, caller), show_last_call(other), "; ",
              known.empty() ? "check firewalls and PLAIT_INTERFACE, and that no rank is stopped"
                            : known),
          other};
}

void Roster::announce_error(const Error& error) const {
  Failure failure = failure_of(error);
  if (failure.culprit == Error::kNoRank) {
    failure.culprit = self.rank;
    failure.sentence = sentence("rank ", self.rank, " (pid ", self.info.pid, "): ", error.what());
  }
  lines.send_frames(failure);
}

// The others would wait for this rank until their deadlines. While they gather, rank 0 tells them,
// and any other rank tells rank 0.
void Roster::announce_interruption(int rank, const std::string& why) const {
  const std::string text = sentence(rank, ' ', why);
  lines.send_words(MessageKind::interrupted, text, rank);
  for (const OutgoingHandshake& call : calls)
    call.send_to_rank_0(MessageKind::interrupted, text, self);
  lines.send_frames({.code = Code::peer_lost, .culprit = rank, .sentence = why});
}

void Roster::receive_waiting_ranks() {
  lines.receive_words([&](int rank, const Message& message) {
    // The last rank may just have come; then the welcome is the answer.
    if (message.kind == MessageKind::missing && !is_complete()) {
      // It says how long it has waited, which may differ from what this rank waits.
      const auto timeout = base::parse_int(message.text);
      if (!timeout) return;
      const Error why = timed_out(*timeout);
      lines.send_words_to(rank, MessageKind::missing, answer_of(why));
    }
    if (message.kind != MessageKind::interrupted) return;
    const std::string why = printable(message.text.substr(message.text.find(' ') + 1));
    announce_interruption(rank, why);
    throw Error(Code::peer_lost, why, rank);
  });
}

void Roster::announce_missing(const Error& why) const {
  lines.send_words(MessageKind::missing, answer_of(why), self.rank);
}

bool Roster::ask_for_missing(Nanoseconds timeout) const {
  return std::any_of(calls.begin(), calls.end(), [&](const OutgoingHandshake& call) {
    return call.send_to_rank_0(MessageKind::missing, std::to_string(timeout), self);
  });
}

// A rank's last words before it closes its connection count, and a rank without a connection to
// this one has ended if it does not listen any more.
void Roster::check_for_ended_ranks() {
  for (const OutgoingHandshake& call : calls) {
    if (!rendezvous || !call.has_seen_the_end()) continue;
    throw Error(Code::peer_lost,
                sentence("rank 0 (pid ", call.process().pid, ", at ", rendezvous->host, ':',
                         rendezvous->port, ") has died or given up while the group was assembling"),
                call.rank());
  }
  for (int rank = 0; rank < self.world; ++rank) {
    if (!lines.has(rank)) continue;
    const bool is_closed = is_closed_by_peer(lines[rank]);
    if (const auto failure = find_failure(lines[rank]))
      throw Error(failure->code, printable(failure->sentence), failure->culprit);
    ends.note(rank, is_closed);
  }
  std::vector<int> awaited = find_missing();
  std::erase_if(awaited, [&](int rank) { return rank < self.rank || infos[rank].hosts.empty(); });
  ends.probe(awaited, self, hints);
  if (const auto rank = ends.find_ended()) throw ended(*rank);
}

// A rank whose connection was closed, or that listens no more on this host, has ended. If another
// host refuses connections, it may be one that has the same address, or a firewall may answer.
Error Roster::ended(int rank) const {
  const PeerInfo& info = infos[rank];
  if (lines.has(rank) || is_same_host(info, self.info)) {
    return {Code::peer_lost,
            sentence("rank ", rank, " (pid ", info.pid, " on ", info.name,
                     ") has died or given up while the group was assembling"),
            rank};
  }
  return {Code::timeout,
          sentence("rank ", self.rank, " can't connect to rank ", rank, " (pid ", info.pid, " on ",
                   info.name, "), which said that it listens at port ", info.port, " of ",
                   show_addresses(info, self.info),
                   ": connections there are refused; check PLAIT_INTERFACE and firewalls, and "
                   "whether rank ",
                   rank, " has ended"),
          rank};
}

}  // namespace plait::comm::tcp
