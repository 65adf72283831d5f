// plait verify: checks every schedule bit for bit on random problems.
#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/as_ranks.h"
#include "cli/console.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "comm/session/transports.h"
#include "launch/signals.h"
#include "measure/collective_check.h"
#include "measure/progress.h"
#include "plait/ops.h"
#include "verify/rounds.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostCases = 100'000'000;
constexpr std::int64_t kMostRanksOfACase = 64;
constexpr const char* kDefaultRanks = "1,2,3,4,5,8";

// The option by which a started rank knows its task: see be_rank().
constexpr const char* kRankWord = "--as-rank";

constexpr Options::About kAbout = {
    .verb = "verify",
    .usage = "[OPTIONS]",
    .purpose =
        "Runs the operators on random problems: odd, tiny and empty sizes, long sums, all dtypes\n"
        "and weights, denormals, infinities and NaNs, emulated links, ranks that come late, ranks\n"
        "whose threads round differently or flush denormals, and sums over other communicators\n"
        "for which ranks wait in different orders. Many calls have fewer rows than they were\n"
        "prepared for, or than a call before had. Every plan runs twice, with two different x.\n"
        "On every rank its results are compared byte by byte with those of the serial plan. The\n"
        "serial results are compared byte by byte with those that the rank computes alone, step\n"
        "by step in the same order, and with sums in f64 within a derived bound. Where 2, 4, 8 or\n"
        "16 ranks must give the bits of one rank, they are also compared byte by byte with those\n"
        "of one rank that has all k; the second line counts these problems. Memory around the\n"
        "results must be unchanged.\n"
        "With --digest the last line has a number made of the bits of all results, with which\n"
        "machines can be compared. It is the same where the options are, and the orders of\n"
        "summing: with PLAIT_ISA=avx2 on all x86 processors that have AVX2, and on 64-bit Arm\n"
        "unless PLAIT_ISA=neon-bfmmla is set.\n"
        "A failing case is printed with the command that repeats it.\n\n"
        "With --layers: column- and row-parallel layers, forward and backward, with and without\n"
        "sequence parallelism, with rows that are kept or gathered again: outputs and gradients.\n"
        "With --ulysses: matmul_all_to_all and all_to_all_matmul, with groups of columns of any\n"
        "size and order, some of them shared, compared byte by byte with the product of one rank.\n"
        "With --experts: layers of experts, forward and backward, with any placement, and rows\n"
        "that all ranks have, compared byte by byte with one rank that has all experts.\n"
        "With --heads: the largest logits, cross entropy and its gradients, gathered logits, and\n"
        "products of gathered columns, compared byte by byte with one rank that has the whole\n"
        "vocabulary; x's gradient if 2, 4, 8 or 16 ranks have equal shares.",
    .examples =
        "Exit status: 0 all passed; 1 a case failed or --json can't be written; 2 wrong usage;\n"
        "3 a rank was lost; 130 after Ctrl-C.\n\n"
        "Examples:\n"
        "  plait verify\n"
        "  plait verify --cases 50000 --seed 7 --ranks 2,3\n"
        "  plait verify --layers --cases 2000\n"
        "  plait verify --ulysses --ranks 2,3\n"
        "  plait verify --experts --ranks 2,3\n"
        "  plait verify --heads --ranks 2,4\n"
        "  plait verify --op matmul-all-reduce --transport shm\n"
        "  mpirun -n 3 plait verify --transport mpi\n"};

std::vector<Operator> all_ops() {
  std::vector<Operator> ops;
  ops.reserve(kOperators);
  for (int i = 0; i < kOperators; ++i) ops.push_back(static_cast<Operator>(i));
  return ops;
}

struct World {
  int ranks;
  std::string transport;
};

struct Verification {
  std::uint64_t seed = 1;
  std::int64_t cases = 200;
  std::vector<std::int64_t> only;
  std::vector<World> worlds;
  std::vector<Operator> ops = all_ops();
  std::string ops_text;
  verify::Rounds::Kind kind = verify::Rounds::Kind::operators;
  bool digest = false;
  std::string json;

  verify::Rounds rounds_of(std::size_t world) const {
    return {.seed = seed, .numbers = numbers_of(world), .ops = ops, .kind = kind};
  }

  // The cases of one world.
  verify::CaseNumbers numbers_of(std::size_t world) const {
    return {.named = only,
            .first = static_cast<std::int64_t>(world),
            .step = static_cast<std::int64_t>(worlds.size()),
            .end = cases};
  }
};

std::vector<Operator> read_ops(std::string_view option, const std::string& text) {
  if (text.empty()) return all_ops();
  std::vector<Operator> ops;
  for (const std::string_view word : base::split(text, ',')) {
    const auto op = parse_operator(word);
    PLAIT_CHECK(op, option, " ", word, " is not an operator; known are matmul, matmul-all-reduce, ",
                "matmul-reduce-scatter, matmul-all-gather, all-gather-matmul, ",
                "reduce-scatter-matmul, all-reduce-matmul");
    ops.push_back(*op);
  }
  return ops;
}

std::vector<std::int64_t> read_case_numbers(std::string_view option, const std::string& text) {
  std::vector<std::int64_t> numbers;
  for (const std::string_view number : base::split(text, ','))
    numbers.push_back(read_number(option, number, 0, kMostCases));
  return numbers;
}

// An option that asks for other cases than those of operators.
struct KindOption {
  verify::Rounds::Kind kind;
  const char* names;
  const char* purpose;
  bool is_given = false;

  std::string name() const { return base::sentence(base::split(names, '|').front()); }
};
using Kinds = std::array<KindOption, 4>;

Kinds kinds_of_cases() {
  using Kind = verify::Rounds::Kind;
  return {{{Kind::layers, "--layers|-l",
            "check linear layers, forward and backward, in place of operators"},
           {Kind::ulysses, "--ulysses",
            "check the operators of sequence parallelism in place of the others"},
           {Kind::experts, "--experts", "check layers of experts in place of operators"},
           {Kind::heads, "--heads",
            "check what follows a product by a vocabulary in place of operators"}}};
}

// The ranks and transports to verify, as typed.
struct WorldOptions {
  std::string ranks = {};
  std::string transports = "threads,shm";
};

// The only world consists of the ranks that a launcher has started.
World read_started_world(const WorldOptions& args) {
  const std::string& transport = args.transports;
  const Place place = place_from_environment();
  PLAIT_CHECK(!place.launcher.empty() || !comm::meets(transport, comm::Meets::by_mpi),
              "mpirun starts ranks of the transport mpi: mpirun -n ",
              args.ranks.empty() ? "3" : args.ranks, " plait verify --transport mpi");
  PLAIT_CHECK(!place.launcher.empty(), "the transport ", transport,
              " needs ranks that plait run --hosts, torchrun or another launcher has started");
  return {.ranks = read_ranks("--ranks", args.ranks, transport), .transport = transport};
}

std::vector<World> read_worlds(const WorldOptions& args) {
  if (comm::crosses_hosts(args.transports)) return {read_started_world(args)};
  std::vector<World> worlds;
  for (const std::string_view transport : base::split(args.transports, ',')) {
    PLAIT_CHECK(!comm::crosses_hosts(transport), "--transport ", args.transports, ": ", transport,
                " cannot be combined with others, because a launcher starts its ranks");
    PLAIT_CHECK(comm::find_transport(transport) != nullptr, "--transport ", transport,
                " is none of ", comm::list_transports());
    const std::string ranks = args.ranks.empty() ? kDefaultRanks : args.ranks;
    for (const std::string_view count : base::split(ranks, ',')) {
      worlds.push_back(
          {.ranks = static_cast<int>(read_number("--ranks", count, 1, kMostRanksOfACase)),
           .transport = std::string(transport)});
    }
  }
  return worlds;
}

void add_options(Options& options, Verification& what, WorldOptions& worlds, Kinds& kinds) {
  options.add("--cases|-c", whole(1, kMostCases), what.cases, "number of problems (default: 200)");
  options.add("--seed|-s", whole(0, INT32_MAX, "S"), what.seed,
              "seed of the problems (default: 1)");
  options.add("-n,--ranks", "N[,N...]", worlds.ranks,
              "sizes of worlds, used in turn (default: 1,2,3,4,5,8)");
  options.add("-t,--transport", "NAME[,...]", worlds.transports,
              "threads and shm, used in turn (default: both); or tcp, mpi or ucx,\n"
              "with ranks that a launcher has started");
  options.offer(transport_words());
  options.add("--op|-o", "OP[,OP...]", what.ops, read_ops, "operators (default: all)");
  options.offer(operator_words());
  for (KindOption& one : kinds) options.add_flag(one.names, one.is_given, one.purpose);
  options.add("--only", "I[,I...]", what.only, read_case_numbers,
              "run only these problems, by the numbers that a failure prints");
  options.add_flag("--digest", what.digest, "print a digest of the results' bits too");
  options.add("--json", "FILE", what.json, "also write the counts as JSON; -: print only JSON");
}

std::optional<Verification> read_verification(Words words) {
  Verification what;
  WorldOptions worlds;
  Options options(kAbout);
  Kinds kinds = kinds_of_cases();
  add_options(options, what, worlds, kinds);
  if (!options.parse_all(words)) return std::nullopt;
  what.ops_text = options.typed("--op");
  std::string first = what.ops_text.empty() ? "" : "--op";
  for (const KindOption& one : kinds) {
    if (!one.is_given) continue;
    PLAIT_CHECK(first.empty(), first, " and ", one.name(), " cannot be combined");
    what.kind = one.kind;
    first = one.name();
  }
  what.worlds = read_worlds(worlds);
  return what;
}

// The command that repeats the last of these cases, after those that shared its mailboxes.
std::string again(const Verification& what, const World& world,
                  std::span<const std::int64_t> numbers) {
  std::string text = fmt::format("plait verify --seed {} --only {} --ranks {} --transport {}",
                                 what.seed, fmt::join(numbers, ","), world.ranks, world.transport);
  if (comm::meets(world.transport, comm::Meets::by_mpi))
    text = fmt::format("mpirun -n {} {}", world.ranks, text);
  if (!what.ops_text.empty()) text += " --op " + what.ops_text;
  for (const KindOption& one : kinds_of_cases())
    if (one.kind == what.kind) text += " " + one.name();
  return text;
}

// The progress counts `total` cases, of which `before` are done.
struct Count {
  std::int64_t before;
  std::int64_t total;
};

verify::RoundsHooks hooks_of(const Verification& what, const World& world,
                             measure::Progress& progress, const Count& count) {
  return {.progress = [&progress, count](
                          std::int64_t done) { progress.show(count.before + done, count.total); },
          .begin = [](std::span<const std::int64_t>, const verify::Tally&) {},
          .failure =
              [&what, world](std::span<const std::int64_t> numbers, const std::string& sentence) {
                complain("plait verify", sentence);
                complain("plait verify", "again: " + again(what, world, numbers));
              }};
}

// The report of ranks in other processes: their counts, and their current cases.
struct RanksReport {
  verify::Tally tally;
  std::size_t count = 0;  // of the cases in the current group, up to the current one
  std::array<std::int64_t, verify::kCasesPerGroup> numbers = {};  // of these cases

  std::span<const std::int64_t> numbers_so_far() const { return std::span(numbers).first(count); }
};

// Shared memory for the report.
class SharedReport {
 public:
  SharedReport() : fd_(memfd_create("plait-verify", 0)) {
    PLAIT_CHECK(fd_.get() >= 0 && ftruncate(fd_.get(), sizeof(RanksReport)) == 0,
                "cannot create memory for the ranks' counts");
  }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_.get()); }
  RanksReport read() const {
    RanksReport report;
    PLAIT_CHECK(pread(fd_.get(), &report, sizeof(report), 0) == sizeof(report),
                "cannot read the ranks' counts");
    return report;
  }

 private:
  base::Fd fd_;
};

// A rank's access to the report.
class ReportWriter {
 public:
  explicit ReportWriter(const std::string& path) : fd_(open(path.c_str(), O_WRONLY | O_CLOEXEC)) {}
  void write(const RanksReport& report) const {
    PLAIT_CHECK(fd_.get() >= 0 && pwrite(fd_.get(), &report, sizeof(report), 0) == sizeof(report),
                "cannot write the counts for the process that started the ranks");
  }

 private:
  base::Fd fd_;
};

// Runs as a rank in another process. Its words are --as-rank BOARD WORLD, then those of the user.
int be_rank(Words words) {
  const auto read = read_verification(words.subspan(3));
  PLAIT_CHECK(read.has_value(), "--as-rank: no cases to verify");
  const Verification& what = *read;
  const auto index = static_cast<std::size_t>(read_number(kRankWord, words[2], 0, INT32_MAX));
  const World& world = what.worlds.at(index);
  Communicator comm = Communicator::connect({.transport = world.transport});
  measure::Progress progress(comm.rank() == 0 ? "verifying, problem" : "");
  // Counts only the cases of this world; each world has its own progress.
  verify::RoundsHooks hooks =
      hooks_of(what, world, progress, {.before = 0, .total = what.numbers_of(index).size()});
  if (comm.rank() != 0) {
    hooks.progress = [](std::int64_t) {};
    verify::run_rounds(what.rounds_of(index), comm, hooks);
    return kDone;
  }
  const ReportWriter writer(words[1]);
  RanksReport report;
  hooks.begin = [&](std::span<const std::int64_t> numbers, const verify::Tally& before) {
    report.tally = before;
    report.count = numbers.size();
    std::copy(numbers.begin(), numbers.end(), report.numbers.begin());
    writer.write(report);
  };
  report.tally = verify::run_rounds(what.rounds_of(index), comm, hooks);
  writer.write(report);
  return kDone;
}

struct Outcome {
  verify::Tally tally;
  int status = kDone;
};

Outcome run_processes(const Verification& what, std::size_t index, Words words) {
  const SharedReport shared;
  std::vector<std::string> launch = {"-n",          std::to_string(what.worlds[index].ranks),
                                     "--bind",      "none",
                                     "--",          "/proc/self/exe",
                                     "verify",      kRankWord,
                                     shared.path(), std::to_string(index)};
  launch.insert(launch.end(), words.begin(), words.end());
  int status = kDone;
  {
    launch::RestoredSignals restored;  // for the next world
    status = run_for("plait verify", launch);
    if (was_told_to_end(status)) restored.discard_requests();
  }
  RanksReport report = shared.read();
  if (status != kDone && report.count > 0 && !report.tally.ended && !was_told_to_end(status)) {
    report.tally.failed += 1;
    complain("plait verify", "again: " + again(what, what.worlds[index], report.numbers_so_far()));
  }
  return {.tally = report.tally, .status = status_of_ranks(status)};
}

Outcome run_threads(const Verification& what, std::size_t index, std::int64_t before) {
  const World& world = what.worlds[index];
  measure::Progress progress("verifying, problem");
  Outcome outcome;
  run_in_threads(world.ranks, [&](Communicator& comm) {
    const std::int64_t total = what.only.empty() ? what.cases : what.numbers_of(index).size();
    verify::RoundsHooks hooks = hooks_of(what, world, progress, {.before = before, .total = total});
    if (comm.rank() != 0) hooks.progress = [](std::int64_t) {};
    const verify::Tally tally = verify::run_rounds(what.rounds_of(index), comm, hooks);
    if (comm.rank() == 0) outcome.tally = tally;
  });
  return outcome;
}

void tell(const Verification& what, const verify::Tally& tally, bool was_interrupted) {
  const std::string digest = fmt::format("{:016x}", tally.digest);
  std::string line = fmt::format("{} passed, {} failed{}\n", tally.passed, tally.failed,
                                 was_interrupted ? "; the others were not run" : "");
  line += tally.as_one == 0
              ? "none of the passed had to give one rank's bits\n"
              : fmt::format("{} of the passed had to give one rank's bits too, and did\n",
                            tally.as_one);
  if (what.digest) line += "digest " + digest + "\n";
  if (what.json.empty()) return answer(line);
  const nlohmann::ordered_json json = {{"seed", what.seed},
                                       {"passed", tally.passed},
                                       {"failed", tally.failed},
                                       {"as_on_one_rank", tally.as_one},
                                       {"digest", digest}};
  if (what.json == "-") return answer(json.dump(2) + "\n");
  write_file(what.json, json.dump(2) + "\n");
  answer(line);
}

// Runs as one of the ranks that a launcher has started. Rank 0 prints the results of all.
int verify_as_rank(const Verification& what) {
  const World& world = what.worlds.front();
  Communicator comm = Communicator::connect({.transport = world.transport});
  const auto refusal = measure::refusal_of_all(comm, [&] {
    if (comm.rank() == 0 && !what.json.empty() && what.json != "-") base::check_writable(what.json);
  });
  if (refusal) return exit_status(*refusal);
  measure::Progress progress(comm.rank() == 0 ? "verifying, problem" : "");
  verify::RoundsHooks hooks =
      hooks_of(what, world, progress, {.before = 0, .total = what.numbers_of(0).size()});
  if (comm.rank() != 0) hooks.progress = [](std::int64_t) {};
  const verify::Tally tally = verify::run_rounds(what.rounds_of(0), comm, hooks);
  if (comm.rank() == 0) tell(what, tally, false);
  return tally.failed == 0 ? kDone : kCheckFailed;
}

}  // namespace

int verify(Words words) {
  if (!words.empty() && words[0] == kRankWord && words.size() >= 3) return be_rank(words);
  const auto given = read_verification(words);
  if (!given) return kDone;
  const Verification& what = *given;
  if (comm::crosses_hosts(what.worlds.front().transport)) return verify_as_rank(what);
  if (!what.json.empty() && what.json != "-") base::check_writable(what.json);
  verify::Tally all;
  int status = kDone;
  for (std::size_t i = 0; i < what.worlds.size(); ++i) {
    if (what.numbers_of(i).size() == 0) continue;
    const Outcome outcome = comm::meets(what.worlds[i].transport, comm::Meets::in_process)
                                ? run_threads(what, i, all.passed + all.failed)
                                : run_processes(what, i, words);
    all.passed += outcome.tally.passed;
    all.failed += outcome.tally.failed;
    all.as_one += outcome.tally.as_one;
    all.digest += outcome.tally.digest;
    status = outcome.status;
    if (status != kDone || outcome.tally.ended) break;
  }
  tell(what, all, was_told_to_end(status));
  if (status != kDone) return status;
  return all.failed == 0 ? kDone : kCheckFailed;
}

}  // namespace plait::cli
