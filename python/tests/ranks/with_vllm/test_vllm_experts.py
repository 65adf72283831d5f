"""Experts that vLLM spreads over two ranks: plait multiplies by those that a rank has."""

import logging
import os
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from vllm.config import CompilationConfig, ParallelConfig, VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.forward_context import set_forward_context
from vllm.model_executor.layers import fused_moe

import plait.torch
import plait.vllm

EXPERTS, TOP, HIDDEN, INNER, TOKENS = 10, 3, 64, 96, 13
BOUNDS = {torch.float32: 1e-5, torch.bfloat16: 0.03}
REMARK = (
    "a token waits for the rank that has most of its experts, "
    "and may be faster without enable_expert_parallel"
)


@pytest.fixture(scope="module", autouse=True)
def config(world: int) -> Iterator[VllmConfig]:
    # Ranks of one engine have it alike; vLLM names its shared memory after it.
    os.environ.setdefault("VLLM_DIST_IDENT", f"plait-{os.environ['MASTER_PORT']}")
    parallel = ParallelConfig(tensor_parallel_size=world, enable_expert_parallel=True)
    # Otherwise vLLM compiles its router, for a minute.
    eager = CompilationConfig(mode=0, backend="eager", custom_ops=["all"])
    made = VllmConfig(parallel_config=parallel, compilation_config=eager)
    with set_current_vllm_config(made):
        parallel_state.init_distributed_environment(
            world, dist.get_rank(), "env://", dist.get_rank(), "gloo"
        )
        parallel_state.initialize_model_parallel(world, backend="gloo")
        plait.vllm.enable()
        yield made
        plait.vllm.disable()
        parallel_state.destroy_model_parallel()


class Weights:
    """The weights of all experts, which every rank makes alike."""

    def __init__(self, dtype: torch.dtype) -> None:
        random = torch.Generator().manual_seed(4)

        def noise(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=random).to(dtype) * 0.2

        self.up = noise(EXPERTS, 2 * INNER, HIDDEN)
        self.down = noise(EXPERTS, HIDDEN, INNER)
        self.x = noise(TOKENS, HIDDEN) * 5
        self.logits = noise(TOKENS, EXPERTS) * 5

    def expected(self) -> torch.Tensor:
        """Return the layer's result in double precision."""
        up, down, x, logits = (one.double() for one in (self.up, self.down, self.x, self.logits))
        weights, ids = logits.softmax(-1).topk(TOP)
        weights = weights / weights.sum(-1, keepdim=True)
        out = torch.zeros_like(x)
        for row in range(TOKENS):
            for weight, expert in zip(weights[row], ids[row], strict=True):
                gate, value = (up[expert] @ x[row]).chunk(2)
                out[row] += weight * (down[expert] @ (torch.nn.functional.silu(gate) * value))
        return out


def layer_of(weights: Weights, prefix: str, **how: Any) -> Any:
    runner = fused_moe.FusedMoEFactory(
        EXPERTS, TOP, HIDDEN, INNER, params_dtype=weights.up.dtype, prefix=prefix, **how
    )
    experts = runner.routed_experts
    own = (experts.expert_map >= 0).nonzero().flatten()
    experts.w13_weight.data.copy_(weights.up[own])
    experts.w2_weight.data.copy_(weights.down[own])
    experts.quant_method.process_weights_after_loading(experts)
    return runner


@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda one: str(one).removeprefix("torch."))
def test_experts(dtype: torch.dtype, config: VllmConfig) -> None:
    weights = Weights(dtype)
    made = layer_of(weights, f"experts of {dtype}")
    assert made.routed_experts.w13_weight.numel() == 0  # packed weights alone are kept
    graph = torch.compile(made, backend="eager", fullgraph=True, dynamic=True)
    for runner, rows in ((made, TOKENS), (made, 1), (graph, TOKENS)):
        with torch.inference_mode(), set_forward_context(None, config, num_tokens=rows):
            out = runner(weights.x[:rows].clone(), weights.logits[:rows].clone())
        expected = weights.expected()[:rows]
        assert (out.double() - expected).abs().max() < BOUNDS[dtype] * expected.abs().max()
    report = plait.vllm.report()
    [served] = [row for row in report.rows if row.refusal is None]
    assert served.layer == "RoutedExperts"
    assert served.calls >= 2
    line = f"{served.layers} RoutedExperts: {served.calls} calls served by plait"
    assert f"{line}\n  {REMARK}\n" in str(report)


def test_what_tokens_wait_for_is_said_once(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.modules["plait.vllm.report"], "_layers", Counter())
    with caplog.at_level(logging.INFO, "plait.vllm"):
        for name in "first", "second":
            layer_of(Weights(torch.float32), f"{name} of two layers")
    ours = [one for one in caplog.records if one.name == "plait.vllm"]
    said = [(one.levelname, one.getMessage()) for one in ours]
    sentence = f"RoutedExperts is served by plait: {REMARK}"
    assert said == [("WARNING", sentence)] * (dist.get_rank() == 0)


def test_experts_that_are_left(config: VllmConfig) -> None:
    before = sum(row.layers for row in plait.vllm.report().rows if row.refusal is not None)
    runner = layer_of(Weights(torch.float32), "experts with gelu", activation="gelu")
    assert runner.routed_experts.w13_weight.numel() > 0
    left = [row for row in plait.vllm.report().rows if row.refusal is not None]
    assert sum(row.layers for row in left) == before + 1
    assert left[-1].refusal == (
        "its activation is gelu, not silu without a limit; leave out enable_expert_parallel, "
        "with which vLLM's own product on CPUs reads beyond its weights"
    )
    assert left[-1].remark is None
