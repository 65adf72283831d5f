#include "comm/meet/lines.h"

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

void Lines::set(int rank, base::Fd socket, Says says) {
  lines_[rank] = {.socket = std::move(socket), .says = says};
}

std::vector<base::Fd> Lines::take_all() {
  std::vector<base::Fd> sockets;
  sockets.reserve(lines_.size());
  for (Line& line : lines_) sockets.push_back(std::move(line.socket));
  return sockets;
}

void Lines::put_back(std::vector<base::Fd> sockets) {
  for (int rank = 0; rank < world(); ++rank) lines_[rank].socket = std::move(sockets[rank]);
}

void Lines::say_words(Word word, const std::string& text, int but) const {
  for (int rank = 0; rank < world(); ++rank) {
    if (rank != but) say_words_to(rank, word, text);
  }
}

void Lines::say_words_to(int rank, Word word, const std::string& text) const {
  const Line& line = lines_[rank];
  if (line.socket && line.says == Says::words) say(line.socket, word, text);
}

void Lines::say_frames(const Failure& failure) const {
  for (int rank = 0; rank < world(); ++rank) {
    const Line& line = lines_[rank];
    if (line.socket && line.says == Says::frames) send_failure(line.socket, failure);
  }
}

// One that hung up may call again.
void Lines::hear_words(Hear hear) {
  for (int rank = 1; rank < world(); ++rank) {
    Line& line = lines_[rank];
    if (!line.socket) continue;
    bool is_open = true;
    const auto message = read_message(line.socket, line.heard, kMostHelloBytes, is_open);
    if (!message) continue;
    line.heard.clear();
    hear(rank, *message);
  }
}

// Each rank takes its message when it can, and the others don't wait for it.
std::vector<int> Lines::send(MessageOf message_of, Nanoseconds deadline,
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
