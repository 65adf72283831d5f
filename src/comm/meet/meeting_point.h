// Words by which ranks describe themselves before they connect, told in another way that they have.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/fd.h"
#include "comm/meet/peer_info.h"

namespace plait::comm::tcp {

// A rank's description of itself, and a random number. Rank 0's number is a secret of the ranks of
// one start, and never sent.
struct Card {
  PeerInfo info;
  std::string secret;
};

std::string write_card(const PeerInfo& info);
std::optional<Card> read_card(std::string_view text);

// Rank 0's, for ranks that have another way to tell each other a few words, which must be trusted.
// Its port stays this process's: ranks may meet there again and again.
class MeetingPoint {
 public:
  MeetingPoint();
  const std::string& words() const { return words_; }  // for Site::meeting_point

 private:
  base::Fd port_;
  std::string words_;
};

}  // namespace plait::comm::tcp
