"""Programs whose rank 1 is killed. Every other rank names it, in calls of plait and of gloo."""

import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = """
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import plait, plait.torch
rank, first = int(sys.argv[1]), sys.argv[2]
# Not torchrun, which would end the others.
dist.init_process_group("plait", init_method="file://" + sys.argv[3], rank=rank, world_size=3,
                        timeout=timedelta(seconds=200))
x, whole, ones = torch.ones(4), [torch.ones(4) for _ in range(3)], torch.ones(4, dtype=torch.int64)
calls = {
    "max": lambda group: dist.all_reduce(x, dist.ReduceOp.MAX, group),
    "int64": lambda group: dist.all_reduce(ones, group=group),
    "later": lambda group: dist.all_reduce(ones, group=group, async_op=True).wait(),
    "reduce": lambda group: dist.reduce(x, 0, group=group),
    "gather": lambda group: dist.gather(x, whole if rank == 0 else None, 0, group),
    "scatter": lambda group: dist.scatter(x, whole if rank == 0 else None, 0, group),
    "sum": lambda group: dist.all_reduce(x, group=group),
    "recv": lambda group: dist.recv(x, 1, group),
    "send": lambda group: dist.send(x, 1, group),
}
peers = ("recv", "send")
groups = {name: dist.new_group() for name in calls}
for name, call in calls.items():
    if name in peers:
        dist.barrier(groups[name])
    else:
        call(groups[name])
# No rank is in the calls above any more when one is killed.
there = [f"{sys.argv[3]}.{number}" for number in range(3)]
open(there[rank], "w").close()
if rank == 1:
    end = time.monotonic() + 100
    while not all(map(os.path.exists, there)) and time.monotonic() < end:
        time.sleep(0.01)
    time.sleep(0.5)  # the others are in the first call
    os.kill(os.getpid(), signal.SIGKILL)
for name in (first, *(one for one in calls if one != first)):
    try:
        while True:  # a small message may go nowhere unnoticed
            calls[name](groups[name])
    except plait.Error as error:
        print(f"{name} {error.code.name} {error.culprit} {error.operator}: {error}", flush=True)
os._exit(0)
"""
CALLS = ("max", "int64", "later", "reduce", "gather", "scatter", "sum", "recv", "send")


@pytest.mark.parametrize("first", ["max", "reduce", "recv"])
def test_every_other_rank_names_it(tmp_path: Path, first: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    ranks = [
        subprocess.Popen(
            [sys.executable, script, str(rank), first, str(tmp_path / "store")],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    try:
        ended = [rank.communicate(timeout=300) for rank in ranks]
    finally:
        for process in ranks:
            process.kill()
    for rank in (0, 2):
        out, err = ended[rank]
        lines = {line.split()[0]: line for line in out.splitlines()}
        assert set(lines) == set(CALLS), out + err
        for name, line in lines.items():
            assert line.startswith(f"{name} peer_lost 1 "), line
