#include "comm/meet/peer_sockets.h"

#include <poll.h>

#include <numeric>
#include <utility>

#include "comm/control/address.h"
#include "comm/control/failure_frame.h"
#include "comm/core/deadline.h"

namespace plait::comm::tcp {

using base::Nanoseconds;

namespace {

constexpr Nanoseconds kTurn = 10 * base::kMillisecond;

}  // namespace

void PeerSockets::set(int rank, base::Fd socket, Says says) {
  lines_[rank] = {.socket = std::move(socket), .says = says};
}

std::vector<base::Fd> PeerSockets::take_all() {
  std::vector<base::Fd> sockets;
  sockets.reserve(lines_.size());
  for (Line& line : lines_) sockets.push_back(std::move(line.socket));
  return sockets;
}

void PeerSockets::put_back(std::vector<base::Fd> sockets) {
  for (int rank = 0; rank < world(); ++rank) lines_[rank].socket = std::move(sockets[rank]);
}

void PeerSockets::send_words(MessageKind kind, const std::string& text, int but) const {
  for (int rank = 0; rank < world(); ++rank) {
    if (rank != but) send_words_to(rank, kind, text);
  }
}

void PeerSockets::send_words_to(int rank, MessageKind kind, const std::string& text) const {
  const Line& line = lines_[rank];
  if (line.socket && line.says == Says::words) send_message(line.socket, kind, text);
}

void PeerSockets::send_frames(const Failure& failure) const {
  for (int rank = 0; rank < world(); ++rank) {
    const Line& line = lines_[rank];
    if (line.socket && line.says == Says::frames) send_failure(line.socket, failure);
  }
}

// One that hung up may call again.
void PeerSockets::receive_words(Take take) {
  for (int rank = 1; rank < world(); ++rank) {
    Line& line = lines_[rank];
    if (!line.socket) continue;
    bool is_open = true;
    const auto message = read_message(line.socket, line.heard, kMostHelloBytes, is_open);
    if (!message) continue;
    line.heard.clear();
    take(rank, *message);
  }
}

// Each rank takes its message when it can, and the others don't wait for it.
std::vector<int> PeerSockets::send(MessageOf message_of, Nanoseconds deadline,
                                   base::FunctionRef<void()> turn) {
  std::vector<std::size_t> done(lines_.size());
  std::vector<int> busy(lines_.size() - 1);
  std::iota(busy.begin(), busy.end(), 1);
  Deadline until(deadline - base::now());
  for (;;) {
    std::erase_if(busy, [&](int rank) {
      Line& line = lines_[rank];
      const std::string& message = message_of(rank);
      const bool is_open = send_rest(line.socket, message, done[rank]);
      const bool is_whole = done[rank] == message.size();
      if (done[rank] > 0) line.says = is_whole ? Says::frames : Says::nothing;
      return !is_open || is_whole;
    });
    if (busy.empty() || until.is_over()) return busy;
    turn();
    std::vector<pollfd> asked;
    asked.reserve(busy.size());
    for (const int rank : busy)
      asked.push_back({.fd = lines_[rank].socket.get(), .events = POLLOUT, .revents = 0});
    ::poll(asked.data(), asked.size(), static_cast<int>(kTurn / base::kMillisecond));
  }
}

}  // namespace plait::comm::tcp
