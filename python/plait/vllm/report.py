"""The report of the layers of this process that were served, and of those that were not."""

import logging
import time
from collections import Counter
from dataclasses import dataclass
from typing import Any

import plait.torch
from plait.torch.profile import Profile
from plait.torch.report import counted
from plait.vllm import products

_log = logging.getLogger("plait.vllm")
_layers: Counter[tuple[str, str | None, str | None]] = Counter()  # by class, refusal and remark


@dataclass(frozen=True)
class Row:
    """Layers of one class that are served alike, or left to vLLM for one reason."""

    layer: str
    layers: int
    calls: int  # of layers that are served
    refusal: str | None  # None: plait serves them
    remark: str | None = None  # what users of these layers should know


@dataclass(frozen=True)
class Report:
    """A value: `print(report())`, or read its rows."""

    rows: tuple[Row, ...] = ()
    operators: str = ""  # the table of plait.torch.report(): plans, times

    @property
    def served(self) -> int:
        """Calls that plait has served."""
        return sum(row.calls for row in self.rows)

    def __str__(self) -> str:
        if not self.rows:
            return "plait.vllm: no tensor-parallel layer was loaded"
        lines = [
            f"{row.layers} {row.layer}: "
            + (
                f"{counted(row.calls, 'call')} served by plait"
                if row.refusal is None
                else "left to vLLM: "
            )
            + (row.refusal or "")
            + (f"\n  {row.remark}" if row.remark else "")
            for row in self.rows
        ]
        return "\n".join([*lines, self.operators])


def report() -> Report:
    """Say which layers of this process are served, and why others are not.

    vLLM's workers are processes of their own: ask them with WorkerReport.
    """
    rows = [
        Row(layer, count, 0 if refusal else products.calls[layer], refusal, remark)
        for (layer, refusal, remark), count in _layers.items()
    ]
    return Report(tuple(rows), str(plait.torch.report()))


class WorkerReport:
    """Lets vLLM's workers be asked: LLM(worker_extension_cls="plait.vllm.WorkerReport")."""

    _recorded: tuple[Profile, float] | None = None  # and since when

    def plait_report(self) -> str:
        """Return the report of this worker, for LLM.collective_rpc("plait_report")."""
        return str(report())

    def plait_record(self) -> None:
        """Record from now on how plait's calls spend their time; all workers do it together."""
        from vllm.distributed import get_tp_group  # there in vLLM's workers alone

        profile = plait.torch.profile(get_tp_group().device_group)
        profile.__enter__()
        self._recorded = profile, time.perf_counter()

    def plait_profile(self) -> str:
        """Return where this worker's time has gone since plait_record()."""
        if self._recorded is None:
            return "plait: nothing is recorded yet; call plait_record before"
        (profile, since), self._recorded = self._recorded, None
        seconds = time.perf_counter() - since
        profile.__exit__(None, None, None)
        table = profile.table()
        within = sum(row.seconds for row in table.rows)
        what = f"rank {table.rank}: {seconds:.3f} s recorded, {within:.3f} s of it in plait's calls"
        return f"{what}\n{table}"


def note(
    layer: Any,
    refusal: str | None,
    place: tuple[int, int] | None = None,
    *,
    level: int = logging.WARNING,
    remark: str | None = None,
) -> None:
    """Count a layer, and log the first of each class and reason on one rank of the group.

    `place`: the rank and the size of the group, which linear layers know themselves. `remark`: said
    of a layer that is served.
    """
    rank, size = place or (layer.tp_rank, layer.tp_size)
    key = (type(layer).__name__, refusal, None if refusal else remark)
    said = refusal or remark
    _layers[key] += 1
    if said is None or _layers[key] > 1 or rank != 0:
        return
    whose = "left to vLLM" if refusal else "served by plait"
    # A model on one rank has no communication to hide, which is no fallback.
    _log.log(logging.INFO if size == 1 else level, "%s is %s: %s", key[0], whose, said)
