// plait verify: random problems, every schedule, bit for bit.
#include <fcntl.h>
#include <fmt/core.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/atomic_file.h"
#include "base/check.h"
#include "base/fd.h"
#include "base/text.h"
#include "cli/bench/as_ranks.h"
#include "cli/bench/consent.h"
#include "cli/bench/progress.h"
#include "cli/launch/signals.h"
#include "cli/options.h"
#include "cli/output_files.h"
#include "cli/speech.h"
#include "cli/values.h"
#include "cli/verbs.h"
#include "cli/verify/rounds.h"
#include "plait/ops.h"

namespace plait::cli {
namespace {

constexpr std::int64_t kMostCases = 100'000'000;
constexpr std::int64_t kMostRanks = 64;
constexpr const char* kDefaultRanks = "1,2,3,5";

// How a rank that was started for it is told so: see be_rank().
constexpr const char* kRankWord = "--as-rank";

constexpr Options::About kAbout = {
    .verb = "verify",
    .usage = "[OPTIONS]",
    .purpose =
        "Runs the operators on random problems: odd, tiny and empty sizes, long sums, all dtypes "
        "and\n"
        "weights, denormals, infinities and NaNs, emulated links, ranks that come late, or whose\n"
        "threads round otherwise or flush denormals, and a sum of another communicator beside a "
        "call.\n"
        "Many are prepared for more rows than they have, or follow a call that had more.\n"
        "Every plan runs twice, with two x. Its results are compared byte by byte with the serial\n"
        "ones on every rank; the serial ones byte by byte with what the rank makes alone, step by\n"
        "step, in the order of ranks, and with sums in f64 within a derived bound. Nothing around\n"
        "the results may have been written. A case that fails is printed with the command that "
        "runs\n"
        "it again.\n\n"
        "With --layers: column- and row-parallel layers, forward and backward, with sequence\n"
        "parallelism and without, whatever is kept or gathered again: outputs and gradients.",
    .examples =
        "Exit status: 0 when all passed; 1 when one failed or --json can't be written; 2 for "
        "wrong\n"
        "usage; 3 when a rank was lost; 130 after Ctrl-C.\n\n"
        "Examples:\n"
        "  plait verify\n"
        "  plait verify --cases 50000 --seed 7 --ranks 2,3\n"
        "  plait verify --layers --cases 2000\n"
        "  plait verify --op matmul-all-reduce --transport shm\n"
        "  mpirun -n 3 plait verify --transport mpi\n"};

struct Wishes {
  std::string cases = "200";
  std::string seed = "1";
  std::string ranks;
  std::string transports = "threads,shm";
  std::string ops;
  std::string only;
  std::string json;
  bool layers = false;
};

void add_options(Options& options, Wishes& wishes) {
  options.add("-c,--cases", "N", wishes.cases, "how many problems (default: 200)");
  options.add("-s,--seed", "S", wishes.seed, "which problems (default: 1)");
  options.add("-n,--ranks", "N[,N...]", wishes.ranks,
              "worlds, which take turns (default: 1,2,3,5)");
  options.add("-t,--transport", "NAME[,...]", wishes.transports,
              "threads and shm, which take turns (default: both); or mpi, whose\n"
              "ranks mpirun starts");
  options.add("-o,--op", "OP[,OP...]", wishes.ops, "operators (default: all)");
  options.add_flag("-l,--layers", wishes.layers,
                   "the linear layers, forward and backward, in place of operators");
  options.add("--only", "I[,I...]", wishes.only,
              "problems of these numbers alone, as a failure says them");
  options.add("--json", "FILE", wishes.json, "write the counts as JSON too; - : print only those");
}

struct World {
  int ranks;
  std::string transport;
};

struct Verification {
  std::uint64_t seed = 1;
  std::int64_t cases = 0;
  std::vector<std::int64_t> only;
  std::vector<World> worlds;
  std::vector<Operator> ops;
  std::string ops_text;
  bool layers = false;
  std::string json;

  Rounds rounds_of(std::size_t world) const {
    return {.seed = seed, .numbers = numbers_of(world), .ops = ops, .layers = layers};
  }

  // The cases that fall to a world.
  CaseNumbers numbers_of(std::size_t world) const {
    return {.named = only,
            .first = static_cast<std::int64_t>(world),
            .step = static_cast<std::int64_t>(worlds.size()),
            .end = cases};
  }
};

std::vector<Operator> read_ops(const std::string& text) {
  std::vector<Operator> ops;
  if (text.empty()) {
    for (int i = 0; i < kOperators; ++i) ops.push_back(static_cast<Operator>(i));
    return ops;
  }
  for (const std::string_view word : base::split(text, ',')) {
    const auto op = parse_operator(word);
    PLAIT_CHECK(op, "--op ", word, " is no operator; there are matmul, matmul-all-reduce, ",
                "matmul-reduce-scatter, matmul-all-gather, all-gather-matmul, ",
                "reduce-scatter-matmul and all-reduce-matmul");
    ops.push_back(*op);
  }
  return ops;
}

// The ranks that mpirun has started are all that there are.
World read_started_world(const Wishes& wishes) {
  const Place place = place_from_environment();
  PLAIT_CHECK(!place.launcher.empty(),
              "ranks of the transport mpi are started by mpirun, as in mpirun -n ",
              wishes.ranks.empty() ? "3" : wishes.ranks, " plait verify --transport mpi");
  return {.ranks = read_ranks("--ranks", wishes.ranks, "mpi"), .transport = "mpi"};
}

std::vector<World> read_worlds(const Wishes& wishes) {
  if (wishes.transports == "mpi") return {read_started_world(wishes)};
  std::vector<World> worlds;
  for (const std::string_view transport : base::split(wishes.transports, ',')) {
    PLAIT_CHECK(transport != "mpi", "--transport ", wishes.transports,
                ": mpi takes no turns with others, since mpirun starts its ranks");
    PLAIT_CHECK(transport == "threads" || transport == "shm", "--transport ", transport,
                " is none of threads, shm and mpi");
    const std::string ranks = wishes.ranks.empty() ? kDefaultRanks : wishes.ranks;
    for (const std::string_view count : base::split(ranks, ',')) {
      worlds.push_back({.ranks = static_cast<int>(read_number("--ranks", count, 1, kMostRanks)),
                        .transport = std::string(transport)});
    }
  }
  return worlds;
}

Verification understand(const Wishes& wishes) {
  Verification what;
  what.seed = static_cast<std::uint64_t>(read_number("--seed", wishes.seed, 0, INT32_MAX));
  what.cases = read_number("--cases", wishes.cases, 1, kMostCases);
  if (!wishes.only.empty()) {
    for (const std::string_view number : base::split(wishes.only, ','))
      what.only.push_back(read_number("--only", number, 0, kMostCases));
  }
  what.ops = read_ops(wishes.ops);
  what.ops_text = wishes.ops;
  what.layers = wishes.layers;
  PLAIT_CHECK(!what.layers || what.ops_text.empty(), "--layers and --op exclude one another");
  what.json = wishes.json;
  what.worlds = read_worlds(wishes);
  return what;
}

// The command that runs the last of these cases again, after those that shared its mailboxes.
std::string again(const Verification& what, const World& world,
                  std::span<const std::int64_t> numbers) {
  std::string text = fmt::format("plait verify --seed {} --only {} --ranks {} --transport {}",
                                 what.seed, fmt::join(numbers, ","), world.ranks, world.transport);
  if (world.transport == "mpi") text = fmt::format("mpirun -n {} {}", world.ranks, text);
  if (!what.ops_text.empty()) text += " --op " + what.ops_text;
  if (what.layers) text += " --layers";
  return text;
}

// Of how many cases the progress is: `before` are done.
struct Count {
  std::int64_t before;
  std::int64_t total;
};

RoundsHooks hooks_of(const Verification& what, const World& world, Progress& progress,
                     const Count& count) {
  return {.progress = [&progress, count](
                          std::int64_t done) { progress.show(count.before + done, count.total); },
          .begin = [](std::span<const std::int64_t>, const Tally&) {},
          .failure =
              [&what, world](std::span<const std::int64_t> numbers, const std::string& sentence) {
                complain("plait verify", sentence);
                complain("plait verify", "again: " + again(what, world, numbers));
              }};
}

// What the ranks of another process tell: what they have counted, and where they are.
struct News {
  Tally tally;
  std::size_t count = 0;  // of the cases that share a group, up to this one
  std::array<std::int64_t, kCasesPerGroup> numbers = {};  // theirs

  std::span<const std::int64_t> company() const { return std::span(numbers).first(count); }
};

// Memory by which they tell it.
class Board {
 public:
  Board() : fd_(memfd_create("plait-verify", 0)) {
    PLAIT_CHECK(fd_.get() >= 0 && ftruncate(fd_.get(), sizeof(News)) == 0,
                "no memory for the ranks' counts");
  }
  std::string path() const { return fmt::format("/proc/{}/fd/{}", getpid(), fd_.get()); }
  News read() const {
    News news;
    PLAIT_CHECK(pread(fd_.get(), &news, sizeof(news), 0) == sizeof(news),
                "the ranks' counts can't be read");
    return news;
  }

 private:
  base::Fd fd_;
};

// The board as a rank sees it.
class Pen {
 public:
  explicit Pen(const std::string& path) : fd_(open(path.c_str(), O_WRONLY | O_CLOEXEC)) {}
  void write(const News& news) const {
    PLAIT_CHECK(fd_.get() >= 0 && pwrite(fd_.get(), &news, sizeof(news), 0) == sizeof(news),
                "the counts can't be told to who started the ranks");
  }

 private:
  base::Fd fd_;
};

// What a rank of another process is started with: --as-rank BOARD WORLD and the user's own words.
int be_rank(Words words) {
  Wishes wishes;
  Options options(kAbout);
  add_options(options, wishes);
  options.parse(words.subspan(3));
  const Verification what = understand(wishes);
  const auto index = static_cast<std::size_t>(read_number(kRankWord, words[2], 0, INT32_MAX));
  const World& world = what.worlds.at(index);
  Communicator comm = Communicator::connect({.transport = world.transport});
  Progress progress(comm.rank() == 0 ? "verifying, problem" : "");
  // Of this world's own: the others count theirs in turns.
  RoundsHooks hooks =
      hooks_of(what, world, progress, {.before = 0, .total = what.numbers_of(index).size()});
  if (comm.rank() != 0) {
    hooks.progress = [](std::int64_t) {};
    run_rounds(what.rounds_of(index), comm, hooks);
    return kDone;
  }
  const Pen pen(words[1]);
  News news;
  hooks.begin = [&](std::span<const std::int64_t> numbers, const Tally& before) {
    news.tally = before;
    news.count = numbers.size();
    std::copy(numbers.begin(), numbers.end(), news.numbers.begin());
    pen.write(news);
  };
  news.tally = run_rounds(what.rounds_of(index), comm, hooks);
  pen.write(news);
  return kDone;
}

struct Outcome {
  Tally tally;
  int status = kDone;
};

Outcome run_processes(const Verification& what, std::size_t index, Words words) {
  const Board board;
  std::vector<std::string> launch = {"-n",         std::to_string(what.worlds[index].ranks),
                                     "--bind",     "none",
                                     "--",         "/proc/self/exe",
                                     "verify",     kRankWord,
                                     board.path(), std::to_string(index)};
  launch.insert(launch.end(), words.begin(), words.end());
  int status = kDone;
  {
    const GivenBack given_back;  // to the next world
    status = run(launch);
  }
  News news = board.read();
  if (status != kDone && news.count > 0 && !news.tally.ended && !was_told_to_end(status)) {
    news.tally.failed += 1;
    complain("plait verify", "again: " + again(what, what.worlds[index], news.company()));
  }
  return {.tally = news.tally, .status = status_of_ranks(status)};
}

Outcome run_threads(const Verification& what, std::size_t index, std::int64_t before) {
  const World& world = what.worlds[index];
  Progress progress("verifying, problem");
  Outcome outcome;
  run_in_threads(world.ranks, [&](Communicator& comm) {
    const std::int64_t total = what.only.empty() ? what.cases : what.numbers_of(index).size();
    RoundsHooks hooks = hooks_of(what, world, progress, {.before = before, .total = total});
    if (comm.rank() != 0) hooks.progress = [](std::int64_t) {};
    const Tally tally = run_rounds(what.rounds_of(index), comm, hooks);
    if (comm.rank() == 0) outcome.tally = tally;
  });
  return outcome;
}

void tell(const Verification& what, const Tally& tally, bool was_interrupted) {
  const std::string line = fmt::format("{} passed, {} failed{}\n", tally.passed, tally.failed,
                                       was_interrupted ? ", and the others were not tried" : "");
  if (what.json.empty()) return answer(line);
  const nlohmann::ordered_json json = {
      {"seed", what.seed}, {"passed", tally.passed}, {"failed", tally.failed}};
  if (what.json == "-") return answer(json.dump(2) + "\n");
  write_file(what.json, json.dump(2) + "\n");
  answer(line);
}

// As one of the ranks that a launcher has started: rank 0 tells what all have found.
int verify_as_rank(const Verification& what) {
  const World& world = what.worlds.front();
  Communicator comm = Communicator::connect({.transport = world.transport});
  const auto refusal = refusal_of_all(comm, [&] {
    if (comm.rank() == 0 && !what.json.empty() && what.json != "-") base::check_writable(what.json);
  });
  if (refusal) return exit_status(*refusal);
  Progress progress(comm.rank() == 0 ? "verifying, problem" : "");
  RoundsHooks hooks =
      hooks_of(what, world, progress, {.before = 0, .total = what.numbers_of(0).size()});
  if (comm.rank() != 0) hooks.progress = [](std::int64_t) {};
  const Tally tally = run_rounds(what.rounds_of(0), comm, hooks);
  if (comm.rank() == 0) tell(what, tally, false);
  return tally.failed == 0 ? kDone : kCheckFailed;
}

}  // namespace

int verify(Words words) {
  if (!words.empty() && words[0] == kRankWord && words.size() >= 3) return be_rank(words);
  Wishes wishes;
  Options options(kAbout);
  add_options(options, wishes);
  if (!options.parse_all(words)) return kDone;
  const Verification what = understand(wishes);
  if (what.worlds.front().transport == "mpi") return verify_as_rank(what);
  if (!what.json.empty() && what.json != "-") base::check_writable(what.json);
  Tally all;
  int status = kDone;
  for (std::size_t i = 0; i < what.worlds.size(); ++i) {
    if (what.numbers_of(i).size() == 0) continue;
    const Outcome outcome = what.worlds[i].transport == "threads"
                                ? run_threads(what, i, all.passed + all.failed)
                                : run_processes(what, i, words);
    all.passed += outcome.tally.passed;
    all.failed += outcome.tally.failed;
    status = outcome.status;
    if (status != kDone || outcome.tally.ended) break;
  }
  tell(what, all, was_told_to_end(status));
  if (status != kDone) return status;
  return all.failed == 0 ? kDone : kCheckFailed;
}

}  // namespace plait::cli
