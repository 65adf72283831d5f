"""The backend "plait" on two hosts: network namespaces that are joined by a cable."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

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


def test_ranks_of_two_hosts_meet_over_tcp() -> None:
    ranks = subprocess.run(
        [NETLAB, "--", sys.executable, "-c", PROGRAM],
        env={**os.environ, "OMP_NUM_THREADS": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    if ranks.returncode == NOT_ALLOWED:
        pytest.skip(ranks.stderr.strip().removeprefix("netlab: "))
    assert ranks.returncode == 0, ranks.stderr
    assert sorted(ranks.stdout.splitlines()) == 2 * ["tcp 4.0 12 1 (2, 4)"], ranks.stderr
