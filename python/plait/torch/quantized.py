"""Quantised weights as tensors, for the operators: they compile, export and lie in a state dict.

    w = plait.torch.quantize(linear.weight, "s8:group=128")
    y = plait.torch.matmul_all_reduce(x, w)

A product reads a packed weight. The first call packs it, for as long as `values` lives, and another
one packs it again where its parts were changed in place.
"""

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch.utils import _pytree
from torch.utils.dlpack import from_dlpack

from plait import _native
from plait._native import Code
from plait.errors import Error
from plait.torch import tensors, weights


@dataclass(frozen=True, eq=False)
class QuantizedWeight:
    """A weight [n, k] of which an element is (value + offset) * scale. See quantize().

    values: int8 [n, k]; of 4 bits [n, ceil(k / 2)], the even k in the low half
    scales: float32 [1, 1] per tensor, [1, n] per channel, [ceil(k / group), n] per group
    offsets: int8, of the shape of scales, or None
    """

    values: torch.Tensor
    scales: torch.Tensor
    offsets: torch.Tensor | None
    scheme: str


_pytree.register_dataclass(QuantizedWeight)


def quantize(weight: torch.Tensor, scheme: str) -> QuantizedWeight:
    """Round a weight [n, k] to "s8", "s4:group=64", "s8:channel:offsets" and so on.

    >>> w = quantize(torch.arange(8.0).view(2, 4), "s8")
    >>> w.values.dtype, w.scales.shape, w.scheme
    (torch.int8, torch.Size([1, 2]), 's8:channel')
    """
    tensors.check(weight, "quantize", "weight")
    rows = weight.detach().contiguous()
    how = _native.QuantScheme(scheme)
    made = _native.quantize(rows, layout=_native.WeightLayout.out_in, scheme=how)
    columns = 1 if how.per is _native.QuantPer.tensor else made.n
    offsets = made.offsets()
    return QuantizedWeight(
        values=from_dlpack(made.values()).clone(),
        scales=from_dlpack(made.scales())[:, :columns].clone(),
        offsets=None if offsets is None else from_dlpack(offsets)[:, :columns].clone(),
        scheme=str(how),
    )


def packed(
    values: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None,
    scheme: str,
    inputs: int,
    operator: str,
) -> _native.PackedWeight:
    """Return the weight as products read it, packed at its first call."""
    owner = weights.owner_of(values)
    stamp = (inputs, scheme, *map(_stamp, (values, scales, offsets)))
    found = owner.packed.get("quantized")
    if found is None or found.place != stamp:
        try:
            whole = _native.QuantizedWeight.from_parts(
                _native.QuantScheme(scheme),
                values.shape[0] if values.dim() else 0,
                inputs,
                values=values.contiguous(),
                layout=_native.WeightLayout.out_in,
                scales=scales.contiguous(),
                offsets=None if offsets is None else offsets.contiguous(),
            )
        except Error as error:
            _refuse(operator, str(error))
        found = weights._Packed(stamp, 0, _native.PackedWeight(whole))
        owner.packed["quantized"] = found
    return found.weight


def _stamp(part: torch.Tensor | None) -> tuple[int, int] | None:
    """Return what changes with a part's place and values."""
    if part is None:
        return None
    # Tensors of inference mode don't count their versions.
    return part.data_ptr(), 0 if part.is_inference() else part._version


def _refuse(operator: str, sentence: str) -> NoReturn:
    raise Error(Code.invalid_argument, f"{operator}: weight: {sentence}", operator=operator)
