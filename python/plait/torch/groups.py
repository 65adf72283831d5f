"""The communicator of a process group.

It is made when it is first asked for, over the group's own store, and leaves when the group is
destroyed. Asking for it the first time is collective.
"""

import socket
import uuid
from datetime import timedelta
from pathlib import Path
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from plait._native import Code, Communicator, Place
from plait.errors import Error

_communicators: WeakKeyDictionary[dist.ProcessGroup, Communicator] = WeakKeyDictionary()


def communicator(group: dist.ProcessGroup | None = None) -> Communicator:
    """Return the communicator of a group: the same at every call.

    Without a group it is that of the default one. All members must make the first call, which
    waits for them. It is left, and of no use, once the group is destroyed.
    """
    group = _member(group)
    found = _communicators.get(group)
    if found is None:
        # The same for a group of the backend "plait", which has its own.
        found = getattr(group, "communicator", None)
        if found is None:
            store = PrefixStore("plait/", group.get_group_store())
            found = connect(store, group.rank(), group.size(), _timeout(group))
        _communicators[group] = found
    return found


def _member(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    if not dist.is_initialized():
        raise Error(
            Code.invalid_argument,
            "there is no process group: call torch.distributed.init_process_group() first",
        )
    if group is None:
        default = dist.group.WORLD
        assert default is not None
        return default
    if not isinstance(group, dist.ProcessGroup):  # what new_group() returns to other ranks
        raise Error(Code.invalid_argument, "this rank is not a member of the group")
    if group not in dist.distributed_c10d._world.pg_map:
        raise Error(Code.invalid_argument, "the process group was destroyed")
    return group


def _timeout(group: dist.ProcessGroup) -> timedelta | None:
    """The group's own, where it has a backend on this device that says."""
    options = getattr(group._get_backend(torch.device("cpu")), "options", None)
    timeout = getattr(options, "_timeout", None)
    return timeout if isinstance(timeout, timedelta) else None


def connect(store: Store, rank: int, world: int, timeout: timedelta | None = None) -> Communicator:
    """Make a communicator of ranks that share a store. Collective."""
    if rank == 0:
        store.set("job", uuid.uuid4().hex)
    job = store.get("job").decode()
    rounds = 0

    def all_gather(mine: bytes) -> list[bytes]:
        nonlocal rounds
        rounds += 1
        store.set(f"{rounds}/{rank}", mine)  # type: ignore[arg-type]  # takes bytes too
        return [store.get(f"{rounds}/{peer}") for peer in range(world)]

    place = Place(
        rank=rank,
        world=world,
        job=job,
        launcher="torch.distributed",
        hosts=count_hosts(store, rank, world),
    )
    seconds = timeout.total_seconds() if timeout is not None else None
    return Communicator.connect(place=place, all_gather=all_gather, timeout=seconds)


def count_hosts(store: Store, rank: int, world: int) -> int:
    """How many hosts ranks that share a store are on. Collective."""
    store.set(f"host/{rank}", _host())
    return len({store.get(f"host/{peer}") for peer in range(world)})


def _host() -> str:
    """What ranks of one start of one machine have in common, containers apart."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text() if boot.exists() else ''}"
