// The ranks of one start that meet, as far as one of them knows: which have come, what is known of
// each, and how they tell each other that the meeting has failed.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"
#include "comm/control/rendezvous.h"
#include "comm/meet/exit_probe.h"
#include "comm/meet/outgoing_handshake.h"
#include "comm/meet/peer_sockets.h"
#include "comm/meet/timeout_hints.h"
#include "plait/error.h"

namespace plait::comm::tcp {

struct Roster {
  // `rendezvous`: where all know rank 0; null where a caller's all-gather tells it.
  explicit Roster(Identity mine, std::optional<Rendezvous> rendezvous = std::nullopt);
  Roster(const Roster&) = delete;
  Roster& operator=(const Roster&) = delete;

  // This rank's description for the others.
  void set_info(PeerInfo info);

  std::vector<int> find_missing() const;
  bool is_complete() const { return find_missing().empty(); }

  // Says that another process than the one that has come calls itself this rank; null: none does.
  std::optional<Error> find_second_claim(int rank, const PeerInfo& info) const;

  // Says which ranks have not come within `timeout`, or where they could not be connected to once
  // all have told where they are, and what to check if no caller has given a reason for doubt.
  Error timed_out(base::Nanoseconds timeout) const;

  // Each rank passes on what it is told, since not all have a connection to the one that failed.
  void announce_error(const Error& error) const;
  void announce_interruption(int rank, const std::string& why) const;

  // For rank 0 until it has welcomed the others. Throws, and passes it on, where a rank has said
  // that it was interrupted. Answers ranks whose time is over: they ask which ranks are missing.
  void receive_waiting_ranks();

  // For rank 0 when it gives up: the others say the same about the missing ranks as it does.
  void announce_missing(const Error& why) const;

  // For a rank whose time is over and that waits for rank 0. False: it isn't connected to it.
  bool ask_for_missing(base::Nanoseconds timeout) const;

  // For ranks that connect to each other, or to rank 0 first. Throws if one of them has said why
  // the meeting fails, or has ended.
  void check_for_ended_ranks();

  Identity self;
  std::optional<Rendezvous> rendezvous;
  PeerSockets lines;
  std::vector<PeerInfo> infos;           // by rank: empty until the rank has been heard of
  std::vector<OutgoingHandshake> calls;  // to other ranks
  TimeoutHints hints;
  ExitProbe ends;

 private:
  bool knows_all_infos() const;
  std::string show_gone() const;
  std::string show_last_call(int rank) const;
  std::string advice() const;
  Error not_met(const Rendezvous& place, const std::string& within, const std::string& doubt) const;
  Error not_connected(const std::vector<int>& missing, const std::string& within,
                      const std::string& known) const;
  Error ended(int rank) const;
};

}  // namespace plait::comm::tcp
