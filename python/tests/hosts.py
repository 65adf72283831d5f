"""Runs programs as ranks on several hosts, which are network namespaces (tools/netlab.py)."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

NETLAB = Path(__file__).parents[2] / "tools" / "netlab.py"
NOT_ALLOWED = 77

# At the end of a program: its problems and the plans that were followed, a line each.
SHOW_PLANS = """
lines = [
    f"{dist.get_rank()} {row.plan} | {row.problem}"
    for one in plait.torch.context._contexts for row in one.plans.rows()
]
sys.stdout.write("".join(line + chr(10) for line in lines))
"""


def on_hosts(
    program: str, *options: str, timeout: float = 300, **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run it to its end without a failure; the ranks share a pipe for what they print."""
    ranks = subprocess.run(
        [NETLAB, *options, "--", sys.executable, "-c", program],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    if ranks.returncode == NOT_ALLOWED:
        pytest.skip(ranks.stderr.strip().removeprefix("netlab: "))
    assert ranks.returncode == 0, ranks.stderr
    return ranks


def expect_automatic(ranks: subprocess.CompletedProcess[str], operator: str) -> None:
    """Expect of both ranks that the plans of a bf16 problem were tried, with sums in its dtype."""
    for rank in ("0 ", "1 "):
        rows = [line[2:].split(" | ") for line in ranks.stdout.splitlines() if line[:2] == rank]
        found = [(plan, problem) for plan, problem in rows if f"op={operator} " in problem]
        assert {"serial", "fused"} <= {plan for plan, _ in found}, ranks
        for _, problem in found:
            assert all(one in problem for one in (" wire=bf16 ", " hosts=2 ")), ranks
