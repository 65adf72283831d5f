// A rank that dies or is late in an operator: the others name it and the place.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <string>

#include "conformance/await.h"
#include "conformance/lost_ranks.h"
#include "conformance/ranks.h"
#include "gemm/matrix.h"
#include "ops/shapes.h"
#include "plait/collectives.h"
#include "plait/ulysses.h"

namespace plait {
namespace {

constexpr std::int64_t kRows = 700;
constexpr std::int64_t kColumns = 600;

// One call of each operator.
class Calls {
 public:
  explicit Calls(Communicator& comm, const char* plan)
      : comm_(comm),
        columns_(equal_columns(kColumns, comm.world())),
        own_(ops::share_of(kRows, comm.rank(), comm.world())),
        x_(Dtype::bf16, own_, 64),
        w_(Dtype::bf16, kColumns, 64),
        all_(Dtype::bf16, kRows, kColumns / comm.world()),
        out_(Dtype::bf16, own_, 64),
        options_({.plan = parse_plan(plan)}) {}

  void first() {
    matmul_all_to_all(x_.view, WeightView{.view = w_.view, .layout = WeightLayout::out_in},
                      columns_, all_.view, comm_, options_);
  }
  void last() {
    const WeightView turned = {.view = w_.view, .layout = WeightLayout::in_out};
    all_to_all_matmul(all_.view, turned, columns_, out_.view, comm_, options_);
  }

 private:
  Communicator& comm_;
  ColumnGroups columns_;
  std::int64_t own_;
  Matrix x_, w_, all_, out_;
  UlyssesOptions options_;
};

class EveryUlyssesPlan : public testing::TestWithParam<const char*> {};

INSTANTIATE_TEST_SUITE_P(Ulysses, EveryUlyssesPlan,
                         testing::Values("serial", "pipelined", "fused chunk=64"),
                         [](const auto& one) {
                           const std::string text = one.param;
                           return text.substr(0, text.find(' '));
                         });

// The deadline is a minute away: a rank that does not notice fails by the test's own timeout.
TEST_P(EveryUlyssesPlan, NoticesADeath) {
  run_in_processes(3, [](Communicator& comm) {
    Calls calls(comm, GetParam());
    calls.first();
    calls.last();
    if (comm.rank() == 1) {
      barrier(comm);
      die();
    }
    expect_loss_of(1, [&] {
      for (barrier(comm);;) {
        calls.first();
        calls.last();
      }
    });
  });
}

TEST_P(EveryUlyssesPlan, EndsAtTheDeadline) {
  std::atomic<bool> has_ended{false};
  run_as_threads(2, [&](Communicator& comm) {
    Calls calls(comm, GetParam());
    calls.first();
    calls.last();
    set_timeout(comm, std::chrono::milliseconds(200));
    const bool is_late = comm.rank() == 1;
    if (is_late && !await("rank 0 reaches its deadline", [&] { return has_ended.load(); })) return;
    const Error error = expect_error(Code::timeout, [&] { calls.first(); });
    has_ended = true;
    EXPECT_EQ(error.culprit(), 1) << error.what();
    EXPECT_TRUE(contains(error.what(), "matmul_all_to_all: rank 0 waits for ")) << error.what();
  });
}

}  // namespace
}  // namespace plait
