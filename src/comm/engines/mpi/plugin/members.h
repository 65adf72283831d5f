// The processes of a group or a mailbox, and the tags by which a message reaches each of them.
//
// Tags take the place of communicators. Making and freeing those is collective and has no deadline,
// and in Open MPI 4.1.4 it deadlocks where groups come and go. A tag need only be unique where it
// is received, so each process counts its own: it reserves a range for everything that it receives
// for, and tells the members where the range begins.
//
//   process 0 makes a group and then a mailbox of 8 slots: it receives by tags 2..3 and 4..11;
//   process 1 has had another mailbox of 5 before:                tags 7..8 and 9..16.
#pragma once

#include <vector>

#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {

struct Members {
  const Processes* all = nullptr;
  std::vector<int> processes;   // member -> rank among all of them
  std::vector<int> first_tags;  // member -> where the range begins that it has reserved
  int comm_dup = 0;             // number of the duplicate that carries the messages (session.h)
  int me = 0;
  const LocalProcesses* local_processes = nullptr;  // stays until the process ends

  int size() const { return static_cast<int>(processes.size()); }
  int my_tag(int offset) const { return first_tags[me] + offset; }
  int tag_of(int member, int offset) const { return first_tags[member] + offset; }
  int member_of(int process) const;

  // False where the member's process is known to have ended. Where MPI sends to it over a socket,
  // it may end this process, or never return from its next call.
  bool may_send_to(int member) const {
    return local_processes == nullptr || !local_processes->has_ended(processes[member]);
  }

  MPI_Comm for_agreements() const { return all->comm_dups.front(); }
  MPI_Comm for_chunks() const { return all->comm_dups[comm_dup]; }
};

// All processes receive by it while they connect (see mpi_world.h); no range begins there.
inline constexpr int kConnectTag = 0;

// In a group's range.
inline constexpr int kNoticeTag = 0;
inline constexpr int kSetUpTag = 1;
inline constexpr int kGroupTags = 2;

// The number of the next duplicate for a mailbox, in turn. The members take what the first of them
// proposes.
int propose_comm_dup();

// The first of `count` tags that nothing else in this process receives by.
int reserve_tags(int count);

}  // namespace plait::comm::mpi
