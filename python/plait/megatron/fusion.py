"""gradient_accumulation_fusion without APEX.

Megatron's constructors refuse the setting where the CUDA extension of APEX is missing. plait adds a
weight's gradient to `main_grad` by itself; for layers that are left to Megatron, torch does it.
"""

import contextlib
import types
from collections.abc import Iterator

import torch
from megatron.core.tensor_parallel import layers

_EXTENSION = "fused_weight_gradient_mlp_cuda"
_FLAG = "_grad_accum_fusion_available"

_provided = False


def _accumulate(
    total_input: torch.Tensor, grad_output: torch.Tensor, main_grad: torch.Tensor
) -> None:
    main_grad.add_((grad_output.t() @ total_input).to(main_grad.dtype))


def provide() -> None:
    """Let layers be made with gradient_accumulation_fusion, unless APEX is there."""
    global _provided
    if getattr(layers, _FLAG, True):
        return
    extension = types.SimpleNamespace(
        wgrad_gemm_accum_fp32=_accumulate, wgrad_gemm_accum_fp16=_accumulate
    )
    setattr(layers, _EXTENSION, extension)
    setattr(layers, _FLAG, True)
    _provided = True


def withdraw() -> None:
    """Let Megatron's constructors refuse the setting again.

    Layers that were made with it are alive, and their backward calls the extension: it stays.
    """
    global _provided
    if _provided:
        setattr(layers, _FLAG, False)
        _provided = False


@contextlib.contextmanager
def provided() -> Iterator[None]:
    """Provide it for a block, unless it is provided already."""
    was = _provided
    provide()
    try:
        yield
    finally:
        if not was:
            withdraw()
