"""Weights as layers multiply by them: as they lie, or packed once by promise.

A weight is multiplied as it lies: nothing is kept of it, so that nothing can be an old one. With
Options.fixed_weights a call that makes no gradient of its weight packs it once for each version of
its values, which saves a product of many rows the packing of panels
(docs/design/0016-weights-in-training.md has the figures), and takes its memory once more for each
direction. The weight's address and autograd's count of versions tell of every change, as was
promised. Under autocast it is converted when it is packed.

Quantised weights are packed in any case. Without the promise each call takes a fingerprint of
their values too, because an optimizer, a loader or a collective may write through a pointer.
"""

import secrets
import weakref
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from typing import Any

import torch

from plait import _native
from plait.errors import refuse
from plait.torch.rows import as_rows, view

Native = _native.WeightView | _native.PackedWeight


@dataclass
class _Packed:
    place: tuple[object, ...]
    values: object  # their fingerprint, if it was taken
    weight: _native.PackedWeight


@dataclass
class _PackedStack:
    place: tuple[object, ...]
    weights: list[_native.PackedWeight]


def _nothing() -> None:
    """Return what a weak reference returns whose object has gone."""


class Owner:
    """A place in a model that has a weight. What is packed for it goes with it."""

    def __init__(self, *, numbered: bool = False) -> None:
        self.packed: dict[Hashable, _Packed] = {}  # by dtype and direction, or "quantized"
        self.stacks: dict[Hashable, _PackedStack] = {}  # by dtype and direction
        self.versions: tuple[int, ...] = ()
        # A layer, or calls of experts, kept by a module `direct`; it goes with its process group.
        self.direct: Callable[[], Any] = _nothing
        # Graphs hold tensors: this one stands for the owner. See owner_numbered().
        self.number: torch.Tensor | None = None
        if numbered:
            number = secrets.randbits(62)  # an exported program may meet owners of others
            self.number = torch.tensor(number, device="cpu")
            _numbered[number] = self
        _owners.add(self)

    def see_changes(self, *parameters: torch.Tensor) -> None:
        """Forget what is packed of other versions: local parts of a DTensor don't count its own."""
        versions = tuple(0 if one.is_inference() else one._version for one in parameters)
        if versions != self.versions:
            self.versions = versions
            self.packed.clear()
            self.stacks.clear()

    def __reduce__(self) -> tuple[Callable[[], "Owner"], tuple[()]]:
        # A copy of a model, or one that is read from a file, packs its own weights.
        return (Owner if self.number is None else _with_number), ()


def _with_number() -> Owner:
    return Owner(numbered=True)


_numbered: weakref.WeakValueDictionary[int, Owner] = weakref.WeakValueDictionary()
_owners: weakref.WeakSet[Owner] = weakref.WeakSet()
_of_weights: dict[int, Owner] = {}  # by the tensor's id; an entry goes with its tensor


def owner_of(weight: torch.Tensor) -> Owner:
    """Return what stands for a weight that no module of plait has."""
    found = _of_weights.get(id(weight))
    if found is None:
        found = _of_weights[id(weight)] = Owner()
        weakref.finalize(weight, _of_weights.pop, id(weight), None).atexit = False
    return found


def owner_numbered(number: torch.Tensor) -> Owner | None:
    """Return the owner whose number this is; None: it was of another process, or has gone."""
    return _numbered.get(int(number))


def plain(rows: torch.Tensor, *, turned: bool = False) -> _native.WeightView:
    """View a weight [outputs, inputs]; `turned`: with inputs and outputs exchanged."""
    layout = _native.WeightLayout.in_out if turned else _native.WeightLayout.out_in
    return _native.WeightView(view(rows), layout)


def check_memory(operator: str, weight: torch.Tensor) -> None:
    """Raise Error where the weight's storage was freed, as by untyped_storage().resize_(0)."""
    if weight.data_ptr() == 0 and weight.numel() > 0:
        refuse(operator, f"weight is {list(weight.shape)}, and its storage has no memory")


def packed(
    weight: torch.Tensor, dtype: torch.dtype, owner: Owner, *, turned: bool = False
) -> _native.PackedWeight:
    """Pack a weight in a dtype, unless this version of it is packed already."""
    check_memory("packed weight", weight)
    place = place_of(weight)
    found = owner.packed.get((dtype, turned))
    if found is not None and found.place == place:
        return found.weight
    rows = as_rows(weight.detach()).to(dtype)  # which the view below does not keep alive
    by = plain(rows, turned=turned)
    if found is None or found.place[2] != weight.shape:
        found = _Packed(place, None, _native.PackedWeight(by))
        owner.packed[dtype, turned] = found
    else:
        found.weight.repack(by)
        found.place = place
    return found.weight


def place_of(weight: torch.Tensor) -> tuple[object, ...]:
    """Say where a weight, or a stack of them, lies, and which version of its values."""
    version = 0 if weight.is_inference() else weight._version
    return weight.data_ptr(), version, weight.shape, weight.stride(), weight.dtype


def packed_stack(
    stack: torch.Tensor, dtype: torch.dtype, owner: Owner, *, turned: bool
) -> list[_native.PackedWeight]:
    """Pack each weight of a stack in a dtype, unless this version of it is packed already.

    The stack is the parameter itself: a copy of another version may have an old one's address.
    """
    check_memory("packed weight", stack)
    place = place_of(stack)
    found = owner.stacks.get((dtype, turned))
    if found is None or found.place != place:
        found = _PackedStack(place, [])
        for one in stack.detach():
            rows = as_rows(one).to(dtype)  # which the view below does not keep alive
            found.weights.append(_native.PackedWeight(plain(rows, turned=turned)))
        owner.stacks[dtype, turned] = found
    return found.weights


def packed_bytes() -> int:
    """Count the bytes of all packed weights of this process."""
    single = sum(one.weight.bytes for owner in _owners for one in owner.packed.values())
    stacks = [one for owner in _owners for stack in owner.stacks.values() for one in stack.weights]
    return single + sum(one.bytes for one in stacks)
