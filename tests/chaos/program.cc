#include "chaos/program.h"

#include <sys/prctl.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <thread>
#include <utility>

#include "base/check.h"
#include "chaos/product.h"
#include "chaos/random.h"
#include "plait/all_to_all_rows.h"
#include "plait/collectives.h"
#include "plait/experts.h"

namespace plait::chaos {
namespace {

using base::now;

// An Error in terms of the world's ranks, because sub-groups number their ranks from 0.
struct Blamed {
  Report report;
};

// The state of one rank, in all of its groups.
struct Self {
  const Scene& scene;
  int rank;
  RankState& state;
  Random own;  // for decisions that may differ between ranks, such as times
};

void write_sentence(Report& report, const char* text) {
  std::strncpy(report.sentence.data(), text, report.sentence.size() - 1);
}

// `ranks`: the world ranks of the group's members.
Blamed blamed(const Error& error, const std::vector<int>& ranks, std::uint64_t group, int rank,
              std::optional<Operator> op = std::nullopt) {
  const int culprit = error.culprit();
  const bool known = culprit >= 0 && culprit < static_cast<int>(ranks.size());
  const std::string who = "rank " + std::to_string(culprit);
  Blamed blame = {.report = {.rank = rank,
                             .code = error.code(),
                             .culprit = known ? ranks[culprit] : Error::kNoRank,
                             .surprising = false,
                             .names = std::strstr(error.what(), who.c_str()) != nullptr,
                             .group = group,
                             .op = op,
                             .at = now(),
                             .sentence = {}}};
  write_sentence(blame.report, error.what());
  return blame;
}

// Runs a random program in one group, and in groups split off it.
class ProgramRun {
 public:
  // `ranks`: the world ranks of the members.
  ProgramRun(Communicator& comm, std::vector<int> ranks, std::uint64_t seed, Self& self)
      : comm_(comm), ranks_(std::move(ranks)), group_(seed), shared_(seed), self_(self) {}

  void run(int steps) {
    try {
      for (int step = 0; step < steps; ++step) run_step();
    } catch (const Error& error) {
      throw blamed(error, ranks_, group_, self_.rank, multiplying_);
    }
  }

 private:
  // Tells the parent what this rank is doing, while it lives.
  class Doing {
   public:
    Doing(RankState& state, Stage stage) : state_(state) { state_.stage = stage; }
    Doing(const Doing&) = delete;
    Doing& operator=(const Doing&) = delete;
    ~Doing() { state_.stage = Stage::working; }

   private:
    RankState& state_;
  };

  void run_step() {
    go_if_told();
    loiter();
    ++self_.state.calls;
    if (self_.scene.work == Work::operators) return shared_.one_in(12) ? split() : multiply();
    switch (shared_.below(14)) {
      case 0:
        return sum_up(false);
      case 1:
        return sum_up(true);
      case 2:
        return gather();
      case 3:
        return scatter();
      case 4:
        return send_from_root();
      case 5:
        return exchange_all();
      case 6:
        return barrier(comm_);
      case 7:
      case 8:
        return pass_on(comm_.cached_mailbox({.slots = 2, .slot_bytes = 256}));
      case 9:
      case 10:
        return use_fresh_mailbox();
      case 11:
        return send_rows();
      case 12:
        return use_experts();
      default:
        return split();
    }
  }

  // The ways in which a victim ends by itself.
  void go_if_told() {
    const bool mine = self_.rank == self_.scene.victim && self_.state.calls >= self_.scene.calls;
    if (!mine || (self_.scene.loss != Loss::leave && self_.scene.loss != Loss::raise)) return;
    self_.state.gone = now();
    if (self_.scene.loss == Loss::leave) std::exit(0);
    throw std::runtime_error("this rank throws");
  }

  void loiter() {
    if (self_.own.below(4) == 0) ::usleep(static_cast<unsigned>(self_.own.below(1500)));
  }

  std::size_t some_elements() {
    return static_cast<std::size_t>(shared_.below(shared_.below(3) == 0 ? 60'000 : 300));
  }

  static void expect(float found, float expected, const char* what) {
    if (found == expected) return;
    throw std::runtime_error(base::sentence(what, " gave ", found, " instead of ", expected));
  }

  float sum_of_ranks() const {
    float sum = 0;
    for (int rank = 0; rank < comm_.world(); ++rank) sum += static_cast<float>(rank + 1);
    return sum;
  }

  void sum_up(bool beside_work) {
    std::vector<float> in(some_elements(), static_cast<float>(comm_.rank() + 1));
    std::vector<float> out(in.size());
    if (beside_work) {
      Pending pending = start_all_reduce({in.data(), in.size()}, {out.data(), out.size()}, comm_);
      while (!pending.done()) loiter();
    } else {
      all_reduce({in.data(), in.size()}, {out.data(), out.size()}, comm_);
    }
    for (const float sum : out) expect(sum, sum_of_ranks(), "all_reduce");
  }

  void gather() {
    const std::size_t elements = some_elements();
    std::vector<float> all(elements);
    const Shard mine = balanced_shard(elements, comm_.rank(), comm_.world());
    const std::vector<float> part(mine.count, static_cast<float>(comm_.rank()));
    all_gather({part.data(), part.size()}, {all.data(), all.size()}, comm_);
    for (int rank = 0; rank < comm_.world(); ++rank) {
      const Shard shard = balanced_shard(elements, rank, comm_.world());
      if (shard.count > 0) expect(all[shard.offset], static_cast<float>(rank), "all_gather");
    }
  }

  void scatter() {
    const std::vector<float> all(some_elements(), static_cast<float>(comm_.rank() + 1));
    std::vector<float> part(balanced_shard(all.size(), comm_.rank(), comm_.world()).count);
    reduce_scatter({all.data(), all.size()}, {part.data(), part.size()}, comm_);
    for (const float sum : part) expect(sum, sum_of_ranks(), "reduce_scatter");
  }

  void send_from_root() {
    const int root = shared_.below(comm_.world());
    std::vector<float> data(some_elements(), static_cast<float>(comm_.rank()));
    broadcast({data.data(), data.size()}, root, comm_);
    for (const float value : data) expect(value, static_cast<float>(root), "broadcast");
  }

  void exchange_all() {
    const std::size_t each = some_elements() / 8;
    const std::vector<float> out(each * comm_.world(), static_cast<float>(comm_.rank()));
    std::vector<float> in(out.size());
    all_to_all({out.data(), out.size()}, {in.data(), in.size()}, comm_);
    for (int rank = 0; each > 0 && rank < comm_.world(); ++rank)
      expect(in[rank * each], static_cast<float>(rank), "all_to_all");
  }

  // Each rank has as many rows for the others as it likes, and gets them back.
  void send_rows() {
    constexpr std::int64_t kGroups = 3;
    constexpr std::int64_t kColumns = 200;
    std::vector<std::int64_t> counts;
    std::int64_t rows = 0;
    for (std::int64_t i = 0; i < comm_.world() * kGroups; ++i) {
      counts.push_back(self_.own.one_in(2) ? 0 : self_.own.below(99));
      rows += counts.back();
    }
    const std::vector<float> out(static_cast<std::size_t>(rows * kColumns),
                                 static_cast<float>(comm_.rank()));
    ReceivedRows there;
    ReceivedRows back;
    all_to_all_rows(ConstTensorView::of(out.data(), rows, kColumns), counts, there, comm_,
                    {.groups = kGroups});
    std::int64_t row = 0;
    for (std::size_t i = 0; i < counts.size(); ++i) {
      const std::size_t source = i % ranks_.size();
      const std::int64_t count = there.counts[source * kGroups + i / ranks_.size()];
      row += count;
      if (count > 0)
        expect(*static_cast<const float*>(there.rows.row(row - 1)), static_cast<float>(source),
               "all_to_all_rows");
    }
    all_to_all_rows(there.rows, there.counts, back, comm_, {.groups = kGroups, .back = true});
    expect(static_cast<float>(back.rows.rows), static_cast<float>(rows), "all_to_all_rows");
  }

  // Rows of two of five experts each. Equal rows with the same experts have the same result.
  void use_experts() {
    constexpr std::int64_t kExperts = 5;
    constexpr std::int64_t kColumns = 64;
    const bool replicated = shared_.one_in(3);
    const auto schedule = shared_.one_in(2) ? Schedule::serial : Schedule::fused;
    ExpertParallelMLP layer({.hidden = kColumns,
                             .inner = kColumns / 2,
                             .experts = kExperts,
                             .top = 2,
                             .dtype = Dtype::f32,
                             .out = Dtype::f32,
                             .weight = {.dtype = Dtype::f32}},
                            comm_, {.schedule = schedule, .replicated = replicated, .threads = 1});
    std::vector<std::vector<float>> values;
    std::vector<Weight> up, down;
    for (const std::int64_t expert : layer.experts_of(comm_.rank())) {
      values.emplace_back(kColumns * kColumns, 0.01F * static_cast<float>(expert + 1));
      const ConstTensorView all = ConstTensorView::of(values.back().data(), kColumns, kColumns);
      up.emplace_back(WeightView{.view = all, .layout = WeightLayout::out_in});
      down.emplace_back(
          WeightView{.view = all.column_range(0, kColumns / 2), .layout = WeightLayout::out_in});
    }
    const int rows = replicated ? shared_.below(40) : self_.own.below(150);
    std::vector<std::int64_t> ids;
    for (std::int64_t row = 0; row < rows; ++row) {
      ids.push_back(row % kExperts);
      ids.push_back((row + 2) % kExperts);
    }
    const std::vector<float> x(static_cast<std::size_t>(rows * kColumns), 1.0F);
    const std::vector<float> weights(ids.size(), 0.5F);
    std::vector<float> out(x.size());
    layer.forward({.x = ConstTensorView::of(x.data(), rows, kColumns),
                   .ids = ids,
                   .weights = weights,
                   .up = up,
                   .down = down,
                   .out = TensorView::of(out.data(), rows, kColumns)});
    for (std::size_t i = 0; i < out.size(); ++i)
      expect(out[i], out[i % (kExperts * kColumns)], "expert_parallel_mlp");
    if (rows > 1) expect(out[0] < out[kColumns] ? 1.0F : 0.0F, 1.0F, "expert_parallel_mlp");
  }

  // Sends a few chunks around a ring.
  void pass_on(Mailbox& mailbox) {
    const int next = (comm_.rank() + 1) % comm_.world();
    const int previous = (comm_.rank() + comm_.world() - 1) % comm_.world();
    const int rounds = 1 + shared_.below(6);
    for (int round = 0; round < rounds; ++round) {
      const int slot = round % mailbox.desc().slots;
      const Tag tag = {.call = ++passed_, .chunk = static_cast<std::uint32_t>(round)};
      const auto mine = static_cast<float>(comm_.rank());
      std::memcpy(mailbox.outbox(next, slot), &mine, sizeof(mine));
      mailbox.post(next, slot, tag, sizeof(mine));
      loiter();
      mailbox.wait_arrived(previous, slot, tag);
      float theirs = -1;
      std::memcpy(&theirs, mailbox.inbox(previous, slot), sizeof(theirs));
      mailbox.release(previous, slot);
      expect(theirs, static_cast<float>(previous), "the mailbox");
    }
  }

  void use_fresh_mailbox() {
    std::unique_ptr<Mailbox> mailbox;
    {
      const Doing doing(self_.state, Stage::making_mailbox);
      mailbox =
          comm_.make_mailbox({.slots = 1 + shared_.below(4),
                              .slot_bytes = static_cast<std::size_t>(64 + shared_.below(5000))});
    }
    pass_on(*mailbox);
  }

  // Sometimes prepares a new operator, otherwise runs the last one again.
  void multiply() {
    if (!product_ || shared_.one_in(4)) {
      const Doing doing(self_.state, Stage::preparing);
      product_.reset();
      product_.emplace(comm_, shared_);
    }
    const Doing doing(self_.state, Stage::multiplying);
    multiplying_ = product_->op();
    for (int runs = 1 + shared_.below(10); runs > 0; --runs) product_->run();
    multiplying_.reset();
  }

  void split() {
    std::vector<int> colors(ranks_.size());
    for (int& color : colors) color = shared_.below(3) - (shared_.below(4) == 0 ? 1 : 0);
    const std::uint64_t seed = shared_.seed();
    const int mine = colors[comm_.rank()];
    std::vector<int> members;
    for (std::size_t rank = 0; rank < ranks_.size(); ++rank) {
      if (colors[rank] == mine) members.push_back(ranks_[rank]);
    }
    std::optional<Communicator> part;
    {
      const Doing doing(self_.state, Stage::splitting);
      part = comm_.split(mine, 0);
    }
    if (part) ProgramRun(*part, members, seed + static_cast<std::uint64_t>(mine), self_).run(4);
  }

  Communicator& comm_;
  std::vector<int> ranks_;
  std::uint64_t group_;
  Random shared_;
  Self& self_;
  std::uint32_t passed_ = 0;
  std::optional<Product> product_;
  std::optional<Operator> multiplying_;  // set while the operator runs, and after it has failed
};

Communicator connect(Self& self, const std::vector<int>& ranks) {
  self.state.stage = Stage::connecting;
  try {
    Communicator comm = Communicator::connect(
        {.transport = "shm",
         .place = Place{.rank = self.rank, .world = self.scene.world, .job = self.scene.job},
         .timeout = std::chrono::nanoseconds(self.scene.timeout)});
    self.state.connected = true;
    self.state.stage = Stage::working;
    return comm;
  } catch (const Error& error) {
    throw blamed(error, ranks, self.scene.seed, self.rank);
  }
}

void work(Self& self) {
  std::vector<int> ranks(self.scene.world);
  std::iota(ranks.begin(), ranks.end(), 0);
  if (self.own.below(2) == 0) ::usleep(static_cast<unsigned>(self.own.below(3000)));
  Communicator comm = connect(self, ranks);
  // Runs until a rank ends.
  ProgramRun(comm, ranks, self.scene.seed, self).run(INT32_MAX);
}

}  // namespace

namespace {

// Forks like a data loader, whatever the rank is doing at the time.
void fork_a_worker_soon(RankState& state, int pipe, int delay) {
  std::thread([&state, pipe, delay] {
    ::usleep(static_cast<unsigned>(delay));
    if (::fork() != 0) return;
    state.worker = ::getpid();
    ::close(pipe);
    constexpr int kMostTurns = 3000;  // 60 s, in case the parent dies
    for (int turn = 0; turn < kMostTurns && !state.over; ++turn) ::usleep(20'000);
    ::_exit(0);
  }).detach();
}

}  // namespace

void be_rank(const Scene& scene, int rank, RankState& state, int pipe) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  Self self = {.scene = scene, .rank = rank, .state = state, .own = Random(scene.seed * 31 + rank)};
  if (!scene.has_folder) ::unsetenv("XDG_RUNTIME_DIR");
  if (scene.has_workers) {
    Random when(scene.seed * 57 + rank);
    fork_a_worker_soon(state, pipe, when.below(8000));
  }
  Report report = {.rank = rank,
                   .code = Code::system,
                   .culprit = Error::kNoRank,
                   .surprising = true,
                   .names = false,
                   .group = 0,
                   .op = std::nullopt,
                   .at = 0,
                   .sentence = {}};
  try {
    work(self);
  } catch (const Blamed& blame) {
    report = blame.report;
  } catch (const std::exception& error) {
    report.at = now();
    write_sentence(report, error.what());
  }
  // At most PIPE_BUF bytes, so that reports of several ranks do not mix.
  const bool told = ::write(pipe, &report, sizeof(report)) == sizeof(report);
  ::_exit(told ? 0 : 1);
}

}  // namespace plait::chaos
