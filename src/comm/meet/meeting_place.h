// The place at which the ranks of a job find rank 0: a name that all of them can work out
// (docs/design/0011).
//
// Rank 0 listens at a name in the kernel, which every process of the network namespace can call,
// and in this user's XDG_RUNTIME_DIR, which no other user can enter, where there is one. The others
// look there first. So ranks of which only some see that folder meet all the same.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"

namespace plait::comm::shm {

// Has the contract of Rendezvous::Watch.
using Watch = std::function<void(int peer)>;

// The name for a job that all ranks were told of.
std::string name_of_job(const std::string& job);

// A name that cannot be guessed, and whether a text could be one. It is no file's.
std::string make_secret_name();
bool is_secret_name(const std::string& text);

// The sentence about two processes that say they are the same rank, or about one process that
// connects twice at once, from two threads.
std::string claimants(long first, long second, const std::string& rank);

// The place at which rank 0 listens.
class MeetingPlace {
 public:
  // Throws where a process listens there already, and says which; waits until `deadline` for one
  // that is about to go, and asks `watch` meanwhile.
  MeetingPlace(const std::string& name, base::Nanoseconds deadline, const Watch& watch = {});
  MeetingPlace(MeetingPlace&& other) noexcept
      : listeners_(std::move(other.listeners_)),
        path_(std::exchange(other.path_, {})),
        obstacle_(std::move(other.obstacle_)) {}
  MeetingPlace& operator=(MeetingPlace&&) = delete;
  ~MeetingPlace() { close(); }

  const std::vector<base::Fd>& listeners() const { return listeners_; }

  // Why some ranks that know the name may not find this place; empty where all will.
  const std::string& obstacle() const { return obstacle_; }

  void close() noexcept;

 private:
  void listen_in_kernel(const std::string& name, bool alone, base::Nanoseconds deadline,
                        const Watch& watch);
  void listen_in(const std::string& folder, const std::string& name);

  std::vector<base::Fd> listeners_;
  std::string path_;  // the file to remove; empty where there is none
  std::string obstacle_;
};

// Finds rank 0's MeetingPlace for another rank.
class Finder {
 public:
  explicit Finder(const std::string& name);

  const std::string& name() const { return name_; }

  // A socket to rank 0, which may not listen yet. Throws where only another user's process does.
  std::optional<base::Fd> call();

  // Why rank 0 may be there and not be found; empty where it would be.
  const std::string& obstacle() const { return obstacle_; }

  // After rank 0 has died: removes the file that it could not.
  void clear_up();

 private:
  std::string name_;
  std::string folder_;
  std::string prefix_;
  std::string found_;  // the file behind which it was
  std::string obstacle_;
};

}  // namespace plait::comm::shm
