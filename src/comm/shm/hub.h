// The rendezvous of processes: a star of sockets around rank 0, over which bytes and the
// descriptors of shared memory are exchanged during set-up. Nothing on the hot path touches it.
#pragma once

#include <string>
#include <vector>

#include "base/socket.h"
#include "comm/mapped/rendezvous.h"
#include "comm/shm/assembly.h"
#include "plait/error.h"

namespace plait::comm::shm {

class Hub final : public Rendezvous {
 public:
  // Collective, over the sockets that assemble() or attend() returned.
  Hub(const Seat& seat, std::vector<base::Fd> sockets, const Watch& watch = {});

  int rank() const override { return seat_.rank; }
  int world() const override { return seat_.world; }
  std::vector<std::string> all_gather(const std::string& mine, const Watch& watch) override;
  std::vector<base::Region> share(std::size_t bytes, const std::string& purpose,
                                  const Watch& watch) override;
  std::unique_ptr<Rendezvous> subgroup(const std::vector<int>& members,
                                       const Watch& watch) override;
  bool has_ended(int peer) const override;
  std::string describe(int peer) const override;

 private:
  struct Peer {
    base::Fd pidfd;
    pid_t pid = 0;
  };

  // What every rank brings, in rank order: the one primitive that all of the above are made of.
  std::vector<base::Message> exchange(base::Message mine, const Watch& watch);
  std::vector<base::Message> meet(base::Message mine, const Watch& watch);
  std::vector<base::Message> collect_and_spread(base::Message mine, const Watch& watch);
  base::Message receive(int from, base::Nanoseconds deadline, const Watch& watch);
  void send(int to, const base::Message& message, base::Nanoseconds deadline, const Watch& watch);
  void hear_verdict();
  void tell(const Error& error) noexcept;
  void await_verdict() noexcept;
  [[noreturn]] void tell_and_raise(const Error& error);
  [[noreturn]] void refuse(Code code, int culprit, const std::string& reason);
  [[noreturn]] void lose(int peer, const Watch& watch);

  Seat seat_;
  std::vector<base::Fd> sockets_;  // rank 0: by rank; others: only [0]
  std::vector<Peer> peers_;
};

// Rank 0 listens at `name` and the others call there.
std::unique_ptr<Rendezvous> meet_at(const std::string& name, const Seat& seat,
                                    const Watch& watch = {});

}  // namespace plait::comm::shm
