"""Logits of the output layer, put off: vocab_parallel_cross_entropy() does without them."""

import inspect
from typing import Any

import torch
from megatron.core.tensor_parallel.cross_entropy import _VocabParallelCrossEntropy
from megatron.core.tensor_parallel.layers import ColumnParallelLinear
from megatron.core.tensor_parallel.mappings import gather_from_sequence_parallel_region

import plait.torch
from plait.torch.deferred import DeferredLogits, Head

_KNOWN = ("ctx", "vocab_parallel_logits", "target", "label_smoothing")


def mismatch() -> str | None:
    """Say how Megatron's loss differs from the one that plait knows; None if it doesn't."""
    found = tuple(inspect.signature(_VocabParallelCrossEntropy.forward).parameters)
    if found[: len(_KNOWN)] == _KNOWN and "apply" not in vars(_VocabParallelCrossEntropy):
        return None
    return f"_VocabParallelCrossEntropy.forward takes ({', '.join(found)}), or has its own apply"


def has_logits(layer: ColumnParallelLinear, weight: torch.Tensor) -> bool:
    """Say whether a layer is the output layer of a language model, without a bias.

    A loss that is fused is a function of autograd's own, whose gradients are of logits.
    """
    is_fused = getattr(layer.config, "cross_entropy_loss_fusion", False)
    is_output = getattr(weight, "is_embedding_or_output_parameter", False)
    return layer.bias is None and is_output and not is_fused


def deferred(
    layer: ColumnParallelLinear,
    x: torch.Tensor,
    weight: torch.Tensor,
    options: plait.torch.Options,
) -> DeferredLogits:
    """Put off this rank's columns of the logits."""
    group, adds = layer.tp_group, layer.gradient_accumulation_fusion
    if layer.sequence_parallel:
        # The gradients of all rows are the same on all ranks: sums over their columns.
        x = gather_from_sequence_parallel_region(x, tensor_parallel_output_grad=False, group=group)

    def multiply(rows: torch.Tensor) -> torch.Tensor:
        how: Any = {"group": group, "options": options, "accumulate_into_main_grad": adds}
        return plait.torch.column_parallel_linear(rows, weight, **how)

    size = layer.output_size_per_partition
    head = Head(size, group, options, multiply, lambda: weight, None, adds, parameter=weight)
    return DeferredLogits.of(x, head)


def provide() -> None:
    """Let losses be computed without logits that are put off."""
    theirs = _VocabParallelCrossEntropy.apply

    def apply(
        vocab_parallel_logits: Any, target: Any, label_smoothing: float = 0.0, *group: Any
    ) -> Any:
        logits = vocab_parallel_logits
        if not isinstance(logits, DeferredLogits):
            return theirs(logits, target, label_smoothing, *group)
        # Megatron smooths by the mean of a rank's own columns.
        if logits.is_there or label_smoothing != 0.0:
            return theirs(logits.whole(), target, label_smoothing, *group)
        return logits.cross_entropy(target, reduction="none")

    _VocabParallelCrossEntropy.apply = staticmethod(apply)


def withdraw() -> None:
    """Leave the loss to Megatron."""
    if "apply" in vars(_VocabParallelCrossEntropy):
        del _VocabParallelCrossEntropy.apply
