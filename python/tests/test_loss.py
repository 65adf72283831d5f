"""A rank that dies or stops, in groups of the backend "plait"."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

RANK = """
import os, sys, time
from datetime import timedelta
import numpy as np, torch, torch.distributed as dist
import plait, plait.torch as pt
rank, store = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("plait", init_method=f"file://{store}", rank=rank, world_size=3)
x = torch.ones(4)
dist.all_reduce(x)  # the ranks are all there: what follows may have a short deadline
group = dist.new_group(timeout=timedelta(seconds=float(sys.argv[3])), backend="plait")
dist.all_reduce(x, group=group)
print("ready", flush=True)
if rank == 1:
    time.sleep(600)
begin = time.monotonic()
w = torch.ones(4, 4, requires_grad=True)
for call in (
    lambda: dist.all_reduce(x, group=group),
    lambda: pt.matmul_all_reduce(x, w, group=group),
    lambda: pt.row_parallel_linear(x, w, group=group),
    lambda: plait.all_reduce(np.ones(4, np.float32), pt.communicator(group)),
):
    try:
        call()
    except RuntimeError as error:
        print(type(error).__name__, error.code.name, error.culprit, begin, time.monotonic())
        print(error, flush=True)
os._exit(0)
"""

DEADLINE = {"killed": 300.0, "late": 5.0}


def ranks(tmp_path: Path, timeout: float) -> list[subprocess.Popen[str]]:
    return [
        subprocess.Popen(
            [sys.executable, "-c", RANK, str(rank), str(tmp_path / "store"), str(timeout)],
            stdout=subprocess.PIPE,
            text=True,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        for rank in range(3)
    ]


def first_line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline()


@pytest.mark.parametrize("end", list(DEADLINE))
def test_all_others_raise_and_name_it(tmp_path: Path, end: str) -> None:
    processes = ranks(tmp_path, DEADLINE[end])
    try:
        assert [first_line(process) for process in processes] == ["ready\n"] * 3
        if end == "killed":
            processes[1].send_signal(signal.SIGKILL)
        begun, raised = [], []
        for rank in (0, 2):
            output, _ = processes[rank].communicate(timeout=200)
            lines = output.splitlines()
            assert len(lines) == 8, output
            # The first call raises, and so does every other one after it.
            for heading, sentence in zip(lines[::2], lines[1::2], strict=True):
                kind, code, culprit, *_ = heading.split()
                assert (kind, culprit) == ("Error", "1"), output
                assert code == ("peer_lost" if end == "killed" else "timeout")
                assert "rank 1" in sentence
            begun.append(float(lines[0].split()[3]))
            raised.append(float(lines[0].split()[4]))
        # A death is noticed long before the deadline, which is the group's own. The rank that has
        # waited for so long tells the other, which may have begun later.
        assert max(raised) - min(begun) < 100
        assert end == "killed" or min(raised) - min(begun) >= DEADLINE[end]
    finally:
        for process in processes:
            process.kill()
            process.communicate()
