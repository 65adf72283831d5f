// Kills one or two of four ranks that multiply, also while the others agree on who is left, and
// checks that the others go on together: all get the same answers, and the products of the smaller
// group are right.
//
//   plait_going_on                      30 rounds
//   plait_going_on --rounds 1 --seed 7  one round again
//
// Even seeds are rounds over shm, odd ones over tcp.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <new>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "plait/collectives.h"
#include "plait/ops.h"

namespace plait::chaos {
namespace {

using base::Nanoseconds;
using base::sentence;

constexpr int kWorld = 4;
constexpr std::int64_t kRows = 32, kColumns = 96, kDepth = 64;
constexpr Nanoseconds kGoal = 200 * base::kMillisecond;  // what takes longer is shown
constexpr Nanoseconds kWatchdog = 30 * base::kSecond;

// One answer of survivors(), with ranks as bits of the first group.
struct Answer {
  unsigned members;
  unsigned lost;
  std::uint64_t completed_calls;
  std::uint64_t own_calls;
  Nanoseconds called, answered, went_on;  // went_on: after the first product; 0: it failed
};

struct RankState {
  std::atomic<bool> works;
  std::atomic<bool> has_called;  // survivors()
  std::atomic<unsigned> members;
  int answers;
  std::array<Answer, kWorld> answer;
  std::array<char, 400> fault;

  // The store through which ranks over tcp find each other.
  std::atomic<bool> has_card;
  std::array<char, 2048> card;
};

struct Page {
  std::array<RankState, kWorld> ranks;
  std::atomic<bool> is_over;
};

// In memory that the ranks share with their parent.
class SharedPage {
 public:
  SharedPage() {
    void* memory =
        ::mmap(nullptr, sizeof(Page), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) base::fail_errno("cannot map a page");
    page_ = new (memory) Page();
  }
  SharedPage(const SharedPage&) = delete;
  SharedPage& operator=(const SharedPage&) = delete;
  ~SharedPage() { ::munmap(page_, sizeof(Page)); }
  Page* operator->() const { return page_; }
  Page& operator*() const { return *page_; }

 private:
  Page* page_;
};

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

// What rank r multiplies: ones by r + 1, so that every sum is exact.
class Product {
 public:
  Product(int rank, Communicator& comm)
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
  std::optional<Product> product_;
};

[[noreturn]] void be_rank(Page& page, int rank, const std::string& transport,
                          const std::string& job) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  try {
    Rank(page, rank, transport, job).run();
    ::_exit(0);
  } catch (const std::exception& error) {
    std::snprintf(page.ranks[rank].fault.data(), page.ranks[rank].fault.size(), "%s", error.what());
  }
  ::_exit(1);
}

struct Times {
  std::vector<Nanoseconds> answers;    // of survivors()
  std::vector<Nanoseconds> goings_on;  // from there until the first product of the smaller group
  std::vector<Nanoseconds> losses;     // from the last death until that product
};

// A round: everything in it but the machine's own timing follows from its seed.
class Round {
 public:
  explicit Round(std::uint64_t seed) : random_(seed), seed_(seed) {}
  Round(const Round&) = delete;
  Round& operator=(const Round&) = delete;
  ~Round() {
    for (const pid_t pid : pids_) {
      if (pid > 0) ::kill(pid, SIGKILL), ::waitpid(pid, nullptr, 0);
    }
  }

  std::string describe() const {
    return sentence("seed ", seed_, ": over ", transport(), ", kills rank ", first_,
                    second_ < 0
                        ? std::string()
                        : sentence(" and rank ", second_,
                                   is_in_agreement_ ? " in the agreement, after " : " after ",
                                   base::show_duration(delay_)));
  }

  // What was wrong; empty: nothing.
  std::string run(Times& times) {
    draw();
    for (int rank = 0; rank < kWorld; ++rank) {
      pids_[rank] = ::fork();
      if (pids_[rank] < 0) base::fail_errno("cannot fork");
      if (pids_[rank] == 0) be_rank(*page_, rank, transport(), job());
    }
    const Nanoseconds deadline = base::now() + kWatchdog;
    std::string fault = act(deadline);
    if (fault.empty()) fault = reap(deadline);
    if (fault.empty()) fault = judge(times);
    return fault;
  }

 private:
  std::string transport() const { return seed_ % 2 == 0 ? "shm" : "tcp"; }
  std::string job() const { return sentence("going-on-", ::getpid(), '-', seed_); }

  std::int64_t any(std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(0, most)(random_);
  }

  void draw() {
    first_ = static_cast<int>(any(kWorld - 1));
    work_ = any(10 * base::kMillisecond);
    const auto kind = any(2);
    if (kind == 0) return;
    second_ = static_cast<int>((first_ + 1 + any(kWorld - 2)) % kWorld);
    is_in_agreement_ = kind == 1;
    delay_ = any(is_in_agreement_ ? 5 * base::kMillisecond : 20 * base::kMillisecond);
  }

  bool is_alive(int rank) const { return rank != first_ && rank != second_; }

  template <class Ready>
  static bool wait(Nanoseconds deadline, Ready&& ready) {
    while (!ready()) {
      if (base::now() >= deadline) return false;
      ::usleep(20);
    }
    return true;
  }

  void strike(int rank) {
    ::kill(pids_[rank], SIGKILL);
    struck_at_ = base::now();
  }

  std::string act(Nanoseconds deadline) {
    const bool work = wait(deadline, [&] {
      return std::all_of(page_->ranks.begin(), page_->ranks.end(),
                         [](const RankState& rank) { return rank.works.load(); }) ||
             has_fault();
    });
    if (!work || has_fault()) return "the ranks have not begun to work: " + faults();
    ::usleep(static_cast<unsigned>(work_ / base::kMicrosecond));
    strike(first_);
    if (second_ >= 0) {
      if (is_in_agreement_ && !wait(deadline, [&] { return has_called_survivors(); }))
        return "no rank has noticed the first death";
      const Nanoseconds at = base::now() + delay_;
      while (base::now() < at) {
      }
      strike(second_);
    }
    unsigned all = 0;
    for (int rank = 0; rank < kWorld; ++rank) all |= is_alive(rank) ? 1U << rank : 0;
    const bool go_on = wait(deadline, [&] {
      for (int rank = 0; rank < kWorld; ++rank) {
        if (is_alive(rank) && page_->ranks[rank].members.load() != all) return has_fault();
      }
      return true;
    });
    if (!go_on) return "the survivors hang";
    page_->is_over.store(true);
    return "";
  }

  bool has_called_survivors() const {
    return std::any_of(page_->ranks.begin(), page_->ranks.end(),
                       [](const RankState& rank) { return rank.has_called.load(); });
  }

  bool has_fault() const {
    return std::any_of(page_->ranks.begin(), page_->ranks.end(),
                       [](const RankState& rank) { return rank.fault[0] != '\0'; });
  }

  std::string faults() const {
    std::string all;
    for (int rank = 0; rank < kWorld; ++rank) {
      if (page_->ranks[rank].fault[0] != '\0')
        all +=
            sentence(all.empty() ? "" : "; ", "rank ", rank, ": ", page_->ranks[rank].fault.data());
    }
    return all;
  }

  std::string reap(Nanoseconds deadline) {
    for (int rank = 0; rank < kWorld; ++rank) {
      int status = 0;
      const bool has_ended =
          wait(deadline, [&] { return ::waitpid(pids_[rank], &status, WNOHANG) != 0; });
      if (!has_ended) return sentence("rank ", rank, " hangs at its end");
      pids_[rank] = 0;
      if (is_alive(rank) && status != 0) return "a survivor failed: " + faults();
    }
    return "";
  }

  std::string judge(Times& times) const {
    const RankState* one = nullptr;
    for (int rank = 0; rank < kWorld; ++rank) {
      if (!is_alive(rank)) continue;
      const RankState& state = page_->ranks[rank];
      if (one == nullptr) one = &state;
      if (state.answers != one->answers) return "survivors have had different numbers of answers";
      for (int i = 0; i < state.answers; ++i) {
        const Answer& mine = state.answer[i];
        const Answer& other = one->answer[i];
        if (mine.members != other.members || mine.lost != other.lost ||
            mine.completed_calls != other.completed_calls)
          return "survivors have had different answers";
        // A root of a broadcast is ahead by one call, and the others are within the next.
        if (mine.own_calls < mine.completed_calls || mine.own_calls > mine.completed_calls + 2)
          return sentence("rank ", rank, " had made ", mine.own_calls, " calls, and all ",
                          mine.completed_calls);
        times.answers.push_back(mine.answered - mine.called);
        if (times.answers.back() > kGoal) {
          std::printf("%s: rank %d had its answer after %s\n", describe().c_str(), rank,
                      base::show_duration(times.answers.back()).c_str());
        }
        if (mine.went_on != 0) times.goings_on.push_back(mine.went_on - mine.answered);
      }
      times.losses.push_back(state.answer[state.answers - 1].went_on - struck_at_);
    }
    return "";
  }

  std::mt19937_64 random_;
  std::uint64_t seed_;
  int first_ = -1;
  int second_ = -1;  // -1: only one rank is killed
  bool is_in_agreement_ = false;
  Nanoseconds work_ = 0;
  Nanoseconds delay_ = 0;
  Nanoseconds struck_at_ = 0;
  std::array<pid_t, kWorld> pids_ = {};
  SharedPage page_;
};

void show(const char* what, std::vector<Nanoseconds> times) {
  if (times.empty()) return;
  std::sort(times.begin(), times.end());
  const auto at = [&](double share) {
    return times[static_cast<std::size_t>(share * static_cast<double>(times.size() - 1))];
  };
  std::printf("%s: median %s, 99 %% %s, slowest %s (%zu)\n", what,
              base::show_duration(at(0.5)).c_str(), base::show_duration(at(0.99)).c_str(),
              base::show_duration(times.back()).c_str(), times.size());
}

std::int64_t read_option(const std::vector<std::string>& words, std::string_view option,
                         std::int64_t otherwise) {
  const auto found = std::find(words.begin(), words.end(), option);
  if (found == words.end()) return otherwise;
  const auto number = found + 1 == words.end() ? std::nullopt : base::parse_int(*(found + 1));
  PLAIT_CHECK(number && *number >= 0, option, " needs a number");
  return *number;
}

int run(const std::vector<std::string>& words) {
  const std::int64_t rounds = read_option(words, "--rounds", 30);
  const std::int64_t seed = read_option(words, "--seed", 1);
  Times times;
  int wrong = 0;
  for (std::int64_t i = 0; i < rounds; ++i) {
    Round round(static_cast<std::uint64_t>(seed + i));
    const std::string fault = round.run(times);
    if (fault.empty()) continue;
    ++wrong;
    std::printf("%s: %s\n", round.describe().c_str(), fault.c_str());
    std::fflush(stdout);
  }
  std::printf("%lld rounds, %d wrong\n", static_cast<long long>(rounds), wrong);
  show("survivors()", times.answers);
  show("from there until the first product", times.goings_on);
  show("from the last death until that product", times.losses);
  return wrong == 0 ? 0 : 1;
}

}  // namespace
}  // namespace plait::chaos

int main(int argc, char** argv) try {
  return plait::chaos::run(std::vector<std::string>(argv + 1, argv + argc));
} catch (const std::exception& error) {
  std::fprintf(stderr, "%s\n", error.what());
  return 2;
}
