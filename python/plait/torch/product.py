"""Layers by torch's own product, with plait's collectives, where that is faster.

    options = plait.torch.Options(product="torch")
    options = plait.torch.Options(product="auto")  # both are measured once for each size and dtype

torch's product is serial: nothing is hidden behind it. Where its kernels are much faster than
plait's, for a dtype on some processor, it wins all the same. Its bits are not those of plait's
schedules; the bound is that of the engine "c10d" (see plait.torch.c10d).
"""

import contextlib
import logging
import math
import time
from collections.abc import Callable, Hashable, Iterator
from dataclasses import replace
from typing import Any, Literal
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch.utils import _python_dispatch

from plait import _native
from plait._native import Communicator, Dtype
from plait.torch.c10d import Products
from plait.torch.context import communicator_of
from plait.torch.options import Options
from plait.torch.ranks import Ranks
from plait.torch.report import Comparison, note
from plait.torch.rows import float_dtype
from plait.torch.weights import Owner

_log = logging.getLogger("plait.torch")
_REPEATS = 3
_autograd: Any = torch._C._autograd
_let_profilers_see: Callable[[bool], None] = _autograd._enable_record_function
_may_have_hooks: Callable[[], bool] = _autograd._saved_tensors_hooks_is_enabled


class _NativeRanks(Ranks):
    """The ranks of a communicator. Collectives are done when they return."""

    def __init__(self, comm: Communicator) -> None:
        self.group = None
        self.comm = comm
        self.rank, self.world = comm.rank, comm.world

    def all_reduce(self, x: torch.Tensor) -> None:
        """Add up over the ranks, in place."""
        dtype = float_dtype(x, "all_reduce", "x")
        _native._all_reduce_at(x.data_ptr(), x.data_ptr(), x.numel(), dtype, self.comm)

    def all_gather(self, out: torch.Tensor, own: torch.Tensor) -> None:
        """Fill `out` [world, rows, columns] with the rows of all ranks."""
        own = own.contiguous()
        dtype = float_dtype(own, "all_gather", "x")
        _native._all_gather_at(
            own.data_ptr(), own.numel(), out.data_ptr(), out.numel(), dtype, self.comm
        )

    def reduce_scatter(self, out: torch.Tensor, x: torch.Tensor) -> None:
        """Add `x` [world * rows, columns] up; this rank's rows go to `out`."""
        dtype = float_dtype(x, "reduce_scatter", "x")
        _native._reduce_scatter_at(
            x.data_ptr(), x.numel(), out.data_ptr(), out.numel(), dtype, self.comm
        )


def products_of(group: dist.ProcessGroup | None, options: Options, operator: str) -> Products:
    """Return torch's products, with the collectives that the options name."""
    if options.engine == "c10d":
        ranks = Ranks(group, operator)
        return Products(ranks, options._c10d_parts(ranks.world))
    products = Products(_NativeRanks(communicator_of(group, operator)), 1)
    products.name = "torch's product, then plait's collective: nothing is hidden"
    return products


# Indexed by communicator and layer; all ranks of a communicator have the same entries.
_Known = dict[Hashable, Options]
_faster: WeakKeyDictionary[Communicator, WeakKeyDictionary[Owner, _Known]] = WeakKeyDictionary()
_functions = Owner()  # in the place of a layer that a call does not name


def measured(
    kind: Literal["column", "row"],
    x: torch.Tensor,
    weight: torch.Tensor,
    group: dist.ProcessGroup | None,
    sequence_parallel: bool,
    rows: int | None,
    options: Options,
    layer: Owner | None,
) -> Options:
    """Return the options with the faster product in them.

    The first call of each size and dtype measures both, on all ranks: training or inference as the
    call is. Rows count as the next power of two does, so that numbers of tokens which change at
    each call are measured a few times. Rank 0 decides. Ranks must have the same sizes, or pass the
    module as `layer`, as modules do.
    """
    comm = communicator_of(group, f"{kind}_parallel_linear")
    trains = torch.is_grad_enabled() and weight.requires_grad
    about = (_rows_of_all(x, rows) - 1).bit_length()
    sizes = (about, *(weight.shape if layer is None else ()))
    key = (kind, sizes, x.dtype, weight.dtype, trains, sequence_parallel, options)
    layers = _faster.setdefault(comm, WeakKeyDictionary())
    known = layers.setdefault(_functions if layer is None else layer, {})
    if key not in known:
        with _unseen():
            call = _call(kind, x, weight, group, sequence_parallel, rows, trains)
            by_plait, by_torch = _times(call, options, comm)
        autocast = torch.is_autocast_enabled("cpu")
        dtype = torch.get_autocast_dtype("cpu") if autocast else x.dtype
        found = Comparison(
            operator=f"{kind}_parallel_linear",
            outputs=weight.shape[0],
            inputs=weight.shape[1],
            rows=1 << about,
            dtype=str(dtype).removeprefix("torch."),
            trains=trains,
            plait_seconds=by_plait,
            torch_seconds=by_torch,
        )
        note(found)
        if comm.rank == 0:
            _log.info("%s", found)
        known[key] = with_torchs(options) if found.faster == "torch" else with_plaits(options)
    return known[key]


def _rows_of_all(x: torch.Tensor, rows: int | None) -> int:
    """Count rows, alike on all ranks: an x of one dimension has this rank's inputs in it."""
    if x.dim() == 1:
        return 1
    return (x.shape[0] if rows is None else rows) * math.prod(x.shape[1:-1])


@contextlib.contextmanager
def _unseen() -> Iterator[None]:
    """Keep what is measured from the program's hooks, modes and profilers.

    Checkpointing counts what a forward saves, and the recomputation measures nothing.
    """
    hooks: contextlib.AbstractContextManager[object] = contextlib.nullcontext()
    if _may_have_hooks():
        # Only the innermost hooks are called.
        hooks = torch.autograd.graph.saved_tensors_hooks(_itself, _itself)
    _let_profilers_see(False)
    try:
        with hooks, torch._C.DisableTorchFunction(), _python_dispatch._disable_current_modes():
            yield
    finally:
        _let_profilers_see(True)


def _itself(tensor: torch.Tensor) -> torch.Tensor:
    return tensor


def _call(
    kind: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    group: dist.ProcessGroup | None,
    sequence_parallel: bool,
    rows: int | None,
    trains: bool,
) -> Callable[[Options], None]:
    """Return a call of the layer on tensors that belong to no graph."""
    from plait.torch import linear

    own_x = x.detach().requires_grad_(trains and x.requires_grad)
    own_weight = weight.detach().requires_grad_(trains)

    def run(options: Options) -> None:
        if kind == "column":
            out = linear.column_parallel_linear(
                own_x,
                own_weight,
                group=group,
                sequence_parallel=sequence_parallel,
                rows=rows,
                options=options,
            )
        else:
            out = linear.row_parallel_linear(
                own_x, own_weight, group=group, sequence_parallel=sequence_parallel, options=options
            )
        if trains:
            torch.autograd.grad(out, own_weight, torch.ones_like(out))

    return run


def with_plaits(options: Options) -> Options:
    """Return the options with plait's product."""
    return replace(options, product="plait")


def with_torchs(options: Options) -> Options:
    """Return the options with torch's product, which has no schedule and no wire."""
    return replace(options, product="torch", schedule=None, parts=None, wire=None)


def _times(
    call: Callable[[Options], None], options: Options, comm: Communicator
) -> tuple[float, float]:
    """Measure calls with plait's product and with torch's: rank 0's times, on all ranks."""
    best = {with_plaits(options): float("inf"), with_torchs(options): float("inf")}
    for turn in range(_REPEATS + 1):
        for one in best:
            begin = time.perf_counter()
            call(one)
            spent = time.perf_counter() - begin
            if turn > 0:  # the first one makes layers and packs weights
                best[one] = min(best[one], spent)
    # Ranks may have measured differently.
    times = torch.tensor([*best.values()])
    _native._broadcast_at(times.data_ptr(), 2, Dtype.f32, 0, comm)
    by_plait, by_torch = times.tolist()
    return by_plait, by_torch
