"""Tests that torchrun starts as several ranks.

    torchrun --standalone --nproc-per-node 2 -m pytest FILE

Every rank runs the same tests in the same order. A test passes where it passes on all ranks: their
verdicts travel over torchrun's own store. Rank 0 alone writes the report.
"""

import gc
import os
from collections.abc import Iterator
from datetime import timedelta

import pytest
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store, TCPStore
from torch.distributed import distributed_c10d

# Deadlines nest: a wait in plait, a verdict, the job (see tools/do/python.sh).
WAIT = timedelta(seconds=100)
VERDICT = timedelta(seconds=200)

# Gloo's groups end their threads when they are deleted. In a forked child, which has no such
# threads, that is a crash of torch, so the collector must not come to them there.
os.register_at_fork(after_in_child=gc.disable)

RANK = int(os.environ["RANK"])
WORLD = int(os.environ["WORLD_SIZE"])

# The tests' own groups are made over it too, each below a prefix of its own.
_store: Store | None = None


def store() -> Store:
    global _store
    if _store is None:
        _store = TCPStore(
            os.environ["MASTER_ADDR"],
            int(os.environ["MASTER_PORT"]),
            is_master=False,
            timeout=VERDICT,
        )
    return _store


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config: pytest.Config) -> None:
    if RANK != 0:
        config.option.xmlpath = None


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    mine = ""
    try:
        yield
    except BaseException as exception:
        mine = f"{type(exception).__name__}: {exception}"
        raise
    finally:
        verdicts = PrefixStore(f"verdict/{item.nodeid}", store())
        verdicts.set(str(RANK), mine)
        others = {rank: verdicts.get(str(rank)).decode() for rank in range(WORLD) if rank != RANK}
        if not mine and any(others.values()):
            pytest.fail(f"failed on other ranks: { {k: v for k, v in others.items() if v} }")


@pytest.fixture(scope="session", autouse=True)
def world() -> Iterator[int]:
    """The default group, of the backend "plait". No import of plait comes before it."""
    torch.set_num_threads(1)
    dist.init_process_group("plait", timeout=WAIT)
    yield dist.get_world_size()
    dist.destroy_process_group()


@pytest.fixture(scope="session")
def gloo(world: int) -> dist.ProcessGroup:
    """A group of these ranks over gloo, whose results are right."""
    group = dist.new_group(backend="gloo", timeout=WAIT)
    assert isinstance(group, dist.ProcessGroup)
    return group


@pytest.fixture(autouse=True)
def models_groups_end(world: int, request: pytest.FixtureRequest) -> Iterator[None]:
    """Destroy the groups of a test's models of transformers.

    Transformers makes six for each model, and each has three threads. Among a thousand groups,
    training steps took ten times as long.
    """
    alive = distributed_c10d._world.pg_map
    before = list(alive)
    yield
    if request.path.parent.name == "with_transformers":
        for group in [one for one in alive if one not in before]:
            dist.destroy_process_group(group)
