"""Counts of experts' calls, for the report: rows of each rank, and how unequal they are."""

from dataclasses import dataclass, field

import torch

from plait.torch import tensors
from plait.torch.experts.call import Call

# experts, H, F, slots, dtype, schedule, ranks
Key = tuple[int, int, int, int, str, str, int]


@dataclass
class Total:
    """All calls of experts of one shape."""

    calls: int = 0
    nanoseconds: int = 0
    multiplied: int = 0  # rows, by this rank's experts
    sent: list[int] = field(default_factory=list)  # of this rank's slots, to each rank
    chosen: int = 0  # this rank's slots; those of other ranks' experts may not be sent by plait


_totals: dict[Key, Total] = {}


def key_of(call: Call, hidden: torch.Tensor, slots: int, down: torch.Tensor) -> Key:
    """Return under what a call is counted that has its native layer."""
    placement = call.placement
    inner = down.shape[1 if call.turned else 2]
    dtype = tensors.DTYPES[hidden.dtype].name
    return (placement.experts, hidden.shape[1], inner, slots, dtype, call.schedule, placement.world)


def add(key: Key, counted: tuple[int, list[int]], nanoseconds: int, chosen: int = 0) -> None:
    """Count a call that took so long; `counted`: rows multiplied, and sent to each rank.

    `chosen`: slots of the call, if there are more than were sent.
    """
    total = _totals.get(key)
    if total is None:
        total = _totals[key] = Total(sent=[0] * key[-1])
    total.calls += 1
    total.nanoseconds += nanoseconds
    total.multiplied += counted[0]
    for rank, rows in enumerate(counted[1]):
        total.sent[rank] += rows
    total.chosen += max(chosen, sum(counted[1]))


def totals() -> dict[Key, Total]:
    """Return what was counted."""
    return dict(_totals)


def forget() -> None:
    """Start counting anew."""
    _totals.clear()
