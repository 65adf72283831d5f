// The rendezvous of processes: a star of sockets around one of them, over which bytes and the
// descriptors of shared memory are exchanged during set-up. Nothing on the hot path touches it.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/life_file.h"
#include "base/socket.h"
#include "comm/mapped/rendezvous.h"
#include "comm/shm/assembly.h"
#include "comm/shm/connections.h"
#include "plait/error.h"

namespace plait::comm::shm {

// The processes of a group and of all that is split off it, as they were numbered when they met.
struct Lives {
  struct Process {
    pid_t pid = 0;
    std::uint64_t start = 0;  // see base::start_of()
    bool visible = false;     // to this process: it sees the same pids
  };
  base::LifeFile file;
  std::vector<Process> processes;
};

// On its centre, which is one of the ranks, a hub has one socket to each peer, and on the others it
// has one. Besides, it has one descriptor for all lives. A sub-group that the centre is in shares
// all of them; another one shares the latter, and makes connections of its own.
class Hub final : public Rendezvous {
 public:
  // What ranks meet through. The centre is the rank that has line 0.
  struct Star {
    std::shared_ptr<Connections> connections;
    Connections::Channel channel = Connections::kFirst;
    std::vector<int> lines;  // by rank: to it on the centre
  };

  // Collective, over the sockets that assemble() or attend() returned: rank 0 is the centre.
  Hub(const Seat& seat, std::vector<base::Fd> sockets, const Watch& watch = {});

  // A sub-group's hub: `numbers` are its ranks' places in `lives`.
  Hub(Seat seat, Star star, std::shared_ptr<const Lives> lives, std::vector<int> numbers);

  ~Hub() override;

  int rank() const override { return seat_.rank; }
  int world() const override { return seat_.world; }
  void set_timeout(base::Nanoseconds timeout) override { seat_.timeout = timeout; }
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
  pid_t pid_of(int peer) const;
  bool is_centre() const { return rank() == centre_; }
  // The ranks at the other ends of this rank's lines.
  std::vector<int> neighbours() const;
  Seat seat_among(const std::vector<int>& members) const;
  std::vector<int> numbers_of(const std::vector<int>& members) const;
  // `place`: where the first member listens.
  std::unique_ptr<Rendezvous> meet_members(const std::vector<int>& members, const std::string& name,
                                           std::optional<MeetingPlace> place, const Watch& watch);
  std::shared_ptr<const Lives> meet_as_processes(const Watch& watch);
  // What every rank brings, in rank order: the one primitive that all of the above are made of.
  std::vector<base::Message> meet(base::Message mine, const Watch& watch);
  std::vector<base::Message> collect_and_spread(base::Message mine, const Watch& watch);
  base::Message receive(int from, base::Nanoseconds deadline, const Watch& watch);
  bool take(int from, base::Message& message, const Watch& watch);
  base::Delivery receive_now(int from, base::Message& message);
  void wait_readable(const std::vector<int>& peers, base::Nanoseconds longest);
  void await(const std::vector<int>& peers, base::Nanoseconds deadline, const Watch& watch);
  void send(int to, const base::Message& message, base::Nanoseconds deadline, const Watch& watch);
  void hear_verdict();
  // Calls f(); what the system refuses in it to this rank is told to all.
  template <class F>
  auto telling_all(F&& f);
  [[noreturn]] void tell_and_raise(const Error& error);
  void tell(const Error& error) noexcept;
  void await_verdict() noexcept;
  [[noreturn]] void refuse(Code code, int culprit, const std::string& reason);
  [[noreturn]] void lose(int peer, const Watch& watch);

  Seat seat_;
  Star star_;
  int centre_ = 0;
  std::shared_ptr<const Lives> lives_;  // null until all have met
  std::vector<int> numbers_;
  std::function<bool(int peer)> has_left_;  // empty until the group has its pages
};

// Rank 0 listens at `name` and the others call there.
std::unique_ptr<Rendezvous> meet_at(const std::string& name, const Seat& seat,
                                    const Watch& watch = {});

}  // namespace plait::comm::shm
