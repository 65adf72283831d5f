#include "comm/collectives/tasks.h"

namespace plait::comm {
namespace {

// Dissemination: in round i a rank tells the one 2^i above it and hears from the one 2^i below.
// world 5: 3 rounds; rank 0 tells 1, 2, 4 and hears from 4, 3, 1.
class Barrier final : public Task {
 public:
  explicit Barrier(Communicator::State& state)
      : Task({.operation = Operation::barrier}), mailbox_(state.mailbox()) {}

  bool advance() override {
    const int world = mailbox_.group().world();
    while (distance_ < world) {
      if (!told_) {
        if (!mailbox_.vacant(above(), 0)) return false;
        mailbox_.post(above(), 0, tag(), 0);
        told_ = true;
      }
      if (!mailbox_.arrived(below(), 0, tag())) return false;
      mailbox_.release(below(), 0);
      distance_ *= 2;
      told_ = false;
    }
    return true;
  }

  Awaited awaited() const override {
    return {.peer = told_ ? below() : above(), .tag = tag(), .room = !told_};
  }

 private:
  int above() const { return (mailbox_.group().rank() + distance_) % mailbox_.group().world(); }
  int below() const {
    const int world = mailbox_.group().world();
    return (mailbox_.group().rank() - distance_ % world + world) % world;
  }

  Mailbox::State& mailbox_;
  int distance_ = 1;
  bool told_ = false;
};

}  // namespace

std::unique_ptr<Task> make_barrier(Communicator::State& state) {
  return std::make_unique<Barrier>(state);
}

}  // namespace plait::comm
