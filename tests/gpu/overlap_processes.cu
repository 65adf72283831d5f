// Two processes with a rank each, which share one GPU in turn and write into one another's memory.
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/figure.h"
#include "gpu/overlap_cases.cuh"
#include "gpu/overlap_checks.h"

namespace plait::gpu {
namespace {

constexpr int kRounds = 3;
// The processes take turns of some milliseconds on the GPU, so a wait can last for many of them.
constexpr unsigned long long kTimeout = 30'000'000'000ULL;

// A connection to the other process.
class Channel {
 public:
  explicit Channel(int fd) : fd_(fd) {}

  // Sends a value and returns the other process's. Ends the process if the other one has ended.
  template <class T>
  T swap(const T& mine) {
    T theirs;
    if (send(fd_, &mine, sizeof(T), MSG_NOSIGNAL) == sizeof(T) &&
        recv(fd_, &theirs, sizeof(T), MSG_WAITALL) == sizeof(T))
      return theirs;
    std::puts("FAILED: the other process has ended");
    std::fflush(stdout);
    std::_Exit(1);
  }

  void barrier() { swap('b'); }

 private:
  int fd_;
};

// The other rank's mailbox, mapped into this process, in the place of the one that would be its own
// if both ranks were here.
class PeerMailbox {
 public:
  PeerMailbox(VirtualRanks& ranks, int rank, Channel& channel) : channel_(channel) {
    cudaIpcMemHandle_t mine;
    check_cuda(cudaIpcGetMemHandle(&mine, ranks.mailbox(rank).base[rank]));
    const cudaIpcMemHandle_t theirs = channel.swap(mine);
    check_cuda(cudaIpcOpenMemHandle(&memory_, theirs, cudaIpcMemLazyEnablePeerAccess));
    ranks.mailbox(rank).base[1 - rank] = static_cast<char*>(memory_);
    // The other rank may write only now that both mailboxes are zeroed and mapped.
    channel.barrier();
  }
  PeerMailbox(const PeerMailbox&) = delete;
  PeerMailbox& operator=(const PeerMailbox&) = delete;
  // No rank frees memory that the other has mapped.
  ~PeerMailbox() {
    cudaIpcCloseMemHandle(memory_);
    channel_.barrier();
  }

 private:
  Channel& channel_;
  void* memory_ = nullptr;
};

Case case_of(DeviceOperator op) {
  return {.op = op,
          .world = 2,
          .m = 1030,
          .n = 776,
          .k = 512,
          .wire = cuda::kBf16,
          .out = cuda::kF32,
          .bias = true};
}

// Both processes make the operands of both ranks, so each knows the exact result.
std::int64_t wrong_in_round(VirtualRanks& ranks, const Case& c, const NamedPlan& plan, int rank,
                            int round) {
  CaseOperands operands(c);
  DeviceBuffer<double> exact(1LL * c.m * c.n);
  DeviceBuffer<double> one(1LL * c.m * c.n);
  fill_with_integers(c, operands, 100U * static_cast<unsigned>(round));
  for (auto& out : operands.out) out.fill_bytes(0xff);
  reference_sum(c, operands, rank, exact, one);
  if (!queue(ranks, c, operands, plan, rank)) return 1;
  finish(ranks, c, plan);
  return wrong_elements_of(c, operands, rank, exact.data());
}

std::int64_t wrong_in_plan(const Case& c, const NamedPlan& plan, int rank, Channel& channel) {
  VirtualRanks ranks(c.world, cuda::needs_of(problem_of(c), c.world), SlotMemory::device, kTimeout);
  const PeerMailbox peer(ranks, rank, channel);
  std::int64_t wrong = 0;
  for (int round = 0; round < kRounds; ++round)
    wrong += wrong_in_round(ranks, c, plan, rank, round);
  return wrong;
}

int run_rank(int rank, Channel channel) {
  if (!start_gpu()) return 77;
  bool right = true;
  for (const DeviceOperator op :
       {DeviceOperator::matmul_reduce_scatter, DeviceOperator::matmul_all_reduce,
        DeviceOperator::all_gather_matmul}) {
    for (const NamedPlan& plan : plans_for(2)) {
      alarm(60);
      const Case c = case_of(op);
      const std::int64_t wrong = wrong_in_plan(c, plan, rank, channel);
      const std::int64_t both = wrong + channel.swap(wrong);
      right = right && both == 0;
      if (rank != 0) continue;
      Figure("processes")
          .text("op", name(op))
          .text("plan", plan.name)
          .number("calls", kRounds)
          .number("wrong_elements", static_cast<double>(both))
          .print();
    }
  }
  return right ? 0 : 1;
}

}  // namespace

int check_processes() {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends) != 0) {
    std::puts("FAILED: no pair of sockets");
    return 2;
  }
  const pid_t child = fork();
  if (child < 0) {
    std::puts("FAILED: no second process");
    return 2;
  }
  const int rank = child == 0 ? 1 : 0;
  close(ends[1 - rank]);
  const int mine = run_rank(rank, Channel(ends[rank]));
  std::fflush(stdout);
  if (child == 0) _exit(mine);
  int theirs = 0;
  waitpid(child, &theirs, 0);
  if (mine != 0) return mine;
  return WIFEXITED(theirs) ? WEXITSTATUS(theirs) : 1;
}

}  // namespace plait::gpu
