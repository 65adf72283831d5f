"""Ranks that meet over a store of torch: which rank is missing, and Ctrl-C."""

import sys
from collections.abc import Callable
from datetime import timedelta

import pytest
from launching import completed
from torch._C._distributed_c10d import HashStore, Store

import plait
from plait.torch import groups
from plait.torch.backend import PlaitProcessGroup

# A store's own wait would last so long, which is longer than a signal may take.
STORES_OWN = timedelta(seconds=60)


def store() -> Store:
    made = HashStore()
    made.set_timeout(STORES_OWN)
    return made


WAITS: dict[str, Callable[[timedelta], object]] = {
    "first of two": lambda patience: groups.connect(store(), 0, 2, patience),
    "last of two": lambda patience: groups.connect(store(), 1, 2, patience),
    "backend": lambda patience: PlaitProcessGroup(store(), 0, 2, patience),
}


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_ctrl_c_ends_it(
    wait: Callable[[timedelta], object],
    interrupt: Callable[[Callable[[], object]], float],
    is_prompt: Callable[[Callable[[], float]], bool],
) -> None:
    assert is_prompt(lambda: interrupt(lambda: wait(timedelta(seconds=300))))


@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS.keys())
def test_the_deadline_names_the_missing_rank(wait: Callable[[timedelta], object]) -> None:
    with pytest.raises(plait.Error, match=r"has waited 0\.2 s for rank (0|1) of 2") as caught:
        wait(timedelta(seconds=0.2))
    missing = 0 if wait is WAITS["last of two"] else 1
    assert (caught.value.code, caught.value.culprit) == (plait.Code.timeout, missing)


PROGRAM = """
import os, signal, subprocess, threading
from datetime import timedelta
from torch._C._distributed_c10d import HashStore
from plait.torch import groups
store = HashStore()
come = lambda: store.set("here/1", "")
signal.signal(signal.SIGCONT, lambda *_: threading.Timer(0.5, come).start())
stop = f"sleep 0.3; kill -STOP {os.getpid()}; sleep 3; kill -CONT {os.getpid()}"
subprocess.Popen(["sh", "-c", stop])
groups.meet(store, 0, 2, timedelta(seconds=3))
print("met")
"""


def test_a_job_that_was_stopped_goes_on() -> None:
    """The other rank, which was stopped too, comes a little later."""
    assert completed(sys.executable, "-c", PROGRAM, timeout=100).stdout == "met\n"
