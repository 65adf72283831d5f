// A group whose ranks hear of each other by messages alone.
#pragma once

#include <array>
#include <atomic>
#include <mutex>
#include <vector>

#include "comm/group.h"
#include "comm/mpi/plugin/session.h"

namespace plait::comm::mpi {

class MpiGroup final : public Group {
 public:
  MpiGroup(Session session, const WaitPolicy& policy);
  ~MpiGroup() override;

  const Session& session() const { return session_; }

  bool has_left(int peer) const {
    return left_[peer].load(std::memory_order_acquire);  // pairs with listen()
  }

  // Hears what the peers have to say: failures and farewells.
  void listen();

  bool failed() const noexcept override {
    return failed_.load(std::memory_order_acquire);  // pairs with adopt(): the record is complete
  }
  void fail(const Failure& failure) noexcept override;
  Failure failure() const override;
  void announce(const Tag& /*tag*/) noexcept override {
  }  // nobody could see it: tags travel with the chunks
  void examine(const Awaited* awaited, base::FunctionRef<bool()> ready) override;
  void begin_waiting(const Awaited& /*awaited*/) noexcept override {}
  void end_waiting() noexcept override {}
  [[noreturn]] void give_up(const Awaited& awaited) override;
  void doze(Nanoseconds until, base::FunctionRef<bool()> ready) override;

  void leave() noexcept;

 private:
  struct Notice {
    bool left;
    Code code;
    std::int32_t culprit;
    std::array<char, 500> sentence;
  };

  void expect_notice();
  void tell_all(const Notice& notice) noexcept;
  void adopt(const Notice& notice) noexcept;

  Session session_;
  Notice heard_ = {};
  MPI_Request hearing_ = MPI_REQUEST_NULL;
  std::vector<std::atomic<bool>> left_;
  mutable std::mutex record_mutex_;
  Failure record_ = {Code::peer_lost, Error::kNobody, {}};
  std::atomic<bool> failed_{false};
};

}  // namespace plait::comm::mpi
