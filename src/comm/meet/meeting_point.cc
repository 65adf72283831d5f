#include "comm/meet/meeting_point.h"

#include <utility>

#include "base/random.h"
#include "comm/control/address.h"
#include "comm/meet/handshake.h"

namespace plait::comm::tcp {

std::string write_card(const PeerInfo& info) { return write(info) + ' ' + base::random_name(); }

std::optional<Card> read_card(std::string_view text) {
  const std::size_t blank = text.rfind(' ');
  auto info = blank == text.npos ? std::nullopt : read_peer_info(text.substr(0, blank));
  if (!info) return std::nullopt;
  return Card{.info = std::move(*info), .secret = std::string(text.substr(blank + 1))};
}

MeetingPoint::MeetingPoint()
    : port_(reserve_port()), words_(write_card(info_of_this_process(port_of(port_)))) {}

}  // namespace plait::comm::tcp
