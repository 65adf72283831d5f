"""The engine "c10d": the pipelined schedule, written on torch's products and process groups.

    layer = plait.torch.ColumnParallelLinear.from_linear(
        linear, options=plait.torch.Options(engine="c10d", schedule="pipelined", parts=8)
    )
    y = plait.torch.matmul_all_reduce(x, weight, options=plait.torch.Options(engine="c10d"))

Layers take tensors on every device, and operators tensors on CPUs and NVIDIA GPUs. The process
group may have every backend with the three collectives all_reduce, reduce_scatter_single and
all_gather_single. The engine also serves tensors on a GPU that plait's own kernels there don't
take, without being asked for. A product that adds up afterwards is cut by columns: while one part's
sums travel, the next part is multiplied. Any other is cut by rows. Sizes need not be divisible by
the number of ranks or parts. One rank makes products in one part and without collectives, unless
the options name several parts.

Promised is a bound, not bits: the backend chooses the order of a sum, and rounds each partial sum
to the dtype of the result. With u the unit roundoff of that dtype, K the number of products in a
sum and W that of ranks, a result is off by at most (1 + K u32) (1 + u)^(W + 1) - 1 of the sum of
magnitudes, where torch accumulates products in f32. A bias is rounded to that dtype first.
Operators that add up x before the product round that sum to the dtype of x, W times.

It is tested on CPUs with gloo and with the backend "plait", and on one GPU with NCCL and one rank.
Unproven: several ranks with NCCL, and how much of the communication is hidden then; HCCL and XPU.
On a CPU a collective takes the cores that the product needs, so that little or nothing is gained
there: the native engine is for CPUs.
"""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch

from plait import _native
from plait.torch.ranks import Ranks, Work


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


class _Copies:
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
    def __call__(self) -> Iterator["_Copies"]:
        """Let the block's copies be done, for the stream that is current here, at its end."""
        self.main = self.module.current_stream(self.device)
        self.stream.wait_stream(self.main)
        yield self
        self.main.wait_stream(self.stream)
        self.kept.clear()


class _UnderWay:
    """Collectives that have begun. One is finished once the next has begun beside its product."""

    def __init__(self, finish: Callable[[Work, torch.Tensor, slice], None]) -> None:
        self._finish = finish
        self._last: tuple[Work, torch.Tensor, slice] | None = None

    def add(self, work: Work, part: torch.Tensor, cut: slice) -> None:
        self.finish()
        self._last = (work, part, cut)

    def finish(self) -> None:
        if self._last is not None:
            self._finish(*self._last)
        self._last = None


@dataclass
class Pending:
    """Rows that a collective still fills. Whatever it reads is kept until then."""

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


def _multiply(
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    out: torch.Tensor | None = None,
) -> torch.Tensor:
    if bias is None:
        return torch.mm(x, weight) if out is None else torch.mm(x, weight, out=out)
    if out is None:
        return torch.addmm(bias, x, weight)
    return torch.addmm(bias, x, weight, out=out)


class Products:
    """The operators, by torch's products and the collectives of some ranks.

    x is [rows, k] and a weight [k, n], both of one dtype on one device.
    """

    name = "torch's product and collectives (engine 'c10d')"

    def __init__(self, ranks: Ranks, parts: int) -> None:
        self.ranks, self.parts = ranks, parts
        if ranks.world == 1 and parts == 1:
            ranks.group = None  # there is nothing to exchange, and nothing to try out

    def place(self) -> tuple[int, int]:
        """Return this rank and the number of ranks."""
        return self.ranks.rank, self.ranks.world

    def matmul(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return x by weight, of this rank alone."""
        return _multiply(x, weight, bias)

    def matmul_all_reduce(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the sum over ranks of x [m, k_r] by weight [k_r, n]."""
        out = x.new_empty(x.shape[0], weight.shape[1])
        with _Copies(x.device)() as copies:
            under_way = _UnderWay(functools.partial(_put_columns, copies, out, bias))
            for cut in cuts(out.shape[1], self.parts):
                part = torch.mm(x, weight[:, cut])
                under_way.add(self.ranks.all_reduce(part), part, cut)
            under_way.finish()
        return out

    def matmul_reduce_scatter(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return this rank's rows of the sum over ranks of x [m, k_r] by weight [k_r, n]."""
        own = self.ranks.shard(x.shape[0])
        out = x.new_empty(own.stop - own.start, weight.shape[1])
        most = self.ranks.most(x.shape[0])
        x = self.ranks.padded(x)
        with _Copies(x.device)() as copies:
            under_way = _UnderWay(functools.partial(_put_columns, copies, out, bias))
            for cut in cuts(out.shape[1], self.parts):
                product = torch.mm(x, weight[:, cut])
                copies.kept.append(product)
                part = product.new_empty(most, product.shape[1])
                under_way.add(self.ranks.reduce_scatter(part, product), part, cut)
            under_way.finish()
        return out

    def all_gather_matmul(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        rows: int,
        bias: torch.Tensor | None = None,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the rows of all ranks, `rows` in all, by weight [k, n_r]; `gathered` takes them.

        Part i of all ranks arrives together, and its product goes to the block of rows of each
        rank.
        """
        shards = [self.ranks.shard(rows, rank) for rank in range(self.ranks.world)]
        out = x.new_empty(rows, weight.shape[1])
        most = self.ranks.most(rows)
        x = _filled_up(x, most)
        pieces = cuts(most, self.parts)
        arriving = [x.new_empty(len(shards), cut.stop - cut.start, x.shape[1]) for cut in pieces]
        works = [
            self.ranks.all_gather(into, x[cut]) for into, cut in zip(arriving, pieces, strict=True)
        ]
        for work, part, cut in zip(works, arriving, pieces, strict=True):
            if work is not None:
                work.wait()
            for rank, shard in enumerate(shards):
                begin, end = shard.start + cut.start, min(shard.start + cut.stop, shard.stop)
                if begin >= end:
                    continue
                block = part[rank, : end - begin]
                _multiply(block, weight, bias, out[begin:end])
                if gathered is not None:
                    gathered[begin:end] = block
        return out

    def matmul_all_gather(
        self, x: torch.Tensor, weight: torch.Tensor, rows: int, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the product by weight [k, n] of the rows of all ranks, `rows` in all."""
        shards = [self.ranks.shard(rows, rank) for rank in range(self.ranks.world)]
        out = x.new_empty(rows, weight.shape[1])
        most = self.ranks.most(rows)
        x = _filled_up(x, most)
        with _Copies(x.device)() as copies:
            under_way = _UnderWay(functools.partial(_put_rows, copies, out, shards))
            for cut in cuts(most, self.parts):
                part = _multiply(x[cut], weight, bias)
                copies.kept.append(part)
                arriving = part.new_empty(len(shards), *part.shape)
                under_way.add(self.ranks.all_gather(arriving, part), arriving, cut)
            under_way.finish()
        return out

    def reduce_scatter_matmul(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return this rank's rows of the sum over ranks of x [m, k], by weight [k, n]."""
        own = self.ranks.shard(x.shape[0])
        out = x.new_empty(own.stop - own.start, weight.shape[1])
        most = self.ranks.most(x.shape[0])
        blocks = self.ranks.padded(x).reshape(self.ranks.world, most, x.shape[1])
        pieces = cuts(most, self.parts)
        sent = [blocks[:, cut].clone(memory_format=torch.contiguous_format) for cut in pieces]
        arriving = [one.new_empty(one.shape[1:]) for one in sent]
        works = [
            self.ranks.reduce_scatter(into, one.flatten(0, 1))
            for into, one in zip(arriving, sent, strict=True)
        ]
        for work, part, cut in zip(works, arriving, pieces, strict=True):
            if work is not None:
                work.wait()
            to = out[cut]
            if to.shape[0] > 0:
                _multiply(part[: to.shape[0]], weight, bias, to)
        return out

    def all_reduce_matmul(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the sum over ranks of x [m, k], by weight [k, n]."""
        out = x.new_empty(x.shape[0], weight.shape[1])
        pieces = cuts(x.shape[0], self.parts)
        arriving = [x[cut].clone(memory_format=torch.contiguous_format) for cut in pieces]
        works = [self.ranks.all_reduce(part) for part in arriving]
        for work, part, cut in zip(works, arriving, pieces, strict=True):
            if work is not None:
                work.wait()
            _multiply(part, weight, bias, out[cut])
        return out

    # Collectives for the gradients of layers and operators: they are only begun here, so that the
    # caller can multiply beside it.

    def gathering(self, x: torch.Tensor, rows: int) -> Pending:
        """Begin to gather the rows of all ranks, `rows` in all."""
        own = _filled_up(x, self.ranks.most(rows))
        blocks = own.new_empty(self.ranks.world, *own.shape)
        work = self.ranks.all_gather(blocks, own)
        return Pending(blocks, work, (own,), lambda filled: self.ranks.unpadded(filled, rows))

    def summing(self, x: torch.Tensor, weight: torch.Tensor) -> Pending:
        """Multiply, and begin to add up over the ranks."""
        product = torch.mm(x, weight)
        return Pending(product, self.ranks.all_reduce(product))

    def scattering(self, x: torch.Tensor, weight: torch.Tensor) -> Pending:
        """Multiply, and begin to add up this rank's rows over the ranks."""
        return self._scattered(torch.mm(self.ranks.padded(x), weight), x.shape[0])

    def sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks."""
        out = x.clone(memory_format=torch.contiguous_format)
        return Pending(out, self.ranks.all_reduce(out)).wait()

    def own_sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of the sum over ranks."""
        padded = self.ranks.padded(x).clone(memory_format=torch.contiguous_format)
        return self._scattered(padded, x.shape[0]).wait()

    def _scattered(self, blocks: torch.Tensor, rows: int) -> Pending:
        own = self.ranks.shard(rows)
        out = blocks.new_empty(self.ranks.most(rows), blocks.shape[1])
        work = self.ranks.reduce_scatter(out, blocks)
        return Pending(out[: own.stop - own.start], work, (blocks,))


def _put_columns(
    copies: _Copies,
    out: torch.Tensor,
    bias: torch.Tensor | None,
    work: Work,
    part: torch.Tensor,
    cut: slice,
) -> None:
    with copies.module.stream(copies.stream):
        copies.wait(work)
        if bias is None:
            out[:, cut].copy_(part[: out.shape[0]])
        else:
            torch.add(part[: out.shape[0]], bias[cut], out=out[:, cut])
    copies.kept.append(part)


def _put_rows(
    copies: _Copies,
    out: torch.Tensor,
    shards: list[slice],
    work: Work,
    part: torch.Tensor,
    cut: slice,
) -> None:
    with copies.module.stream(copies.stream):
        copies.wait(work)
        for rank, shard in enumerate(shards):
            to = out[shard.start + cut.start : min(shard.start + cut.stop, shard.stop)]
            to.copy_(part[rank, : to.shape[0]])
    copies.kept.append(part)


def _filled_up(x: torch.Tensor, rows: int) -> torch.Tensor:
    if x.shape[0] == rows:
        return x.contiguous()
    out = x.new_zeros(rows, x.shape[1])
    out[: x.shape[0]] = x
    return out
