// Keeps the connections to rank 0 until the callers have said which ranks they are.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/socket.h"
#include "comm/shm/meeting_place.h"

namespace plait::comm::shm {

inline constexpr const char* kShm = "shm";

// What a rank says first.
struct Hello {
  int rank;
  int world;
  long pid;
  std::string build;             // see build_name.h
  std::string transport = kShm;  // that it uses
};
std::string write(const Hello& hello);

struct Guest {
  Hello said;
  base::Fd socket;
};

class Porch {
 public:
  explicit Porch(MeetingPlace place);

  const std::string& obstacle() const { return place_.obstacle(); }

  // Waits until a caller connects or speaks, here or at one of `others`; returns those that have
  // said which rank they are.
  std::vector<Guest> wait(std::vector<const base::Fd*> others, base::Nanoseconds longest);

  void close();

  // Where descriptors are short: closes the one that was kept for this, which lets further callers
  // be told, one at a time.
  void make_room();

 private:
  struct Caller {
    base::Fd socket;
    base::Nanoseconds since;
  };

  void let_in();
  void let_in(const base::Fd& listener);
  std::vector<Guest> hear();

  MeetingPlace place_;
  base::Fd spare_;  // a descriptor for make_room() to give up
  std::size_t most_;
  std::vector<Caller> callers_;
};

}  // namespace plait::comm::shm
