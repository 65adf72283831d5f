"""The engine of tensors on an NVIDIA GPU: plait's kernels where there are some, else torch's.

All ranks of a call must choose alike. What the choice depends on is therefore the same on all of
them (the operator, the dtype, how many rows there are), or is agreed on at a group's first call
(whether each rank can use plait's kernels, and whether all are on one host). Where a rank's
operands lie in a way that the kernels don't read, that rank copies them.
"""

import functools
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist

from plait import _native
from plait._native import Communicator, Dtype, Operator, Place, TensorView, WeightLayout, WeightView
from plait.errors import refuse
from plait.torch import groups, tensors
from plait.torch.context import Context
from plait.torch.engines.c10d import C10d
from plait.torch.engines.parts import Pending
from plait.torch.ranks import Ranks

_DTYPES = {torch.bfloat16: Dtype.bf16, torch.float16: Dtype.f16}
_MOST_RANKS = 8
_MOST_ROWS = 1 << 22
_UNIT = 8  # elements of 16 bytes: rows begin at multiples of it, and k is one
# Operators for which plait has no kernel on a GPU; layers need none of them.
_WITHOUT_KERNEL = (
    "matmul_all_gather",
    "reduce_scatter_matmul",
    "all_reduce_matmul",
    "reduce_scatter",
    "all_reduce",
)


def refusal(
    group: dist.ProcessGroup | None, operator: str, device: torch.device, dtype: torch.dtype
) -> str:
    """Say why plait's kernels don't serve a call; empty: they do."""
    if operator in _WITHOUT_KERNEL:
        return f"plait has no kernel for {operator}"
    if dtype not in _DTYPES:
        return f"x is {dtype}, and plait's kernels take {', '.join(map(str, _DTYPES))}"
    if group is None or group.size() == 1:
        return _own_refusal(device)
    with _lock:
        agreed = _agreed.setdefault(group, _Agreed())
    with agreed.lock:  # two threads may make their first calls at once
        if device not in agreed.refusals:
            agreed.refusals[device] = _agree(group, operator, device)
        return agreed.refusals[device]


@dataclass
class _Agreed:
    """The agreement of a group's ranks, for each GPU of this rank."""

    refusals: dict[torch.device, str] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)


_agreed: WeakKeyDictionary[dist.ProcessGroup, _Agreed] = WeakKeyDictionary()
_lock = threading.Lock()  # of the dictionary; never held while a rank waits for others


def _agree(group: dist.ProcessGroup, operator: str, device: torch.device) -> str:
    """Say why some rank of the group can't use plait's kernels; empty: all can. Collective."""
    mine = f"{groups.host()}\n{_own_refusal(device)}"
    missing = operator, "has made no call on a GPU in this process group"
    said = groups.told_by_all(group, "gpu", mine, missing)
    hosts, reasons = zip(*(one.rsplit("\n", 1) for one in said), strict=True)
    if len(said) > _MOST_RANKS:
        return f"there are {len(said)} ranks, and plait's kernels are for at most {_MOST_RANKS}"
    if len(set(hosts)) > 1:
        return "the ranks are on several hosts, and plait's kernels are for one"
    return next((f"rank {rank}: {why}" for rank, why in enumerate(reasons) if why), "")


@functools.cache
def _own_refusal(device: torch.device) -> str:
    """Say why this process can't use plait's kernels on a GPU; empty: it can."""
    desc = _native.OpDesc(Operator.matmul, m=1, n=_UNIT, k=_UNIT, x=Dtype.bf16, device=str(device))
    # Whatever goes wrong is told to the other ranks, which wait to hear of this one.
    try:
        with Communicator.connect(place=Place(0, 1, "alone")) as comm:
            _native.prepare(desc, comm)
    except (RuntimeError, MemoryError) as error:
        return str(error).replace("\n", " ") or type(error).__name__
    return ""


def has_collectives(group: dist.ProcessGroup) -> bool:
    """Say whether a group's backend can take tensors on a GPU."""
    try:
        group._get_backend(torch.device("cuda"))
    except RuntimeError:
        return False
    return True


def _has_nccl(group: dist.ProcessGroup) -> bool:
    return "nccl" in str(dist.get_backend_config(group))


class OnGpu(C10d):
    """The operators by plait's kernels; what they leave out is done as the base class does it.

    With a device "cpu" they are the kernels of the CPU, which take the same calls.
    """

    name = "plait's kernels on the GPU"

    def __init__(self, ranks: Ranks, context: Context, device: torch.device) -> None:
        super().__init__(ranks, context.options._c10d_parts(ranks.world))
        self.context, self.device = context, device

    def matmul(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return x by weight, with the bits that products of all ranks have too."""
        return self._run(_native.matmul, x, weight, x.shape[0], x.shape[0], bias)

    def matmul_all_reduce(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return the sum over ranks of x [m, k_r] by weight [k_r, n]."""
        return self._run(_native.matmul_all_reduce, x, weight, x.shape[0], x.shape[0], bias)

    def matmul_reduce_scatter(
        self, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None = None
    ) -> torch.Tensor:
        """Return this rank's rows of the sum over ranks of x [m, k_r] by weight [k_r, n]."""
        own = self.ranks.shard(x.shape[0])
        rows = own.stop - own.start
        return self._run(_native.matmul_reduce_scatter, x, weight, rows, x.shape[0], bias)

    def all_gather_matmul(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        rows: int,
        bias: torch.Tensor | None = None,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Return the rows of all ranks by weight [k, n_r]; `gathered` takes the rows."""
        return self._run(_native.all_gather_matmul, x, weight, rows, rows, bias, gathered)

    def gathering(self, x: torch.Tensor, rows: int) -> Pending:
        """Begin to gather the rows of all ranks, `rows` in all."""
        if self.ranks.group is None or _has_nccl(self.ranks.group):
            # A fused kernel beside it would need the multiprocessors that NCCL's kernel keeps while
            # it waits for another rank, whose own fused kernel may leave NCCL none.
            return Pending(super().gathering(x, rows).wait())
        # A product by a few columns moves the rows where the group can't.
        gathered = x.new_empty(rows, x.shape[1])
        self.all_gather_matmul(x, x.new_zeros(x.shape[1], _UNIT), rows, gathered=gathered)
        return Pending(gathered)

    def summing(self, x: torch.Tensor, weight: torch.Tensor) -> Pending:
        """Multiply and add up over the ranks."""
        return Pending(self.matmul_all_reduce(x, weight))

    def scattering(self, x: torch.Tensor, weight: torch.Tensor) -> Pending:
        """Multiply and add up this rank's rows over the ranks."""
        return Pending(self.matmul_reduce_scatter(x, weight))

    def _run(
        self,
        call: Callable[..., None],
        x: torch.Tensor,
        weight: torch.Tensor,
        rows: int,
        rows_of_all: int,
        bias: torch.Tensor | None,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        n = weight.shape[1]
        if rows_of_all > _MOST_ROWS:
            refuse(call.__name__, f"there are {rows_of_all} rows; on a GPU at most {_MOST_ROWS}")
        # The sizes that make a call empty are the same on all ranks, but for a rank's outputs.
        gathers = call is _native.all_gather_matmul
        if rows_of_all == 0 or (n == 0 and not gathers):
            return x.new_empty(rows, n)
        if n == 0:
            weight = weight.new_zeros(weight.shape[0], 1)
            bias = None
        added = None if bias is None else bias.resolve_neg().reshape(1, -1).contiguous()
        out = x.new_empty(rows, weight.shape[1])
        x, (by, layout) = _readable(x.resolve_neg()), _readable_weight(weight.resolve_neg())
        whole = gathered
        if gathered is not None and (gathered.shape[1] != x.shape[1] or not _is_readable(gathered)):
            whole = x.new_empty(rows, x.shape[1])
        settings = self.context.settings
        call(
            self._view(x),
            WeightView(self._view(by), layout),
            self._view(out),
            self.context.comm,
            bias=None if added is None else self._view(added),
            gathered=None if whole is None else self._view(whole),
            wire=settings.wire,
            plan=settings.plan,
            backend=settings.backend,
            stream=torch.cuda.current_stream(self.device) if out.is_cuda else None,
        )
        if gathered is not None and whole is not None and whole is not gathered:
            gathered.copy_(whole[:, : gathered.shape[1]])
        return out[:, :n]

    def _view(self, rows: torch.Tensor) -> TensorView:
        count, columns = rows.shape
        stride = rows.stride(0) if count > 1 else columns
        dtype = tensors.DTYPES[rows.dtype]
        device = str(self.device)
        return TensorView(rows.data_ptr(), dtype, count, columns, stride, device=device)


def _is_rows(matrix: torch.Tensor) -> bool:
    rows, columns = matrix.shape
    return (columns <= 1 or matrix.stride(1) == 1) and (rows <= 1 or matrix.stride(0) >= columns)


def _is_readable(rows: torch.Tensor) -> bool:
    """Say whether plait's kernels on GPUs can read these rows as they lie.

    >>> _is_readable(torch.zeros(3, 8, dtype=torch.bfloat16))
    True
    >>> _is_readable(torch.zeros(3, 9, dtype=torch.bfloat16)[:, :8])
    False
    """
    apart = rows.stride(0) % _UNIT == 0 or rows.shape[0] <= 1
    return _is_rows(rows) and apart and rows.data_ptr() % (_UNIT * rows.element_size()) == 0


def _readable(rows: torch.Tensor) -> torch.Tensor:
    """Return rows that the kernels read, with zeros after them where k is no multiple of 8.

    >>> _readable(torch.ones(2, 9, dtype=torch.bfloat16)).shape
    torch.Size([2, 16])
    """
    count, columns = rows.shape
    padded = max(1, -(-columns // _UNIT)) * _UNIT
    if padded == columns:
        return rows if _is_readable(rows) else rows.clone(memory_format=torch.contiguous_format)
    out = rows.new_zeros(count, padded)
    out[:, :columns] = rows
    return out


def _readable_weight(weight: torch.Tensor) -> tuple[torch.Tensor, Any]:
    """Return a weight [k, n] as the kernels read it, and how it lies.

    >>> rows, layout = _readable_weight(torch.ones(16, 8, dtype=torch.bfloat16).t())
    >>> rows.shape, layout.name
    (torch.Size([16, 8]), 'out_in')
    """
    k = weight.shape[0]
    if k % _UNIT == 0 and k > 0:
        if _is_readable(weight.t()):
            return weight.t(), WeightLayout.out_in
        if _is_readable(weight):
            return weight, WeightLayout.in_out
    return _readable(weight.t()), WeightLayout.out_in
