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

A bound is promised, not bits: the backend chooses the order of a sum, and rounds each partial sum
to the dtype of the result. With u the unit roundoff of that dtype, K the number of products in a
sum and W that of ranks, a result is off by at most (1 + K u32) (1 + u)^(W + 1) - 1 of the sum of
magnitudes, where torch accumulates products in f32. A bias is rounded to that dtype first.
Operators that add up x before the product round that sum to the dtype of x, W times.

It is tested on CPUs with gloo and with the backend "plait", and on one GPU with NCCL and one rank.
Unproven: several ranks with NCCL, and how much of the communication is hidden then; HCCL and XPU.
On a CPU a collective takes the cores that the product needs, so that little or nothing is gained
there: the native engine is for CPUs.
"""

import functools
from typing import Any

import torch

from plait.errors import refuse
from plait.torch import tensors
from plait.torch.engines.engine import Call, Engine, Gradients, Operands
from plait.torch.engines.parts import (
    Copies,
    Pending,
    UnderWay,
    cuts,
    filled_up,
    mm,
    put_columns,
    put_rows,
)
from plait.torch.main_grad import main_grad_on, weight_gradient
from plait.torch.ranks import Ranks
from plait.torch.report import count_other
from plait.torch.rows import GATHERING, fitting_weight, rows_that_all_have


def check_operands(
    name: str, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
) -> None:
    """Refuse operands of a layer that are not plain, or don't fit."""
    given = {"x": x, "weight": weight, "bias": bias}
    for what, tensor in given.items():
        if tensors.is_dtensor(tensor):
            refuse(name, f"{what} is a DTensor; plait takes plain tensors, such as its local part")
    tensors.refuse_transforms(name, given)
    if weight.dim() != 2 or x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        refuse(
            name,
            f"x is {list(x.shape)} and weight {list(weight.shape)}; weight must have two "
            "dimensions, and the last dimensions must be equal",
        )


class C10d(Engine):
    """Products by torch, and the collectives of some ranks; operators and layers are made of them.

    In products, x is [rows, k] and a weight [k, n], both of one dtype on one device.
    """

    name = "torch's product and collectives (engine 'c10d')"

    def __init__(self, ranks: Ranks, parts: int) -> None:
        self.ranks, self.parts = ranks, parts
        if ranks.world == 1 and parts == 1:
            ranks.group = None  # there is nothing to exchange, and nothing to try out

    def place(self) -> tuple[int, int]:
        """Return this rank and the number of ranks."""
        return self.ranks.rank, self.ranks.world

    def multiply(
        self,
        operator: str,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        turned: bool,
        rows: int,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Make an operator's call, by the method that has its name."""
        by = fitting_weight(operator, x, weight, bias, turned=turned)
        count_other(operator, self.name)
        given: dict[str, Any] = {"bias": None if bias is None else bias.detach().to(x.dtype)}
        if gathered is not None:
            given["gathered"] = gathered
        if operator in GATHERING:
            given["rows"] = rows_that_all_have(operator, x.shape[0], self.place, rows)
        out: torch.Tensor = getattr(self, operator)(x.detach(), by, **given)
        return out

    def matmul(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return x by weight, of this rank alone."""
        return mm(x, weight, bias)

    def matmul_all_reduce(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the sum over ranks of x [m, k_r] by weight [k_r, n]."""
        out = x.new_empty(x.shape[0], weight.shape[1])
        with Copies(x.device)() as copies:
            under_way = UnderWay(functools.partial(put_columns, copies, out, bias))
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
        with Copies(x.device)() as copies:
            under_way = UnderWay(functools.partial(put_columns, copies, out, bias))
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
        x = filled_up(x, most)
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
                mm(block, weight, bias, out[begin:end])
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
        x = filled_up(x, most)
        with Copies(x.device)() as copies:
            under_way = UnderWay(functools.partial(put_rows, copies, out, shards))
            for cut in cuts(most, self.parts):
                part = mm(x[cut], weight, bias)
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
                mm(part[: to.shape[0]], weight, bias, to)
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
            mm(part, weight, bias, out[cut])
        return out

    # Collectives for gradients: they are only begun, so that the caller can multiply beside it.

    def gathering(self, x: torch.Tensor, rows: int) -> Pending:
        """Begin to gather the rows of all ranks, `rows` in all."""
        own = filled_up(x, self.ranks.most(rows))
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

    def gathered(self, x: torch.Tensor, rows: int) -> torch.Tensor:
        """Return the rows of all ranks, `rows` in all."""
        return self.gathering(x.detach(), rows).wait()

    def sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks."""
        out = x.detach().clone(memory_format=torch.contiguous_format)
        return Pending(out, self.ranks.all_reduce(out)).wait()

    def own_sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of the sum over ranks."""
        padded = self.ranks.padded(x.detach()).clone(memory_format=torch.contiguous_format)
        return self._scattered(padded, x.shape[0]).wait()

    def _scattered(self, blocks: torch.Tensor, rows: int) -> Pending:
        own = self.ranks.shard(rows)
        out = blocks.new_empty(self.ranks.most(rows), blocks.shape[1])
        work = self.ranks.reduce_scatter(out, blocks)
        return Pending(out[: own.stop - own.start], work, (blocks,))

    # Layers.

    def prepare(
        self, call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> Operands:
        """Refuse what can't be multiplied, added or accumulated; products are in one dtype."""
        device = x.device.type
        if torch.is_autocast_enabled(device):
            dtype = torch.get_autocast_dtype(device)
            x, weight = tensors.cast(x, dtype), tensors.cast(weight, dtype)
            bias = None if bias is None else tensors.cast(bias, dtype)
        if x.dtype != weight.dtype or x.device != weight.device:
            sentence = f"x is {x.dtype} on {x.device}, and weight {weight.dtype} on {weight.device}"
            refuse(call.name, sentence)
        if bias is not None and bias.device != x.device:
            refuse(call.name, f"x is on {x.device}, and bias on {bias.device}")
        if bias is not None and list(bias.shape) != [weight.shape[0]]:
            refuse(call.name, f"bias is {list(bias.shape)}, not [{weight.shape[0]}]")
        if call.main_grad is not None and tensors.require_gradients(call.main_grad):
            main_grad_on(x.device, call.main_grad, call.name)
        if call.kind == "column" and x.shape[0] != (own := call.own_rows()):
            sentence = f"x has {x.shape[0]} rows, and rank {self.ranks.rank} of {self.ranks.world}"
            refuse(call.name, f"{sentence} has {own} of {call.rows}")
        count_other(call.name, self.name)
        return x, weight, None if bias is None else bias.to(x.dtype)

    def forward(
        self, call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Multiply by a weight [outputs, inputs]."""
        by = weight.t()
        if call.kind == "column":
            if call.sequence_parallel:
                return self.all_gather_matmul(x, by, call.rows, bias)
            return self.matmul(x, by, bias)
        if call.sequence_parallel:
            return self.matmul_reduce_scatter(x, by, bias)
        return self.matmul_all_reduce(x, by, bias)

    def backward(
        self,
        call: Call,
        needs: tuple[bool, bool, bool],
        grad_out: torch.Tensor,
        x: torch.Tensor | None,
        weight: torch.Tensor,
    ) -> Gradients:
        """Multiply the result's gradient by the weight, and beside the sum of that, by x."""
        needs_x, _, needs_bias = needs
        own_grad, grad_x, grad_weight, grad_bias = grad_out, None, None, None
        gathering: Pending | None = None
        summing: Pending | None = None
        if call.kind == "column":
            if x is not None and call.sequence_parallel:
                gathering = self.gathering(x, call.rows)
            if needs_x:
                begin = self.scattering if call.sequence_parallel else self.summing
                summing = begin(grad_out, weight)
        elif call.sequence_parallel:
            grad_out = own_grad.new_empty(call.rows, own_grad.shape[1])
            grad_x = self.all_gather_matmul(own_grad, weight, call.rows, gathered=grad_out)
        elif needs_x:
            grad_x = self.matmul(grad_out, weight)
        if x is not None:
            rows = x if gathering is None else gathering.wait()
            grad_weight = weight_gradient(call.main_grad, call.name, grad_out, rows)
        if needs_bias:
            grad_bias = (own_grad if call.own_bias_gradient else grad_out).sum(0)
        if summing is not None:
            grad_x = summing.wait()
        return grad_x if needs_x else None, grad_weight, grad_bias
