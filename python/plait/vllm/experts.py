"""Experts that vLLM spreads over ranks, on CPUs.

vLLM's own product for CPUs ignores `expert_map`, and reads beyond its weights. plait multiplies by
the experts that the rank has, and vLLM adds up the results of the ranks, as it does after experts
whose weights are split.

Data-parallel ranks have rows of their own. These travel to their experts and back by plait, where
vLLM gathers the rows of all ranks before, and scatters the sums behind.
"""

import time
from typing import Any

import torch
from torch import nn
from vllm.distributed import get_ep_group
from vllm.model_executor.layers.fused_moe import activation, unquantized_fused_moe_method
from vllm.model_executor.layers.fused_moe.runner import moe_runner

from plait.torch.context import communicator_of, context_alone, context_of
from plait.torch.experts import Swiglu, counts
from plait.torch.experts.call import Call, Stacks
from plait.torch.experts.placement import NAME, Placement
from plait.torch.options import Options
from plait.torch.rows import as_rows, view
from plait.torch.weights import Owner, packed_stack
from plait.vllm.products import calls
from plait.vllm.report import note

_select_forward = moe_runner.MoERunner._select_forward
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_OPTIONS = Options()
_REMARK = (
    "a token waits for the rank that has most of its experts, "
    "and may be faster without enable_expert_parallel"
)
_WAY_OUT = (
    "leave out enable_expert_parallel, "
    "with which vLLM's own product on CPUs reads beyond its weights"
)
_REMARK_OF_ROWS = "with some 1000 rows of a rank, vLLM's own way of gathering may be faster"


def _refusal(layer: Any) -> str | None:
    """Say why plait doesn't serve the experts of a rank; None if it does."""
    parallel = layer.moe_config.moe_parallel_config
    weight = layer.w13_weight
    if parallel.pcp_size > 1:
        return "ranks have parts of a prompt"
    if parallel.enable_eplb:
        return "its experts change their ranks"
    if layer.activation != activation.MoEActivation.SILU or layer.swiglu_limit is not None:
        return f"its activation is {layer.activation.value}, not silu without a limit"
    if layer.apply_router_weight_on_input:
        return "its input is weighted, not its results"
    if weight.device.type != "cpu":
        return f"its weight is on {weight.device}, and plait computes on the CPU"
    return None if weight.dtype in _DTYPES else f"its weight is {weight.dtype}"


def _travels(layer: Any) -> bool:
    """Say whether rows travel to their experts, on all ranks: not where some have the same rows."""
    parallel = layer.moe_config.moe_parallel_config
    is_own = parallel.dp_size == parallel.ep_size or parallel.is_sequence_parallel
    if parallel.dp_size == 1 or not is_own or layer.expert_placement_strategy != "linear":
        return False
    ranks, top = parallel.ep_size, layer.top_k
    # Another rank costs a row and a result for each of its experts there, on average. Where rows
    # are gathered, it costs a row and a part of a sum.
    sent = 1 - (1 - 1 / ranks) ** top + top / ranks
    return sent <= 2 or communicator_of(get_ep_group().device_group, NAME).hosts == 1


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
        # -1 of other ranks' experts. The last one is what -1 itself finds: no expert.
        self.map = torch.cat((layer.expert_map.long(), torch.tensor([-1])))
        self.travels = _travels(layer)
        if self.travels:  # all ranks load their layers in the same order
            context = context_of(get_ep_group().device_group, _OPTIONS, NAME)
            placement = Placement.of(len(layer.expert_map), None, context.world)
        else:
            context, placement = context_alone(_OPTIONS), Placement.of(up.shape[0], None, 1)
        self.call = Call(placement, context, Swiglu(), turned=False)


def select_forward(self: Any) -> Any:
    """Return what vLLM calls for experts: one operator in graphs, where vLLM for CPUs has none."""
    theirs = _select_forward(self)
    parallel = self.moe_config.moe_parallel_config
    if not parallel.use_ep and parallel.dp_size == 1:
        return theirs
    name = "moe_forward" if self.shared_experts is None else "moe_forward_shared"

    def forward(*given: Any) -> Any:
        made = getattr(torch.ops.vllm, name) if torch.compiler.is_compiling() else theirs
        return made(*given)

    return forward


class UnquantizedFusedMoEMethod(unquantized_fused_moe_method.UnquantizedFusedMoEMethod):  # type: ignore[misc]
    """vLLM's, with plait's products where each rank has some of the experts."""

    loaded: _Loaded | None = None

    @property
    def supports_internal_mk(self) -> bool:
        """Tell vLLM to leave rows where they are: they travel in apply()."""
        if self.loaded is not None:
            return self.loaded.travels
        theirs: bool = super().supports_internal_mk
        return theirs

    def process_weights_after_loading(self, layer: Any) -> None:
        """Pack the weights for plait, and drop them, as vLLM does when it packs them."""
        parallel = layer.moe_config.moe_parallel_config
        refusal = _refusal(layer) if layer.use_ep else "its experts are on all ranks"
        place = parallel.ep_rank, parallel.ep_size
        if refusal is not None:
            if layer.use_ep:
                note(layer, f"{refusal}; {_WAY_OUT}", place)
            super().process_weights_after_loading(layer)
            return
        self.loaded = _Loaded(layer)
        remark = _REMARK_OF_ROWS if self.loaded.travels else _REMARK
        note(layer, None, place, remark=remark)
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
        """Add up the weighted results of this rank's experts, or of all where rows travel."""
        loaded = self.loaded
        if loaded is None:
            theirs: torch.Tensor = super().apply(
                layer, x, topk_weights, topk_ids, shared_experts, shared_experts_input
            )
            return theirs
        begin = time.perf_counter_ns()
        x = as_rows(x)
        ids = topk_ids.long().contiguous()
        if not loaded.travels:
            ids = loaded.map[ids]
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
        counts.add(key, multiplied, spent, chosen=0 if loaded.travels else ids.numel())
        calls[type(layer).__name__] += 1
        return out
