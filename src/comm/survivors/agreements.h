// Agreements of the ranks that are left when a group has failed, by messages.
//
// For each agreement the lowest rank that is not lost coordinates: the others send it what they
// bring, and it answers with what all have brought. A rank that gets an answer sends it on to all
// before it goes on, and so answers a coordinator that comes next. docs/design/0018 argues why all
// ranks that live get the same answer, and which of two halves of a network goes on.
#pragma once

#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "comm/core/group.h"
#include "comm/survivors/regrouping.h"

namespace plait::comm::tcp {

// How the ranks of a group reach each other, and what this one knows of them.
class AgreementMessages {
 public:
  AgreementMessages() = default;
  AgreementMessages(const AgreementMessages&) = delete;
  AgreementMessages& operator=(const AgreementMessages&) = delete;
  virtual ~AgreementMessages() = default;

  virtual void send_agreement(int peer, const std::string& text) noexcept = 0;

  // See Mesh.
  virtual std::uint64_t news() const = 0;
  virtual void move() noexcept = 0;
  virtual void sleep(base::Nanoseconds until, std::uint64_t seen) = 0;

  struct PeerState {
    bool is_lost;         // nothing comes from it any more, or goes to it
    bool is_only_chunks;  // the carrier of its chunks is lost, and the connection is there
    bool has_ended;       // its kernel has said so
    bool has_left;
  };
  virtual PeerState look_at(int peer) = 0;
  virtual void give_up_on(int peer) noexcept = 0;
};

class Agreements {
 public:
  Agreements(Group& group, AgreementMessages& messages);

  // A peer's message. False: it makes no sense.
  bool receive(int peer, const std::string& text);

  Regrouping::Parts agree(const std::string& mine, base::Nanoseconds patience);
  void withdraw() noexcept;

  // True if a peer has told that it calls survivors() or has given up: it makes no other calls of
  // the group any more.
  bool has_moved_on(int peer);
  void conclude() noexcept;

 private:
  struct Answer {
    int coordinator = 0;
    std::string refusal;  // empty: `parts` are the answer
    Regrouping::Parts parts;
  };

  struct Agreement {
    int least = 0;                        // answers of lower coordinators are not taken any more
    std::map<int, std::string> parts;     // by peer: sent to this rank as coordinator
    std::set<std::pair<int, int>> apart;  // of which one counts the other as lost, the lower first
    std::map<int, Answer> not_taken;      // by peer that sent it
    std::optional<Answer> answer;
  };

  struct Peer {
    bool is_lost = false;                        // takes part no more
    bool is_gone = false;                        // and can't be part of another group
    bool is_silent = false;                      // its host has not answered for too long
    bool was_told = false;                       // that this rank takes it for lost
    base::Nanoseconds without_chunks_since = 0;  // lost by the carrier alone; 0: it isn't
  };

  static std::string write(int number, const Answer& answer);
  static std::optional<Answer> read_answer(const std::vector<std::string_view>& lines, int world);

  void note_losses();
  bool may_still_close(int peer, const AgreementMessages::PeerState& state);
  void announce_cut_off();
  std::string list_silent() const;
  [[noreturn]] void refuse_left_out(const Answer& answer, base::Nanoseconds patience);
  int coordinator() const;
  bool follow(int coordinator);
  void decide(const std::string& mine, base::Nanoseconds since, base::Nanoseconds patience);
  Answer decision(const Agreement& agreement, const std::string& mine) const;
  void check_majority(Answer& answer) const;
  bool is_late(int peer, base::Nanoseconds since, base::Nanoseconds patience, int most) const;
  std::optional<Answer> taken();
  void announce_all(const std::string& text) noexcept;

  Group& group_;
  AgreementMessages& messages_;
  int number_ = 0;           // of the agreement that this rank is in; they count from 1
  std::vector<Peer> peers_;  // for the thread that agrees, as the number
  std::atomic<bool> is_concluded_{false};  // relaxed: nothing is read because of it

  std::mutex mutex_;  // for what follows; never held while messages are moved
  std::map<int, Agreement> agreements_;
  std::vector<bool> has_withdrawn_;
  std::vector<bool> has_cut_off_;  // takes this rank for lost
  // Indexed by peer and agreement: the last time at which it said that it takes part.
  std::vector<std::map<int, base::Nanoseconds>> joined_;
};

}  // namespace plait::comm::tcp
