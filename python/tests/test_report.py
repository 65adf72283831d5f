"""The report of plait.torch, from sums that are given."""

from typing import Any

import pytest

from plait.torch.counts import Total
from plait.torch.report import Report, Row, _row
from plait.torch.sampling import BESIDE, Share

CALL = 1_000_000  # ns


def row_of(plan: str = "fused", *, share: Share | None = None, **properties: Any) -> Row:
    """Return a row of ten calls between two hosts."""
    total: dict[str, Any] = {
        "calls": 10,
        "nanoseconds": 10 * CALL,
        "hosts": 2,
        "why": "measured",
        **properties,
    }
    key = ("matmul_all_reduce", 8, 8, 8, "bf16", "f32", plan)
    return _row(key, Total(**total), share or Share(2, 2 * CALL, CALL, CALL // 2, CALL, 0))


@pytest.mark.parametrize(
    ("share", "serial", "why"),
    [
        (Share(), 2 * CALL, "no call was traced yet"),
        (Share(2, 2 * CALL, 0, 0, 0, 0), 2 * CALL, "there was nothing to hide"),
        (None, 0, "the time of a serial call is not known"),
        (None, CALL / 2, "a serial call takes no longer than the product"),
    ],
)
def test_an_unknown_share_has_its_reason(share: Share | None, serial: float, why: str) -> None:
    row = row_of(share=share, serial_nanoseconds=serial)
    assert (row.hidden, row.reason) == (None, f"measured; {why}")


def test_a_known_share_has_another_reason() -> None:
    row = row_of(serial_nanoseconds=1.5 * CALL)
    assert row.hidden == pytest.approx(0.5)
    assert row.reason == "measured; waits 50% of the time"


def test_the_plan_in_use_is_marked_where_others_were_tried() -> None:
    used, tried = row_of(), row_of("serial", is_in_use=False, why="was tried")
    both = str(Report((used, tried))).splitlines()
    assert "bf16  f32 " in both[1]
    assert "  fused *; measured" in both[1]
    assert "  serial; was tried" in both[2]
    assert "*" not in str(Report((used,)))


def test_waits_are_the_links_as_far_as_it_was_busy() -> None:
    """A serial call sends when the product is done, others meanwhile."""
    times: dict[str, Any] = {
        "transfer_nanoseconds": 0.4 * CALL,
        "serial_nanoseconds": 1.5 * CALL,
    }
    assert row_of("serial", **times).reason == (
        "measured; waits for the link 40% of the time, for other ranks 10%"
    )
    assert row_of("fused", **times).reason == (
        "measured; waits for the link 0% of the time, for other ranks 50%"
    )


def test_a_collective_without_a_plan_says_only_how_long_it_waits() -> None:
    """Its hosts are not known, nor for how long it keeps a link busy."""
    row = row_of(BESIDE, share=Share(2, 2 * CALL, CALL, CALL // 2, CALL // 2, 0), hosts=0, why="")
    assert (row.hidden, row.reason) == (0.5, "waits 25% of the time")
