"""The parts of a product that are multiplied while others travel."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from plait import _native
from plait.torch.ranks import Work


def cuts(size: int, parts: int) -> list[slice]:
    """Cut a dimension into parts of nearly the same size, none of them empty.

    >>> cuts(5, 2)
    [slice(0, 3, None), slice(3, 5, None)]
    """
    parts = max(1, min(parts, size))
    shards = [_native.balanced_shard(size, part, parts) for part in range(parts)]
    return [slice(shard.offset, shard.offset + shard.count) for shard in shards]


@functools.cache
def _side_stream(device: torch.device) -> Any:
    module = torch.get_device_module(device)
    return module.Stream() if device.type == "cpu" else module.Stream(device=device)


class Copies:
    """Waits for parts, and copies them into the result, beside the products that follow.

    On a device with streams both happen on a second one. What is copied is kept until the first
    stream has waited for it: only then may its memory be used anew.
    """

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.module = torch.get_device_module(device)
        self.stream = _side_stream(device)
        self.kept: list[torch.Tensor] = []

    def wait(self, work: Work) -> None:
        """Let the copies that follow wait for a collective."""
        if work is None:  # no collective has made this stream wait for the product
            self.stream.wait_stream(self.main)
        else:
            work.wait()

    @contextlib.contextmanager
    def __call__(self) -> Iterator["Copies"]:
        """Let the block's copies be done, for the stream that is current here, at its end."""
        self.main = self.module.current_stream(self.device)
        self.stream.wait_stream(self.main)
        yield self
        self.main.wait_stream(self.stream)
        self.kept.clear()


class UnderWay:
    """Collectives that have begun. One is finished once the next has begun beside its product."""

    def __init__(self, finish: Callable[[Work, torch.Tensor, slice], None]) -> None:
        self._finish = finish
        self._last: tuple[Work, torch.Tensor, slice] | None = None

    def add(self, work: Work, part: torch.Tensor, cut: slice) -> None:
        """Take a collective that has begun, and finish the one before it."""
        self.finish()
        self._last = (work, part, cut)

    def finish(self) -> None:
        """Finish the last one."""
        if self._last is not None:
            self._finish(*self._last)
        self._last = None


@dataclass
class Pending:
    """Rows that a collective still fills, with the memory that it reads meanwhile."""

    filled: torch.Tensor
    work: Work = None
    kept: tuple[torch.Tensor, ...] = ()
    rows: Callable[[torch.Tensor], torch.Tensor] | None = None  # out of what is filled

    def wait(self) -> torch.Tensor:
        """Let the current stream wait for the rows, and return them."""
        if self.work is not None:
            self.work.wait()
        self.kept = ()
        return self.filled if self.rows is None else self.rows(self.filled)


def mm(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    """Return x by weight, perhaps in `out`."""
    if bias is None:
        return torch.mm(x, weight) if out is None else torch.mm(x, weight, out=out)
    if out is None:
        return torch.addmm(bias, x, weight)
    return torch.addmm(bias, x, weight, out=out)


def put_columns(
    copies: Copies,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    work: Work,
    part: torch.Tensor,
    cut: slice,
) -> None:
    """Copy summed columns into a result, and add the bias."""
    with copies.module.stream(copies.stream):
        copies.wait(work)
        if bias is None:
            out[:, cut].copy_(part[: out.shape[0]])
        else:
            torch.add(part[: out.shape[0]], bias[cut], out=out[:, cut])
    copies.kept.append(part)


def put_rows(
    copies: Copies,
    out: torch.Tensor,
    shards: list[slice],
    work: Work,
    part: torch.Tensor,
    cut: slice,
) -> None:
    """Copy gathered rows of all ranks into a result."""
    with copies.module.stream(copies.stream):
        copies.wait(work)
        for rank, shard in enumerate(shards):
            to = out[shard.start + cut.start : min(shard.start + cut.stop, shard.stop)]
            to.copy_(part[rank, : to.shape[0]])
    copies.kept.append(part)


def filled_up(x: torch.Tensor, rows: int) -> torch.Tensor:
    """Return so many rows, of which the last may be zeros."""
    if x.shape[0] == rows:
        return x.contiguous()
    out = x.new_zeros(rows, x.shape[1])
    out[: x.shape[0]] = x
    return out
