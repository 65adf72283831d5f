"""Traces of a few calls of each shape, for the report.

The 2nd, 4th, 6th, 8th, 12th, ... call of a shape is traced, on each rank for itself; the first one
prepares. Tracing is what plait.torch.profile does, so that a share in the report is that of the
calls which were traced. While there is a profile nothing is sampled.
"""

import contextlib
from collections import Counter
from collections.abc import Callable, Hashable
from dataclasses import astuple, dataclass, field

from plait import _native
from plait.errors import Error
from plait.torch import recording

# Records of each thread in one call; a call with more is not counted.
_RECORDS = (1 << 13) - 1
# After the trials of a new shape, which take some 40 calls, one call is soon traced in the plan
# that they have kept.
_TRACED = frozenset(first << doublings for first in (2, 6) for doublings in range(48))
_MOST_SHAPES = 4096  # of which calls are counted, before all are forgotten

Key = tuple[str, int, int, int, str, str, str]  # operator, m, n, k, dtype, wire, plan


@dataclass(frozen=True)
class Share:
    """Sums over all traced calls of a row, in nanoseconds."""

    calls: int = 0
    time: int = 0
    communication: int = 0  # chunks travel, or the rank copies, sums or waits
    hidden: int = 0  # the part of it in which the rank multiplies as well
    waiting: int = 0
    copying: int = 0  # and summing, by the rank itself

    def __add__(self, other: "Share") -> "Share":
        return Share(*(a + b for a, b in zip(astuple(self), astuple(other), strict=True)))


def key_of(row: _native.PlanRow) -> Key:
    """Return by what a report tells calls apart."""
    name = row.problem.partition(" ")[0].removeprefix("op=")
    return name, row.m, row.n, row.k, row.dtype.name, row.wire.name, str(row.plan)


class Tally:
    """Counts calls by what tells them apart."""

    def __init__(self) -> None:
        self.counts: dict[Hashable, int] = {}

    def is_due(self, shape: Hashable) -> bool:
        """Count a call, and say whether to trace it."""
        counts = self.counts
        count = counts[shape] = counts.get(shape, 0) + 1
        if count not in _TRACED:
            if len(counts) > _MOST_SHAPES:
                counts.clear()
            return False
        return not recording.is_on()


@dataclass
class Samples:
    """The traced calls of one context."""

    shares: dict[Key, Share] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    # Layers' direct calls have tallies by the layer's kind.
    direct: dict[str, _native._Tally] = field(
        default_factory=lambda: {"column": _native._Tally(), "row": _native._Tally()}
    )

    def is_due(self, shape: Hashable) -> bool:
        """Count a call, and say whether to trace it."""
        return self.tally.is_due(shape)

    def trace(
        self,
        comm: _native.Communicator,
        plans: _native.RecordedPlans,
        call: Callable[[], None],
    ) -> None:
        """Make a call, and add up what its trace says."""
        if comm.trace is not None:  # the program records by itself
            call()
            return
        before = _calls(plans)
        trace = _native.Trace(comm.rank, _RECORDS)
        comm.set_trace(trace)
        try:
            call()
        finally:
            with contextlib.suppress(Error):  # the communicator was left
                comm.set_trace(recording.current())  # where a profile began meanwhile
        if trace.dropped:
            return
        made = set(_calls(plans) - before)
        traced = _native.calls_in_pack(trace.pack())
        # Other collectives are those by which ranks tell one another their shares.
        has_gradient = any(calls.problem == _GRADIENT for calls in traced)
        for calls in traced:
            row = _of_these(calls.problem, made, has_gradient)
            if row is not None:
                share = Share(
                    calls.count,
                    calls.time,
                    calls.communication,
                    calls.hidden,
                    calls.waiting,
                    calls.communicating,
                )
                self.shares[row] = self.shares.get(row, Share()) + share

    def forget(self) -> None:
        """Begin anew."""
        self.shares.clear()
        self.tally.counts.clear()
        for tally in self.direct.values():
            tally.clear()


def _calls(plans: _native.RecordedPlans) -> Counter[Key]:
    counts: Counter[Key] = Counter()
    for row in plans.rows():
        counts[key_of(row)] += row.calls
    return counts


def _of_these(problem: str, rows: set[Key], has_gradient: bool) -> Key | None:
    """Find the row of a traced problem, whose n or k is this rank's share alone."""
    if not problem.startswith("op="):
        # A collective beside another product, which has no plan.
        is_beside = has_gradient and problem != _GRADIENT
        return (problem, 0, 0, 0, "", "", BESIDE) if is_beside else None
    of = dict(pair.split("=", 1) for pair in problem.split())
    for row in rows:
        operator, m, n, k, dtype, wire, _ = row
        if (of["op"], of["m"], of["x"], of["wire"]) != (operator, str(m), dtype, wire):
            continue
        if int(of["n"]) <= n and int(of["k"]) <= k and (int(of["n"]) == n or int(of["k"]) == k):
            return row
    return None


_GRADIENT = "weight gradient"
BESIDE = "beside the weight's gradient"
