// Measures plait's collectives and MPI's in the same processes, in turns.
#include <cstdlib>
#include <cstring>
#include <iostream>

#include "base/check.h"
#include "base/futex.h"
#include "collective_case.h"
#include "exchange.h"
#include "mpi_library.h"
#include "report.h"
#include "settings.h"

namespace plait::bench {
namespace {

constexpr std::size_t kKiB = 1024;
constexpr std::size_t kMiB = 1024 * kKiB;

const Program kProgram = {
    .name = "plait_bench_comm_mpi",
    .purpose =
        "Measures plait's collectives over shared memory and MPI's, in turns in the same\n"
        "processes, and checks the results of both. Start it with mpirun:\n\n"
        "  mpirun -np 2 --bind-to core plait_bench_comm_mpi\n\n"
        "Sections: all_reduce, reduce_scatter, all_gather, broadcast, all_to_all, barrier,\n"
        "round_trip, and fresh: all_reduce of an input that is written before each call, as by a\n"
        "product. Sizes are those of the whole tensor in f32.\n",
    .examples =
        "Examples:\n"
        "  mpirun -np 2 --bind-to core --mca pml ob1 --mca btl vader,self \\\n"
        "    plait_bench_comm_mpi --only all_reduce --json mpi.json\n",
    .sections = {"all_reduce", "reduce_scatter", "all_gather", "broadcast", "all_to_all", "fresh",
                 "barrier", "round_trip"},
    .starts_ranks = false};

void call_mpi(Operation operation, CollectiveCase& test, int world) {
  const ConstElements in = test.in();
  const Elements out = test.out();
  const int in_count = static_cast<int>(in.count);
  const int out_count = static_cast<int>(out.count);
  MPI_Comm all = MPI_COMM_WORLD;
  switch (operation) {
    case Operation::barrier:
      MPI_Barrier(all);
      return;
    case Operation::broadcast:
      MPI_Bcast(out.data, out_count, MPI_FLOAT, 0, all);
      return;
    case Operation::all_gather:
      MPI_Allgather(in.data, in_count, MPI_FLOAT, out.data, in_count, MPI_FLOAT, all);
      return;
    case Operation::reduce_scatter: {
      const std::vector<int> counts(world, out_count);
      MPI_Reduce_scatter(in.data, out.data, counts.data(), MPI_FLOAT, MPI_SUM, all);
      return;
    }
    case Operation::all_reduce:
      MPI_Allreduce(in.data, out.data, in_count, MPI_FLOAT, MPI_SUM, all);
      return;
    case Operation::all_to_all:
      MPI_Alltoall(in.data, in_count / world, MPI_FLOAT, out.data, in_count / world, MPI_FLOAT,
                   all);
      return;
    default:
      base::fail(Code::invalid_argument, name(operation), " is not a collective");
  }
}

// Exchanges like MailboxExchange, but with MPI's messages.
class MessageExchange {
 public:
  MessageExchange(std::size_t bytes, int rank) : buffer_(bytes), peer_(1 - rank) {}
  void send() {
    MPI_Send(buffer_.data(), static_cast<int>(buffer_.size()), MPI_BYTE, peer_, 0, MPI_COMM_WORLD);
  }
  void receive() {
    MPI_Recv(buffer_.data(), static_cast<int>(buffer_.size()), MPI_BYTE, peer_, 0, MPI_COMM_WORLD,
             MPI_STATUS_IGNORE);
  }

 private:
  std::vector<std::byte> buffer_;
  int peer_;
};

// The transports that `mpirun --mca btl` has chosen; empty where MPI chooses.
std::string transport_of_mpi() {
  const char* btl = std::getenv("OMPI_MCA_btl");
  return btl == nullptr ? "" : " (" + std::string(btl) + ")";
}

class Bench {
 public:
  Bench(const Settings& settings, Communicator& comm)
      : settings_(settings),
        comm_(comm),
        report_("plait and " + mpi_library() + transport_of_mpi() + ": " +
                    std::to_string(comm.world()) + " ranks over shared memory",
                comm.rank() == 0 ? settings.tables() : silence_) {}

  void run() {
    for (const Operation operation :
         {Operation::all_reduce, Operation::reduce_scatter, Operation::all_gather,
          Operation::broadcast, Operation::all_to_all}) {
      if (settings_.wants(std::string(name(operation)))) run_sizes(operation, false);
    }
    if (settings_.wants("fresh")) run_sizes(Operation::all_reduce, true);
    if (settings_.wants("barrier")) run_collective(Operation::barrier, 0, false);
    if (settings_.wants("round_trip")) run_round_trips();
    if (comm_.rank() == 0) write_json(report_, settings_);
  }

 private:
  void run_sizes(Operation operation, bool fresh) {
    const std::vector<std::size_t> own = {64,        kKiB,       4 * kKiB, 16 * kKiB,
                                          64 * kKiB, 256 * kKiB, kMiB,     8 * kMiB};
    for (const std::size_t bytes : settings_.sizes_or(own)) run_collective(operation, bytes, fresh);
  }

  void run_collective(Operation operation, std::size_t bytes, bool fresh) {
    PLAIT_CHECK(bytes % (sizeof(float) * comm_.world()) == 0, "--sizes: ", bytes,
                " bytes cannot be divided evenly among ", comm_.world(), " ranks");
    CollectiveCase ours({operation}, bytes, comm_);
    CollectiveCase theirs({operation}, bytes, comm_);
    const auto call_ours = [&] { ours.call(); };
    const auto call_theirs = [&] { call_mpi(operation, theirs, comm_.world()); };
    const auto check = [&] {
      ours.check("plait", call_ours);
      theirs.check("MPI", call_theirs);
    };
    std::vector<Contender> contenders = {{"plait", call_ours}, {"MPI", call_theirs}};
    if (fresh) {
      contenders[0].prepare = [&] { ours.rewrite(); };
      contenders[1].prepare = [&] { theirs.rewrite(); };
    }
    check();
    keep(std::string(name(operation)) + (fresh ? " fresh" : ""), bytes, contenders);
    check();
  }

  void run_round_trips() {
    const std::vector<std::size_t> own = {0, 64, kKiB, 16 * kKiB, 64 * kKiB};
    const int rank = comm_.rank();
    for (const std::size_t bytes : settings_.sizes_or(own)) {
      MailboxExchange mailbox(comm_, bytes);
      MessageExchange messages(bytes, rank);
      keep("round trip", bytes,
           {{"plait", [&] { there_and_back(mailbox, rank); }},
            {"MPI", [&] { there_and_back(messages, rank); }}});
      mailbox.verify();
    }
  }

  void keep(const std::string& what, std::size_t bytes, const std::vector<Contender>& contenders) {
    Race race = {.what = what, .bytes = bytes, .names = {}, .times = {}};
    for (const Contender& contender : contenders) race.names.push_back(contender.name);
    race.times = bench::race(comm_, contenders, settings_.effort);
    report_.add(race);
  }

  const Settings& settings_;
  Communicator& comm_;
  std::ostream silence_{nullptr};
  Report report_;
};

int run(int argc, char** argv) {
  Settings settings;
  if (const auto status = read_settings(kProgram, argc, argv, settings)) return *status;
  const Mpi mpi(&argc, &argv);
  int world = 0;
  MPI_Comm_size(MPI_COMM_WORLD, &world);
  if (world < 2) {
    std::cerr << kProgram.name << ": there is only one rank; start it with mpirun -np 2 "
              << kProgram.name << std::endl;
    return 2;
  }
  try {
    Communicator comm = Communicator::connect({.transport = "shm"});
    PLAIT_CHECK(comm.world() == world, "MPI has ", world, " ranks but plait, from ",
                place_from_environment().launcher, ", ", comm.world());
    Bench(settings, comm).run();
    return 0;
  } catch (const std::exception& error) {
    // The other ranks may be inside MPI, where only MPI can end them.
    MPI_Abort(MPI_COMM_WORLD, explain(error, kProgram.name));
    return 1;
  }
}

}  // namespace
}  // namespace plait::bench

int main(int argc, char** argv) { return plait::bench::run(argc, argv); }
