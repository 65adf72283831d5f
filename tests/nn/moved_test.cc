// An object that was moved from refuses every call in a sentence that says so. Plain values, such
// as views and plans, stay as they were.
#include <gtest/gtest.h>

#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "plait/ops.h"
#include "plait/plait.h"

// NOLINTBEGIN(bugprone-use-after-move,clang-analyzer-cplusplus.Move): it is what is tried
namespace plait {
namespace {

using Uses = std::vector<std::function<void()>>;

void expect_refused(const Uses& uses, const std::string& sentence) {
  for (std::size_t i = 0; i < uses.size(); ++i) {
    SCOPED_TRACE("use " + std::to_string(i));
    expect_error(Code::invalid_argument, sentence, uses[i]);
  }
}

// A rank alone.
template <class Body>
void alone(Body&& body) {
  run_in_threads(1, std::forward<Body>(body));
}

TEST(MovedFrom, ACommunicatorSaysSo) {
  alone([](Communicator& comm) {
    Communicator first = comm.with_link(std::nullopt);
    Communicator second = std::move(first);
    const Uses uses = {[&] { static_cast<void>(first.rank()); },
                       [&] { static_cast<void>(first.world()); },
                       [&] { static_cast<void>(first.transport()); },
                       [&] { static_cast<void>(first.link()); },
                       [&] { static_cast<void>(first.trace()); },
                       [&] { static_cast<void>(first.mailbox_bytes()); },
                       [&] { first.split(0, 0); },
                       [&] { first.with_link(std::nullopt); },
                       [&] { first.make_mailbox({.slots = 1, .slot_bytes = 8}); },
                       [&] { first.cached_mailbox({.slots = 1, .slot_bytes = 8}); },
                       [&] { first.abort("a reason"); },
                       [&] { barrier(first); },
                       [&] { start_barrier(first); },
                       [&] { static_cast<void>(linear_memory(first)); }};
    expect_refused(uses, "this communicator was moved to another, which has its ranks");
    barrier(second);
  });
}

TEST(MovedFrom, APendingSaysSo) {
  alone([](Communicator& comm) {
    Pending first = start_barrier(comm);
    Pending second = std::move(first);
    const Uses uses = {[&] { static_cast<void>(first.done()); }, [&] { first.progress(); },
                       [&] { first.wait(); }};
    expect_refused(uses, "this Pending was moved to another");
    second.wait();
    EXPECT_TRUE(second.done());
    first = std::move(second);  // and it can be used again
    EXPECT_TRUE(first.done());
    expect_refused({[&] { second.wait(); }}, "this Pending was moved to another");
  });
}

// Moving a ThreadGroup copies its pointer to the group: the moved-from object still works.
TEST(MovedFrom, AThreadGroupStaysAGroup) {
  ThreadGroup first(1);
  const ThreadGroup second = std::move(first);  // NOLINT(performance-move-const-arg): the subject
  Communicator comm = first.join(0);
  barrier(comm);
}

struct Product {
  Matrix x{Dtype::f32, 8, 16, 1};
  Matrix w{Dtype::f32, 24, 16, 2};
  Matrix out{Dtype::f32, 8, 24};
  Gemm gemm = select_gemm(
      {.m = 8, .n = 24, .k = 16, .x = Dtype::f32, .weight = Dtype::f32, .out = Dtype::f32});

  GemmCall call() const { return {.x = {.view = x.view}, .weight = plain(), .out = out.view}; }
  WeightView plain() const { return {.view = w.view, .layout = WeightLayout::out_in}; }
};

TEST(MovedFrom, AGemmSaysSo) {
  Product product;
  Gemm second = std::move(product.gemm);
  PackedInput packed;
  const Uses uses = {[&] { static_cast<void>(product.gemm.desc()); },
                     [&] { static_cast<void>(product.gemm.backend()); },
                     [&] { static_cast<void>(product.gemm.held_bytes()); },
                     [&] { product.gemm.run(product.call()); },
                     [&] { product.gemm.pack({.view = product.x.view}, packed); }};
  expect_refused(uses, "this Gemm has been moved to another");
  second.run(product.call());
}

TEST(MovedFrom, WhatAProductTakesSaysSo) {
  Product product;
  GemmCall call = product.call();

  PackedInput input;
  product.gemm.pack({.view = product.x.view}, input);
  const PackedInput input_now = std::move(input);
  EXPECT_EQ(input.rows(), 0);
  EXPECT_EQ(input.k(), 0);
  EXPECT_EQ(input.held_bytes(), 0U);
  call.packed_x = &input;
  expect_refused({[&] { product.gemm.run(call); },
                  [&] { product.gemm.pack({.view = product.x.view}, input); }},
                 "packed_x has been moved to another PackedInput");
  call.packed_x = nullptr;

  PanelCache panels;
  const PanelCache panels_now = std::move(panels);
  EXPECT_EQ(panels.held_bytes(), 0U);
  expect_refused({[&] { panels.forget(); }}, "panel_cache has been moved to another PanelCache");

  PackedWeight weight(product.plain());
  const PackedWeight weight_now = std::move(weight);
  call.weight = weight;
  expect_refused({[&] { product.gemm.run(call); }},
                 "weight has been moved to another PackedWeight");
  call.weight = weight_now;
  product.gemm.run(call);
}

TEST(MovedFrom, AQuantizedWeightSaysSo) {
  const Product product;
  QuantizedWeight first = quantize(product.plain(), {.per = QuantPer::channel});
  const QuantizedWeight second = std::move(first);
  Matrix to(Dtype::f32, 24, 16);
  const Uses uses = {[&] { static_cast<void>(first.value(0, 0)); },
                     [&] { static_cast<void>(first.scale(0, 0)); },
                     [&] { static_cast<void>(first.values()); },
                     [&] { static_cast<void>(first.scales()); },
                     [&] { static_cast<void>(first.offsets()); },
                     [&] { first.dequantize(to.view, WeightLayout::out_in); },
                     [&] { const PackedWeight packed(first); }};
  expect_refused(uses, "quantized weight: it has been moved to another QuantizedWeight");
  second.dequantize(to.view, WeightLayout::out_in);
}

TEST(MovedFrom, ABufferHasNothing) {
  Buffer first(64);
  const Buffer second = std::move(first);
  EXPECT_EQ(first.bytes(), 0U);
  EXPECT_EQ(first.data(), nullptr);
  EXPECT_EQ(first.huge_page_bytes(), 0U);
  expect_refused({[&] { static_cast<void>(first.view(Dtype::f32, 4, 4)); }},
                 "takes 64 bytes but the buffer has 0");
}

TEST(MovedFrom, AnOperatorSaysSo) {
  alone([](Communicator& comm) {
    const Product product;
    const Weight weight = product.plain();
    const OpDesc desc = {.op = Operator::matmul_all_reduce,
                         .m = 8,
                         .n = weight.n(),
                         .k = weight.k(),
                         .x = Dtype::f32,
                         .weight = weight.kind(),
                         .out = Dtype::f32};
    const OpCall call = {.x = product.x.view, .weight = weight, .out = product.out.view};
    Op first = prepare(desc, comm);
    Op second = std::move(first);
    const Uses uses = {[&] { first.run(call); }, [&] { static_cast<void>(first.desc()); },
                       [&] { static_cast<void>(first.plan()); },
                       [&] { static_cast<void>(first.held_bytes()); }};
    expect_refused(uses, "this operator was moved to another Op");
    second.run(call);

    PackedWeight packed(product.plain());
    const PackedWeight packed_now = std::move(packed);
    expect_refused(
        {[&] { matmul_all_reduce(product.x.view, packed, product.out.view, comm); },
         [&] { second.run({.x = product.x.view, .weight = packed, .out = product.out.view}); }},
        "weight has been moved to another PackedWeight");
  });
}

template <class Layer>
void expect_layer_says_so(LayerKind kind) {
  alone([&](Communicator& comm) {
    const LayerProblem problem(kind, 5, comm);
    Layer first(problem.desc(), comm);
    Layer second = std::move(first);
    LinearState state;
    const Uses uses = {[&] { first.forward(problem.forward(), &state); },
                       [&] { first.backward(problem.backward(), &state); }};
    expect_refused(uses, "this layer was moved to another");
  });
}

TEST(MovedFrom, ALayerSaysSo) {
  expect_layer_says_so<ColumnParallelLinear>(LayerKind::column);
  expect_layer_says_so<RowParallelLinear>(LayerKind::row);
}

}  // namespace
}  // namespace plait
// NOLINTEND(bugprone-use-after-move,clang-analyzer-cplusplus.Move)
