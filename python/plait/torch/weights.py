"""Weights packed once for many calls.

A weight that is being trained is packed by each product, a panel at a time. One that stays as it is
(inference, frozen weights) is packed whole, once for each version of its values: a product of few
rows would spend most of its time on packing.

Which of the two it is must be the same on all ranks, and is decided by what they share: whether the
weight requires a gradient, and how many calls went before. Recomputation runs forwards without
gradients in the middle of training, so that a weight that requires one is packed only after
PATIENCE of them, and the packing is dropped when it gets its gradient.
"""

import weakref
from dataclasses import dataclass

import torch

from plait import _native
from plait.torch.rows import view

Native = _native.WeightView | _native.PackedWeight

PATIENCE = 8


@dataclass
class _Packed:
    stamp: tuple[object, ...]
    weight: _native.PackedWeight


_BLOCKS = 16  # of which each has a sum, so that values that change places are noticed too


class Owner:
    """A place in a model that has a weight. What is packed for it goes with it."""

    def __init__(self) -> None:
        self.packed: dict[bool, _Packed] = {}  # by direction
        self.calls = 0  # without a gradient, since the weight had one
        # Where the weight of each call is a view that does not say so itself.
        self.requires_grad = False
        _owners.add(self)

    def __reduce__(self) -> tuple[type["Owner"], tuple[()]]:
        # A copy of a model, or one that is read from a file, packs its own weights.
        return Owner, ()


_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_of_weights: dict[int, Owner] = {}  # by the tensor's id; an entry goes with its tensor


def owner_of(weight: torch.Tensor) -> Owner:
    """Return what stands for a weight that no module of plait has."""
    found = _of_weights.get(id(weight))
    if found is None:
        found = _of_weights[id(weight)] = Owner()
        weakref.finalize(weight, _of_weights.pop, id(weight), None).atexit = False
    return found


def is_worth_packing(weight: torch.Tensor, owner: Owner) -> bool:
    """Say whether this call, which makes no gradient of the weight, should pack it."""
    if weight.is_inference():  # such tensors don't count their versions
        return False
    if not weight.requires_grad and not owner.requires_grad:
        return True
    owner.calls += 1
    return owner.calls > PATIENCE


def was_trained(owner: Owner) -> None:
    """Forget what is packed: the weight has its gradient, and will change."""
    owner.calls = 0
    owner.packed.clear()


def plain(rows: torch.Tensor, *, turned: bool = False) -> _native.WeightView:
    """View a weight [outputs, inputs]; `turned`: with inputs and outputs exchanged."""
    layout = _native.WeightLayout.in_out if turned else _native.WeightLayout.out_in
    return _native.WeightView(view(rows), layout)


def packed(
    rows: torch.Tensor, weight: torch.Tensor, owner: Owner, *, turned: bool = False
) -> _native.PackedWeight:
    """Pack the rows of a weight, unless this version of it is packed already."""
    stamp = _stamp(weight)
    found = owner.packed.get(turned)
    if found is None:
        found = _Packed(stamp, _native.PackedWeight(plain(rows, turned=turned)))
        owner.packed[turned] = found
    elif found.stamp != stamp:
        found.weight.repack(plain(rows, turned=turned))
        found.stamp = stamp
    return found.weight


def _stamp(weight: torch.Tensor) -> tuple[object, ...]:
    """Return what changes with the values: their place, autograd's count, and sums of their bits.

    autograd does not count a change by way of `weight.data`, nor one by a collective, and a change
    of few values must not be missed either. Reading the weight takes about as long as a product of
    one row by it.
    """
    values = weight.detach().contiguous().view(-1).view(torch.uint8)
    words = values[: values.numel() // 8 * 8].view(torch.int64)
    even = words.numel() // _BLOCKS * _BLOCKS
    blocks = words[:even].view(_BLOCKS, -1).sum(1).tolist()
    rest = [*words[even:].tolist(), *values[words.numel() * 8 :].tolist()]
    return (weight.data_ptr(), weight._version, *weight.stride(), *blocks, *rest)


def packed_bytes() -> int:
    """Count the bytes of all packed weights of this process."""
    return sum(one.weight.bytes for owner in _owners for one in owner.packed.values())
