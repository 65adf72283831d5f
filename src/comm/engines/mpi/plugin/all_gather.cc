#include "comm/engines/mpi/plugin/all_gather.h"

#include <mpi.h>
#include <unistd.h>

#include <array>
#include <climits>
#include <cstdint>

#include "base/check.h"
#include "base/text.h"
#include "comm/engines/mpi/plugin/deferred_release.h"
#include "comm/engines/mpi/plugin/session.h"

namespace plait::comm::mpi {
namespace {

using base::Nanoseconds;

// Each sends the length and then the bytes by one tag, in which order they are received; a member
// that is one call ahead is told apart by the same order.
class MessageAllGather final : public DeferredRelease {
 public:
  MessageAllGather(const Members& members, const std::string& mine)
      : members_(members),
        mine_(mine),
        my_length_(static_cast<std::int64_t>(mine.size())),
        dialogues_(members.size()) {
    PLAIT_CHECK(mine.size() <= INT_MAX, "MPI sends at most ", INT_MAX, " bytes at once, not ",
                mine.size());
    dialogues_[members.me].bytes = mine;
  }

  void start() {
    const auto held = hold_mpi();
    for (int peer = 0; peer < members_.size(); ++peer) {
      if (peer != members_.me) start_dialogue(peer);
    }
  }

  // The members that have not done all of their part yet.
  std::vector<int> advance() {
    const auto held = hold_mpi();
    std::vector<int> missing;
    for (int peer = 0; peer < members_.size(); ++peer) {
      if (peer != members_.me && !advance_dialogue(peer)) missing.push_back(peer);
    }
    return missing;
  }

  std::vector<std::string> take() {
    std::vector<std::string> all;
    all.reserve(dialogues_.size());
    for (Dialogue& dialogue : dialogues_) all.push_back(std::move(dialogue.bytes));
    return all;
  }

  // Expects nothing more of any member.
  void give_up() noexcept {
    if (!mpi_is_usable()) return;
    const auto held = hold_mpi();
    for (Dialogue& dialogue : dialogues_) {
      if (dialogue.receive != MPI_REQUEST_NULL) MPI_Cancel(&dialogue.receive);
    }
  }

  bool is_done() override {
    const auto held = hold_mpi();
    bool all = true;
    for (Dialogue& dialogue : dialogues_) {
      all = is_complete(dialogue.receive) && all;
      for (MPI_Request& send : dialogue.sends) all = is_complete(send) && all;
    }
    return all;
  }

 private:
  struct Dialogue {
    std::array<MPI_Request, 2> sends = {MPI_REQUEST_NULL, MPI_REQUEST_NULL};
    MPI_Request receive = MPI_REQUEST_NULL;
    std::int64_t length = 0;
    bool length_is_known = false;
    std::string bytes;
  };

  static bool is_complete(MPI_Request& request) {
    int done = 0;
    check_mpi(MPI_Test(&request, &done, MPI_STATUS_IGNORE), "MPI_Test");
    return done != 0;
  }

  void start_dialogue(int peer) {
    Dialogue& dialogue = dialogues_[peer];
    receive(peer, &dialogue.length, sizeof(dialogue.length));
    send(peer, &my_length_, sizeof(my_length_), dialogue.sends[0]);
    send(peer, mine_.data(), mine_.size(), dialogue.sends[1]);
  }

  bool advance_dialogue(int peer) {
    Dialogue& dialogue = dialogues_[peer];
    if (!is_complete(dialogue.receive)) return false;
    if (!dialogue.length_is_known) {
      dialogue.length_is_known = true;
      dialogue.bytes.resize(static_cast<std::size_t>(dialogue.length));
      receive(peer, dialogue.bytes.data(), dialogue.bytes.size());
      return false;
    }
    return is_complete(dialogue.sends[0]) && is_complete(dialogue.sends[1]);
  }

  void receive(int peer, void* data, std::size_t bytes) {
    check_mpi(
        MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, members_.processes[peer],
                  members_.my_tag(kSetUpTag), members_.for_agreements(), &dialogues_[peer].receive),
        "MPI_Irecv");
  }

  // If the peer's process has ended, what it would bring is missing, and the watch tells why.
  void send(int peer, const void* data, std::size_t bytes, MPI_Request& request) {
    if (!members_.may_send_to(peer)) return;
    check_mpi(MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, members_.processes[peer],
                        members_.tag_of(peer, kSetUpTag), members_.for_agreements(), &request),
              "MPI_Isend");
  }

  Members members_;
  std::string mine_;
  std::int64_t my_length_;
  std::vector<Dialogue> dialogues_;
};

void run(MessageAllGather& gathering, MissingCheck watch) {
  gathering.start();
  for (int turn = 0;; ++turn) {
    const std::vector<int> missing = gathering.advance();
    if (missing.empty()) return;
    watch(missing);
    if (turn > 100) ::usleep(100);
  }
}

}  // namespace

void refuse_for_missing(int me, int world, const std::vector<int>& missing, Nanoseconds timeout) {
  throw Error(
      Code::timeout,
      base::sentence("rank ", me, " has waited ", base::show_duration(timeout), " for rank",
                     missing.size() > 1 ? "s " : " ", base::show_list(missing), " of ", world),
      missing.front());
}

std::vector<std::string> all_gather(const Members& members, const std::string& mine,
                                    MissingCheck watch) {
  auto gathering = std::make_unique<MessageAllGather>(members, mine);
  try {
    run(*gathering, watch);
  } catch (...) {
    gathering->give_up();
    release_later(std::move(gathering));
    throw;
  }
  return gathering->take();
}

}  // namespace plait::comm::mpi
