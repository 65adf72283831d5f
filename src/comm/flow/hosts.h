// Which ranks exchange chunks in flows in which the ranks of a host act together.
#pragma once

#include <vector>

namespace plait::comm {

// Each host has `per_host` adjacent ranks. With hosts {0 1 2} {3 4 5}, rank 4's mates are 3 and 5,
// and its counterpart is 1.
class Hosts {
 public:
  Hosts(int rank, int world, int per_host)
      : rank_(rank), per_host_(per_host), count_(world / per_host) {
    // From this rank's successor on, so that not all talk to one at once.
    for (int step = 1; step < per_host; ++step)
      mates_.push_back(rank / per_host * per_host + (rank + step) % per_host);
    for (int step = 1; step < count_; ++step)
      counterparts_.push_back((rank + step * per_host) % world);
  }

  int per_host() const { return per_host_; }
  int count() const { return count_; }
  int here() const { return rank_ / per_host_; }
  const std::vector<int>& mates() const { return mates_; }
  const std::vector<int>& counterparts() const { return counterparts_; }

  // Hosts in turn from this one on: 0 for this one.
  int host_at(int turn) const { return (here() + turn) % count_; }

  // The rank on `host` that is the counterpart of `rank`, or `rank` itself.
  int counterpart_of(int rank, int host) const { return host * per_host_ + rank % per_host_; }

 private:
  int rank_;
  int per_host_;
  int count_;
  std::vector<int> mates_;
  std::vector<int> counterparts_;
};

}  // namespace plait::comm
