"""Quantised weights as tensors, for the operators: they compile, export and lie in a state dict.

    w = plait.torch.quantize(linear.weight, "s8:group=128")
    y = plait.torch.matmul_all_reduce(x, w)

A product reads a packed weight. The first call packs it, for as long as `values` lives, and another
one packs it again where a part has another address or other values. Each call reads all parts for
it, as plait.torch.weights says, unless Options.fixed_weights promises that nothing writes to them
but what autograd counts.
"""

from dataclasses import dataclass
from typing import NoReturn

import torch
from torch.utils import _pytree
from torch.utils.dlpack import from_dlpack

from plait import _native
from plait._native import Code
from plait.errors import Error, refuse
from plait.torch import tensors, weights
from plait.torch.rows import check_matrix


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
# It has nothing but tensors and text, so torch.load() may make it by default too.
torch.serialization.add_safe_globals([QuantizedWeight])


def quantize(weight: torch.Tensor, scheme: str) -> QuantizedWeight:
    """Round a weight [n, k] to "s8", "s4:group=64", "s8:channel:offsets" and so on.

    >>> w = quantize(torch.arange(8.0).view(2, 4), "s8")
    >>> w.values.dtype, w.scales.shape, w.scheme
    (torch.int8, torch.Size([1, 2]), 's8:channel')
    """
    weight = tensors.resolved(weight)
    check_matrix(weight, "quantize", "weight")
    rows = weight.detach().contiguous()
    how = scheme_of(scheme, "quantize", "scheme")
    made = _native.quantize(rows, layout=_native.WeightLayout.out_in, scheme=how)
    columns = 1 if how.per is _native.QuantPer.tensor else made.n
    offsets = made.offsets()
    return QuantizedWeight(
        values=from_dlpack(made.values()).clone(),
        scales=from_dlpack(made.scales())[:, :columns].clone(),
        offsets=None if offsets is None else from_dlpack(offsets)[:, :columns].clone(),
        scheme=str(how),
    )


def scheme_of(text: object, operator: str, name: str) -> _native.QuantScheme:
    """Return the scheme that a call was given as text, or refuse it in words."""
    if not isinstance(text, str):
        refuse(operator, f"{name} is {text!r}; it can be text such as 's8' or 's4:group=64'")
    return _native.QuantScheme(text)


def packed(
    values: torch.Tensor,
    scales: torch.Tensor,
    offsets: torch.Tensor | None,
    scheme: str,
    inputs: int,
    operator: str,
    *,
    fixed: bool,
) -> _native.PackedWeight:
    """Return the weight as products read it, unless this version of it is packed already.

    `fixed`: addresses and autograd's counts tell of every change.
    """
    owner = weights.owner_of(values)
    parts = values, scales, *(() if offsets is None else (offsets,))
    stamp = (inputs, scheme, *map(_stamp, parts))
    read = () if fixed else tuple(_fingerprint(part, operator) for part in parts)
    found = owner.packed.get("quantized")
    if found is None or found.place != stamp or found.values != read:
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
        found = weights._Packed(stamp, read, _native.PackedWeight(whole))
        owner.packed["quantized"] = found
    return found.weight


def _stamp(part: torch.Tensor) -> tuple[object, ...]:
    """Return what tells where a part lies, and how often autograd saw it change."""
    # Tensors of inference mode don't count their versions.
    return part.data_ptr(), part.stride(), 0 if part.is_inference() else part._version


def _fingerprint(part: torch.Tensor, operator: str) -> int:
    """Return a number that changes with a part's values."""
    weights.check_memory(operator, part)
    memory = part.detach().contiguous()
    size = memory.nbytes
    row = _native.TensorView(memory.data_ptr(), _native.Dtype.s8, 1, size, size)
    return _native._fingerprint(_native.WeightView(row, _native.WeightLayout.out_in))


def _refuse(operator: str, sentence: str) -> NoReturn:
    raise Error(Code.invalid_argument, f"{operator}: weight: {sentence}", operator=operator)
