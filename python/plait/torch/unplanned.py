"""Counts of calls that no plan decides about, for the report."""

import contextlib
import time
from collections.abc import Iterator

import torch

from plait.torch import tensors
from plait.torch.counts import Total
from plait.torch.sampling import Key

_totals: dict[Key, Total] = {}


@contextlib.contextmanager
def timed(name: str, x: torch.Tensor, ids: int, what: str = "no plan") -> Iterator[None]:
    """Count a call for rows of x and a vocabulary of `ids`; -1: it does not say how many."""
    begin = time.perf_counter_ns()
    yield
    took = time.perf_counter_ns() - begin
    key = (name, x.shape[0], max(ids, 0), x.shape[1], tensors.DTYPES[x.dtype].name, "", what)
    before = _totals.get(key)
    one = Total(1, took) if before else Total(1, took, 1, took)
    _totals[key] = one if before is None else before + one


def totals() -> dict[Key, Total]:
    """Return what was counted."""
    return dict(_totals)


def forget() -> None:
    """Start counting anew."""
    _totals.clear()
