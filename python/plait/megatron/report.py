"""The report of the layers that were served, and of those that were not."""

from collections import Counter
from dataclasses import dataclass, field

from plait.torch.report import counted


@dataclass(frozen=True)
class Row:
    """Calls of one class that were served alike, or left to Megatron for one reason."""

    layer: str
    calls: int
    refusal: str | None  # None: plait served them


@dataclass(frozen=True)
class Report:
    """A value: `print(report())`, or read its rows."""

    rows: tuple[Row, ...] = ()
    operators: str = ""  # the table of plait.torch.report(): plans, times
    idle: str = ""  # why enable() has replaced nothing

    @property
    def served(self) -> int:
        """Forward calls that plait has served."""
        return sum(row.calls for row in self.rows if row.refusal is None)

    def __str__(self) -> str:
        if not self.rows:
            return f"plait.megatron: {self.idle or 'no tensor-parallel layer was called'}"
        lines = [
            f"{row.layer}: {counted(row.calls, 'call')} "
            + ("served by plait" if row.refusal is None else f"left to Megatron: {row.refusal}")
            for row in self.rows
        ]
        return "\n".join([*lines, self.operators] if self.operators else lines)


@dataclass
class Calls:
    """Counts calls by class and reason."""

    counts: Counter[tuple[str, str | None]] = field(default_factory=Counter)

    def add(self, layer: object, refusal: str | None) -> bool:
        """Count a call; true for the first of its class and reason."""
        key = (type(layer).__name__, refusal)
        self.counts[key] += 1
        return self.counts[key] == 1

    def rows(self) -> tuple[Row, ...]:
        """List what was counted, by class, what was served first."""
        ordered = sorted(self.counts.items(), key=lambda item: (item[0][0], item[0][1] or ""))
        return tuple(Row(layer, calls, refusal) for (layer, refusal), calls in ordered)
