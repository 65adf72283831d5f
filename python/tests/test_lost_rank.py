"""Programs whose rank 1 is killed. Every other rank names it, in calls of plait and of gloo."""

import signal
from pathlib import Path

import pytest
from launching import Launcher

PROGRAM = """
import os, signal, sys, time
from datetime import timedelta
import torch, torch.distributed as dist
import plait, plait.torch
rank, first, store = int(os.environ["RANK"]), *sys.argv[1:]
dist.init_process_group("plait", init_method="file://" + store, rank=rank, world_size=3,
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
there = [f"{store}.{number}" for number in range(3)]
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
def test_every_other_rank_names_it(tmp_path: Path, together: Launcher, first: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(PROGRAM)
    # torchrun would end the others.
    ended = together.start(3, str(script), first, str(tmp_path / "store"), patience=140)
    assert ended.codes == [0, -signal.SIGKILL, 0], ended.text
    for text in (ended.texts[0], ended.texts[2]):
        lines = {line.split()[0]: line for line in text.splitlines() if " peer_lost " in line}
        assert set(lines) == set(CALLS), text
        for name, line in lines.items():
            assert line.startswith(f"{name} peer_lost 1 "), line
