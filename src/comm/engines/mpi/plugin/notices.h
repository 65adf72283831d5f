// The notices that a rank sends to others of its group.
#pragma once

#include <mpi.h>

#include <array>
#include <cstdint>
#include <deque>
#include <string>
#include <utility>
#include <vector>

#include "comm/core/group.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/members.h"
#include "plait/error.h"
#include "plait/tag.h"

namespace plait::comm::mpi {

struct Notice {
  enum class Kind {
    failure,  // with the next two: the group has failed
    report,   // a failure, to the rank that is to record it and to tell the others
    abort,
    farewell,
    closing,
    set_up  // the sender's part of a set-up agreement follows, or has come already
  };
  Kind kind;
  int mailbox = 0;               // closing: of which mailbox (see MpiGroup::say_closed)
  Tag call = {};                 // set_up: in which the sender is
  std::uint32_t chunks = 0;      // that the sender had sent to the receiver before
  Code code = Code::peer_lost;   // failure, report, abort: why
  int culprit = Error::kNoRank;  // and by which rank
  std::array<char, 500> sentence = {};
};

// A notice of a group's end. A sentence that is too long is cut.
Notice notice_of(Notice::Kind kind, const Failure& failure);

class NoticeSend final : public DeferredRelease {
 public:
  explicit NoticeSend(Members members) : members_(std::move(members)) {}

  void start(int peer, const Notice& notice);
  bool is_done() override;

 private:
  Members members_;
  std::deque<std::string> texts_;  // which moves none
  std::vector<MPI_Request> sends_;
};

}  // namespace plait::comm::mpi
