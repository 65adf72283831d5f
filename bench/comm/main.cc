// Measures the mailbox, the collectives and the emulated link, next to memcpy and bare memory.
#include <iostream>

#include "collective_case.h"
#include "copies.h"
#include "exchange.h"
#include "link_trial.h"
#include "ranks.h"
#include "report.h"
#include "settings.h"

namespace plait::bench {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

const Program kProgram = {
    .name = "plait_bench_comm",
    .purpose =
        "Measures plait's mailboxes, collectives and emulated links between pinned ranks of this\n"
        "host.\n"
        "\n"
        "Every figure is the median over repetitions of the time per call, on the slowest rank.\n"
        "Repetitions in which a rank left its processor are repeated. A tilde marks a figure for\n"
        "which all repetitions were disturbed.\n"
        "\n"
        "  mailbox      chunks written from a buffer and read into a buffer, between two ranks.\n"
        "               bare: the same with only a number next to the bytes; this is the limit\n"
        "               memcpy: as many bytes between two buffers that no other rank touches\n"
        "  all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier\n"
        "               back-to-back calls, out of place; sizes are of the whole tensor.\n"
        "               fresh: the input is written before each call, as by a product\n"
        "  link         from post to arrival, compared with latency + bytes/bandwidth\n",
    .examples =
        "Examples:\n"
        "  plait_bench_comm --quick\n"
        "  plait_bench_comm --only all_reduce,barrier --sizes 16KiB,64KiB --repetitions 200\n"
        "  plait_bench_comm --transport threads --ranks 4 --json comm.json\n",
    .sections = {"mailbox", "all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all",
                 "barrier", "link"},
    .starts_ranks = true};

class Bench {
 public:
  explicit Bench(const Settings& settings)
      : settings_(settings),
        group_{.ranks = settings.ranks, .transport = settings.transport},
        report_(base_title(settings), settings.tables()) {}

  int run() {
    if (settings_.wants("mailbox")) run_mailbox();
    run_collectives();
    if (settings_.wants("link")) run_link();
    write_json(report_, settings_);
    return 0;
  }

 private:
  static std::string base_title(const Settings& settings) {
    return "plait: " + std::to_string(settings.ranks) + " ranks over " + settings.transport;
  }

  void keep(Communicator& comm, const std::string& what, std::size_t bytes,
            const std::vector<Contender>& contenders) {
    Race race = {.what = what, .bytes = bytes, .names = {}, .times = {}};
    for (const Contender& contender : contenders) race.names.push_back(contender.name);
    race.times = bench::race(comm, contenders, settings_.effort);
    if (comm.rank() == 0) report_.add(race);
  }

  void run_mailbox() {
    const std::vector<std::size_t> own = {0,         64,        kKiB,       4 * kKiB,
                                          16 * kKiB, 64 * kKiB, 256 * kKiB, kMiB};
    run_ranks(group_, [&](BenchRank& self) {
      for (const std::size_t bytes : settings_.sizes_or(own)) {
        exchange(self, "mailbox, round trip", bytes,
                 [](auto& chunks, int rank) { there_and_back(chunks, rank); });
      }
      for (const std::size_t bytes : settings_.sizes_or(own)) {
        exchange(self, "mailbox, one way", bytes,
                 [](auto& chunks, int rank) { one_way(chunks, rank); });
      }
      for (const std::size_t bytes : settings_.sizes_or(own)) {
        exchange(self, "mailbox, both ways at once", bytes,
                 [](auto& chunks, int rank) { swap_chunks(chunks, rank); });
      }
    });
  }

  template <class Pattern>
  void exchange(BenchRank& self, const std::string& what, std::size_t bytes, Pattern pattern) {
    const int rank = self.comm.rank();
    MailboxExchange mailbox(self.comm, bytes);
    BareExchange bare(self, bytes);
    Copies copies(bytes);
    prove(mailbox, pattern, rank);
    prove(bare, pattern, rank);
    keep(self.comm, what, bytes,
         {{"plait", [&] { pattern(mailbox, rank); }},
          {"bare", [&] { pattern(bare, rank); }},
          {"memcpy", [&] { copies.copy(); }}});
    mailbox.verify();
    bare.verify();
  }

  void run_collectives() {
    run_ranks(group_, [&](BenchRank& self) {
      for (const Operation operation :
           {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
            Operation::broadcast, Operation::all_to_all}) {
        run_collective(self.comm, {operation});
        if (operation == Operation::all_reduce) run_collective(self.comm, {operation, Dtype::bf16});
      }
      CollectiveCase barrier({Operation::barrier}, 0, self.comm);
      if (settings_.wants("barrier"))
        keep(self.comm, "barrier", 0, {{"plait", [&] { barrier.call(); }}});
    });
  }

  void run_collective(Communicator& comm, const CollectiveKind& kind) {
    if (!settings_.wants(std::string(name(kind.operation)))) return;
    const std::vector<std::size_t> own = {64,        kKiB,       4 * kKiB, 16 * kKiB,
                                          64 * kKiB, 256 * kKiB, kMiB,     8 * kMiB};
    for (const std::size_t bytes : settings_.sizes_or(own)) {
      CollectiveCase test(kind, bytes, comm);
      Copies copies(bytes);
      test.check("plait", [&] { test.call(); });
      keep(comm, describe(kind), bytes,
           {{"plait", [&] { test.call(); }},
            {"fresh", [&] { test.call(); }, [&] { test.rewrite(); }},
            {"memcpy", [&] { copies.copy(); }}});
      test.check("plait", [&] { test.call(); });
    }
  }

  void run_link() {
    const Link link = parse_link(settings_.link);
    const std::vector<std::size_t> own = {512 * kKiB, kMiB, 4 * kMiB, 8 * kMiB};
    RankGroup group = group_;
    group.link = link;
    run_ranks(group, [&](BenchRank& self) {
      for (const Waiting waiting : {Waiting::blocked, Waiting::working}) {
        for (const std::size_t bytes : settings_.sizes_or(own)) {
          const LinkTrial trial = try_link(self.comm, bytes, waiting, settings_.effort);
          if (self.comm.rank() == 0) report_.add(trial);
        }
      }
    });
  }

  const Settings& settings_;
  RankGroup group_;
  Report report_;
};

}  // namespace
}  // namespace plait::bench

int main(int argc, char** argv) {
  plait::bench::Settings settings;
  try {
    if (const auto status =
            plait::bench::read_settings(plait::bench::kProgram, argc, argv, settings))
      return *status;
    return plait::bench::Bench(settings).run();
  } catch (const std::exception& error) {
    return plait::bench::explain(error, "plait_bench_comm");
  }
}
