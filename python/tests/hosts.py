"""Runs programs as ranks on several hosts, which are network namespaces (tools/netlab.py)."""

import importlib
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from launching import Launcher, Run

sys.path.append(str(Path(__file__).parents[2] / "tools"))
netlab: Any = importlib.import_module("netlab")

# At the end of a program: its problems and the plans that were followed, a line each.
SHOW_PLANS = """
lines = [
    f"{dist.get_rank()} {row.plan} | {row.problem}"
    for one in plait.torch.context._contexts for row in one.plans.rows()
]
sys.stdout.write("".join(line + chr(10) for line in lines))
"""


@dataclass
class Hosts:
    """Two hosts for each run of a program, with a rank on each."""

    launcher: Launcher
    folder: Path

    def run(self, program: str, rate: str | None = None, **variables: str) -> Run:
        """Run it to its end without a failure."""
        script = self.folder / "program.py"
        script.write_text(program)
        with netlab.Lab(rate=rate) as lab:
            place = {"MASTER_ADDR": lab.address(0), "GLOO_SOCKET_IFNAME": "v0"}
            ranks = self.launcher.start(
                2, str(script), namespaces=lab.names, environment={**place, **variables}
            )
        assert ranks.codes == [0, 0], ranks.text
        return ranks


def expect_automatic(ranks: Run, operator: str) -> None:
    """Expect of both ranks that the plans of a bf16 problem were tried, with sums in its dtype."""
    for rank, text in zip(("0 ", "1 "), ranks.texts, strict=True):
        rows = [line[2:].split(" | ") for line in text.splitlines() if line[:2] == rank]
        found = [(plan, problem) for plan, problem in rows if f"op={operator} " in problem]
        assert {"serial", "fused"} <= {plan for plan, _ in found}, ranks
        for _, problem in found:
            assert all(one in problem for one in (" wire=bf16 ", " hosts=2 ")), ranks
