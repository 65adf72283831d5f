"""The sums over all calls that the report shows. They outlast the calls' process groups."""

from dataclasses import dataclass, field, replace

from plait import _native
from plait.torch.sampling import BESIDE, Key, Samples, Share, key_of


@dataclass(frozen=True)
class Total:
    """All calls of a row of the report."""

    calls: int = 0
    nanoseconds: int = 0
    firsts: int = 0  # first calls of a problem, which prepare
    first_nanoseconds: int = 0
    hosts: int = 1  # 0: unknown
    why: str = ""  # why the plan is what it is
    serial_nanoseconds: float = 0  # of a serial call, measured or predicted; 0: unknown
    transfer_nanoseconds: float = 0  # how long a call keeps the link busy, as predicted
    is_in_use: bool = True

    def __add__(self, other: "Total") -> "Total":
        """Add calls; what is known of the plan is taken from the later ones."""
        return replace(
            other,
            calls=self.calls + other.calls,
            nanoseconds=self.nanoseconds + other.nanoseconds,
            firsts=self.firsts + other.firsts,
            first_nanoseconds=self.first_nanoseconds + other.first_nanoseconds,
        )


@dataclass
class Counts:
    """Calls, by the properties that a report distinguishes."""

    # Problems that differ in what is not listed, such as packed and plain weights, are one row.
    totals: dict[Key, Total] = field(default_factory=dict)
    shares: dict[Key, Share] = field(default_factory=dict)  # of traced calls

    def add(self, plans: _native.RecordedPlans, samples: Samples) -> None:
        """Add the calls of one context."""
        for row in plans.rows():
            total = Total(
                row.calls, row.nanoseconds, 1, row.first, row.hosts, is_in_use=row.is_in_use
            )
            if (reason := row.reason) is not None:
                total = replace(
                    total,
                    why=reason.sentence,
                    serial_nanoseconds=reason.serial_ns,
                    transfer_nanoseconds=reason.transfer_ns,
                )
            self._add_total(key_of(row), total)
        for key, share in samples.shares.items():
            self._add_share(key, share)

    def add_all(self, other: "Counts") -> None:
        """Add what was added up before."""
        for key, total in other.totals.items():
            self._add_total(key, total)
        for key, share in other.shares.items():
            self._add_share(key, share)

    def all_totals(self) -> dict[Key, Total]:
        """Return the calls of all rows, those of collectives without a plan too."""
        beside = {
            key: Total(share.calls, share.time, hosts=0)
            for key, share in self.shares.items()
            if key[-1] == BESIDE
        }
        return self.totals | beside

    def clear(self) -> None:
        """Begin anew."""
        self.totals.clear()
        self.shares.clear()

    def _add_total(self, key: Key, total: Total) -> None:
        before = self.totals.get(key)
        self.totals[key] = total if before is None else before + total

    def _add_share(self, key: Key, share: Share) -> None:
        self.shares[key] = self.shares.get(key, Share()) + share
