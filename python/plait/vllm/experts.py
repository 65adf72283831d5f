"""Experts that vLLM spreads over the ranks of its tensor-parallel group, on CPUs.

vLLM's own product for CPUs ignores `expert_map`, and reads beyond its weights. plait multiplies by
the experts that the rank has, and vLLM adds up the results of the ranks, as it does after experts
whose weights are split.
"""

import time
from typing import Any

import torch
from torch import nn
from vllm.model_executor.layers.fused_moe import activation, unquantized_fused_moe_method

from plait.torch.context import context_alone
from plait.torch.experts import Swiglu, counts
from plait.torch.experts.call import Call, Stacks
from plait.torch.experts.placement import Placement
from plait.torch.options import Options
from plait.torch.rows import as_rows, view
from plait.torch.weights import Owner, packed_stack
from plait.vllm.products import calls
from plait.vllm.report import note

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_OPTIONS = Options()
_REMARK = (
    "a token waits for the rank that has most of its experts, "
    "and may be faster without enable_expert_parallel"
)


def _refusal(layer: Any) -> str | None:
    """Say why plait doesn't serve the experts of a rank; None if it does."""
    parallel = layer.moe_config.moe_parallel_config
    weight = layer.w13_weight
    if parallel.dp_size > 1 or parallel.pcp_size > 1:
        return "ranks have rows of their own, which vLLM can't exchange on CPUs"
    if parallel.enable_eplb:
        return "its experts change their ranks"
    if layer.activation != activation.MoEActivation.SILU or layer.swiglu_limit is not None:
        return f"its activation is {layer.activation.value}, not silu without a limit"
    if layer.apply_router_weight_on_input:
        return "its input is weighted, not its results"
    if weight.device.type != "cpu":
        return f"its weight is on {weight.device}, and plait computes on the CPU"
    return None if weight.dtype in _DTYPES else f"its weight is {weight.dtype}"


class _Loaded:
    """This rank's experts, packed."""

    def __init__(self, layer: Any) -> None:
        up, down = layer.w13_weight, layer.w2_weight
        packs = Owner(), Owner()
        self.weights = tuple(
            packed_stack(one, one.dtype, owner, turned=False)
            for one, owner in zip((up, down), packs, strict=True)
        )
        self.biases = getattr(layer, "w13_bias", None), getattr(layer, "w2_bias", None)
        sizes = [torch.empty(one.shape, device="meta") for one in (up, down)]
        self.stacks = Stacks(sizes[0], sizes[1], packs=packs)
        placement = Placement.of(up.shape[0], None, 1)
        self.call = Call(placement, context_alone(_OPTIONS), Swiglu(), turned=False)


class UnquantizedFusedMoEMethod(unquantized_fused_moe_method.UnquantizedFusedMoEMethod):  # type: ignore[misc]
    """vLLM's, with plait's products where each rank has some of the experts."""

    loaded: _Loaded | None = None

    def process_weights_after_loading(self, layer: Any) -> None:
        """Pack the weights for plait, and drop them, as vLLM does when it packs them."""
        parallel = layer.moe_config.moe_parallel_config
        refusal = _refusal(layer) if layer.use_ep else "its experts are on all ranks"
        if layer.use_ep:
            note(layer, refusal, (parallel.ep_rank, parallel.ep_size), remark=_REMARK)
        if refusal is not None:
            super().process_weights_after_loading(layer)
            return
        self.loaded = _Loaded(layer)
        for name in ("w13_weight", "w2_weight"):
            empty = torch.empty(0, dtype=layer.w13_weight.dtype)
            setattr(layer, name, nn.Parameter(empty, requires_grad=False))

    def apply(
        self,
        layer: Any,
        x: torch.Tensor,
        topk_weights: torch.Tensor,
        topk_ids: torch.Tensor,
        shared_experts: Any,
        shared_experts_input: torch.Tensor | None,
    ) -> torch.Tensor:
        """Add up the weighted results of this rank's experts."""
        loaded = self.loaded
        if loaded is None:
            theirs: torch.Tensor = super().apply(
                layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input
            )
            return theirs
        begin = time.perf_counter_ns()
        x = as_rows(x)
        ids = layer.expert_map[topk_ids.long()].long()  # -1 of other ranks' experts
        weights = topk_weights.float().contiguous()
        out = torch.empty_like(x)
        biases = tuple(None if one is None else view(one) for one in loaded.biases)
        multiplied = loaded.call.layer(x, ids.shape[1], loaded.stacks).forward(
            view(x),
            ids.data_ptr(),
            weights.data_ptr(),
            (*loaded.weights, *biases),
            view(out),
            False,
        )
        spent = time.perf_counter_ns() - begin
        key = counts.key_of(loaded.call, x, ids.shape[1], loaded.stacks.down)
        counts.add(key, multiplied, spent, chosen=ids.numel())
        calls[type(layer).__name__] += 1
        return out
