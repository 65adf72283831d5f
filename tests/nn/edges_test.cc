// Layers at their edges: nothing to do on some ranks, steps that overlap, halves of a backward.
#include <gtest/gtest.h>

#include <cstring>
#include <memory>
#include <vector>

#include "conformance/ranks.h"
#include "nn/layer.h"
#include "tensor/sentence_of.h"

namespace plait {
namespace {

class LayerEdges : public testing::TestWithParam<LayerKind> {
 protected:
  static bool is_column() { return GetParam() == LayerKind::column; }
};

INSTANTIATE_TEST_SUITE_P(Nn, LayerEdges, testing::Values(LayerKind::column, LayerKind::row),
                         [](const auto& one) { return name_of(one.param); });

// Three micro-batches of different sizes, some of fewer rows than ranks: each as if it were alone.
TEST_P(LayerEdges, StepsOfDifferentSizesInFlightAreThoseOfEachAlone) {
  for (const bool keeps : {false, true}) {
    run_as_threads(3, [&](Communicator& comm) {
      const LinearOptions options = {.recompute_all_gather = !keeps};
      const std::vector<std::int64_t> sizes = {40, 2, 0, 7, 40};
      std::vector<std::unique_ptr<LayerProblem>> got;
      std::vector<LinearState> states(sizes.size());
      got.reserve(sizes.size());
      for (const std::int64_t m : sizes)
        got.push_back(std::make_unique<LayerProblem>(GetParam(), m, comm));
      with_layer(GetParam(), got[0]->desc(), comm, options, [&](auto layer) {
        for (std::size_t i = 0; i < sizes.size(); ++i) layer.forward(got[i]->forward(), &states[i]);
        // Neither in the order of the forwards nor in the other.
        for (const std::size_t i : {1U, 4U, 0U, 2U, 3U})
          layer.backward(got[i]->backward(), &states[i]);
      });
      for (std::size_t i = 0; i < sizes.size(); ++i) {
        const LayerProblem alone(GetParam(), sizes[i], comm);
        run_step(alone, comm);
        expect_same(*got[i], alone, "as alone");
      }
    });
  }
}

// Pipelines split backward like this: grad_x first, the weight's gradient later.
TEST_P(LayerEdges, BackwardInHalvesIsTheSame) {
  for (const bool sequence_parallel : {false, true}) {
    run_as_threads(2, [&](Communicator& comm) {
      const LinearOptions options = {.sequence_parallel = sequence_parallel};
      const LayerProblem whole(GetParam(), 33, comm, sequence_parallel);
      run_step(whole, comm, options);
      const LayerProblem halves(GetParam(), 33, comm, sequence_parallel);
      with_layer(GetParam(), halves.desc(), comm, options, [&](auto layer) {
        LinearState state;
        layer.forward(halves.forward(), &state);
        LinearBackward first = {
            .weight = halves.weight(), .grad_out = halves.grad_out(), .grad_x = halves.grad_x.view};
        layer.backward(first, &state);
        LinearBackward rest = halves.backward();
        rest.grad_x = {};
        rest.grad_bias = {};
        layer.backward(rest, &state);
        rest.grad_weight = {};
        rest.grad_bias = halves.grad_bias.view;
        layer.backward(rest, &state);
      });
      expect_same(halves, whole, sequence_parallel ? "sharded" : "all rows");
    });
  }
}

TEST_P(LayerEdges, FollowsAPlanCutInColumnsWhereItCan) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem serial(GetParam(), 50, comm);
    run_step(serial, comm, {.operators = {.plan = parse_plan("serial")}});
    for (const bool keeps : {false, true}) {
      const LayerProblem one(GetParam(), 50, comm);
      const LinearOptions options = {
          .recompute_all_gather = !keeps,
          .column_backward = true,
          .operators = {.plan = parse_plan("pipelined parts=3 axis=columns")}};
      run_step(one, comm, options);
      expect_same(one, serial, keeps ? "kept" : "gathered again");
    }
  });
}

// A gradient of 1 in f32 and what is added to it is exact in none of the narrower dtypes.
TEST_P(LayerEdges, AccumulatesOnceRoundedInEveryDtype) {
  for (const Dtype dtype : {Dtype::f32, Dtype::bf16, Dtype::f16}) {
    run_as_threads(2, [&](Communicator& comm) {
      const LayerProblem exact(GetParam(), 21, comm, true, Dtype::f32);
      run_step(exact, comm);
      const LayerProblem one(GetParam(), 21, comm, true, Dtype::f32);
      const Matrix weight(dtype, one.grad_weight.view.rows, one.grad_weight.view.cols, 7);
      const Matrix bias(dtype, 1, one.grad_bias.view.cols, 8);
      const Matrix weight_before(dtype, weight.view.rows, weight.view.cols, 7);
      const Matrix bias_before(dtype, 1, bias.view.cols, 8);
      LinearBackward call = one.backward();
      call.grad_weight = weight.view;
      call.grad_bias = bias.view;
      call.accumulate = true;
      with_layer(GetParam(), one.desc(), comm, {}, [&](auto layer) {
        LinearState state;
        layer.forward(one.forward(), &state);
        layer.backward(call, &state);
      });
      const auto rounded = [&](double value) {
        const auto from = static_cast<float>(value);
        std::uint32_t bits = 0;
        float back = 0;
        convert(&from, Dtype::f32, &bits, dtype, 1);
        convert(&bits, dtype, &back, Dtype::f32, 1);
        return static_cast<double>(back);
      };
      for (std::int64_t i = 0; i < weight.view.rows; ++i) {
        for (std::int64_t j = 0; j < weight.view.cols; ++j) {
          const auto sum = static_cast<float>(at(weight_before.view, i, j)) +
                           static_cast<float>(at(exact.grad_weight.view, i, j));
          ASSERT_EQ(at(weight.view, i, j), rounded(sum)) << name(dtype) << i << ' ' << j;
        }
      }
      for (std::int64_t j = 0; j < bias.view.cols; ++j) {
        const auto sum = static_cast<float>(at(bias_before.view, 0, j)) +
                         static_cast<float>(at(exact.grad_bias.view, 0, j));
        ASSERT_EQ(at(bias.view, 0, j), rounded(sum)) << name(dtype) << j;
      }
    });
  }
}

// One output, or one input, is rank 0's: rank 1 has nothing, not even an address, and takes part.
TEST_P(LayerEdges, ARankWithoutAShareNeedsNoMemory) {
  for (const WeightLayout layout : {WeightLayout::out_in, WeightLayout::in_out}) {
    for (const bool column_backward : {false, true}) {
      run_as_threads(2, [&](Communicator& comm) {
        constexpr std::int64_t kTokens = 6;
        constexpr std::int64_t kWhole = 5;
        const bool column = is_column();
        const std::int64_t share = comm.rank() == 0 ? 1 : 0;
        const std::int64_t outputs = column ? share : kWhole;
        const std::int64_t inputs = column ? kWhole : share;
        const std::int64_t own = kTokens / 2;
        const auto memory = [](std::int64_t rows, std::int64_t cols) {
          return Buffer::for_tensor(Dtype::f32, rows, cols);
        };
        const auto ones = [&](const Buffer& buffer, std::int64_t rows, std::int64_t cols) {
          const TensorView view = buffer.view(Dtype::f32, rows, cols);
          for (std::int64_t i = 0; i < rows * cols; ++i) static_cast<float*>(view.data)[i] = 1;
          return view;
        };
        const std::int64_t x_rows = column ? own : kTokens;
        const std::int64_t out_rows = column ? kTokens : own;
        const bool out_in = layout == WeightLayout::out_in;
        const std::int64_t w_rows = out_in ? outputs : inputs;
        const std::int64_t w_cols = out_in ? inputs : outputs;
        const Buffer w = memory(w_rows, w_cols), x = memory(x_rows, inputs);
        const Buffer out = memory(out_rows, outputs), dy = memory(out_rows, outputs);
        const Buffer dx = memory(x_rows, inputs), dw = memory(w_rows, w_cols);
        ASSERT_EQ(dw.data() == nullptr, comm.rank() == 1);
        const WeightView weight = {.view = ones(w, w_rows, w_cols), .layout = layout};
        const LinearDesc desc = {.inputs = inputs,
                                 .outputs = outputs,
                                 .layout = layout,
                                 .weight = {.dtype = Dtype::f32}};
        const LinearBackward call = {.x = x.view(Dtype::f32, x_rows, inputs),
                                     .weight = weight,
                                     .grad_out = ones(dy, out_rows, outputs),
                                     .grad_x = dx.view(Dtype::f32, x_rows, inputs),
                                     .grad_weight = dw.view(Dtype::f32, w_rows, w_cols)};
        with_layer(GetParam(), desc, comm, {.column_backward = column_backward}, [&](auto layer) {
          LinearState state;
          layer.forward({.x = ones(x, x_rows, inputs),
                         .weight = weight,
                         .out = out.view(Dtype::f32, out_rows, outputs)},
                        &state);
          layer.backward(call, &state);
        });
        // All operands are ones: each gradient equals the number of its terms.
        for (std::int64_t i = 0; i < x_rows * inputs; ++i)
          EXPECT_EQ(static_cast<float*>(call.grad_x.data)[i], column ? 1 : kWhole);
        for (std::int64_t i = 0; i < w_rows * w_cols; ++i)
          EXPECT_EQ(static_cast<float*>(call.grad_weight.data)[i], kTokens);
      });
    }
  }
}

// A gradient of [5, 0] has a size that says it is asked for; one of [0, 0] has only a dtype.
TEST_P(LayerEdges, ALayerOfNothingAsksForNothing) {
  run_as_threads(2, [](Communicator& comm) {
    const std::int64_t share = comm.rank() == 0 ? 5 : 0;
    const std::int64_t outputs = is_column() ? share : 0;
    const std::int64_t inputs = is_column() ? 0 : share;
    for (const std::int64_t tokens : {0, 1}) {
      const std::int64_t own = comm.rank() == 0 ? tokens : 0;
      const std::int64_t x_rows = is_column() ? own : tokens;
      const std::int64_t out_rows = is_column() ? tokens : own;
      const auto empty = [](std::int64_t rows, std::int64_t cols) {
        return TensorView{.dtype = Dtype::f32, .rows = rows, .cols = cols};
      };
      const Buffer x = Buffer::for_tensor(Dtype::f32, x_rows, inputs);
      const Buffer out = Buffer::for_tensor(Dtype::f32, out_rows, outputs);
      const Buffer grad_x = Buffer::for_tensor(Dtype::f32, x_rows, inputs);
      const WeightView weight = {.view = empty(outputs, inputs), .layout = WeightLayout::out_in};
      const LinearDesc desc = {.inputs = inputs,
                               .outputs = outputs,
                               .layout = weight.layout,
                               .weight = {.dtype = Dtype::f32}};
      with_layer(GetParam(), desc, comm, {}, [&](auto layer) {
        LinearState state;
        layer.forward({.x = x.view(Dtype::f32, x_rows, inputs),
                       .weight = weight,
                       .out = out.view(Dtype::f32, out_rows, outputs)},
                      &state);
        const LinearBackward back = {.x = x.view(Dtype::f32, x_rows, inputs),
                                     .weight = weight,
                                     .grad_out = out.view(Dtype::f32, out_rows, outputs),
                                     .grad_x = grad_x.view(Dtype::f32, x_rows, inputs),
                                     .grad_weight = empty(outputs, inputs)};
        layer.backward(back, &state);
        layer.backward(back);
      });
      barrier(comm);  // fails if only one rank made a collective
    }
  });
}

TEST_P(LayerEdges, RefusesTheStateOfAnotherForward) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(GetParam(), 6, comm);
    const LayerProblem longer(GetParam(), 10, comm);
    LinearState state;
    with_layer(GetParam(), problem.desc(), comm, {}, [&](auto layer) {
      layer.forward(longer.forward(), &state);
      std::string want(is_column() ? "ColumnParallelLinear" : "RowParallelLinear");
      want +=
          is_column() ? ": grad_out is 6 x 80, not 10 x 80" : ": grad_out is 3 x 160, not 5 x 160";
      EXPECT_EQ(sentence_of([&] { layer.backward(problem.backward(), &state); }), want);
      // Nothing was aborted.
      layer.forward(problem.forward(), &state);
      layer.backward(problem.backward(), &state);
    });
  });
}

TEST_P(LayerEdges, RefusesGradientsOverTheWeight) {
  run_as_threads(1, [](Communicator& comm) {
    const LayerProblem problem(GetParam(), 160, comm);
    LinearBackward call = problem.backward();
    call.grad_x = problem.w();
    with_layer(GetParam(), problem.desc(), comm, {}, [&](auto layer) {
      LinearState state;
      layer.forward(problem.forward(), &state);
      std::string want(is_column() ? "ColumnParallelLinear" : "RowParallelLinear");
      want += ": grad_x overlaps the weight";
      EXPECT_EQ(sentence_of([&] { layer.backward(call, &state); }), want);
    });
  });
}

// amx has a product of bf16 only: what backward can't do is said before it begins.
TEST_P(LayerEdges, RefusesABackendThatCannotGoBackward) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(GetParam(), 12, comm);
    const Matrix wide(Dtype::f32, problem.grad_out().rows, problem.grad_out().cols);
    LinearBackward call = problem.backward();
    call.grad_out = wide.view;
    LinearState state;
    with_layer(GetParam(), problem.desc(), comm, {}, [&](auto layer) {
      layer.forward(problem.forward(), &state);
      with_layer(GetParam(), problem.desc(), comm, {.operators = {.backend = "amx"}},
                 [&](auto other) {
                   for (const bool frozen : {false, true}) {
                     if (frozen) call.grad_weight = {};
                     expect_error(Code::invalid_argument, "backend amx can't do",
                                  [&] { other.backward(call, &state); });
                   }
                 });
      layer.backward(problem.backward(), &state);  // nothing was aborted
    });
  });
}

// Ranks that don't ask for the same gradients call different collectives, and say so.
TEST_P(LayerEdges, RanksThatAskForDifferentGradientsDisagree) {
  run_as_threads(2, [](Communicator& comm) {
    const LayerProblem problem(GetParam(), 64, comm);
    LinearBackward call = problem.backward();
    if (comm.rank() == 1 && is_column()) call.grad_weight = {};
    if (comm.rank() == 1 && !is_column()) call.grad_x = {};
    with_layer(GetParam(), problem.desc(), comm, {}, [&](auto layer) {
      LinearState state;
      layer.forward(problem.forward(), &state);
      expect_error(Code::mismatch, [&] { layer.backward(call, &state); });
    });
  });
}

}  // namespace
}  // namespace plait
