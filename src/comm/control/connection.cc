#include "comm/control/connection.h"

#include <linux/sockios.h>
#include <linux/tcp.h>
#include <netinet/in.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/uio.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "comm/control/address.h"

namespace plait::comm::tcp {
namespace {

// The kernel copies a frame's bytes while this rank could multiply: one call moves some, and the
// next call goes on.
constexpr std::size_t kMostBytesAtOnce = std::size_t{8} << 20;
constexpr std::size_t kMostParts = 64;

// How often a host must have been asked again in vain before it counts as lost.
constexpr unsigned kUnanswered = 2;

std::string reason(int error) { return std::strerror(error); }

}  // namespace

Connection::Connection(int process, base::Fd socket)
    : process_(process), socket_(std::move(socket)), end_() {}

std::string Connection::ends() const {
  if (!is_open()) return "";
  const std::string self = self_of(socket_);
  const std::string interface = interface_of(self);
  return self + (interface.empty() ? "" : " (" + interface + ')') + " to " + peer_of(socket_);
}

void Connection::close(const std::string& why) {
  if (!end_.empty()) return;
  end_ = why;
  ended_at_ = base::now();
  unsent_.clear();
  socket_.reset();
}

void Connection::queue(const Frame& frame, const std::byte* payload,
                       std::shared_ptr<const void> owner) {
  if (!end_.empty() || cannot_send_) return;
  // Messages of other ranks about a loss may still arrive there.
  if (!silence_.empty() && frame.kind == Kind::chunk) return;
  // A credit is sent before chunks that have not begun. Behind them it would arrive after all
  // chunks that this rank may send, and meanwhile the peer could send nothing.
  auto place = unsent_.end();
  if (frame.kind == Kind::credit) {
    place = std::find_if(unsent_.begin(), unsent_.end(), [](const Unsent& one) {
      return one.done == 0 && one.frame.kind == Kind::chunk;
    });
  }
  unsent_.insert(place, {frame, payload, std::move(owner), ++last_queued_});
}

bool Connection::is_flushed(std::uint64_t number) const {
  return std::none_of(unsent_.begin(), unsent_.end(),
                      [&](const Unsent& one) { return one.number <= number; });
}

void Connection::flush() {
  std::size_t moved = 0;
  while (!unsent_.empty() && end_.empty() && moved < kMostBytesAtOnce) {
    std::array<iovec, kMostParts> parts;
    std::size_t count = 0;
    std::size_t bytes = 0;
    for (Unsent& one : unsent_) {
      if (count + 2 > kMostParts) break;
      const std::size_t header_done = std::min(one.done, sizeof(Frame));
      const std::size_t payload_done = one.done - header_done;
      if (header_done < sizeof(Frame)) {
        parts[count++] = {reinterpret_cast<std::byte*>(&one.frame) + header_done,
                          sizeof(Frame) - header_done};
      }
      if (payload_done < one.frame.bytes) {
        parts[count++] = {const_cast<std::byte*>(one.payload) + payload_done,
                          one.frame.bytes - payload_done};
      }
      bytes += sizeof(Frame) + one.frame.bytes - one.done;
    }
    msghdr message = {};
    message.msg_iov = parts.data();
    message.msg_iovlen = count;
    const ssize_t sent = ::sendmsg(socket_.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
    if (sent < 0) {
      if (errno == EINTR) continue;
      if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS || errno == ENOMEM) return;
      // The kernel tells an error of the connection once: receive() would not hear of it.
      if (errno != EPIPE && errno != ECONNRESET) return close(reason(errno));
      // The peer may have sent a reason before it closed: receive() reads it, and then the end.
      cannot_send_ = true;
      return unsent_.clear();
    }
    note_sent(static_cast<std::size_t>(sent));
    moved += static_cast<std::size_t>(sent);
    if (static_cast<std::size_t>(sent) < bytes && count < kMostParts) return;  // no more room now
  }
}

void Connection::note_sent(std::size_t bytes) {
  while (bytes > 0) {
    Unsent& first = unsent_.front();
    const std::size_t part = std::min(bytes, sizeof(Frame) + first.frame.bytes - first.done);
    first.done += part;
    bytes -= part;
    if (first.done == sizeof(Frame) + first.frame.bytes) unsent_.pop_front();
  }
}

bool Connection::receive(const Find& find) {
  received_ = 0;
  has_whole_ = false;
  while (end_.empty() && received_ < kMostBytesAtOnce && read_some(find)) {
  }
  return has_whole_ || !end_.empty();
}

// Reads the rest of a large payload to where it belongs, and what comes after it into the buffer,
// in one call. True: there may be more.
bool Connection::read_some(const Find& find) {
  std::array<iovec, 2> parts;
  std::size_t count = 0;
  std::size_t direct = 0;
  if (std::byte* place = rest_of_place()) {
    direct = missing_payload();
    parts[count++] = {place, direct};
  }
  parts[count++] = {buffer_.data(), buffer_.size()};
  const ssize_t came = ::readv(socket_.get(), parts.data(), static_cast<int>(count));
  if (came < 0) {
    if (errno == EINTR) return true;
    is_closed_by_peer_ = errno == ECONNRESET;
    if (errno != EAGAIN && errno != EWOULDBLOCK) close(reason(errno));
    return false;
  }
  if (came == 0) {
    is_closed_by_peer_ = true;
    close("it was closed at the other end");
    return false;
  }
  const auto bytes = static_cast<std::size_t>(came);
  received_ += bytes;
  const std::size_t in_place = std::min(bytes, direct);
  incoming_.payload_bytes += in_place;
  if (in_place > 0 && missing_payload() == 0 && !finish_frame(find)) return false;
  take(buffer_.data(), bytes - in_place, find);
  return bytes == direct + buffer_.size();
}

// Null where the bytes that come next are a header, or the text of a short frame.
std::byte* Connection::rest_of_place() {
  const bool has_header = incoming_.header_bytes == sizeof(Frame);
  if (!has_header || incoming_.place == nullptr || missing_payload() == 0) return nullptr;
  return incoming_.place + incoming_.payload_bytes;
}

void Connection::take(const std::byte* bytes, std::size_t count, const Find& find) {
  while (count > 0 && end_.empty()) {
    std::size_t part = 0;
    if (incoming_.header_bytes < sizeof(Frame)) {
      part = std::min(count, sizeof(Frame) - incoming_.header_bytes);
      std::memcpy(reinterpret_cast<std::byte*>(&incoming_.frame) + incoming_.header_bytes, bytes,
                  part);
      incoming_.header_bytes += part;
      if (incoming_.header_bytes == sizeof(Frame) && !begin_payload(find)) return;
    } else {
      part = std::min(count, static_cast<std::size_t>(missing_payload()));
      if (incoming_.place != nullptr) {
        std::memcpy(incoming_.place + incoming_.payload_bytes, bytes, part);
      } else if (!incoming_.is_unwanted) {
        incoming_.text.append(reinterpret_cast<const char*>(bytes), part);
      }
      incoming_.payload_bytes += part;
    }
    bytes += part;
    count -= part;
    const bool is_whole = incoming_.header_bytes == sizeof(Frame) && missing_payload() == 0;
    if (is_whole && !finish_frame(find)) return;
  }
}

bool Connection::begin_payload(const Find& find) {
  const Frame& frame = incoming_.frame;
  if (frame.magic != Frame::kMagic || frame.kind > kLastKind ||
      (frame.kind != Kind::chunk && frame.bytes > kMostTextBytes)) {
    close("what came over it was no frame of plait's");
    return false;
  }
  Receiver* receiver = find(frame.receiver);
  incoming_.is_unwanted = receiver == nullptr;
  if (receiver == nullptr || frame.kind != Kind::chunk) return true;
  incoming_.place = receiver->place_for(process_, frame);
  if (incoming_.place != nullptr) return true;
  close("a chunk came over it for which there was no room");
  return false;
}

// The receiver may have gone since the frame began.
bool Connection::finish_frame(const Find& find) {
  has_whole_ = true;
  Incoming whole = std::exchange(incoming_, {});
  Receiver* receiver = whole.is_unwanted ? nullptr : find(whole.frame.receiver);
  if (whole.frame.kind == Kind::farewell) {
    // The peer waits until its farewell is acknowledged; the kernel would take its time.
    const int on = 1;
    ::setsockopt(socket_.get(), IPPROTO_TCP, TCP_QUICKACK, &on, sizeof(on));
  }
  if (receiver == nullptr || receiver->receive(process_, whole.frame, std::move(whole.text)))
    return true;
  close("what came over it made no sense to its receiver");
  return false;
}

void Connection::forget(std::uint32_t receiver) {
  if (incoming_.header_bytes < sizeof(Frame) || incoming_.frame.receiver != receiver) return;
  incoming_.place = nullptr;
  incoming_.is_unwanted = true;
}

// The kernel's own timeout for data would also end a connection whose other end is alive but does
// not read for a while, as a rank that multiplies. The difference is whether the other kernel
// answers. On an idle connection it has nothing to answer, so plait sends a frame, which the kernel
// repeats like all data: sooner and more often than it sends its own probes.
void Connection::check_host(base::Nanoseconds lost_after) {
  if (!loss().empty()) return;
  tcp_info info = {};
  socklen_t length = sizeof(info);
  if (::getsockopt(socket_.get(), IPPROTO_TCP, TCP_INFO, &info, &length) != 0) return;
  const std::uint32_t silence = std::min(info.tcpi_last_ack_recv, info.tcpi_last_data_recv);
  const auto longest = static_cast<std::uint32_t>(lost_after / base::kMillisecond);
  const bool was_asked = info.tcpi_retransmits >= kUnanswered || info.tcpi_probes >= kUnanswered;
  if (was_asked && silence >= longest) {
    silence_ = base::sentence("its host has not answered for ", silence, " ms");
    std::erase_if(unsent_,
                  [](const Unsent& one) { return one.done == 0 && one.frame.kind == Kind::chunk; });
    return;
  }
  if (silence < longest / 4 || info.tcpi_unacked > 0 || has_unsent()) return;
  queue({.kind = Kind::question, .receiver = 0}, nullptr, nullptr);
  flush();
}

bool Connection::is_delivered() const {
  if (!loss().empty() || cannot_send_) return true;
  int in_flight = 0;
  return unsent_.empty() && (::ioctl(socket_.get(), SIOCOUTQ, &in_flight) != 0 || in_flight == 0);
}

}  // namespace plait::comm::tcp
