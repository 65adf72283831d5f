"""Experts of vLLM on two data-parallel ranks: each has rows of its own, and some of the experts."""

import os
import sys
from collections import Counter
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_vllm_experts import BOUNDS, TOKENS, Weights, layer_of
from vllm.config import CompilationConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import get_dp_group, parallel_state
from vllm.forward_context import set_forward_context

import plait
import plait.torch
import plait.vllm
from plait.torch.experts import counts

# How many rows the ranks have; vLLM gives a rank that has no request one row of zeros.
SHARES = [(TOKENS - 4, 4), (1, TOKENS - 1), (1, 1)]


@pytest.fixture(scope="module", autouse=True)
def config(world: int) -> Iterator[VllmConfig]:
    os.environ.setdefault("VLLM_DIST_IDENT", f"plait-{os.environ['MASTER_PORT']}")
    parallel = ParallelConfig(
        data_parallel_size=world,
        enable_expert_parallel=True,
        distributed_executor_backend="external_launcher",  # ranks are those of torchrun
    )
    eager = CompilationConfig(mode=0, backend="eager", custom_ops=["all"])
    made = VllmConfig(parallel_config=parallel, compilation_config=eager)
    with set_current_vllm_config(made):
        parallel_state.init_distributed_environment(
            world, dist.get_rank(), "env://", dist.get_rank(), "gloo"
        )
        parallel_state.initialize_model_parallel(backend="gloo")
        plait.vllm.enable()
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys.modules["plait.vllm.report"], "_layers", Counter())
            yield made
        plait.vllm.disable()
        parallel_state.destroy_model_parallel()


def own(of_all: torch.Tensor, shares: tuple[int, ...]) -> torch.Tensor:
    part: torch.Tensor = of_all[: sum(shares)].split(shares)[dist.get_rank()]
    return part.clone()


def run(runner: Any, weights: Weights, shares: tuple[int, ...], config: VllmConfig) -> torch.Tensor:
    x, logits = own(weights.x, shares), own(weights.logits, shares)
    across = torch.tensor(shares, dtype=torch.int32)
    with (
        torch.inference_mode(),
        set_forward_context(None, config, num_tokens=len(x), num_tokens_across_dp=across),
    ):
        out: torch.Tensor = runner(x, logits)
    return out


def check(out: torch.Tensor, weights: Weights, shares: tuple[int, ...]) -> None:
    expected = own(weights.expected(), shares)
    assert out.shape == expected.shape
    bound = BOUNDS[out.dtype] * expected.abs().max()
    assert (out.double() - expected).abs().max() < bound


@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda one: str(one).removeprefix("torch."))
def test_rows_travel_to_their_experts(dtype: torch.dtype, config: VllmConfig) -> None:
    weights = Weights(dtype)
    runner = layer_of(weights, f"data-parallel experts of {dtype}")
    assert not runner.do_naive_dispatch_combine
    counts.forget()
    for shares in SHARES:
        check(run(runner, weights, shares, config), weights, shares)
    [total] = counts.totals().values()
    assert total.calls == len(SHARES)
    assert total.sent[1 - dist.get_rank()] > 0


def test_graphs_have_experts_as_one_operator(config: VllmConfig) -> None:
    weights = Weights(torch.float32)
    runner = layer_of(weights, "data-parallel experts in a graph")
    graph = torch.compile(runner, backend="eager", fullgraph=True, dynamic=True)
    for shares in SHARES:  # a graph must not keep the numbers of rows
        check(run(graph, weights, shares, config), weights, shares)


def test_rows_are_gathered_where_that_sends_less(
    config: VllmConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between hosts: vLLM's own exchange of two ranks and three experts a row."""
    hosts = SimpleNamespace(hosts=2)
    monkeypatch.setattr("plait.vllm.experts.communicator_of", lambda *_: hosts)
    weights = Weights(torch.float32)
    runner = layer_of(weights, "experts of gathered rows")
    assert runner.do_naive_dispatch_combine
    for shares in SHARES:
        check(run(runner, weights, shares, config), weights, shares)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32, torch.bool])
def test_rows_of_any_dtype_are_gathered(dtype: torch.dtype) -> None:
    group, shares = get_dp_group(), (3, 0)
    whole = torch.arange(15).view(3, 5).to(dtype)
    mine = own(whole, shares)
    several = group.all_gatherv([mine, mine[:, 0]], 0, list(shares))
    assert torch.equal(several[0], whole)
    assert torch.equal(several[1], whole[:, 0])
    alike = group.all_gatherv(whole)
    assert torch.equal(alike, torch.cat([whole, whole]))


def test_sums_are_scattered() -> None:
    group, shares = get_dp_group(), [4, 1]
    whole = torch.arange(30.0).view(5, 6)
    for dim, given in ((0, whole), (1, whole.t()), (-1, whole.t().contiguous())):
        out = group.reduce_scatterv(given, dim, shares)
        assert torch.equal(out, 2 * given.split(shares, dim)[group.rank_in_group])
    assert torch.equal(group.reduce_scatterv(whole[:4], 0), 2 * own(whole, (2, 2)))
    with pytest.raises(plait.Error, match="2 ranks can't share 5"):
        group.reduce_scatterv(whole, 0)
    with pytest.raises(plait.Error, match=r"input_ is torch\.int64"):
        group.reduce_scatterv(whole.long(), 0, shares)
