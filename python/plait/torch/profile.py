"""Profiles of any piece of a program: how its operators spent their time.

    with plait.torch.profile() as p:
        loss = model(x).mean()
        loss.backward()
    p                       # in a notebook: the timeline
    p.save("step.html")     # the same as a page; "step.json" is for ui.perfetto.dev
    print(p.table())

Rank 0 has the timeline of all ranks; each other rank has its own. What is multiplied and sent by
plait is recorded; torch's own operators, and the layers of the engine "c10d", are not.
"""

import html
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

import torch.distributed as dist

import plait
from plait import _native
from plait.torch.context import communicator_of
from plait.torch.recording import record

# Records of each thread: some thousand calls, in 16 MiB.
_RECORDS = (1 << 18) - 1


@dataclass(frozen=True)
class ProfileRow:
    """Calls of one operator and shape on one rank. Times are of all these calls, in seconds.

    A layer of experts has this rank's rows as m, its inner size as n and its hidden size as k.
    A collective beside the operators, and the products "weight gradient", have no sizes. The time
    of a collective that was started is the one until it was found done.
    """

    operator: str
    m: int
    n: int  # n and k are this rank's
    k: int
    dtype: str
    calls: int
    seconds: float
    multiplying: float
    communicating: float  # copying and summing, by the rank itself
    waiting: float
    hidden: float | None  # share of the communication during which the rank multiplied


@dataclass(frozen=True)
class ProfileTable:
    """A value: print it, or read its rows."""

    rank: int
    rows: tuple[ProfileRow, ...] = ()

    def __str__(self) -> str:
        if not self.rows:
            return "plait: no operator was called"
        head = (
            f"{'operator':<22} {'m':>6} {'n':>6} {'k':>6} dtype {'calls':>6} {'ms each':>9} "
            f"{'multiply':>9} {'copy, sum':>9} {'wait':>9}  hidden"
        )
        return "\n".join([head, *map(_line, self.rows)])


def _line(row: ProfileRow) -> str:
    times = (row.seconds, row.multiplying, row.communicating, row.waiting)
    each = " ".join(f"{one / row.calls * 1e3:>9.3f}" for one in times)
    hidden = "-" if row.hidden is None else f"{row.hidden:.0%}"
    sizes = f"{row.m or '-':>6} {row.n or '-':>6} {row.k or '-':>6}"
    return f"{row.operator:<22} {sizes} {row.dtype:<5} {row.calls:>6} {each}  {hidden:>6}"


class Profile:
    """Records while its block runs, on all ranks of a group."""

    def __init__(self, group: dist.ProcessGroup | None) -> None:
        self._group = group
        self._trace: _native.Trace | None = None
        self._packs: list[bytes] = []
        self._own = b""
        self._rank, self._world = 0, 1

    def __enter__(self) -> "Profile":
        comm = communicator_of(self._group, "profile")
        self._rank, self._world = comm.rank, comm.world
        self._trace = _native.Trace(comm.rank, _RECORDS)
        record(self._trace)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        exception: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        record(None)
        trace, self._trace = self._trace, None
        assert trace is not None
        # Other ranks may not come here after an error: what this rank has is all that is kept.
        packs = []
        if not kind:
            packs = _native.collect_packs(trace, communicator_of(self._group, "profile"))
        self._own = trace.pack()
        self._packs = packs or [self._own]

    def table(self) -> ProfileTable:
        """Add up this rank's calls by operator and shape, the longest time first."""
        self._check_ended()
        rows = (_row(calls) for calls in _native.calls_in_pack(self._own))
        return ProfileTable(self._rank, tuple(rows))

    def page(self) -> str:
        """Return the timeline as a page of HTML, which needs no other file and no network."""
        self._check_ended()
        of = "all ranks" if len(self._packs) > 1 or self._world == 1 else f"rank {self._rank}"
        subtitle = f"{of} of {self._world}; exposed: in a call, and not multiplying"
        return _native.timeline_page("plait.torch.profile", subtitle, self._packs)

    def save(self, path: str | Path) -> None:
        """Write the timeline: a page if the name ends in .html, for Perfetto if in .json."""
        self._check_ended()
        suffix = Path(path).suffix
        if suffix == ".html":
            Path(path).write_text(self.page(), encoding="utf-8")
        elif suffix == ".json":
            _native.write_json(str(path), self._packs)
        else:
            _refuse(f"{path} ends neither in .html nor in .json")

    def _repr_html_(self) -> str | None:
        if not self._packs:
            return None
        # A frame keeps the page's styles and its script apart from the notebook's.
        text = html.escape(self.page(), quote=True)
        height = 170 + 75 * len(self._packs)
        return f'<iframe srcdoc="{text}" width="100%" height="{height}" frameborder="0"></iframe>'

    def _check_ended(self) -> None:
        if not self._packs:
            _refuse("nothing is recorded yet: the block of `with` has to end first")


def _row(calls: _native.TraceCalls) -> ProfileRow:
    # "op=matmul m=...", "experts backward m=...", or the name of a collective
    words = calls.problem.split()
    of = dict(word.split("=", 1) for word in words if "=" in word)
    name = " ".join(word for word in words if "=" not in word)
    share = calls.hidden / calls.communication if calls.communication else None
    return ProfileRow(
        operator=of.get("op", name),
        m=int(of.get("m", 0)),
        n=int(of.get("n", of.get("inner", 0))),
        k=int(of.get("k", of.get("hidden", 0))),
        dtype=of.get("x", ""),
        calls=calls.count,
        seconds=calls.time * 1e-9,
        multiplying=calls.multiplying * 1e-9,
        communicating=calls.communicating * 1e-9,
        waiting=calls.waiting * 1e-9,
        hidden=share,
    )


def profile(group: dist.ProcessGroup | None = None) -> Profile:
    """Record a block: `with plait.torch.profile() as p:`. All ranks of the group do it.

    >>> with profile() as p:
    ...     pass
    >>> print(p.table())
    plait: no operator was called

    Beginning and end are collective. Communicators of other groups record there too. A profile
    within another one ends the outer one's recording.
    """
    return Profile(group)


def _refuse(sentence: str) -> None:
    raise plait.Error(plait.Code.invalid_argument, f"plait.torch.profile: {sentence}")
