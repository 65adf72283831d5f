"""A rank that dies or stops, in groups of the backend "plait"."""

import signal
from pathlib import Path

import pytest
from launching import Launcher

RANK = """
import os, signal, sys, time
from datetime import timedelta
import numpy as np, torch, torch.distributed as dist
import plait, plait.torch as pt
rank, end, deadline, store = int(os.environ["RANK"]), sys.argv[1], float(sys.argv[2]), sys.argv[3]
dist.init_process_group("plait", init_method=f"file://{store}", rank=rank, world_size=3)
x = torch.ones(4)
dist.all_reduce(x)  # the ranks are all there: what follows may have a short deadline
group = dist.new_group(timeout=timedelta(seconds=deadline), backend="plait")
dist.all_reduce(x, group=group)
def tell(what):
    open(f"{store}.{what}.{rank}", "w").close()
def await_others(what):
    while not all(os.path.exists(f"{store}.{what}.{other}") for other in (0, 2)):
        time.sleep(0.1)
tell("ready")
if rank == 1:
    await_others("ready")  # they are in the call above no more
    if end == "killed":
        os.kill(os.getpid(), signal.SIGKILL)
    await_others("done")
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
tell("done")
os._exit(0)
"""

DEADLINE = {"killed": 300.0, "late": 5.0}


@pytest.mark.parametrize("end", list(DEADLINE))
def test_all_others_raise_and_name_it(tmp_path: Path, together: Launcher, end: str) -> None:
    script = tmp_path / "program.py"
    script.write_text(RANK)
    arguments = (end, str(DEADLINE[end]), str(tmp_path / "store"))
    ended = together.start(3, str(script), *arguments, patience=140)
    assert ended.codes == [0, -signal.SIGKILL if end == "killed" else 0, 0], ended.text
    begun, raised = [], []
    for text in (ended.texts[0], ended.texts[2]):
        lines = text.splitlines()[-8:]
        assert len(lines) == 8, text
        # The first call raises, and so does every other one after it.
        for heading, sentence in zip(lines[::2], lines[1::2], strict=True):
            kind, code, culprit, *_ = heading.split()
            assert (kind, culprit) == ("Error", "1"), text
            assert code == ("peer_lost" if end == "killed" else "timeout")
            assert "rank 1" in sentence
        begun.append(float(lines[0].split()[3]))
        raised.append(float(lines[0].split()[4]))
    # A death is noticed long before the deadline, which is the group's own. The rank that has
    # waited for so long tells the other, which may have begun later.
    assert max(raised) - min(begun) < 100
    assert end == "killed" or min(raised) - min(begun) >= DEADLINE[end]
