// How the ranks of one start find each other and connect, each with each.
//
// If the caller lends an all-gather of its framework's, every rank listens at a port of its own,
// and the others learn of it that way. Otherwise rank 0 listens where all know it (RENDEZVOUS, or
// Site::meeting_point), and tells the others which ranks have come. Of two ranks the higher one
// calls the lower one:
//
//   caller    hello, with its build, job, rank and world, and where it listens itself
//   listener  challenge, with a proof that it knows the secret  } where there is a secret
//   caller    proof that it knows the secret                    }
//   listener  welcome, with what rank 0 knows of all ranks; or a refusal, in words
//
// The secret is PLAIT_SECRET, or a random number that went through the caller's all-gather or came
// with the meeting point, or both. Without either any process that can reach a rank's port is
// believed. The secret itself is never sent.
//
// A caller that is no rank of this job is told so where it speaks plait's words, and dropped. It
// costs the job nothing but the moment in which it is read.
#pragma once

#include <memory>

#include "comm/control/mesh.h"
#include "comm/core/transport.h"

namespace plait::comm::tcp {

struct MeetResult {
  std::shared_ptr<Mesh> mesh;
  bool oversubscribed;  // more ranks on this host than processors
};

// Collective. Throws Error{timeout} that names the ranks that have not come.
MeetResult meet(const Site& site);

}  // namespace plait::comm::tcp
