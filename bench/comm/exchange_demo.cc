// Two ranks exchange chunks of growing size through shared memory, then over an emulated link.
#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "base/text.h"
#include "copies.h"
#include "exchange.h"
#include "link_trial.h"
#include "ranks.h"
#include "settings.h"

namespace plait::bench {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;
constexpr auto kLink = "25gbit,5us";

// A demonstration takes seconds, whatever else the machine does.
constexpr Effort kEffort = {
    .repetitions = 31, .lasting = 500 * base::kMicrosecond, .patience = 400 * base::kMillisecond};

struct Figures {
  std::size_t bytes;
  double round_trip;  // nanoseconds
  double one_way;
  double memcpy;

  double gigabytes_per_second() const { return static_cast<double>(bytes) / one_way; }
  double share() const { return memcpy / one_way; }
};

std::string size_text(std::size_t bytes) { return base::show_bytes(static_cast<double>(bytes)); }

Figures measure(BenchRank& self, std::size_t bytes) {
  const int rank = self.comm.rank();
  MailboxExchange back_and_forth(self.comm, bytes);
  MailboxExchange stream(self.comm, bytes);
  Copies copies(bytes);
  prove(back_and_forth, [](auto& chunks, int r) { there_and_back(chunks, r); }, rank);
  prove(stream, [](auto& chunks, int r) { one_way(chunks, r); }, rank);
  const auto times = race(self.comm,
                          {{"round trip", [&] { there_and_back(back_and_forth, rank); }},
                           {"one way", [&] { one_way(stream, rank); }},
                           {"memcpy", [&] { copies.copy(); }}},
                          kEffort);
  back_and_forth.verify();
  stream.verify();
  return {.bytes = bytes,
          .round_trip = times[0].median,
          .one_way = times[1].median,
          .memcpy = times[2].median};
}

void print_mailbox() {
  std::cout << fmt::format("{:>10}{:>14}{:>14}{:>14}{:>16}\n", "chunk", "there and", "one way",
                           "memcpy", "one way beside")
            << fmt::format("{:>10}{:>14}{:>14}{:>14}{:>16}\n", "", "back, us", "GB/s", "GB/s",
                           "memcpy, %");
  std::vector<Figures> table;
  run_ranks({}, [&](BenchRank& self) {
    for (const std::size_t bytes :
         {std::size_t{64}, kKiB, 16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB}) {
      const Figures row = measure(self, bytes);
      if (self.comm.rank() != 0) continue;
      table.push_back(row);
      std::cout << fmt::format("{:>10}{:>14.2f}{:>14.2f}{:>14.2f}{:>16.0f}\n", size_text(bytes),
                               row.round_trip / 1e3, row.gigabytes_per_second(),
                               static_cast<double>(bytes) / row.memcpy, row.share() * 100)
                << std::flush;
    }
  });
  const Figures& best = *std::max_element(table.begin(), table.end(), [](auto& a, auto& b) {
    return a.gigabytes_per_second() < b.gigabytes_per_second();
  });
  const Figures& largest = table.back();
  std::cout << fmt::format(
      "\nHere a chunk of {} is with the other rank and back in {:.2f} us, and chunks of {} flow "
      "at\n"
      "{:.1f} GB/s, as over a link of {:.0f} Gbit/s. Unlike memcpy's bytes, which stay with one "
      "core,\n"
      "a chunk is written by one and read by another, and that way is what it costs.\n",
      size_text(table.front().bytes), table.front().round_trip / 1e3, size_text(best.bytes),
      best.gigabytes_per_second(), best.gigabytes_per_second() * 8);
  if (largest.gigabytes_per_second() < best.gigabytes_per_second() / 2)
    std::cout << fmt::format(
        "Chunks of {} are slower: several of them outgrow the cores' caches.\n",
        size_text(largest.bytes));
}

void print_link() {
  const Link link = parse_link(kLink);
  std::cout << fmt::format("\nThe same over an {}, which no machine here has:\n\n", describe(link))
            << fmt::format("{:>10}{:>14}{:>14}{:>14}{:>16}\n", "chunk", "arrives, us", "ideal, us",
                           "late, %", "GB/s");
  double latest = 0;
  run_ranks({.link = link}, [&](BenchRank& self) {
    for (const std::size_t bytes : {64 * kKiB, 256 * kKiB, kMiB, 4 * kMiB}) {
      const LinkTrial trial = try_link(self.comm, bytes, Waiting::blocked, kEffort);
      if (self.comm.rank() != 0) continue;
      const double late = trial.measured.median / trial.ideal - 1;
      latest = std::max(latest, late);
      std::cout << fmt::format("{:>10}{:>14.1f}{:>14.1f}{:>14.2f}{:>16.2f}\n", size_text(bytes),
                               trial.measured.median / 1e3, trial.ideal / 1e3, late * 100,
                               static_cast<double>(bytes) / trial.measured.median)
                << std::flush;
    }
  });
  std::cout << fmt::format(
      "\nChunks arrive when such a link would have brought them, at most {:.1f} % later: what "
      "overlap\n"
      "would gain on it can be measured without having it. All chunks came as they were sent: "
      "each\n"
      "was known by its number, and some of every size were compared byte by byte.\n",
      latest * 100);
}

int run(int argc) {
  if (argc > 1) {
    std::cerr << "usage: exchange_demo   (takes no arguments; plait_bench_comm does)\n";
    return 2;
  }
  std::cout << fmt::format(
      "\nTwo ranks exchange chunks through plait's mailboxes in shared memory.\n{}\n\n",
      this_machine().processor);
  print_mailbox();
  print_link();
  return 0;
}

}  // namespace
}  // namespace plait::bench

int main(int argc, char** /*argv*/) {
  try {
    return plait::bench::run(argc);
  } catch (const std::exception& error) {
    return plait::bench::explain(error, "exchange_demo");
  }
}
