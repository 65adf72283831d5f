// The inputs of a plan, as text and as a value.
#include <gtest/gtest.h>

#include <string>

#include "plait/plan.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

std::string refusal_of(const std::string& text) {
  return sentence_of([&] { parse_plan_key(text); });
}

TEST(PlanKeys, AreWrittenAsTheyAreRead) {
  for (const std::string text :
       {"op=matmul_all_reduce m=2048 n=8192 k=8192 x=bf16 w=bf16 out=bf16 wire=f32 ranks=2",
        "op=all_gather_matmul m=0 n=1 k=7 x=f32 w=s8:group=128 out=f16 wire=f32 ranks=3 threads=2",
        "op=matmul_reduce_scatter m=5 n=6 k=7 x=f16 w=f16 out=f16 wire=bf16 ranks=8 transport=shm "
        "link=25gbit,5us",
        "op=matmul_all_reduce m=5 n=6 k=7 x=bf16 w=f32:plain out=bf16 wire=f32 ranks=2",
        "op=matmul_reduce_scatter m=5 n=6 k=7 x=f32 w=f32 out=f32 wire=s8 ranks=2",
        "op=matmul_all_reduce m=5 n=6 k=7 x=f16 w=f16 out=f16 wire=f32 ranks=2 threads=2 "
        "backend=onednn transport=shm",
        "op=matmul_all_reduce m=5 n=6 k=7 x=f16 w=bf16 out=f32 wire=f32 ranks=8 link=1.21gbit,0us",
        "op=matmul_all_reduce m=5 n=6 k=7 x=f16 w=f16 out=f16 wire=f32 ranks=8 hosts=2 "
        "transport=mpi",
        "op=matmul_all_to_all m=5 n=6 k=7 x=f16 w=f16 out=f32 wire=f16 ranks=2 columns=4",
        "op=all_to_all_matmul m=5 n=6 k=7 x=f16 w=f16 out=f32 wire=f16 ranks=2 link=1gbit,0us "
        "columns=4",
        "op=matmul_all_gather_columns m=5 n=6 k=7 x=f16 w=f16 out=f32 wire=f16 ranks=2 columns=5",
        "op=all_gather_columns_matmul m=5 n=6 k=7 x=f16 w=f16 out=f32 wire=f16 ranks=2 columns=4",
        "op=experts m=8 n=768 k=2048 x=bf16 w=bf16 out=bf16 wire=bf16 ranks=2 columns=128",
        "op=replicated_experts m=8 n=768 k=2048 x=bf16 w=bf16 out=bf16 wire=bf16 ranks=2 "
        "columns=128"})
    EXPECT_EQ(name(parse_plan_key(text)), text);
}

TEST(PlanKeys, HaveWhatIsUsualWhereNothingIsSaid) {
  const PlanKey key = parse_plan_key("  k=3 op=matmul-all-reduce n=2  m=1 x=f16 ");
  EXPECT_EQ(key, (PlanKey{.op = Operator::matmul_all_reduce,
                          .m = 1,
                          .n = 2,
                          .k = 3,
                          .x = Dtype::f16,
                          .weight = "f16",
                          .out = Dtype::f16,
                          .world = 2}));
}

TEST(PlanKeys, HaveAPlainWeightOfXWhereNoDtypeIsSaid) {
  const PlanKey key = parse_plan_key("op=matmul_all_reduce m=1 n=2 k=3 x=f16 w=plain");
  EXPECT_EQ(key.weight, "f16:plain");
  EXPECT_EQ(parse_plan_key(name(key)), key);
}

// Two spellings of one problem give one key.
TEST(PlanKeys, HaveTheWireOfXWhereNoPartialSumsTravel) {
  EXPECT_EQ(parse_plan_key("op=all_gather_matmul m=1 n=2 k=3").wire, Dtype::bf16);
  EXPECT_EQ(parse_plan_key("op=all_gather_matmul m=1 n=2 k=3 wire=f16").wire, Dtype::bf16);
  EXPECT_EQ(parse_plan_key("op=matmul_reduce_scatter m=1 n=2 k=3 wire=f16").wire, Dtype::f16);
}

TEST(PlanKeys, HaveEqualSharesOfColumnsWhereNoneAreSaid) {
  EXPECT_EQ(parse_plan_key("op=matmul-all-to-all m=1 n=7 k=3 ranks=2").columns, 4);
  EXPECT_EQ(parse_plan_key("op=all_gather_columns_matmul m=1 n=7 k=9 ranks=3").columns, 3);
}

TEST(PlanKeys, DifferInAllThatADecisionDependsOn) {
  const std::string usual = "op=matmul_all_reduce m=8 n=8 k=8";
  for (const char* more : {"x=f32", "w=s8", "w=plain", "out=f32", "wire=bf16", "ranks=3", "hosts=2",
                           "threads=2", "backend=onednn", "transport=shm", "link=1gbit"}) {
    EXPECT_NE(parse_plan_key(usual), parse_plan_key(usual + " " + more)) << more;
    EXPECT_NE(name(parse_plan_key(usual)), name(parse_plan_key(usual + " " + more))) << more;
  }
}

TEST(PlanKeys, SayWhatCannotBeRead) {
  const std::string usual = "op=matmul_all_reduce m=8 n=8 k=8";
  EXPECT_EQ(refusal_of("m=8 n=8 k=8"),
            "problem: \"m=8 n=8 k=8\" has no op=; write, for example, op=matmul_all_reduce");
  EXPECT_EQ(refusal_of("op=matmul_all_reduce m=8 k=8"),
            "problem: \"op=matmul_all_reduce m=8 k=8\" has no n=");
  EXPECT_EQ(refusal_of("op=sum m=8 n=8 k=8"),
            "problem: op=sum is not an operator; write, for example, op=matmul_all_reduce");
  EXPECT_EQ(refusal_of("op=matmul_allreduce m=1 n=1 k=1"),
            "problem: op=matmul_allreduce is not an operator; did you mean matmul_all_reduce?");
  EXPECT_EQ(refusal_of(usual + " m=9"), "problem: \"" + usual + " m=9\" contains m more than once");
  EXPECT_EQ(refusal_of(usual + " ranks"), "problem: ranks has no value; write ranks=...");
  EXPECT_EQ(refusal_of(usual + " ranks=0"),
            "problem: ranks=0 is not a whole number from 1 to 65536");
  EXPECT_EQ(refusal_of(usual + " x=s8"), "problem: x=s8 is none of f32, bf16, f16");
  EXPECT_EQ(refusal_of(usual + " speed=9"),
            "problem: unknown word speed; known are op, m, n, k, x, w, out, wire, "
            "ranks, hosts, threads, backend, transport, link and columns");
  EXPECT_EQ(refusal_of(usual + " columns=9"), "problem: op=matmul_all_reduce has no columns=");
  EXPECT_EQ(refusal_of("op=experts m=1 n=2 k=3"),
            "problem: op=experts needs columns=, the number of experts");
  EXPECT_NE(refusal_of(usual + " link=fast"), "nothing was refused");
}

}  // namespace
}  // namespace plait
