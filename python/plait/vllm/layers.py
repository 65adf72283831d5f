"""The layers that vLLM makes in the place of its own."""

import logging
from typing import Any

import torch
from torch import nn
from vllm.distributed import get_tp_group, split_tensor_along_last_dim
from vllm.model_executor.layers import linear

from plait.vllm.compare import slower
from plait.vllm.logits import LogitsProcessor
from plait.vllm.products import Loaded, load, multiply
from plait.vllm.report import note

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _refusal(layer: linear.LinearBase, weight: torch.Tensor) -> str | None:
    """Say why plait doesn't serve a layer whose weight is loaded; None if it does."""
    if layer.tp_size == 1:
        return "its tensor-parallel group has one rank"
    if layer.tp_size != get_tp_group().world_size:
        return "its tensor-parallel group is a part of vLLM's"
    if getattr(layer, "_cpu_skip_gemm_dispatch", False):
        return "its plain weight is read by latent attention"
    if weight.device.type != "cpu":
        return f"its weight is on {weight.device}, and plait computes on the CPU"
    if weight.dtype not in _DTYPES:
        return f"its weight is {weight.dtype}"
    if weight.dim() != 2:
        return f"its weight has {weight.dim()} dimensions, not 2"
    return None


class _Method(linear.UnquantizedLinearMethod):
    """The method that vLLM calls for a layer's product, once it has loaded the weight."""

    def process_weights_after_loading(self, layer: Any) -> None:
        """Pack the weight for plait, and drop it, as vLLM does when it packs for oneDNN."""
        refusal = _refusal(layer, layer.weight)
        if refusal is None:
            name, group = type(layer).__name__, get_tp_group()
            by_plait = load(name, layer.weight, layer.input_size, group.device_group)
            adds_up = getattr(layer, "reduce_results", False)
            key = name, layer.input_size, layer.output_size, layer.weight.dtype, adds_up
            refusal = slower(key, by_plait, layer.weight, group.cpu_group, adds_up=adds_up)
            note(layer, refusal, level=logging.INFO)
        else:
            note(layer, refusal)
        if refusal is not None:
            super().process_weights_after_loading(layer)
            return
        layer.by_plait = by_plait
        empty = torch.empty(0, dtype=layer.weight.dtype, device=layer.weight.device)
        layer.weight = nn.Parameter(empty, requires_grad=False)

    def apply(self, layer: Any, x: torch.Tensor, bias: torch.Tensor | None = None) -> torch.Tensor:
        """Multiply by this rank's share of the weight, without communication."""
        if layer.by_plait is None:
            out: torch.Tensor = super().apply(layer, x, bias)
            return out
        return multiply(x, bias, layer.by_plait, adds_up=False)


class _Layer:
    """A layer of vLLM's whose product is plait's, unless its weight is quantised."""

    by_plait: Loaded | None

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.by_plait = None
        theirs = self.quant_method  # type: ignore[has-type]
        if type(theirs) is linear.UnquantizedLinearMethod:
            self.quant_method = _Method()
        else:
            note(self, f"plait has no product for {type(theirs).__name__}")


class ColumnParallelLinear(_Layer, linear.ColumnParallelLinear):
    """vLLM's, with plait's product."""


class MergedColumnParallelLinear(_Layer, linear.MergedColumnParallelLinear):
    """vLLM's, with plait's product."""


class QKVParallelLinear(_Layer, linear.QKVParallelLinear):
    """vLLM's, with plait's product."""


class RowParallelLinear(_Layer, linear.RowParallelLinear):
    """vLLM's, whose sum over the ranks is hidden behind its product."""

    def forward(self, input_: torch.Tensor) -> Any:
        """Do what vLLM's forward does."""
        # A layer that leaves the sum to its caller has plait's product, and no more.
        if self.by_plait is None or not self.reduce_results:
            return super().forward(input_)
        if not self.input_is_parallel:
            input_ = split_tensor_along_last_dim(input_, num_partitions=self.tp_size)[self.tp_rank]
        bias = None if self.skip_bias_add else self.bias
        out = multiply(input_, bias, self.by_plait, adds_up=True)
        if not self.return_bias:
            return out
        return out, self.bias if self.skip_bias_add else None


LAYERS: tuple[type, ...] = (
    ColumnParallelLinear,
    MergedColumnParallelLinear,
    QKVParallelLinear,
    RowParallelLinear,
    LogitsProcessor,
)
