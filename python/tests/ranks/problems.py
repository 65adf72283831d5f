"""Operators with operands, and what they come to in one process."""

from collections.abc import Callable

import torch
import torch.distributed as dist
from ranks import shard, whole_and_parts

import plait.torch as pt

NAMES = [
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "matmul_all_gather",
    "all_gather_matmul",
    "reduce_scatter_matmul",
    "all_reduce_matmul",
]
SCHEDULES = [
    pt.Options(schedule="serial"),
    pt.Options(schedule="pipelined", parts=3),
    pt.Options(schedule="fused"),
    pt.Options(schedule="auto"),
]


def rows(x: torch.Tensor) -> torch.Tensor:
    return x[shard(x.shape[0])]


def columns(x: torch.Tensor) -> torch.Tensor:
    return x[:, shard(x.shape[1])]


class Problem:
    """An operator's operands, and what they come to in one process."""

    def __init__(self, name: str, m: int, n: int, k: int, dtype: torch.dtype) -> None:
        x, self.x_parts = whole_and_parts((m, k), dtype, seed=1)
        w, _ = whole_and_parts((n, k), dtype, seed=2)
        bias, _ = whole_and_parts((1, n), dtype, seed=3)
        self.call: Callable[..., torch.Tensor] = getattr(pt, name)
        self.bias = bias[0].detach()
        x_own: torch.Tensor
        if name in ("matmul_all_reduce", "matmul_reduce_scatter"):
            x_own, w_own, source = columns(x), columns(w), x
        elif name == "matmul_all_gather":
            x_own, w_own, source = rows(x), w, x
        elif name == "all_gather_matmul":
            x_own, w_own, source = rows(x), rows(w), x
            self.bias = self.bias[shard(n)]
        else:
            x_own, w_own = self.x_parts[dist.get_rank()], w
            source = torch.stack([part.double() for part in self.x_parts]).sum(0)
        self.x = x_own.detach().clone().requires_grad_()
        self.w = w_own.detach().clone().requires_grad_()
        weight = w.double() if name != "all_gather_matmul" else rows(w).double()
        self.exact = source.double() @ weight.t() + self.bias.double()
        self.sizes = source.double().abs() @ weight.abs().t() + self.bias.double().abs()
        if name in ("matmul_reduce_scatter", "reduce_scatter_matmul"):
            self.exact, self.sizes = rows(self.exact), rows(self.sizes)
        self.extra = {"rows": m} if name in ("matmul_all_gather", "all_gather_matmul") else {}
        # The first collective moves x itself, whose sums are rounded to its dtype.
        self.rounded = 2 if "reduce" in name and name.endswith("_matmul") else 1

    def run(self, options: pt.Options, bias: bool = True) -> torch.Tensor:
        given = self.bias if bias else None
        return self.call(self.x, self.w, given, options=options, **self.extra)


def gradient_of_result(name: str, m: int, n: int, dtype: torch.dtype) -> torch.Tensor:
    grad, _ = whole_and_parts((m, n), dtype, seed=9)
    if name == "all_gather_matmul":
        return columns(grad)
    return rows(grad) if name.endswith("scatter") or name.startswith("reduce_scatter") else grad
