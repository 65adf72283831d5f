"""Which calls plait serves. It is asked at every call, since Megatron changes it at run time."""

import torch
from megatron.core.tensor_parallel import layers
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear

from plait.torch.options import Engine

_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def column_refusal(
    layer: ColumnParallelLinear, x: torch.Tensor, weight: torch.Tensor | None, engine: Engine
) -> str | None:
    """Say why plait doesn't serve a call of a column layer; None if it does."""
    if weight is None:
        return "it has no weight"
    if layer.disable_grad_reduce:
        return "disable_grad_reduce leaves the sum of the input's gradients to the caller"
    if layer.config.defer_embedding_wgrad_compute:
        return "defer_embedding_wgrad_compute makes the weight's gradient later"
    if (refusal := _refusal(layer, x, weight, engine)) is not None:
        return refusal
    shape = (layer.output_size_per_partition, layer.input_size)
    if tuple(weight.shape) != shape:
        return f"its weight is {list(weight.shape)}, not {list(shape)}"
    return None


def row_refusal(
    layer: RowParallelLinear, x: torch.Tensor, weight: torch.Tensor, engine: Engine
) -> str | None:
    """Say why plait doesn't serve a call of a row layer; None if it does."""
    if layer.sequence_parallel and not layer.input_is_parallel:
        return "sequence_parallel is on, and input_is_parallel is off"
    return _refusal(layer, x, weight, engine)


def _refusal(
    layer: ColumnParallelLinear | RowParallelLinear,
    x: torch.Tensor,
    weight: torch.Tensor,
    engine: Engine,
) -> str | None:
    config = layer.config
    if layer.tp_group is None or layer.tp_group.size() == 1:
        return "its tensor-parallel group has one rank"
    if layer.explicit_expert_comm:
        return "it is an expert layer, whose tokens are dispatched by Megatron"
    if not _has_product_of_megatron(layer):
        return "its _forward_impl is not Megatron's own"
    offloading = getattr(config, "_cpu_offloading_context", None)
    if getattr(offloading, "inside_context", False):
        return "activations are offloaded by a context of Megatron's"
    if getattr(layer, "gtp_remat_size", 1) > 1 or getattr(config, "gtp_remat_size", 1) > 1:
        return "gtp_remat_size gathers the weight in parts"
    if getattr(config, "transformer_impl", None) == "inference_optimized" and not layer.training:
        return "transformer_impl is inference_optimized"
    if hasattr(weight, "__fsdp_param__"):
        return "its weight is a parameter of Megatron-FSDP"
    if layer.gradient_accumulation_fusion and weight.requires_grad:
        main_grad = getattr(weight, "main_grad", None)
        if main_grad is None:
            return "gradient_accumulation_fusion is on, and the weight has no main_grad"
        if main_grad.dtype not in _DTYPES:
            return f"main_grad is {main_grad.dtype}"
    bias = None if layer.skip_bias_add else layer.bias
    if bias is not None and bias.dtype != weight.dtype:
        return f"its bias is {bias.dtype}, and its weight is {weight.dtype}"
    return _tensor_refusal(x, weight, engine)


def _has_product_of_megatron(layer: ColumnParallelLinear | RowParallelLinear) -> bool:
    """Say whether the product is Megatron's: quantisers and adapters put another in its place.

    A wrapper has the name and the module of what it wraps, but not its globals.
    """
    product = layer._forward_impl
    product = getattr(product, "__func__", product)
    return getattr(product, "__globals__", None) is vars(layers)


def _tensor_refusal(x: torch.Tensor, weight: torch.Tensor, engine: Engine) -> str | None:
    for name, tensor in (("input", x), ("weight", weight)):
        if type(tensor) not in (torch.Tensor, torch.nn.Parameter):
            return f"its {name} is a {type(tensor).__name__}"
    if engine == "native" and x.device.type not in ("cpu", "cuda"):
        return f"its input is on {x.device}, and plait computes on CPUs and NVIDIA GPUs"
    if x.device != weight.device:
        return f"its input is on {x.device}, and its weight on {weight.device}"
    if torch.is_autocast_enabled(x.device.type):
        return "autocast is on"
    if x.dtype not in _DTYPES:
        return f"its input is {x.dtype}"
    if x.dtype != weight.dtype:
        return f"its input is {x.dtype}, and its weight is {weight.dtype}"
    if x.dim() not in (2, 3):
        return f"its input has {x.dim()} dimensions, not 2 or 3"
    return None
