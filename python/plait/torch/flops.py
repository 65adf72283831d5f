"""Counts of plait's products for torch's FlopCounterMode.

An operator is counted by its sizes, as torch's own are. The mode can't see the products of a
layer, which torch does not call. While the mode is on, the layer therefore calls an operator that
does nothing and has these sizes.
"""

from typing import Any

import torch
from torch.utils import _python_dispatch, flop_counter
from torch.utils.flop_counter import register_flop_formula

from plait.torch.definitions import LIBRARY

_LAYER = "products_of_a_layer"
LIBRARY.define(f"{_LAYER}(int rows, int inputs, int outputs, int products) -> ()")
LIBRARY.impl(_LAYER, lambda *sizes: None, "CompositeExplicitAutograd")
_ops: Any = torch.ops.plait
_dispatch_modes = torch._C._len_torch_dispatch_stack
# Torch has no public names for these. If another torch has others, layers are not counted.
_modes: Any = vars(_python_dispatch).get("_get_current_dispatch_mode_stack", tuple)
_Counter: Any = vars(flop_counter).get("_FlopCounterMode", ())


def count_layer(rows: int, inputs: int, outputs: int, products: int) -> None:
    """Let FlopCounterMode count products of these sizes, while it is on."""
    if _dispatch_modes() == 0:
        return
    if any(isinstance(mode, _Counter) for mode in _modes()):
        getattr(_ops, _LAYER)(rows, inputs, outputs, products)


def _of_layer(rows: int, inputs: int, outputs: int, products: int, **_: Any) -> int:
    return 2 * rows * inputs * outputs * products


register_flop_formula(getattr(_ops, _LAYER))(_of_layer)


def register_operator(name: str, *, is_compute_first: bool) -> None:
    """Let FlopCounterMode count an operator, of plain and of quantised weights."""

    def flops(x: torch.Size, *_: Any, out_shape: Any, **__: Any) -> int:
        out = out_shape[0] if isinstance(out_shape[0], torch.Size) else out_shape
        rows = x[0] if is_compute_first else out[0]
        return int(2 * rows * x[-1] * out[-1])

    register_flop_formula([getattr(_ops, name), getattr(_ops, f"{name}_quantized")])(flops)


def register_weight_gradient() -> None:
    """Let FlopCounterMode count the gradients of weights."""

    def flops(grad_out: torch.Size, x: torch.Size, **_: Any) -> int:
        return int(2 * x[0] * x[1] * grad_out[1])

    register_flop_formula(_ops.weight_gradient)(flops)
