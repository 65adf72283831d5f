#include "comm/control/failure_frame.h"

#include <sys/socket.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "base/check.h"
#include "base/text.h"
#include "comm/control/address.h"
#include "comm/control/frame.h"

namespace plait::comm::tcp {
namespace {

// Every process numbers its groups and mailboxes from 1.
constexpr std::uint32_t kFirstGroup = 1;

constexpr std::size_t kMostSentence = std::size_t{64} << 10;

// More than a rank sends to a group that is not complete yet.
constexpr std::size_t kMostPeeked = std::size_t{64} << 10;

std::string peek(const base::Fd& socket, std::size_t most) {
  std::string bytes(most, '\0');
  const ssize_t came = ::recv(socket.get(), bytes.data(), most, MSG_PEEK | MSG_DONTWAIT);
  bytes.resize(came > 0 ? static_cast<std::size_t>(came) : 0);
  return bytes;
}

}  // namespace

std::string write(const Failure& failure) {
  return base::sentence(static_cast<int>(failure.code), ' ', failure.culprit, ' ',
                        failure.sentence.substr(0, kMostSentence));
}

std::optional<Failure> read_failure(const std::string& text) {
  const auto words = base::split(text, ' ');
  const auto code = words.size() < 3 ? std::nullopt : base::parse_int(words[0]);
  const auto culprit = words.size() < 3 ? std::nullopt : base::parse_int(words[1]);
  if (!code || !culprit || *code < 0 || *code > static_cast<int>(Code::system)) return std::nullopt;
  return Failure{.code = static_cast<Code>(*code),
                 .culprit = static_cast<int>(*culprit),
                 .sentence = text.substr(words[0].size() + words[1].size() + 2)};
}

void send_failure(const base::Fd& socket, const Failure& failure) {
  const std::string text = write(failure);
  const Frame frame = {.kind = Kind::failure, .receiver = kFirstGroup, .bytes = text.size()};
  std::size_t done = 0;
  send_rest(socket, std::string(reinterpret_cast<const char*>(&frame), sizeof(frame)) + text, done);
}

std::optional<Failure> find_failure(const base::Fd& socket) {
  std::string bytes = peek(socket, sizeof(Frame));
  if (bytes.size() == sizeof(Frame)) bytes = peek(socket, kMostPeeked);
  Frame frame = {.kind = Kind::question, .receiver = 0};
  for (std::size_t at = 0; bytes.size() - at >= sizeof(frame); at += frame.bytes) {
    std::memcpy(&frame, bytes.data() + at, sizeof(frame));
    at += sizeof(frame);
    if (frame.magic != Frame::kMagic || frame.bytes > bytes.size() - at) return std::nullopt;
    const bool is_failure =
        frame.kind == Kind::failure || frame.kind == Kind::report || frame.kind == Kind::abort;
    if (is_failure && frame.receiver == kFirstGroup)
      return read_failure(bytes.substr(at, frame.bytes));
  }
  return std::nullopt;
}

}  // namespace plait::comm::tcp
