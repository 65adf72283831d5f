"""torch's own tests of torch.distributed, which torch brings along, with groups of "plait".

The one file of ours that imports torch.testing._internal: what torch has a test for needs none of
ours. torch starts four processes for each test, which takes longer than the test; here the four
ranks of one launch run all of them. No test needs a port, or anything from elsewhere.
"""

import itertools
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from conftest import RANK, WORLD, store
from torch._C._distributed_c10d import DebugLevel, PrefixStore, set_debug_level

# Tests read this name to decide whether they skip themselves, most of them when imported.
os.environ["BACKEND"] = "gloo"
os.environ["PYTORCH_PRINT_REPRO_ON_FAILURE"] = "0"  # it would name a file that is not there

from torch.testing._internal.common_distributed import TEST_SKIPS
from torch.testing._internal.common_utils import TestCase
from torch.testing._internal.distributed import distributed_test

# Those of a part of the ranks ask again when they run. Four ranks are enough for them, but they
# skip themselves on fewer than eight, unless these are MPI's.
os.environ["BACKEND"] = "mpi"

_ONLY_GLOO = "torch.distributed.monitored_barrier() takes only groups that are called gloo"
LEFT_OUT = {
    "test_barrier_timeout_full_group": "its group has 1 s to meet; a busy machine may take longer",
    "test_get_backend": "the name that it compares is gloo",
    "test_monitored_barrier_failure_order": _ONLY_GLOO,
    "test_monitored_barrier_gloo": _ONLY_GLOO,
    "test_monitored_barrier_gloo_subgroup": _ONLY_GLOO,
    "test_monitored_barrier_wait_all_ranks": _ONLY_GLOO,
}

_BARRIERS = itertools.count()
_TURNS = itertools.count(1)
_Tests: Any = distributed_test.DistributedTest._DistTestBase


class _OfRanks(_Tests, TestCase):  # type: ignore[misc]
    """The tests, for the ranks that are there."""

    __test__ = False  # pytest would hide from the other ranks that one of unittest's fails
    rank, world_size = RANK, WORLD

    def _barrier(self, *args: Any, **kwargs: Any) -> None:
        """Return when all ranks have called it, whatever has become of their groups."""
        here = PrefixStore(f"barrier/{next(_BARRIERS)}", store())
        here.set(str(RANK), "")
        here.wait([str(rank) for rank in range(WORLD)])


NAMES = [
    name
    for name in dir(_Tests)
    if name.startswith("test_") and name not in LEFT_OUT
    if not getattr(getattr(_Tests, name), "__unittest_skip__", False)
]


@pytest.fixture(scope="session")
def folder(world: int, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of all ranks."""
    mine = tmp_path_factory.mktemp("torch")
    (mine / "test_dir").mkdir()
    folders = [mine]
    dist.broadcast_object_list(folders, 0)
    return folders[0]


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch, folder: Path) -> Iterator[None]:
    """Give each test what it has in processes of its own, and leave nothing of it to the next."""
    monkeypatch.setenv("TEMP_DIR", str(folder))
    monkeypatch.setenv("TORCH_DISTRIBUTED_DEBUG", "OFF")
    # torch names groups by their number, which a test may leave different if some ranks fail.
    dist.distributed_c10d._world.group_count = 100 * next(_TURNS)
    yield
    set_debug_level(DebugLevel.OFF)
    for group in list(dist.distributed_c10d._world.pg_map):
        if group is not dist.group.WORLD:
            dist.destroy_process_group(group)
    torch.set_grad_enabled(True)


def test_what_is_left_out_is_there() -> None:
    assert not [name for name in LEFT_OUT if not hasattr(_Tests, name)]


@pytest.mark.parametrize("name", NAMES)
def test_torchs_own(name: str) -> None:
    try:
        case: Any = _OfRanks(name)  # type: ignore[no-untyped-call]
        case.debug()
    except SystemExit as ended:  # in which way one that needs GPUs skips itself
        why = [one.message for one in TEST_SKIPS.values() if one.exit_code == ended.code]
        pytest.skip(f"torch's own: {why[0]}")
