"""Weights packed once for many calls.

A weight that is being trained is packed by each product, a panel at a time: packing it once for
each step gains 1 to 4 % of a layer's time with four micro-batches, hardly any with one, and takes
two copies of it (docs/design/0016-weights-in-training.md has the figures). One that stays as it is
(inference, frozen weights) is packed whole, once for each version of its values: a product of few
rows would spend most of its time on packing.

Which of the two it is must be the same on all ranks, and is decided by what they share: whether the
weight requires a gradient, and how many calls went before. Recomputation runs forwards without
gradients in the middle of training, so that a weight that requires one is packed only after
PATIENCE of them, and the packing is dropped when it gets its gradient.

What was packed serves a call whose weight has the same address, autograd's same count of versions,
and the same values; otherwise the weight is packed again. Address and count alone don't tell: both
stay as they are when an optimizer, a loader or a collective writes to `weight.data` or through a
pointer. So each call takes a fingerprint of all values, at the speed of reading memory, which takes
about as long as a product of one row, unless Options.fixed_weights promises that nothing writes so.
A weight in training is not packed and costs none of
this. The parts of a QuantizedWeight are read in the same way; what a layer quantises never changes.
Under autocast a weight is converted when it is packed.
"""

import weakref
from collections.abc import Hashable
from dataclasses import dataclass

import torch

from plait import _native
from plait.errors import refuse
from plait.torch.rows import as_rows, view

Native = _native.WeightView | _native.PackedWeight

PATIENCE = 8


@dataclass
class _Packed:
    place: tuple[object, ...]
    values: object  # their fingerprint
    weight: _native.PackedWeight


class Owner:
    """A place in a model that has a weight. What is packed for it goes with it."""

    def __init__(self) -> None:
        self.packed: dict[Hashable, _Packed] = {}  # by dtype and direction, or "quantized"
        self.calls = 0  # without a gradient, since the weight had one
        # The weight of a call may be a view that does not say so itself.
        self.requires_grad = False
        self.versions: tuple[int, ...] = ()
        _owners.add(self)

    def see_changes(self, *parameters: torch.Tensor) -> None:
        """Forget what is packed of other versions: local parts of a DTensor don't count its own."""
        versions = tuple(0 if one.is_inference() else one._version for one in parameters)
        if versions != self.versions:
            self.versions = versions
            self.packed.clear()

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


def check_memory(operator: str, weight: torch.Tensor) -> None:
    """Raise Error where the weight's storage was freed, as by untyped_storage().resize_(0)."""
    if weight.data_ptr() == 0 and weight.numel() > 0:
        refuse(operator, f"weight is {list(weight.shape)}, and its storage has no memory")


def packed(
    weight: torch.Tensor,
    dtype: torch.dtype,
    owner: Owner,
    *,
    turned: bool = False,
    fixed: bool = False,
) -> _native.PackedWeight:
    """Pack a weight in a dtype, unless this version of it is packed already.

    `fixed`: its address and autograd's count tell of every change.
    """
    address = weight.data_ptr()
    check_memory("packed weight", weight)
    rows = as_rows(weight.detach())
    place = (address, weight._version, *weight.stride(), weight.dtype)
    values = 0 if fixed else _native._fingerprint(plain(rows, turned=turned))
    found = owner.packed.get((dtype, turned))
    if found is not None and found.place == place and found.values == values:
        return found.weight
    rows = rows.to(dtype)
    by = plain(rows, turned=turned)
    if found is None:
        found = _Packed(place, values, _native.PackedWeight(by))
        owner.packed[dtype, turned] = found
    else:
        found.weight.repack(by)
        found.place, found.values = place, values
    return found.weight


def packed_bytes() -> int:
    """Count the bytes of all packed weights of this process."""
    return sum(one.weight.bytes for owner in _owners for one in owner.packed.values())
