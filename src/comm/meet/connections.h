// The sockets between rank 0 of a group and its other ranks. The groups that are split off it and
// have rank 0 among them use the same sockets, each through a channel of its own.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/process.h"
#include "base/socket.h"
#include "plait/error.h"

namespace plait::comm::shm {

// Threads may use different channels at the same time.
//
// Synchronization: the sockets never change, and one mutex guards everything else. A thread that
// takes a message of another channel from a socket keeps it for that channel under the mutex, so
// the messages of a channel are returned in the order in which its peer sent them. The thread that
// they are for may sleep in a poll of the socket meanwhile, and nothing wakes it. So it polls for
// a short time only, and then asks again.
class Connections {
 public:
  using Channel = std::uint64_t;
  static constexpr Channel kFirst = 0;  // exists from the beginning

  // Indexed by line: rank 0 has a line to each other rank, under the rank's number, and the others
  // have line 0, to rank 0.
  explicit Connections(std::vector<base::Fd> sockets) : sockets_(std::move(sockets)) {}

  // For rank 0 alone, which tells the number to the ranks that share the new channel.
  Channel make_channel();

  // These have the contracts of base::send_message() and base::receive_message(), for messages that
  // are shorter by a header of 9 bytes. A channel that the other side has closed is received as
  // `closed` after its last message.
  base::Delivery send(Channel channel, int line, const std::string& bytes, const base::Fd& fd);
  base::Delivery receive(Channel channel, int line, base::Message& message);

  // For waits; what can be read there may belong to another channel.
  const base::Fd& socket(int line) const { return sockets_[line]; }

  // This side doesn't use the channel any more; the other ends of `lines` are told. A notice for
  // which a socket has no room is sent when this side next uses one.
  void close(Channel channel, const std::vector<int>& lines) noexcept;

 private:
  struct KeptMessage {
    base::Message message;
    std::optional<Error> lost;  // why its descriptor is missing
  };
  struct End {
    int line;
    Channel channel;
    auto operator<=>(const End&) const = default;
  };

  bool take_one(int line);  // true: there may be more
  void keep(int line, KeptMessage kept);
  void send_notices() noexcept;

  const std::vector<base::Fd> sockets_;
  base::ForkGuard fork_guard_;
  std::mutex mutex_;
  Channel made_ = kFirst;
  std::map<End, std::deque<KeptMessage>> kept_;
  std::set<int> broken_;     // lines whose other end is closed
  std::set<End> left_;       // closed by the other side, and not yet by this one
  std::set<End> over_;       // closed by this side, and not yet by the other one
  std::deque<End> notices_;  // still to be sent
};

}  // namespace plait::comm::shm
