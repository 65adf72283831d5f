// Kills one or two of four ranks that multiply, also while the others agree on who is left, and
// checks that the others go on together: all get the same answers, and the products of the smaller
// group are right.
//
//   plait_going_on                      30 rounds
//   plait_going_on --rounds 1 --seed 7  one round again
//
// Even seeds are rounds over shm, odd ones over tcp.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/text.h"
#include "chaos/going_on_rank.h"

namespace plait::chaos {
namespace {

using base::Nanoseconds;
using base::sentence;

constexpr Nanoseconds kGoal = 200 * base::kMillisecond;  // longer times are shown
constexpr Nanoseconds kWatchdog = 30 * base::kSecond;

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

  // The fault; empty: there is none.
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
