#include "comm/meet/handshake.h"

#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/clock.h"
#include "base/cpus.h"
#include "base/env.h"
#include "base/hmac.h"
#include "base/host.h"
#include "base/random.h"
#include "base/text.h"
#include "comm/control/address.h"
#include "comm/core/build_name.h"
#include "comm/core/transport.h"

namespace plait::comm::tcp {

using base::sentence;

namespace {

constexpr std::uint32_t kMagic = 0x504c5448;  // "PLTH"
constexpr const char* kSecret = "secret";
constexpr const char* kOpen = "open";

struct Header {
  std::uint32_t magic = kMagic;
  MessageKind kind;
  std::uint32_t bytes;
};

bool is_shown(char c) { return c > ' ' && c <= '~'; }

bool is_nonce(std::string_view text) {
  constexpr std::size_t kDigits = 32;
  return text.size() == kDigits && std::all_of(text.begin(), text.end(), [](char c) {
           return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f');
         });
}

std::string or_unknown(const std::string& text) { return text.empty() ? kUnknown : text; }

std::string from_hex(const std::string& hex) {
  const auto digit = [](char c) { return c <= '9' ? c - '0' : c - 'a' + 10; };
  std::string bytes;
  for (std::size_t i = 0; i + 1 < hex.size(); i += 2)
    bytes += static_cast<char>(digit(hex[i]) << 4 | digit(hex[i + 1]));
  return bytes;
}

std::string name_of_host() {
  std::array<char, 256> name = {};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

}  // namespace

std::optional<Message> read_message(const base::Fd& socket, std::string& bytes, std::uint32_t most,
                                    bool& is_open) {
  for (;;) {
    Header header;
    std::size_t whole = sizeof(header);
    if (bytes.size() >= whole) {
      std::memcpy(&header, bytes.data(), sizeof(header));
      is_open =
          header.magic == kMagic && header.kind <= MessageKind::missing && header.bytes <= most;
      if (!is_open) return std::nullopt;
      whole += header.bytes;
      if (bytes.size() == whole) return Message{header.kind, bytes.substr(sizeof(header))};
    }
    std::array<char, 4096> buffer;
    const ssize_t came = ::recv(socket.get(), buffer.data(),
                                std::min(whole - bytes.size(), buffer.size()), MSG_DONTWAIT);
    if (came > 0) {
      bytes.append(buffer.data(), static_cast<std::size_t>(came));
    } else if (came == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
      is_open = false;
      return std::nullopt;
    } else {
      return std::nullopt;
    }
  }
}

std::string message_of(MessageKind kind, const std::string& text) {
  const Header header = {.kind = kind, .bytes = static_cast<std::uint32_t>(text.size())};
  return std::string(reinterpret_cast<const char*>(&header), sizeof(header)) + text;
}

bool send_message(const base::Fd& socket, MessageKind kind, const std::string& text) {
  const std::string message = message_of(kind, text);
  const base::Nanoseconds deadline = base::now() + base::kSecond;
  for (std::size_t done = 0; send_rest(socket, message, done);) {
    if (done == message.size()) return true;
    if (base::now() >= deadline) return false;
    pollfd one = {.fd = socket.get(), .events = POLLOUT, .revents = 0};
    ::poll(&one, 1, 10);
  }
  return false;
}

PeerInfo info_of_this_process(int port, const std::string& toward) {
  std::string hosts;
  for (const std::string& host : local_hosts(toward)) hosts += (hosts.empty() ? "" : ",") + host;
  return {.build = std::string(build_name()),
          .host = base::host_id(),
          .name = name_of_host(),
          .pid = std::to_string(::getpid()),
          .port = std::to_string(port),
          .cpus = base::to_hex(base::to_bytes(base::allowed_cpus())),
          .hosts = hosts,
          .interface = or_unknown(base::env("PLAIT_INTERFACE").value_or(""))};
}

std::string write(const PeerInfo& info) {
  return sentence(info.build, ' ', or_unknown(info.host), ' ', or_unknown(info.name), ' ', info.pid,
                  ' ', info.port, ' ', or_unknown(info.cpus), ' ', or_unknown(info.hosts), ' ',
                  info.interface, ' ', info.transport);
}

std::optional<PeerInfo> read_peer_info(std::string_view text) {
  const auto words = base::split(text, ' ');
  if (words.size() != 9) return std::nullopt;
  const auto word = [&](int i) { return std::string(words[i]); };
  return PeerInfo{word(0), word(1), word(2), word(3), word(4), word(5), word(6), word(7), word(8)};
}

cpu_set_t cpus_of(const PeerInfo& info) { return base::cpus_from_bytes(from_hex(info.cpus)); }

std::string build_in(std::string_view text) {
  const std::string_view word = text.substr(0, text.find(' '));
  const bool is_name = word.size() < text.size() && word.size() <= kLongestBuildName &&
                       std::all_of(word.begin(), word.end(), is_shown);
  return is_name ? std::string(word) : "";
}

// The info comes first, and in it the build: other builds can read that, whatever else differs.
std::string write(const Hello& hello) {
  return sentence(write(hello.info), '\n', hello.job, '\n', hello.rank, '\n', hello.to, '\n',
                  hello.world, '\n', hello.has_secret ? kSecret : kOpen, '\n', hello.nonce);
}

std::optional<Hello> read_hello(const std::string& text) {
  const auto lines = base::split(text, '\n');
  if (lines.size() != 7) return std::nullopt;
  auto info = read_peer_info(lines[0]);
  const auto rank = base::parse_int(lines[2]);
  const auto to = base::parse_int(lines[3]);
  const auto world = base::parse_int(lines[4]);
  if (!rank || !to || *to < 0 || *to > kMostRanks || !world || !info || *rank < 0 ||
      *rank >= *world || *world > kMostRanks)
    return std::nullopt;
  if ((lines[5] != kSecret && lines[5] != kOpen) || !is_nonce(lines[6])) return std::nullopt;
  return Hello{.job = std::string(lines[1]),
               .rank = static_cast<int>(*rank),
               .to = static_cast<int>(*to),
               .world = static_cast<int>(*world),
               .has_secret = lines[5] == kSecret,
               .nonce = std::string(lines[6]),
               .info = std::move(*info)};
}

Proofs prove(const std::string& key, const std::string& hello, const std::string& nonce) {
  const auto as = [&](const char* side) {
    return base::to_hex(base::hmac_sha256(key, sentence(side, '\n', nonce, '\n', hello)));
  };
  return {.listener = as("plait listener"), .caller = as("plait caller")};
}

std::string write(const Challenge& challenge) {
  return sentence(challenge.nonce, ' ', challenge.proof);
}

std::optional<Challenge> read_challenge(const std::string& text) {
  const auto words = base::split(text, ' ');
  if (words.size() != 2 || !is_nonce(words[0])) return std::nullopt;
  return Challenge{.nonce = std::string(words[0]), .proof = std::string(words[1])};
}

std::string printable(std::string_view text) {
  constexpr std::size_t kMost = 500;
  std::string shown(text.substr(0, kMost));
  std::replace_if(shown.begin(), shown.end(), [](char c) { return c != ' ' && !is_shown(c); }, '?');
  return shown;
}

}  // namespace plait::comm::tcp
