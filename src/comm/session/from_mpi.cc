#include <unistd.h>

#include <algorithm>
#include <climits>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "base/clock.h"
#include "base/env.h"
#include "base/host.h"
#include "base/random.h"
#include "base/text.h"
#include "comm/core/deadline.h"
#include "comm/session/connect.h"
#include "plait/mpi_ranks.h"

namespace plait {
namespace {

using base::Nanoseconds;

// Gathers texts of any length by MPI's all-gathers of equal parts, and waits for them as plait
// waits: with a deadline, and with the caller's hook.
class Gatherer {
 public:
  Gatherer(MpiRanks ranks, comm::WaitPolicy policy)
      : ranks_(std::move(ranks)), policy_(std::move(policy)), deadline_(policy_.connect_timeout) {}

  // Later than it began by what does not count of long turns.
  Nanoseconds began_at() const { return deadline_.at() - policy_.connect_timeout; }

  std::vector<std::string> all_gather(const std::string& mine) {
    constexpr std::size_t kDigits = 10;
    PLAIT_CHECK(mine.size() <= INT_MAX / 2, "from_mpi: ", mine.size(), " bytes to exchange");
    std::string length = std::to_string(mine.size());
    length.resize(kDigits, ' ');
    std::vector<std::size_t> lengths;
    for (const std::string& text : gather_equal(length)) {
      const auto bytes = base::parse_int(text.substr(0, text.find(' ')));
      PLAIT_CHECK(bytes && *bytes >= 0 && *bytes <= INT_MAX / 2,
                  "from_mpi: MPI_Iallgather brought \"", text, "\" for a length");
      lengths.push_back(static_cast<std::size_t>(*bytes));
    }
    std::string padded = mine;
    padded.resize(std::max<std::size_t>(*std::max_element(lengths.begin(), lengths.end()), 1));
    std::vector<std::string> texts = gather_equal(padded);
    for (std::size_t rank = 0; rank < texts.size(); ++rank) texts[rank].resize(lengths[rank]);
    return texts;
  }

 private:
  struct Exchange {
    std::string mine;
    std::string all;
    MpiRanks::Ended has_ended = {};
  };

  std::vector<std::string> gather_equal(const std::string& mine) {
    auto exchange = std::make_unique<Exchange>(
        Exchange{.mine = mine, .all = std::string(world() * mine.size(), '\0')});
    exchange->has_ended = ranks_.begin_all_gather(exchange->mine.data(), exchange->all.data(),
                                                  static_cast<int>(mine.size()));
    try {
      wait(exchange->has_ended);
    } catch (...) {
      // MPI may write to it until the process ends: it is lost on purpose.
      [[maybe_unused]] const Exchange* lost = exchange.release();
      throw;
    }
    std::vector<std::string> parts;
    parts.reserve(world());
    for (std::size_t rank = 0; rank < world(); ++rank)
      parts.push_back(exchange->all.substr(rank * mine.size(), mine.size()));
    return parts;
  }

  void wait(const MpiRanks::Ended& has_ended) {
    constexpr int kWithoutPause = 100;
    constexpr Nanoseconds kBetweenQuestions = 10 * base::kMillisecond;
    Nanoseconds ask_at = 0;
    for (int turn = 0; !has_ended(); ++turn) {
      const Nanoseconds now = base::now();
      if (policy_.interrupted && now >= ask_at) {
        policy_.interrupted();
        ask_at = now + kBetweenQuestions;
      }
      if (deadline_.is_over(now)) {
        base::fail(Code::timeout, "from_mpi: rank ", ranks_.rank, " has waited ",
                   base::show_duration(policy_.connect_timeout), " for the other ranks of its ",
                   ranks_.world, ": not all have called it");
      }
      if (turn > kWithoutPause) ::usleep(100);
    }
  }

  std::size_t world() const { return static_cast<std::size_t>(ranks_.world); }

  MpiRanks ranks_;
  comm::WaitPolicy policy_;
  comm::Deadline deadline_;
};

// Ranks with the same text can use the transport shm together. A host that can't be told from
// others has none but this one.
std::string home_of_this_process(const MpiRanks& ranks, const std::string& host) {
  const std::string machine = base::host_id();
  return base::sentence(machine.empty() ? base::sentence("rank ", ranks.rank) : machine, ' ',
                        base::namespace_id("net"), ' ', host);
}

Place find_place(const MpiRanks& ranks, const AllGatherBytes& all_gather) {
  Place place = {.rank = ranks.rank,
                 .world = ranks.world,
                 .launcher = "MPI",
                 .host = base::env("PLAIT_HOST").value_or("")};
  const auto homes = all_gather(home_of_this_process(ranks, place.host));
  const auto here = homes.begin() + place.rank;
  place.local_rank = static_cast<int>(std::count(homes.begin(), here, *here));
  place.hosts = static_cast<int>(std::set(homes.begin(), homes.end()).size());
  place.job = all_gather(ranks.rank == 0 ? base::random_name() : "").front();
  return place;
}

}  // namespace

Communicator connect_mpi(const MpiRanks& ranks, CommunicatorOptions options) {
  PLAIT_CHECK(!options.place && !options.all_gather,
              "from_mpi: MPI says where the ranks are: give no place and no all_gather");
  PLAIT_CHECK(ranks.world > 0 && ranks.rank >= 0 && ranks.rank < ranks.world,
              "from_mpi: there is no rank ", ranks.rank, " in a world of ", ranks.world);
  Gatherer gatherer(ranks, comm::wait_policy_of(options));
  options.all_gather = [&](const std::string& mine) { return gatherer.all_gather(mine); };
  options.place = find_place(ranks, options.all_gather);
  return comm::connect(options,
                       comm::MpiProgram{.handle = ranks.handle, .began_at = gatherer.began_at()});
}

}  // namespace plait
