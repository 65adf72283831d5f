"""Replacing the two forwards, and putting them back."""

import atexit
import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from dataclasses import replace

import torch
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear

import plait
import plait.torch
from plait.megatron import fusion, losses, other_layers, seams
from plait.megatron.host import stand_in_for_cuda
from plait.megatron.report import Report
from plait.megatron.serve import Result, Service
from plait.megatron.user_config import CocCfgs, load_coc_cfgs
from plait.torch.options import Engine, Schedule

_log = logging.getLogger("plait.megatron")

_service: Service | None = None  # while enabled
_last: Service | None = None  # report() answers after disable() too
_unwatch: Callable[[], None] | None = None
_unknown = ""  # why enable() has replaced nothing


def enable(
    *,
    schedule: Schedule | None = None,
    parts: int | None = None,
    wire: str | None = None,
    settings: plait.Settings | None = None,
    coc_cfgs: CocCfgs | None = None,
    engine: Engine = "native",
    stand_ins: bool = False,
    defer_logits: bool = False,
) -> None:
    """Serve Megatron's column and row layers from now on.

    Every rank makes the call, with the same options. Without any, the environment decides:
    PLAIT_PLAN, PLAIT_CONFIG, COC_PARALLEL_NUM, USE_COC_FUSED_KERNEL and so on; else plans are
    automatic. `coc_cfgs` is MindSpeed CoC's dictionary of that name, or the path of a Python file
    that assigns it, which is read and not run. It takes the place of PLAIT_CONFIG's file, and
    variables go before it. `engine="c10d"` serves layers on any device by torch's own products
    and collectives. The same call again does nothing; other options raise, until disable().
    `stand_ins` calls stand_in_for_cuda(), and disable() doesn't take it back. `defer_logits` lets
    vocab_parallel_cross_entropy() multiply a block of logits at a time, so that neither the logits
    of the output layer nor their gradient are in memory; it multiplies once more. Where Megatron's
    methods are not those that plait knows, one sentence is logged, nothing is replaced, and
    report() says so.
    """
    global _service, _last, _unwatch, _unknown
    if coc_cfgs is not None:
        if settings is not None:
            raise plait.Error(
                plait.Code.invalid_argument,
                "plait.megatron.enable: settings and coc_cfgs can't be combined; leave out one",
            )
        settings = load_coc_cfgs(coc_cfgs)
    if stand_ins:
        stand_in_for_cuda()
    asked = plait.torch.Options(
        schedule=schedule, parts=parts, wire=wire, settings=settings, engine=engine
    )
    # Settings are read now, and what is wrong in them is refused now, on all ranks.
    options = replace(asked, settings=asked.resolved())
    if defer_logits and engine != "native":
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.megatron.enable: defer_logits needs the engine native, not {engine}",
        )
    if _service is not None:
        if (_service.options, _service.defer_logits) == (options, defer_logits):
            return
        raise plait.Error(
            plait.Code.invalid_argument,
            "plait.megatron.enable: it is enabled with other options; call disable() first",
        )
    mismatch = seams.mismatch() or (losses.mismatch() if defer_logits else None)
    if mismatch is not None:
        if not _unknown and os.environ.get("RANK", "0") == "0":
            _log.warning("%s", _sentence(mismatch))
        _unknown = _sentence(mismatch)
        return
    _unknown = ""
    _service = _last = Service(options, seams.COLUMN.current(), seams.ROW.current(), defer_logits)
    ColumnParallelLinear.forward = _column_forward
    RowParallelLinear.forward = _row_forward
    fusion.provide()
    if defer_logits:
        losses.provide()
    _unwatch = other_layers.watch(other_layers.classes(), _service.leave)
    if os.environ.get("RANK", "0") == "0":
        _log.info("column and row layers of Megatron-Core are served by plait: %s", asked)


def disable() -> None:
    """Put back what enable() has replaced.

    A method that another package has replaced meanwhile stays, and a warning says so. Layers
    that were made with gradient_accumulation_fusion go on without APEX.
    """
    global _service, _unwatch, _unknown
    _unknown = ""
    if _service is None:
        return
    for seam, ours, original in (
        (seams.COLUMN, _column_forward, _service.column),
        (seams.ROW, _row_forward, _service.row),
    ):
        if seam.current() is ours:
            setattr(seam.owner, seam.name, original)
        else:
            _log.warning(
                "%s.%s was replaced by another package after enable(), and is left as it is",
                seam.owner.__name__,
                seam.name,
            )
    if _unwatch is not None:
        _unwatch()
    fusion.withdraw()
    losses.withdraw()
    _service = _unwatch = None


def refuse_unknown_version(name: str) -> None:
    """Raise where Megatron's methods are not those that plait knows."""
    if (mismatch := seams.mismatch()) is not None:
        raise plait.Error(
            plait.Code.invalid_argument, f"plait.megatron.{name}: {_sentence(mismatch)}"
        )


def _sentence(mismatch: str) -> str:
    return f"this version of Megatron-Core is unknown: {mismatch}; its layers are left as they are"


@contextlib.contextmanager
def enabled(
    *,
    schedule: Schedule | None = None,
    parts: int | None = None,
    wire: str | None = None,
    settings: plait.Settings | None = None,
    coc_cfgs: CocCfgs | None = None,
    engine: Engine = "native",
    defer_logits: bool = False,
) -> Iterator[None]:
    """Enable for a block: outside of it, the same process has Megatron's own layers."""
    enable(
        schedule=schedule,
        parts=parts,
        wire=wire,
        settings=settings,
        coc_cfgs=coc_cfgs,
        engine=engine,
        defer_logits=defer_logits,
    )
    try:
        yield
    finally:
        disable()


def report() -> Report:
    """Say how many calls of which classes were served, and why others were not."""
    if _last is None or _unknown:
        return Report(idle=_unknown)
    return Report(_last.calls.rows(), str(plait.torch.report()))


def service() -> Service:
    """Return how layers are served: as enable() was told, else as the environment says."""
    global _last
    if _service is not None:
        return _service
    if _last is None:
        options = plait.torch.Options(settings=plait.load_settings())
        _last = Service(options, seams.COLUMN.current(), seams.ROW.current())
    return _last


@atexit.register
def _forget() -> None:
    """Drop what is native before the module that made it."""
    global _service, _last
    disable()
    _service = _last = None


# A method that a caller has kept since before disable() goes on with Megatron's own code.


def _column_forward(
    self: ColumnParallelLinear,
    input_: torch.Tensor,
    weight: torch.Tensor | None = None,
    runtime_gather_output: bool | None = None,
) -> Result:
    if _service is None:
        return service().column(self, input_, weight, runtime_gather_output)
    return _service.column_forward(self, input_, weight, runtime_gather_output)


def _row_forward(self: RowParallelLinear, input_: torch.Tensor) -> Result:
    if _service is None:
        return service().row(self, input_)
    return _service.row_forward(self, input_)
