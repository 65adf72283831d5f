// The linear layers of some blocks on one rank, ready to be run forward and backward.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "base/clock.h"
#include "cli/bench/step_options.h"
#include "plait/buffer.h"
#include "plait/communicator.h"

namespace plait::cli {

class StepCase {
 public:
  StepCase(const StepOptions& options, const Communicator& comm);

  // The step in one plan over one communicator. Collective; must not outlive the case.
  class Runner {
   public:
    virtual ~Runner() = default;

    // `pause`: to wait after every layer, for what is between them in a model.
    virtual void run(base::Nanoseconds pause) = 0;

    // Of the last run, on this rank.
    virtual base::Nanoseconds forward_time() const = 0;
  };
  std::unique_ptr<Runner> runner(const Plan& plan, Communicator& comm) const;

  // The same products of this rank by itself. `alone` has no other rank.
  std::unique_ptr<Runner> products(Communicator& alone) const;

  // How often a step pauses.
  int pauses() const;

  // Outputs and gradients: those of the last run are kept, to be compared with those of another.
  void clear_results();
  void keep_results();
  bool has_same_results() const;

  // Bytes that go out over a rank's busiest link in a step.
  double bytes_on_link() const;

 private:
  // What all blocks' layers of one kind share: their results are not used by one another.
  struct Shared {
    LinearLayer layer;
    std::int64_t in;  // this rank's share where the layer cuts it, else all
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

  const StepOptions& options_;
  int rank_;
  int world_;
  std::vector<Shared> shared_;
  std::vector<One> ones_;
  std::vector<Buffer> kept_;
};

}  // namespace plait::cli
