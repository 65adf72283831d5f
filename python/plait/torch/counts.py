"""The sums over all calls that the report shows. They outlast the calls' process groups."""

from dataclasses import dataclass, field

from plait import _native
from plait.torch.sampling import BESIDE, Key, Samples, Share, key_of


@dataclass
class Counts:
    """Calls, by the properties that a report distinguishes."""

    # Problems that differ in what is not listed, such as packed and plain weights, are one row.
    totals: dict[Key, tuple[int, int]] = field(default_factory=dict)  # calls, nanoseconds
    shares: dict[Key, Share] = field(default_factory=dict)  # of traced calls
    reasons: dict[Key, set[str]] = field(default_factory=dict)  # why a plan is serial

    def add(self, plans: _native.RecordedPlans, samples: Samples, why_serial: str) -> None:
        """Add the calls of one context."""
        for row in plans.rows():
            self._add_row(key_of(row), row.calls, row.nanoseconds, {why_serial})
        for key, share in samples.shares.items():
            self._add_share(key, share)

    def add_all(self, other: "Counts") -> None:
        """Add what was added up before."""
        for key, (calls, nanoseconds) in other.totals.items():
            self._add_row(key, calls, nanoseconds, other.reasons[key])
        for key, share in other.shares.items():
            self._add_share(key, share)

    def all_totals(self) -> dict[Key, tuple[int, int]]:
        """Return calls and nanoseconds, those of collectives without a plan too."""
        beside = {key: share for key, share in self.shares.items() if key[-1] == BESIDE}
        return self.totals | {key: (share.calls, share.time) for key, share in beside.items()}

    def why_serial(self, key: Key) -> str:
        """Say why the plans of these calls are serial, if they are."""
        return "; ".join(sorted(self.reasons.get(key, ())))

    def clear(self) -> None:
        """Begin anew."""
        self.totals.clear()
        self.shares.clear()
        self.reasons.clear()

    def _add_row(self, key: Key, calls: int, nanoseconds: int, reasons: set[str]) -> None:
        before, spent = self.totals.get(key, (0, 0))
        self.totals[key] = before + calls, spent + nanoseconds
        self.reasons.setdefault(key, set()).update(reasons)

    def _add_share(self, key: Key, share: Share) -> None:
        self.shares[key] = self.shares.get(key, Share()) + share
