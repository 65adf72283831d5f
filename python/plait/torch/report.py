"""Is it on, in which plans, and is the communication hidden?

    print(plait.torch.report())

One line a shape: the dtypes of x and of what travels (the wire), calls, time, the share of the
communication during which this rank multiplied, the plan, and why it is what it is or the share
small. A shape of which several plans were tried has a line for each; an asterisk marks the one in
use. The time of a call is a mean, and leaves out the first one, which prepares; the reason of a
plan has the medians by which it was chosen. The 2nd, 4th, 6th, 8th, 12th, ... call of a shape is
traced (see plait.torch.profile, which traces every call). On one host the share is what these
traces say. A trace can't see a network between hosts, so that there the share is computed from
times: how much less of a call is not spent on multiplying than of a serial call, whose time was
measured in trials or predicted for the measured network.
"""

from collections import Counter
from dataclasses import dataclass

from plait import _native
from plait.torch import unplanned
from plait.torch.context import counted as count_calls
from plait.torch.context import forget_counts
from plait.torch.counts import Total
from plait.torch.experts import counts as expert_counts
from plait.torch.sampling import Key, Share

_MUCH = 0.9  # a share of the communication that needs no reason
_TRACED = {op.name for op in _native.Operator}  # calls of others are counted alone


@dataclass(frozen=True)
class Row:
    """Calls of one operator and shape in one plan."""

    operator: str
    m: int
    n: int
    k: int
    dtype: str
    wire: str  # the dtype of what travels: of partial sums, or of x
    plan: str
    calls: int
    seconds: float  # of all calls
    seconds_each: float  # of a call, without the first ones where there are others
    hidden: float | None  # share of the communication; None: there was none, or it is not known
    traced: int  # calls
    waited: float | None  # share of the time of traced calls; None: none was traced
    reason: str  # why the plan is what it is, and the share small or not known; what was waited for
    is_in_use: bool  # the next call has this plan too; False: it was tried


@dataclass(frozen=True)
class Experts:
    """Calls of experts of one shape: `hidden` columns, `inner` between the products."""

    experts: int
    hidden: int
    inner: int
    slots: int  # experts of a row
    dtype: str
    schedule: str
    ranks: int
    calls: int
    seconds: float  # of all calls, on this rank
    multiplied: int  # rows, by this rank's experts
    sent: tuple[int, ...]  # rows of this rank, once for each of their experts, to each rank
    chosen: int  # rows of this rank, once for each of their experts: sent, or left to others

    @property
    def skew(self) -> float:
        """The most of `sent` by their mean: 1 where ranks get as many rows."""
        return max(self.sent) * self.ranks / sum(self.sent) if any(self.sent) else 1.0

    def __str__(self) -> str:
        rows = f"multiplied {self.multiplied} of {counted(self.chosen, 'row')}"
        if self.ranks > 1:
            sent = ", ".join(map(str, self.sent))
            rows = (
                f"multiplied {counted(self.multiplied, 'row')}; sent {sent} to ranks 0 to "
                f"{self.ranks - 1}, skew {self.skew:.2f}"
            )
        return (
            f"{self.experts} experts of {self.hidden} x {self.inner}, {self.slots} a row, "
            f"{self.dtype}, {self.schedule}: {counted(self.calls, 'call')}, "
            f"{self.seconds / self.calls * 1e3:.3f} ms each; {rows}"
        )


@dataclass(frozen=True)
class Report:
    """A value: `print(report())`, or read its rows."""

    rows: tuple[Row, ...] = ()
    others: tuple[tuple[str, int], ...] = ()  # calls that other engines made
    experts: tuple[Experts, ...] = ()

    def __str__(self) -> str:
        if not self.rows and not self.others and not self.experts:
            return "plait: no operator with communication was called"
        head = (
            f"{'operator':<22} {'m':>6} {'n':>6} {'k':>6} dtype wire  {'calls':>6} {'ms each':>9} "
            f"{'hidden':>7}  plan"
        )
        tried = {_shape(row) for row in self.rows if not row.is_in_use}
        lines = [head] if self.rows else []
        lines += [_line(row, row.is_in_use and _shape(row) in tried) for row in self.rows]
        lines += [f"{what}: {counted(calls, 'call')}" for what, calls in self.others]
        lines += map(str, self.experts)
        return "\n".join(lines)


def counted(count: int, what: str) -> str:
    """Write a number of things.

    >>> counted(1, "call"), counted(2, "call")
    ('1 call', '2 calls')
    """
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _shape(row: Row) -> tuple[str, int, int, int, str, str]:
    return row.operator, row.m, row.n, row.k, row.dtype, row.wire


def _line(row: Row, is_marked: bool) -> str:
    sizes = f"{row.m or '-':>6} {row.n or '-':>6} {row.k or '-':>6}"
    hidden = "-" if row.hidden is None else f"{row.hidden:.0%}"
    mark = " *" if is_marked else ""
    reason = f"; {row.reason}" if row.reason else ""
    return (
        f"{row.operator:<22} {sizes} {row.dtype:<5} {row.wire:<4} {row.calls:>7} "
        f"{row.seconds_each * 1e3:>9.3f} {hidden:>7}  {row.plan}{mark}{reason}"
    )


_others: Counter[str] = Counter()


def count_other(function: str, by: str) -> None:
    """Count a call that none of plait's operators on the CPU has a part in."""
    _others[f"{function} by {by}"] += 1


def report() -> Report:
    """List this rank's calls, operator by operator and shape by shape, the longest time first.

    >>> print(Report(others=(("matmul by c10d", 2),)))
    matmul by c10d: 2 calls

    m, n and k are those of all ranks together. Products without communication are not listed. A
    collective beside the product of a weight's gradient has no plan: its row counts traced calls.
    Calls of Ulysses' layers and of vocabulary heads are counted, and not traced; n of a head is
    known where it is told `vocab_size`.
    """
    found = count_calls()
    rows = [
        _row(key, total, found.shares.get(key, Share()))
        for key, total in (found.all_totals() | unplanned.totals()).items()
    ]
    rows.sort(key=lambda row: -row.seconds)
    experts = tuple(
        Experts(
            *key, one.calls, one.nanoseconds * 1e-9, one.multiplied, tuple(one.sent), one.chosen
        )
        for key, one in expert_counts.totals().items()
    )
    return Report(tuple(rows), tuple(sorted(_others.items())), experts)


def _row(key: Key, total: Total, share: Share) -> Row:
    later = total.calls - total.firsts
    if later > 0:
        each = (total.nanoseconds - total.first_nanoseconds) / later
    else:
        each = total.nanoseconds / total.calls
    hidden = _hidden(key, total, share, each)
    is_serial = key[-1] == "serial"
    reasons = [total.why]
    if is_serial:
        reasons.append(_waited(total, share))
    elif key[0] in _TRACED or share.calls > 0:
        reasons.append(_exposed(total, share, hidden))
    return Row(
        *key,
        calls=total.calls,
        seconds=total.nanoseconds * 1e-9,
        seconds_each=each * 1e-9,
        hidden=hidden,
        traced=share.calls,
        waited=share.waiting / share.time if share.time else None,
        reason="; ".join(filter(None, reasons)),
        is_in_use=total.is_in_use,
    )


def _hidden(key: Key, total: Total, share: Share, each: float) -> float | None:
    """Return the share of the communication that the product hides."""
    if key[-1] == "serial":
        return 0.0
    if share.communication == 0:
        return None
    if total.hosts <= 1:
        return share.hidden / share.communication
    product = (share.time - share.waiting - share.copying) / share.calls
    to_hide = total.serial_nanoseconds - product
    if to_hide <= 0:
        return None
    return min(max(1 - (each - product) / to_hide, 0.0), 1.0)


def _exposed(total: Total, share: Share, hidden: float | None) -> str:
    """Say what the communication is that no product hides."""
    if share.calls == 0:
        return "no call was traced yet"
    if share.communication == 0:
        return "there was nothing to hide"
    if hidden is None:
        return (
            "a serial call takes no longer than the product"
            if total.serial_nanoseconds
            else "the time of a serial call is not known"
        )
    if hidden >= _MUCH:
        return ""
    if max(share.waiting, share.copying) < share.time / 100:
        return "there is little of it"
    if share.waiting < share.copying:
        return f"copies and sums {share.copying / share.time:.0%} of the time"
    return _waits(total, share, share.time - share.waiting)


def _waited(total: Total, share: Share) -> str:
    """Say how much of a serial call's time was spent on waiting, if that is much."""
    return _waits(total, share, 0) if share.waiting > share.time / 10 else ""


def _waits(total: Total, share: Share, beside: float) -> str:
    """Say what traced calls have waited for.

    `beside` is the time of other work in which the link may have been busy: none of a serial call,
    which sends when the product is done.
    """
    if total.hosts == 1:
        return f"waits for other ranks {share.waiting / share.time:.0%} of the time"
    if not total.transfer_nanoseconds:
        return f"waits {share.waiting / share.time:.0%} of the time"
    # The link is busy for a known time. As much of it as the rank does not spend on other work is
    # waited for, whenever the others come; the rest is the lateness of other ranks.
    link = total.transfer_nanoseconds * share.calls - beside
    link = min(max(link, 0.0), share.waiting)
    return (
        f"waits for the link {link / share.time:.0%} of the time, "
        f"for other ranks {(share.waiting - link) / share.time:.0%}"
    )


def forget_report() -> None:
    """Start counting anew."""
    _others.clear()
    expert_counts.forget()
    unplanned.forget()
    forget_counts()
