#include "chaos/going_on_rank.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <exception>
#include <optional>
#include <vector>

#include "plait/collectives.h"
#include "plait/ops.h"

namespace plait::chaos {
namespace {

constexpr std::int64_t kRows = 32, kColumns = 96, kDepth = 64;

std::vector<std::string> exchange_cards(Page& page, int rank, const std::string& mine) {
  RankState& state = page.ranks[rank];
  PLAIT_CHECK(mine.size() < state.card.size(), "a card of ", mine.size(), " bytes");
  std::memcpy(state.card.data(), mine.c_str(), mine.size() + 1);
  state.has_card.store(true, std::memory_order_release);
  std::vector<std::string> all;
  for (RankState& peer : page.ranks) {
    while (!peer.has_card.load(std::memory_order_acquire)) ::usleep(100);
    all.emplace_back(peer.card.data());
  }
  return all;
}

// The operands of rank r: ones by r + 1, so that every sum is exact.
class ExactProduct {
 public:
  ExactProduct(int rank, Communicator& comm)
      : x_(kRows * kDepth, 1.0F),
        w_(kColumns * kDepth, static_cast<float>(rank + 1)),
        y_(kRows * kColumns),
        op_(prepare({.op = Operator::matmul_all_reduce,
                     .m = kRows,
                     .n = kColumns,
                     .k = kDepth,
                     .x = Dtype::f32,
                     .weight = {.dtype = Dtype::f32},
                     .out = Dtype::f32},
                    comm, {.plan = parse_plan("fused"), .threads = 1})) {}

  void run(unsigned members) {
    op_.run({.x = TensorView::of(x_.data(), kRows, kDepth),
             .weight = WeightView{.view = TensorView::of(w_.data(), kColumns, kDepth),
                                  .layout = WeightLayout::out_in},
             .out = TensorView::of(y_.data(), kRows, kColumns)});
    float expected = 0;
    for (int rank = 0; rank < kWorld; ++rank) {
      if ((members >> rank & 1U) != 0) expected += static_cast<float>((rank + 1) * kDepth);
    }
    const bool is_right =
        std::all_of(y_.begin(), y_.end(), [&](float value) { return value == expected; });
    PLAIT_CHECK(is_right, "a product of ", y_[0], " and not ", expected);
  }

 private:
  std::vector<float> x_, w_, y_;
  Op op_;
};

class Rank {
 public:
  Rank(Page& page, int rank, const std::string& transport, const std::string& job)
      : page_(page),
        state_(page.ranks[rank]),
        rank_(rank),
        comm_(Communicator::connect({.transport = transport,
                                     .place = Place{.rank = rank, .world = kWorld, .job = job},
                                     .all_gather =
                                         [&page, rank](const std::string& mine) {
                                           return exchange_cards(page, rank, mine);
                                         },
                                     .timeout = std::chrono::seconds(10)})) {
    for (int peer = 0; peer < kWorld; ++peer) ranks_.push_back(peer);
  }

  void run() {
    product_.emplace(rank_, comm_);
    while (!is_over()) {
    }
  }

 private:
  unsigned members() const {
    unsigned bits = 0;
    for (const int rank : ranks_) bits |= 1U << rank;
    return bits;
  }

  // One step of the program, or the way on after a loss.
  bool is_over() {
    try {
      product_->run(members());
      state_.members.store(members(), std::memory_order_release);
      state_.works.store(true, std::memory_order_release);
      float flag = page_.is_over.load() ? 1 : 0;  // rank 0 says it to all
      broadcast({&flag, 1}, 0, comm_);
      return flag != 0;
    } catch (const Error& error) {
      if (error.code() != Code::peer_lost) throw;
      while (!has_gone_on()) {
      }
      return false;
    }
  }

  // False: yet another rank was lost before the first product.
  bool has_gone_on() {
    PLAIT_CHECK(state_.answers < kWorld, "rank ", rank_, " has lost more ranks than there were");
    Answer& answer = state_.answer[state_.answers];
    answer.own_calls = comm_.completed_calls();
    answer.called = base::now();
    state_.has_called.store(true, std::memory_order_release);
    Survivors found = comm_.survivors();
    answer.answered = base::now();
    answer.completed_calls = found.completed_calls;
    for (const int lost : found.lost) answer.lost |= 1U << ranks_[lost];
    std::erase_if(ranks_, [&](int rank) { return (answer.lost >> rank & 1U) != 0; });
    PLAIT_CHECK(ranks_.at(found.comm.rank()) == rank_, "rank ", rank_, " is ", found.comm.rank(),
                " now");
    answer.members = members();
    ++state_.answers;
    product_.reset();
    comm_ = std::move(found.comm);
    try {
      product_.emplace(rank_, comm_);
      product_->run(members());
    } catch (const Error& error) {
      if (error.code() != Code::peer_lost) throw;
      return false;
    }
    answer.went_on = base::now();
    state_.members.store(members(), std::memory_order_release);
    return true;
  }

  Page& page_;
  RankState& state_;
  int rank_;
  std::vector<int> ranks_;  // of the first group, by rank now
  Communicator comm_;
  std::optional<ExactProduct> product_;
};

}  // namespace

void be_rank(Page& page, int rank, const std::string& transport, const std::string& job) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    Rank(page, rank, transport, job).run();
    ::_exit(0);
  } catch (const std::exception& error) {
    std::snprintf(page.ranks[rank].fault.data(), page.ranks[rank].fault.size(), "%s", error.what());
  }
  ::_exit(1);
}

}  // namespace plait::chaos
