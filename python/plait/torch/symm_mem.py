"""CPU kernels for two operators of torch that have kernels for CUDA alone.

    import plait.torch.symm_mem

    plait.torch.symm_mem.enable()
    y = torch.ops.symm_mem.fused_matmul_reduce_scatter(a, b, "sum", 0, group.group_name)

`fused_all_gather_matmul` and `fused_matmul_reduce_scatter` are what programs for CUDA call, and
what torch's own pass makes of products and collectives where torch has NCCL. Here they are plait's
operators. A call that plait does not serve is made of torch's collective and product, and one
sentence a reason is logged. Neither has gradients: compiled programs differentiate before they get
them.
"""

import logging
import math
from collections import Counter
from typing import Any, cast

import torch
from torch.distributed import _functional_collectives as functional
from torch.distributed import distributed_c10d

from plait._native import Code
from plait.errors import Error
from plait.torch import tensors
from plait.torch.context import group_place
from plait.torch.options import Options, Schedule

__all__ = ["disable", "enable"]

_log = logging.getLogger("plait.torch")
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_GATHER, _SCATTER = "fused_all_gather_matmul", "fused_matmul_reduce_scatter"

_options: Options | None = None  # while enabled
_library: torch.library.Library | None = None
_left: Counter[tuple[str, str]] = Counter()  # by operator and reason


def enable(
    *, schedule: Schedule | None = None, parts: int | None = None, wire: str | None = None
) -> None:
    """Register the two kernels for tensors on the CPU.

    Every rank makes the call, with the same options. The same call again does nothing; other
    options raise, until disable().
    """
    global _library, _options
    options = Options(schedule=schedule, parts=parts, wire=wire)
    if _options is not None:
        if _options == options:
            return
        raise Error(
            Code.invalid_argument,
            "plait.torch.symm_mem.enable: it is enabled with other options; call disable() first",
        )
    import torch.distributed._symmetric_memory  # defines the operators

    library = torch.library.Library("symm_mem", "IMPL")
    library.impl(_GATHER, _all_gather_matmul, "CPU")
    library.impl(_SCATTER, _matmul_reduce_scatter, "CPU")
    _library, _options = library, options


def disable() -> None:
    """Take the kernels back."""
    global _library, _options
    if _library is not None:
        _library._destroy()
    _library = _options = None


_resolve: Any = vars(distributed_c10d)["_resolve_process_group"]


def _place(group: str) -> tuple[int, int]:
    return group_place(_resolve(group), "symm_mem")


def _how(group: str) -> dict[str, Any]:
    assert _options is not None
    return {
        "group": group,
        "schedule": _options.schedule or "",
        "parts": _options.parts or 0,
        "wire": _options.wire or "",
        "turned": True,  # B is [k, n], and a weight of a layer [n, k]
    }


def _served(name: str, refusal: str | None, group: str) -> bool:
    if refusal is not None:
        _left[name, refusal] += 1
        if _left[name, refusal] == 1 and _place(group)[0] == 0:
            _log.warning("%s is left to torch: %s", name, refusal)
    return refusal is None


def _check(name: str, a: torch.Tensor, by: list[torch.Tensor], dim: int) -> int:
    """Refuse what torch's kernels refuse too; return the dimension, counted from the first."""
    if a.dim() < 2 or any(one.dim() != 2 for one in by):
        raise Error(
            Code.invalid_argument,
            f"{name}: A has {a.dim()} dimensions, and B {[one.dim() for one in by]}; A must have "
            "two or more, and B two",
            operator=name,
        )
    if not -a.dim() <= dim < a.dim():
        raise Error(
            Code.invalid_argument,
            f"{name}: dimension {dim} is none of A's {a.dim()}",
            operator=name,
        )
    return dim % a.dim()


def _refusal(a: torch.Tensor, by: list[torch.Tensor], dim: int) -> str | None:
    if dim == a.dim() - 1:
        return "the last dimension is the one that ranks share"
    for name, tensor in (("A", a), *(("B", one) for one in by)):
        if (reason := tensors.refusal(tensor)) is not None:
            return f"{name} {reason}"
        if tensor.dtype not in _DTYPES:
            return f"{name} is {tensor.dtype}"
    return None


def _all_gather_matmul(
    a: torch.Tensor, by: list[torch.Tensor], gather_dim: int, group: str, *, return_A: bool = True
) -> tuple[torch.Tensor | None, list[torch.Tensor]]:
    dim = _check(_GATHER, a, by, gather_dim)
    if not by or not _served(_GATHER, _refusal(a, by, dim), group):
        arriving = functional.all_gather_single(
            a.movedim(dim, 0).contiguous(), 0, cast(distributed_c10d.GroupName, group)
        )
        rows_of_all = functional.wait_tensor(arriving).movedim(0, dim)
        if dim == a.dim() - 1:
            rows_of_all = rows_of_all.contiguous()
        return rows_of_all if return_A else None, [rows_of_all @ one for one in by]
    first = a.movedim(dim, 0)
    own = first.reshape(-1, a.shape[-1])
    sizes = (first.shape[0] * _place(group)[1], *first.shape[1:-1])
    rows = math.prod(sizes)
    how = _how(group)
    # Rows arrive behind the largest of the products; the others find all of them.
    largest = max(range(len(by)), key=lambda at: by[at].shape[1])
    ops = torch.ops.plait
    gathered: torch.Tensor | None = None
    if return_A or len(by) > 1:
        out, gathered = ops.all_gather_matmul_gathered(own, by[largest], None, **how, rows=rows)
    else:
        out = ops.all_gather_matmul(own, by[largest], None, **how, rows=rows)
    outs = [
        out if at == largest else ops.matmul(gathered, one, None, **how)
        for at, one in enumerate(by)
    ]
    whole = gathered.view(*sizes, -1).movedim(0, dim) if gathered is not None and return_A else None
    return whole, [one.view(*sizes, one.shape[1]).movedim(0, dim) for one in outs]


def _matmul_reduce_scatter(
    a: torch.Tensor, b: torch.Tensor, reduce_op: str, scatter_dim: int, group: str
) -> torch.Tensor:
    dim = _check(_SCATTER, a, [b], scatter_dim)
    world = _place(group)[1]
    if reduce_op not in ("sum", "avg"):
        raise Error(
            Code.invalid_argument,
            f"{_SCATTER}: reduce_op is {reduce_op!r}; it can be sum or avg",
            operator=_SCATTER,
        )
    shared = b.shape[1] if dim == a.dim() - 1 else a.shape[dim]
    if shared % world != 0:
        raise Error(
            Code.invalid_argument,
            f"{_SCATTER}: dimension {dim} has {shared} elements, which {world} ranks can't share "
            "evenly",
            operator=_SCATTER,
        )
    out: torch.Tensor
    if not _served(_SCATTER, _refusal(a, [b], dim), group):
        # Sums alone: gloo has no averages.
        out = functional.reduce_scatter_single(
            (a @ b).contiguous(), "sum", dim, cast(distributed_c10d.GroupName, group)
        )
        out = functional.wait_tensor(out)
    else:
        first = a.movedim(dim, 0)
        rows: torch.Tensor = torch.ops.plait.matmul_reduce_scatter(
            first.reshape(-1, a.shape[-1]), b, None, **_how(group)
        )
        out = rows.view(first.shape[0] // world, *first.shape[1:-1], b.shape[1])
        out = out.movedim(0, dim).contiguous()
    return out if reduce_op == "sum" else out.div_(world)
