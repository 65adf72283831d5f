"""Which plans were followed, and how long calls took."""

from dataclasses import dataclass

from plait.torch.context import contexts


@dataclass(frozen=True)
class Row:
    """Calls of one operator and shape in one plan."""

    operator: str
    m: int
    n: int
    k: int
    dtype: str
    plan: str
    calls: int
    seconds: float  # of all calls


@dataclass(frozen=True)
class Report:
    """A value: `print(report())`, or read its rows."""

    rows: tuple[Row, ...] = ()

    def __str__(self) -> str:
        if not self.rows:
            return "plait: no operator with communication was called"
        head = (
            f"{'operator':<22} {'m':>6} {'n':>6} {'k':>6} dtype  {'calls':>6} {'ms each':>9}  plan"
        )
        lines = [
            f"{row.operator:<22} {row.m:>6} {row.n:>6} {row.k:>6} {row.dtype:<5} {row.calls:>7} "
            f"{row.seconds / row.calls * 1e3:>9.3f}  {row.plan}"
            for row in self.rows
        ]
        return "\n".join([head, *lines])


def report() -> Report:
    """List this rank's calls, operator by operator and shape by shape, the longest time first.

    m, n and k are those of all ranks together. Products without communication are not listed.
    """
    # Problems that differ in what is not listed, such as packed and plain weights, are one row.
    totals: dict[tuple[str, int, int, int, str, str], tuple[int, int]] = {}
    for context in contexts():
        for row in context.plans.rows():
            key = (row.op.name, row.m, row.n, row.k, row.dtype.name, str(row.plan))
            calls, nanoseconds = totals.get(key, (0, 0))
            totals[key] = calls + row.calls, nanoseconds + row.nanoseconds
    rows = [Row(*key, calls, spent * 1e-9) for key, (calls, spent) in totals.items()]
    return Report(tuple(sorted(rows, key=lambda row: -row.seconds)))


def forget_report() -> None:
    """Start counting anew."""
    for context in contexts():
        context.plans.forget()
