"""The communicator of a process group.

It is made when it is first asked for, over the group's own store, and leaves when the group is
destroyed. Asking for it the first time is collective.
"""

import socket
import threading
import uuid
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from plait._native import Code, Communicator, Place
from plait.errors import Error
from plait.torch.recording import recorded

_communicators: WeakKeyDictionary[dist.ProcessGroup, Communicator] = WeakKeyDictionary()
_locks: WeakKeyDictionary[dist.ProcessGroup, threading.Lock] = WeakKeyDictionary()
_lock = threading.Lock()  # of the two above; never held while a rank waits for others
_were_used = False


def communicator(group: dist.ProcessGroup | None = None) -> Communicator:
    """Return the communicator of a group: the same at every call.

    Without a group it is that of the default one. All members must make the first call, which
    waits for them. It is left, and of no use, once the group is destroyed.
    """
    return communicator_of_member(member(group))


def communicator_of_member(group: dist.ProcessGroup) -> Communicator:
    """Return the communicator of a group that is alive and has this rank."""
    found = _communicators.get(group)
    return _make(group) if found is None else found


def _make(group: dist.ProcessGroup) -> Communicator:
    with _lock:
        lock = _locks.setdefault(group, threading.Lock())
    with lock:  # two threads may make their first calls at once
        found = _communicators.get(group)
        if found is None:
            # A group of the backend "plait" has a communicator already, which is used.
            found = getattr(group, "communicator", None)
            if found is None:
                # A connection of its own: a thread that waits for a key of this group must not keep
                # another thread from setting one that the others wait for.
                store = PrefixStore("plait/", _connection(group.get_group_store()))
                found = connect(store, group.rank(), group.size(), _timeout(group))
            with _lock:
                _communicators[group] = found
    return found


def were_used() -> bool:
    """Say whether this program has asked for a group before."""
    return _were_used


def forget_all() -> None:
    """Keep no communicator: for the end of the program."""
    with _lock:
        _communicators.clear()
        _locks.clear()


def member(group: dist.ProcessGroup | None) -> dist.ProcessGroup:
    """Return the group, or the default one; raise Error where it is of no use to this rank."""
    if not dist.is_initialized():
        raise Error(
            Code.invalid_argument,
            "there is no process group: call torch.distributed.init_process_group() first",
        )
    global _were_used
    _were_used = True
    if group is None:
        default = dist.group.WORLD
        assert default is not None
        return default
    if not isinstance(group, dist.ProcessGroup):  # what new_group() returns to other ranks
        raise Error(Code.invalid_argument, "this rank is not a member of the group")
    if not is_alive(group):
        raise Error(Code.invalid_argument, "the process group was destroyed")
    return group


def is_alive(group: dist.ProcessGroup) -> bool:
    """Say whether the group is not destroyed."""
    return group in dist.distributed_c10d._world.pg_map


def _connection(store: Any) -> Any:
    return store.clone()  # which torch's types leave out


def _timeout(group: dist.ProcessGroup) -> timedelta | None:
    """The group's own, where it has a backend on this device that says."""
    options = getattr(group._get_backend(torch.device("cpu")), "options", None)
    timeout = getattr(options, "_timeout", None)
    return timeout if isinstance(timeout, timedelta) else None


def fresh(store: Store, world: int) -> Store:
    """Return a part of a store that only the ranks of this group use. Collective.

    A launcher's store outlives groups, and what an earlier one has left there must not be read. All
    ranks of a group come once, so that the number of those who came before tells which it is.
    """
    return PrefixStore(f"{(store.add('ranks', 1) - 1) // world}/", store)


def connect(store: Store, rank: int, world: int, timeout: timedelta | None = None) -> Communicator:
    """Make a communicator of ranks that share a store. Collective."""
    store = fresh(store, world)
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
    return recorded(Communicator.connect(place=place, all_gather=all_gather, timeout=seconds))


def count_hosts(store: Store, rank: int, world: int) -> int:
    """How many hosts ranks that share a store are on. Collective."""
    store.set(f"host/{rank}", _host())
    return len({store.get(f"host/{peer}") for peer in range(world)})


def _host() -> str:
    """What ranks of one start of one machine have in common, containers apart."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text() if boot.exists() else ''}"
