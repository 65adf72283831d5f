"""The backend "plait" on two hosts: network namespaces that are joined by a cable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.long

PROGRAM = """
import sys
from datetime import timedelta
import torch
import torch.distributed as dist
import plait.torch

dist.init_process_group("plait", timeout=timedelta(seconds=60))
x = torch.full((5,), dist.get_rank() + 1.5)
dist.all_reduce(x)
parts = [torch.empty(3, dtype=torch.int64) for _ in range(2)]
dist.all_gather(parts, torch.arange(3) + 10 * dist.get_rank())
most = torch.tensor([dist.get_rank()])
dist.all_reduce(most, dist.ReduceOp.MAX)
dist.barrier()
linear = plait.torch.RowParallelLinear.from_linear(torch.nn.Linear(8, 4))
y = linear(torch.ones(2, linear.weight.shape[1]))
said = (plait.torch.communicator().transport, x[4].item(), parts[1][2].item(), most.item(),
        tuple(y.shape))
# In one write: the ranks share a pipe.
sys.stdout.write(" ".join(map(str, said)) + chr(10))
dist.destroy_process_group()
"""

NETLAB = Path(__file__).parents[2] / "tools" / "netlab.py"
NOT_ALLOWED = 77


def lines_of_two_hosts(program: str, *options: str, **variables: str) -> list[str]:
    """Run a program as a rank on each of two hosts, and return the lines of both."""
    ranks = subprocess.run(
        [NETLAB, *options, "--", sys.executable, "-c", program],
        env={**os.environ, "OMP_NUM_THREADS": "1", **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if ranks.returncode == NOT_ALLOWED:
        pytest.skip(ranks.stderr.strip().removeprefix("netlab: "))
    assert ranks.returncode == 0, ranks.stderr
    return sorted(ranks.stdout.splitlines())


def test_ranks_of_two_hosts_meet_over_tcp() -> None:
    assert lines_of_two_hosts(PROGRAM) == 2 * ["tcp 4.0 12 1 (2, 4)"]


PLANS = """
import sys
import torch
import torch.distributed as dist
import plait.torch

dist.init_process_group("plait")
torch.set_num_threads(1)
x, w = torch.randn(256, 512).bfloat16(), torch.randn(512, 512).bfloat16()
with torch.no_grad():
    for _ in range(48):
        y = plait.torch.matmul_all_reduce(x, w)
report = plait.torch.report()
said = [f"{row.plan.split()[0]}; {row.hidden}; {row.reason}" for row in report.rows]
(context,) = plait.torch.context._contexts
said += [row.problem for row in context.plans.rows()]
sys.stdout.write("".join(f"{dist.get_rank()} {line}\\n" for line in said))
dist.destroy_process_group()
"""


def test_plans_suit_the_link_though_nothing_was_tuned(tmp_path: Path) -> None:
    lines = lines_of_two_hosts(PLANS, "--rate", "1gbit", XDG_CACHE_HOME=str(tmp_path))
    for rank in ("0 ", "1 "):
        said = [line[2:] for line in lines if line.startswith(rank)]
        rows = [line for line in said if not line.startswith("op=")]
        problems = [line for line in said if line.startswith("op=")]
        # Some plans were tried, and one of them was decided upon by measuring.
        assert {"serial", "fused"} <= {row.split(";")[0] for row in rows}, said
        assert any("; measured: " in row for row in rows), said
        # Sums are as wide as the operands, and plans are those of the network.
        assert all(" wire=bf16 " in one and " hosts=2 " in one for one in problems), said
    stored = {one.name: one.read_text() for one in (tmp_path / "plait").iterdir()}
    assert "wire=bf16 ranks=2 hosts=2" in stored["plans"], stored
    assert "2 ranks on 2 hosts, tcp: 10.77.0.1 (v0) to 10.77.0.2 | " in stored["plans.links"], (
        stored
    )


LEAVING = """
import sys
from pathlib import Path
import numpy as np
import torch.distributed as dist
import plait
import plait.torch

for one in ("tcp_wmem", "tcp_rmem"):
    Path("/proc/sys/net/ipv4", one).write_text("4096 16384 65536")
dist.init_process_group("gloo")
x = np.full(1 << 18, 7 * (dist.get_rank() == 0), dtype=np.float32)
plait.broadcast(x, 0, plait.torch.communicator())
dist.barrier()  # gloo's: plait is not called in it
sys.stdout.write(f"{x[-1]}\\n")
"""


def test_a_call_leaves_nothing_unsent_behind() -> None:
    # The kernel takes little at a time here. What it had not taken when the first rank's call ended
    # would stay in that process while it waits for the second rank in another library.
    assert lines_of_two_hosts(LEAVING, "--rate", "20mbit") == 2 * ["7.0"]
