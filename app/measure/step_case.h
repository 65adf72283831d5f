// The linear layers of several blocks on one rank, ready to run forward and backward, or forward
// alone.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "measure/step_setup.h"
#include "plait/buffer.h"
#include "plait/communicator.h"
#include "trace/record.h"

namespace plait::measure {

// Refuses a step whose operands alone are more than this host's memory can hold now.
void check_memory(const StepSetup& setup, int world);

// Bytes of a rank's share of the weight of a layer.
std::int64_t weight_bytes(const StepSetup& setup, const plan::LinearLayer& layer, int rank,
                          int world);

// The calls of layers in the records of steps that decode, in their order. Each has its checks, and
// all else that a program waits for.
std::vector<TimeInterval> layer_calls(const trace::RankRecords& rank);

class StepCase {
 public:
  StepCase(const StepSetup& setup, const Communicator& comm);

  // Runs the step with one plan over one communicator. Collective; must not outlive the case.
  class Runner {
   public:
    virtual ~Runner() = default;

    // `pause`: the wait after every layer, in place of what a model computes between layers.
    virtual void run(base::Nanoseconds pause) = 0;

    // The forward time of the last run, on this rank.
    virtual base::Nanoseconds forward_time() const = 0;
  };
  std::unique_ptr<Runner> runner(const Plan& plan, Communicator& comm) const;

  // Only the products of this rank, without communication. `alone` is a world of one rank.
  std::unique_ptr<Runner> products(Communicator& alone) const;

  // The number of pauses in a step.
  int pauses() const;

  // The results are outputs and gradients. Those of one run are kept, to be compared with those of
  // another.
  void clear_results();
  void keep_results();
  bool has_same_results() const;

  // Bytes of this rank's weights, of all blocks.
  std::int64_t weight_bytes() const;

  // Bytes that a step sends over a rank's busiest link.
  double bytes_on_link() const;

 private:
  // The buffers that all blocks share for a layer of one kind, since no layer uses another's
  // results.
  struct Shared {
    plan::LinearLayer layer;
    std::int64_t in;  // this rank's share if the layer shards it, otherwise all
    std::int64_t out;
    Buffer x;  // all rows
    Buffer result;
    Buffer grad_out;
    Buffer grad_x;
  };
  struct One {
    std::size_t shared;
    Buffer weight;
    Buffer gradient;
  };
  class Steps;

  TensorView rows_of(const Buffer& buffer, std::int64_t cols, bool shard, bool alone) const;
  std::vector<ConstTensorView> results() const;

  const StepSetup& setup_;
  int rank_;
  int world_;
  std::vector<Shared> shared_;
  std::vector<One> ones_;
  std::vector<Buffer> kept_;
};

}  // namespace plait::measure
