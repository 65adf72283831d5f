"""Tests share this: ranks that begin in a moment, and how soon Ctrl-C ends a wait.

That is within 0.2 s on a machine with a core to spare.
"""

import importlib.util
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from hosts import Hosts, netlab
from launching import Launcher

PACKAGES = ["numpy", "torch", "torch.distributed", "torch._dynamo", "megatron.core", "peft"]
PACKAGES += ["transformers.generation", "transformers.models.auto", "transformers.modeling_utils"]


@pytest.fixture(scope="session")
def together(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Launcher]:
    """Give what starts programs from one process that has imported these packages."""
    packages = [name for name in PACKAGES if importlib.util.find_spec(name.partition(".")[0])]
    started = Launcher(packages, tmp_path_factory.mktemp("outputs"))
    yield started
    started.end()


@pytest.fixture(scope="session")
def hosts(together: Launcher, tmp_path_factory: pytest.TempPathFactory) -> Hosts:
    """Give what runs programs on two hosts."""
    if why := netlab.refusal():
        pytest.skip(why)
    return Hosts(together, tmp_path_factory.mktemp("programs"))


def interrupt(wait: Callable[[], object]) -> float:
    """Press Ctrl-C during a wait, and return how many seconds later it raised."""
    pressed: list[float] = []
    begins = threading.Event()  # an interrupt before that would end the tests

    def press() -> None:
        begins.wait()
        time.sleep(0.2)
        pressed.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    def begin() -> None:
        begins.set()
        wait()

    presses = threading.Thread(target=press)
    presses.start()
    try:
        with pytest.raises(KeyboardInterrupt):
            begin()
        seconds = time.monotonic() - pressed[0]
    finally:
        presses.join()
    assert seconds < 20  # a wait that hangs ends after minutes
    return seconds


@pytest.fixture(name="interrupt")
def interrupt_fixture() -> Callable[[Callable[[], object]], float]:
    """Give tests interrupt()."""
    return interrupt


@pytest.fixture
def is_prompt() -> Callable[[Callable[[], float]], bool]:
    """Give what says whether a try took less than 0.2 s: a busy machine may delay any of them."""
    return lambda make_a_try: any(make_a_try() < 0.2 for _ in range(10))
