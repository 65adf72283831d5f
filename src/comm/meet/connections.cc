#include "comm/meet/connections.h"

#include <cstring>
#include <exception>

namespace plait::comm::shm {

using base::Delivery;
using base::Fd;
using base::Message;

namespace {

// A message is the number of its channel and one of these, followed by its bytes if it has any.
constexpr char kBytes = '+';
constexpr char kLeft = '-';
constexpr std::size_t kHeader = sizeof(Connections::Channel) + 1;

std::string write(Connections::Channel channel, char kind, const std::string& bytes) {
  std::string text(sizeof(channel), '\0');
  std::memcpy(text.data(), &channel, sizeof(channel));
  return text + kind + bytes;
}

Connections::Channel channel_of(const std::string& text) {
  Connections::Channel channel = 0;
  std::memcpy(&channel, text.data(), sizeof(channel));
  return channel;
}

}  // namespace

Connections::Channel Connections::make_channel() {
  const std::lock_guard alone(mutex_);
  return ++made_;
}

Delivery Connections::send(Channel channel, int line, const std::string& bytes, const Fd& fd) {
  const std::lock_guard alone(mutex_);
  send_notices();
  if (left_.contains({line, channel})) return Delivery::closed;
  return base::send_message(sockets_[line], write(channel, kBytes, bytes), fd);
}

Delivery Connections::receive(Channel channel, int line, Message& message) {
  const std::lock_guard alone(mutex_);
  send_notices();
  const End end = {.line = line, .channel = channel};
  auto kept = kept_.find(end);
  while (kept == kept_.end() && take_one(line)) kept = kept_.find(end);
  if (kept == kept_.end()) {
    return broken_.contains(line) || left_.contains(end) ? Delivery::closed : Delivery::not_yet;
  }
  KeptMessage first = std::move(kept->second.front());
  kept->second.pop_front();
  if (kept->second.empty()) kept_.erase(kept);
  if (first.lost) throw Error(*first.lost);
  message = std::move(first.message);
  return Delivery::done;
}

// Two sides that close many channels at once make room for each other's notices.
void Connections::close(Channel channel, const std::vector<int>& lines) noexcept {
  if (fork_guard_.in_child()) return;
  try {
    const std::lock_guard alone(mutex_);
    for (const int line : lines) {
      const End end = {.line = line, .channel = channel};
      kept_.erase(end);
      if (left_.erase(end) == 0) over_.insert(end);
      notices_.push_back(end);
    }
    send_notices();
    if (notices_.empty()) return;
    for (const int line : lines) {
      while (take_one(line)) {
      }
    }
    send_notices();
  } catch (const std::exception&) {  // NOLINT(bugprone-empty-catch): can't be told nor helped
  }
}

bool Connections::take_one(int line) {
  if (broken_.contains(line)) return false;
  KeptMessage kept;
  try {
    switch (base::receive_message(sockets_[line], kept.message)) {
      case Delivery::done:
        break;
      case Delivery::closed:
        broken_.insert(line);
        return false;
      default:
        return false;
    }
  } catch (const Error& error) {
    if (kept.message.bytes.empty()) throw;
    kept.lost = error;
  }
  keep(line, std::move(kept));
  return true;
}

void Connections::keep(int line, KeptMessage kept) {
  std::string& bytes = kept.message.bytes;
  if (bytes.size() < kHeader) return;
  const End end = {.line = line, .channel = channel_of(bytes)};
  if (bytes[kHeader - 1] == kLeft) {  // the channel's last message
    if (over_.erase(end) == 0) left_.insert(end);
    return;
  }
  if (over_.contains(end)) return;
  bytes.erase(0, kHeader);
  kept_[end].push_back(std::move(kept));
}

void Connections::send_notices() noexcept {
  const auto is_settled = [&](const End& end) {
    try {
      const std::string notice = write(end.channel, kLeft, "");
      return base::send_message(sockets_[end.line], notice, Fd()) != Delivery::not_yet;
    } catch (const std::exception&) {  // the host program has closed the socket
      return true;
    }
  };
  std::erase_if(notices_, is_settled);
}

}  // namespace plait::comm::shm
