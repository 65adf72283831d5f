// Refusals of operators on a GPU. None of them needs one.
#include "ops/device_checks.h"

#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>

#include "conformance/ranks.h"
#include "ops/problem.h"
#include "overlap/device.h"
#include "plait/error.h"
#include "plait/quantized.h"

namespace plait {
namespace {

constexpr Device kGpu = Device::cuda(0);

std::string refusal(const std::function<void()>& call) {
  return expect_error(Code::invalid_argument, call).what();
}

template <class View>
View on_gpu(View view) {
  view.device = kGpu;
  view.row_stride = view.cols;
  return view;
}

// A call whose memory is the CPU's, though it says otherwise. Nothing reads it.
OpCall gpu_call(const OpProblem& p) {
  return {.x = on_gpu(p.x.view),
          .weight = WeightView{on_gpu(ConstTensorView(p.w.view)), WeightLayout::out_in},
          .out = on_gpu(p.out.view)};
}

void with_problem(const std::function<void(OpProblem&, Communicator&)>& body) {
  run_as_threads(2, [&](Communicator& comm) {
    OpProblem problem(Operator::matmul_all_reduce, 8, comm);
    body(problem, comm);
  });
}

void run(const OpCall& call, Communicator& comm) {
  matmul_all_reduce(call.x, call.weight, call.out, comm,
                    {.bias = call.bias, .gathered = call.gathered, .stream = call.stream});
}

// Why the first GPU can't be used for these operands, which are not in its memory anyway.
void expect_refused(const std::string& said) {
  const overlap::LoadedDevices& loaded = overlap::load_devices();
  if (loaded.devices == nullptr) {
    EXPECT_EQ(said, "matmul_all_reduce: cuda:0 cannot be used: " + loaded.refusal);
  } else {
    EXPECT_EQ(said, "matmul_all_reduce: x was said to be on cuda:0 but is memory of the CPU");
  }
}

TEST(GpuRefusals, SayWhyThereIsNoGpu) {
  with_problem([](OpProblem& p, Communicator& comm) {
    expect_refused(refusal([&] { run(gpu_call(p), comm); }));
    OpDesc desc = p.plain_desc();
    desc.device = Device::cuda(1000);
    EXPECT_TRUE(refusal([&] {
                  prepare(desc, comm);
                }).starts_with("matmul_all_reduce: cuda:1000 cannot be used: "));
    run(p.plain_call(), comm);  // after all that, the CPU can be used
  });
}

TEST(GpuRefusals, NameTheOperandThatIsElsewhere) {
  with_problem([](OpProblem& p, Communicator& comm) {
    OpCall call = gpu_call(p);
    call.out.device = kCpu;
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: out is on cpu, and the operator is on cuda:0, where all operands "
              "must be");
    call = gpu_call(p);
    call.weight = p.plain();
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: weight is on cpu, and the operator is on cuda:0, where all "
              "operands must be");
    call = gpu_call(p);
    const Matrix bias(Dtype::bf16, 1, 200);
    call.bias = bias.view;
    call.bias.device = Device::cuda(1);
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: bias is on cuda:1, and the operator is on cuda:0, where all "
              "operands must be");
    call = p.plain_call();
    call.out = on_gpu(call.out);
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: out is on cuda:0, which the CPU cannot read");
    call = p.plain_call();
    call.x = on_gpu(call.x);
    EXPECT_EQ(refusal([&] { prepare(p.plain_desc(), comm).run(call); }),
              "matmul_all_reduce: x is on cuda:0, which the CPU cannot read");
    int stream = 0;
    call = p.plain_call();
    call.stream = {&stream};
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: a stream was given for operands on the cpu, which has none");
  });
}

TEST(GpuRefusals, OfOperandsThatNoGpuReads) {
  with_problem([](OpProblem& p, Communicator& comm) {
    OpCall call = gpu_call(p);
    call.weight = p.packed;
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: the weight is packed (bf16), which only the CPU reads; on a GPU "
              "there are weights of bf16 and f16 as views");
    const QuantizedWeight quantized = quantize(p.plain(), {.bits = 8});
    const PackedWeight packed(quantized);
    call.weight = packed;
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: the weight is packed (" + name(Weight(packed).kind()) +
                  "), which only the CPU reads; on a GPU there are weights of bf16 and f16 as "
                  "views");
    const Matrix x(Dtype::f32, 8, 96);
    call = gpu_call(p);
    call.x = on_gpu(x.view);
    EXPECT_EQ(refusal([&] { run(call, comm); }),
              "matmul_all_reduce: x is f32; on a GPU there are bf16 and f16");
    OpDesc desc = p.plain_desc();
    desc.device = kGpu;
    desc.weight.dtype = Dtype::f32;
    EXPECT_EQ(refusal([&] { prepare(desc, comm); }),
              "matmul_all_reduce: the weight is f32; on a GPU there are bf16 and f16");
  });
}

TEST(GpuRefusals, OfRowsThatAreNotAligned) {
  with_problem([](OpProblem& p, Communicator& comm) {
    OpCall call = gpu_call(p);
    call.x.row_stride = 99;
    EXPECT_EQ(
        refusal([&] { run(call, comm); }),
        "matmul_all_reduce: rows of x begin 198 bytes apart, which is no multiple of 16, as a "
        "GPU needs it");
    call.x = on_gpu(ConstTensorView(p.x.view));
    call.x.data = p.x.view.row_range(0, 1).column_range(1, 96).data;
    EXPECT_TRUE(refusal([&] {
                  run(call, comm);
                }).ends_with(", which is not aligned to 16 bytes, as a GPU needs it"));
  });
}

// The bits of one rank would be those of a tree.
TEST(GpuSums, AreATreeOverRanksAlone) {
  const OpDesc desc = {.op = Operator::matmul_all_reduce, .m = 8, .n = 64, .k = 64, .device = kGpu};
  EXPECT_FALSE(sum_tree(desc, 2));
  EXPECT_STREQ(sum_tree(desc, 2).refusal, "a GPU adds up each rank's k as one chain");
  EXPECT_TRUE(sum_tree(desc, 1));
}

}  // namespace
}  // namespace plait
