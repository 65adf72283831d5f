// Calls captured into CUDA graphs, one for each rank, give the same bits as calls that are not.
#include <unistd.h>

#include <utility>
#include <vector>

#include "gpu/figure.h"
#include "gpu/overlap_cases.cuh"
#include "gpu/overlap_checks.h"

namespace plait::gpu {
namespace {

constexpr int kReplays = 20;

// A rank's calls, captured into a CUDA graph.
class Graph {
 public:
  template <class Queue>
  Graph(cudaStream_t stream, Queue&& queue) : stream_(stream) {
    cudaGraph_t graph = nullptr;
    check_cuda(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
    captured_ = queue();
    check_cuda(cudaStreamEndCapture(stream, &graph));
    check_cuda(cudaGraphInstantiate(&graph_, graph, 0));
    check_cuda(cudaGraphDestroy(graph));
    // Otherwise the first launch sends the graph to the GPU, maybe while another rank waits.
    check_cuda(cudaGraphUpload(graph_, stream));
    check_cuda(cudaStreamSynchronize(stream));
  }
  Graph(Graph&& other) noexcept
      : stream_(other.stream_),
        graph_(std::exchange(other.graph_, nullptr)),
        captured_(other.captured_) {}
  ~Graph() {
    if (graph_ != nullptr) cudaGraphExecDestroy(graph_);
  }

  bool captured() const { return captured_; }
  void launch() { check_cuda(cudaGraphLaunch(graph_, stream_)); }

 private:
  cudaStream_t stream_;
  cudaGraphExec_t graph_ = nullptr;
  bool captured_ = false;
};

std::vector<Graph> capture_all(VirtualRanks& ranks, const Case& c, CaseOperands& operands,
                               const NamedPlan& plan) {
  std::vector<Graph> graphs;
  for (int r = 0; r < c.world; ++r)
    graphs.emplace_back(ranks.stream(r), [&] { return queue(ranks, c, operands, plan, r); });
  return graphs;
}

void clear(CaseOperands& operands) {
  for (auto& out : operands.out) out.fill_bytes(0xff);
  check_cuda(cudaDeviceSynchronize());
}

// How many replays are wrong.
int wrong_replays(const Case& c, const NamedPlan& plan) {
  VirtualRanks ranks(c.world, cuda::needs_of(problem_of(c), c.world));
  CaseOperands operands(c);
  fill_with_integers(c, operands, 1);
  check_cuda(cudaDeviceSynchronize());
  if (!queue_all(ranks, c, operands, plan)) return kReplays;
  finish(ranks, c, plan);
  std::vector<Graph> graphs = capture_all(ranks, c, operands, plan);
  for (const Graph& graph : graphs)
    if (!graph.captured()) return kReplays;
  int wrong = 0;
  for (int replay = 0; replay < kReplays; ++replay) {
    operands.fill(c, [&](auto* data, std::int64_t count, std::uint64_t seed) {
      fill_random(data, count, seed + 1000U * static_cast<unsigned>(replay));
    });
    clear(operands);
    if (!queue_all(ranks, c, operands, plan)) return kReplays;
    finish(ranks, c, plan);
    const auto expected = results_of(operands);
    clear(operands);
    ranks.poison();
    for (Graph& graph : graphs) graph.launch();
    finish(ranks, c, plan);
    if (results_of(operands) != expected) ++wrong;
  }
  return wrong;
}

}  // namespace

int check_graph() {
  int failures = 0;
  for (const DeviceOperator op :
       {DeviceOperator::matmul_reduce_scatter, DeviceOperator::matmul_all_reduce,
        DeviceOperator::all_gather_matmul}) {
    for (const NamedPlan& plan : plans_for(2)) {
      alarm(60);
      const Case c = {.op = op,
                      .world = 2,
                      .m = 1030,
                      .n = 776,
                      .k = 512,
                      .wire = cuda::kBf16,
                      .out = cuda::kBf16,
                      .bias = true};
      const int wrong = wrong_replays(c, plan);
      Figure("graph")
          .text("op", name(op))
          .text("plan", plan.name)
          .number("replays", kReplays)
          .number("wrong", wrong)
          .print();
      failures += wrong;
    }
  }
  return failures == 0 ? 0 : 1;
}

}  // namespace plait::gpu
