// A group whose ranks show one another where they are: at a deadline, the blame follows their waits
// to the rank that is late.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "comm/core/group.h"
#include "comm/core/whereabouts.h"

namespace plait::comm {

class BlamingGroup : public Group {
 public:
  // `shown`: what this rank shows the others. It is first written by the first call or wait, so it
  // may be a member of the derived group.
  BlamingGroup(int rank, int world, WaitPolicy policy, Shown& shown)
      : Group(rank, world, std::move(policy)), announcer_(shown) {}

  void announce(const Tag& tag) noexcept override { announcer_.call(tag); }
  void show_product() const noexcept override { announcer_.product(); }
  int begin_waiting(const Awaited& awaited, int ticket) noexcept override {
    return announcer_.begin_waiting(awaited.peer, ticket);
  }
  void end_waiting(int ticket) noexcept override { announcer_.end_waiting(ticket); }
  void give_up(const Awaited& awaited, base::FunctionRef<bool()> ready) override;

 protected:
  // The last that a rank has shown, and when this one saw it; 0: never.
  struct Account {
    Whereabouts where = {};
    Nanoseconds seen_at = 0;
  };

  // Asks the others where they are. True: their answers come later, as they have no memory in
  // common.
  virtual bool inquire() = 0;
  virtual std::vector<Account> accounts() const = 0;  // by rank, this one's too

  // " (pid 1234, stopped)", for the sentence that blames it.
  virtual std::string show_process(int rank) const = 0;

  // The rank that is late in the end, and its account.
  struct Culprit {
    int rank;
    Account account;
    bool is_known;  // false: it has not answered for long
  };
  Culprit find_culprit(const Awaited& awaited, PublishedWait& published);
  static std::string describe_late(const Culprit& culprit);

  // Fails the group where the peer has announced another call under the number of one of this
  // rank's.
  void compare_with(int peer, const Tag& theirs);

  Announcer announcer_;

 private:
  std::vector<Whereabouts> look(const Awaited& awaited, PublishedWait& published,
                                bool waits_for_answers);
};

}  // namespace plait::comm
