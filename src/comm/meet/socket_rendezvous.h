// The rendezvous of processes: sockets between one of them, the coordinator, and each of the
// others, over which bytes and the descriptors of shared memory are exchanged during set-up.
// Nothing on the hot path touches it.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/socket.h"
#include "comm/core/deadline.h"
#include "comm/mapped/rendezvous.h"
#include "comm/meet/assembly.h"
#include "comm/meet/group_channel.h"
#include "comm/meet/process_table.h"
#include "plait/error.h"

namespace plait::comm::shm {

// The coordinator, which is one of the ranks, holds a socket to each of the others, and each of
// them holds one. Besides, every rank holds one descriptor that tells which processes live. A
// sub-group with the coordinator in it shares all of these. Another one shares the descriptor, and
// makes connections of its own.
class SocketRendezvous final : public Rendezvous {
 public:
  // Collective, over the sockets that assemble() or attend() returned: rank 0 is the coordinator.
  SocketRendezvous(const Endpoint& endpoint, std::vector<base::Fd> sockets,
                   const Watch& watch = {});

  // A sub-group's rendezvous: `numbers` are its ranks' places in `processes`.
  SocketRendezvous(Endpoint endpoint, GroupChannel channel,
                   std::shared_ptr<const ProcessTable> processes, std::vector<int> numbers);

  ~SocketRendezvous() override;

  int rank() const override { return endpoint_.rank; }
  int world() const override { return endpoint_.world; }
  void set_timeout(base::Nanoseconds timeout) override { endpoint_.timeout = timeout; }
  std::vector<std::string> all_gather(const std::string& mine, const Watch& watch) override;
  std::vector<base::Region> share(std::size_t bytes, const std::string& purpose,
                                  const Watch& watch) override;
  std::unique_ptr<Rendezvous> subgroup(const std::vector<int>& members,
                                       const Watch& watch) override;
  std::unique_ptr<Rendezvous> regroup(const std::vector<int>& members,
                                      Regrouping::Exchange exchange, const Watch& watch) override;
  bool has_ended(int peer) const override;
  std::string describe(int peer) const override;
  void see_leaving_by(const std::function<bool(int peer)>& has_left) override {
    has_left_ = has_left;
  }

 private:
  int coordinator() const { return channel_.coordinator(); }
  bool is_coordinator() const { return rank() == coordinator(); }
  // The ranks to which this one has a socket.
  std::vector<int> neighbours() const;
  Endpoint endpoint_among(const std::vector<int>& members) const;
  std::vector<int> numbers_of(const std::vector<int>& members) const;
  // `place`: where the first member listens.
  std::unique_ptr<Rendezvous> meet_members(const std::vector<int>& members, const std::string& name,
                                           std::optional<MeetingPlace> place, const Watch& watch);
  std::shared_ptr<const ProcessTable> meet_as_processes(const Watch& watch);
  // Returns what every rank brings, in rank order: all of the above are made of this primitive.
  std::vector<base::Message> meet(base::Message mine, const Watch& watch);
  std::vector<base::Message> collect_and_distribute(base::Message mine, const Watch& watch);
  base::Message receive(int from, Deadline& deadline, const Watch& watch);
  bool take(int from, base::Message& message, const Watch& watch);
  void await(const std::vector<int>& peers, Deadline& deadline, const Watch& watch);
  void send(int to, const base::Message& message, Deadline& deadline, const Watch& watch);
  void receive_verdict();
  // Calls f(); what the system refuses to this rank meanwhile is told to all ranks.
  template <class F>
  auto telling_all(F&& f);
  [[noreturn]] void announce_and_raise(const Error& error);
  void announce(const Error& error) noexcept;
  void await_verdict() noexcept;
  [[noreturn]] void refuse(Code code, int culprit, const std::string& reason);
  [[noreturn]] void lose(int peer, const Watch& watch);

  Endpoint endpoint_;
  GroupChannel channel_;
  std::shared_ptr<const ProcessTable> processes_;  // null until all have met
  std::vector<int> numbers_;
  std::function<bool(int peer)> has_left_;  // empty until the group has its pages
};

// Rank 0 listens at `name` and the others call there.
std::unique_ptr<Rendezvous> meet_at(const std::string& name, const Endpoint& endpoint,
                                    const Watch& watch = {});

}  // namespace plait::comm::shm
