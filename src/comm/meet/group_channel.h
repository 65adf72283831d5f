// How one group uses the sockets around its coordinator: through a channel of its own, with peers
// that are named by their ranks in this group.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "comm/meet/connections.h"

namespace plait::comm::shm {

class GroupChannel {
 public:
  // Makes the channel of a group whose ranks have just met; `sockets` are what assemble() or
  // attend() returned, and rank 0 is the coordinator.
  GroupChannel(std::vector<base::Fd> sockets, int world);

  // Makes the channel of a sub-group, whose `members` include the coordinator. All of them must
  // give the number that the coordinator got from make_number().
  GroupChannel among(const std::vector<int>& members, Connections::Channel number) const;
  Connections::Channel make_number() const { return connections_->make_channel(); }

  // The rank that has a line to each of the others; they have one to it.
  int coordinator() const { return coordinator_; }

  // These have the contracts of Connections, with ranks in the place of lines.
  base::Delivery send(int to, const std::string& bytes, const base::Fd& fd) const {
    return connections_->send(number_, lines_[to], bytes, fd);
  }
  base::Delivery receive(int from, base::Message& message) const {
    return connections_->receive(number_, lines_[from], message);
  }
  const base::Fd& socket_to(int peer) const { return connections_->socket(lines_[peer]); }
  void close(const std::vector<int>& peers) const;

  // Waits until something can be read from one of the peers, perhaps for another channel. Another
  // thread of this rank may take what comes, so `longest` must be short.
  void wait_readable(const std::vector<int>& peers, base::Nanoseconds longest) const;

 private:
  GroupChannel(std::shared_ptr<Connections> connections, Connections::Channel number,
               std::vector<int> lines);

  std::shared_ptr<Connections> connections_;
  Connections::Channel number_;
  std::vector<int> lines_;  // by rank: to it on the coordinator, which has line 0
  int coordinator_;
};

}  // namespace plait::comm::shm
