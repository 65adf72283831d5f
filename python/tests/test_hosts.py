"""The backend "plait" on two hosts: network namespaces that are joined by a cable."""

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

PROGRAM = """
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
print(plait.torch.communicator().transport, x[4].item(), parts[1][2].item(), most.item(),
      tuple(y.shape))
dist.destroy_process_group()
"""


def _ip(*words: str) -> bool:
    return subprocess.run(["ip", *words], capture_output=True, check=False).returncode == 0


@pytest.fixture
def hosts() -> Iterator[list[str]]:
    names = [f"plait{os.getpid()}{letter}" for letter in "ab"]
    cable = ["type", "veth", "peer", "name", "v0", "netns", names[1]]
    may = shutil.which("ip") is not None and all(_ip("netns", "add", name) for name in names)
    try:
        if not may or not _ip("link", "add", "v0", "netns", names[0], *cable):
            pytest.skip("the system allows no network namespaces")
        for number, name in enumerate(names, start=1):
            assert _ip("-n", name, "link", "set", "lo", "up")
            assert _ip("-n", name, "addr", "add", f"10.78.0.{number}/24", "dev", "v0")
            assert _ip("-n", name, "link", "set", "v0", "up")
        yield names
    finally:
        if may:
            for name in names:
                _ip("netns", "del", name)


def test_ranks_of_two_hosts_meet_over_tcp(hosts: list[str]) -> None:
    common = {"MASTER_ADDR": "10.78.0.1", "MASTER_PORT": "29517", "WORLD_SIZE": "2"}
    ranks = [
        subprocess.Popen(
            # A host has a name of its own, which tells plait that these are two.
            [
                *("ip", "netns", "exec", name, "unshare", "--uts", "sh", "-c"),
                *('hostname "$0"; exec "$@"', name, sys.executable, "-c", PROGRAM),
            ],
            env={
                **os.environ,
                **common,
                "RANK": str(rank),
                "LOCAL_RANK": "0",
                "LOCAL_WORLD_SIZE": "1",
                "GLOO_SOCKET_IFNAME": "v0",
                "OMP_NUM_THREADS": "1",
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank, name in enumerate(hosts)
    ]
    try:
        said = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for out, err in said:
        assert out == "tcp 4.0 12 1 (2, 4)\n", err
