"""The communicator of a process group.

It is made when it is first asked for, over the group's own store, and leaves when the group is
destroyed. Asking for it the first time is collective.
"""

import socket
import threading
import time
import uuid
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from plait._native import Code, Communicator, Place
from plait.errors import Error, refuse
from plait.torch.recording import recorded

_communicators: WeakKeyDictionary[dist.ProcessGroup, Communicator] = WeakKeyDictionary()
_locks: WeakKeyDictionary[dist.ProcessGroup, threading.Lock] = WeakKeyDictionary()
_lock = threading.Lock()  # of the two above; never held while a rank waits for others
_were_used = False
_c10d = dist.distributed_c10d

_PATIENCE = timedelta(minutes=5)  # of a group that names none, as torch's stores have it
_SHORTEST, _LONGEST = 0.0005, 0.05  # seconds between two polls of a store
_LONGEST_TURN = 1.0  # seconds: a process that was stopped for longer has not waited for longer


def communicator(group: dist.ProcessGroup | None = None) -> Communicator:
    """Return the communicator of a group: the same at every call.

    Without a group it is that of the default one. All members must make the first call, which
    waits for them. It is left, and of no use, once the group is destroyed.
    """
    return communicator_of_member(member(group, "communicator"))


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
                found = connect(store, group.rank(), group.size(), timeout_of(group))
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


def member(group: dist.ProcessGroup | None, operator: str) -> dist.ProcessGroup:
    """Return the group, or the default one; raise Error where it is of no use to this rank.

    `operator` is the call that was given the group.
    """
    if not dist.is_initialized():
        refuse(
            operator, "there is no process group: call torch.distributed.init_process_group() first"
        )
    global _were_used
    _were_used = True
    if group is None:
        default = dist.group.WORLD
        assert default is not None
        return default
    if not isinstance(group, dist.ProcessGroup):
        if group != dist.GroupMember.NON_GROUP_MEMBER:
            refuse(operator, f"group is of type {type(group).__name__}, not a process group")
        refuse(
            operator,
            f"group is what new_group() returns to ranks outside of it: rank {dist.get_rank()} of "
            f"{dist.get_world_size()} is not a member of the group",
        )
    if not is_alive(group):
        refuse(
            operator,
            f"the process group {group.group_name!r}, of which this process was rank "
            f"{group.rank()}, was destroyed",
        )
    return group


def is_alive(group: object) -> bool:
    """Say whether the group is not destroyed."""
    return group in alive()


def alive() -> dict[Any, Any]:
    """Return the dictionary whose keys are the groups that are not destroyed."""
    groups: dict[Any, Any] = _c10d._world.pg_map
    return groups


def _connection(store: Any) -> Any:
    return store.clone()  # which torch's types leave out


def timeout_of(group: dist.ProcessGroup) -> timedelta | None:
    """Return the group's own timeout, where it has a backend that says."""
    for device in group._device_types:
        options = getattr(group._get_backend(device), "options", None)
        timeout = getattr(options, "_timeout", None)
        if isinstance(timeout, timedelta):
            return timeout
    return None


def told_by_all(
    group: dist.ProcessGroup, about: str, mine: str, missing: tuple[str, str]
) -> list[str]:
    """Return what each rank of a group says about something. Collective.

    `missing`: the call that waits, and what a rank that doesn't come has not done.
    """
    store = PrefixStore(f"plait-{about}/", _connection(group.get_group_store()))
    rank, world = group.rank(), group.size()
    meeting = _Meeting(fresh(store, world), rank, world, timeout_of(group))
    meeting.missing = missing
    return [said.decode() for said in meeting.all(about, mine)]


def fresh(store: Store, world: int) -> Store:
    """Return a part of a store that only the ranks of this group use. Collective.

    A launcher's store outlives groups, and what an earlier one has left there must not be read. All
    ranks of a group come once, so that the number of those that came before tells which it is.
    """
    return PrefixStore(f"{(store.add('ranks', 1) - 1) // world}/", store)


class _Meeting:
    """The entries that ranks leave for one another in a store.

    A store's own waits keep signals, such as Ctrl-C, from a program, and don't know which rank is
    missing. So the store is asked again and again.
    """

    def __init__(self, store: Store, rank: int, world: int, timeout: timedelta | None) -> None:
        self._store, self._rank, self._world = store, rank, world
        self._patience = (_PATIENCE if timeout is None else timeout).total_seconds()
        self.missing = "connect", "has not connected"  # see told_by_all()

    def tell(self, key: str, mine: str | bytes) -> None:
        """Leave something for the others."""
        self._store.set(f"{key}/{self._rank}", mine)  # type: ignore[arg-type]  # takes bytes too

    def hear(self, key: str, *ranks: int) -> list[bytes]:
        """Return what each of these ranks has left, as soon as it has."""
        return [self._store.get(one) for one in self.await_all(key, ranks)]

    def await_all(self, key: str, ranks: Sequence[int]) -> list[str]:
        """Return the names of what these ranks leave, as soon as they have."""
        keys = [f"{key}/{rank}" for rank in ranks]
        left, turn, pause = self._patience, time.monotonic(), _SHORTEST
        while not self._store.check(keys):
            before, turn = turn, time.monotonic()
            left -= min(turn - before, _LONGEST_TURN)
            if left <= 0:
                self._give_up(key, ranks)
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST)
        return keys

    def all(self, key: str, mine: str | bytes) -> list[bytes]:
        """Return what all ranks have left. Collective."""
        self.tell(key, mine)
        return self.hear(key, *range(self._world))

    def _give_up(self, key: str, ranks: Sequence[int]) -> None:
        missing = next((r for r in ranks if not self._store.check([f"{key}/{r}"])), None)
        if missing is not None:
            operator, lack = self.missing
            raise Error(
                Code.timeout,
                f"{operator}: rank {self._rank} has waited {self._patience:g} s for rank {missing} "
                f"of {self._world}, which {lack}",
                culprit=missing,
                operator=operator,
            )


def meet(store: Store, rank: int, world: int, timeout: timedelta | None = None) -> None:
    """Return when all ranks have called it. Collective."""
    meeting = _Meeting(store, rank, world, timeout)
    meeting.tell("here", "")
    meeting.await_all("here", range(world))


def connect(store: Store, rank: int, world: int, timeout: timedelta | None = None) -> Communicator:
    """Make a communicator of ranks that share a store. Collective."""
    meeting = _Meeting(fresh(store, world), rank, world, timeout)
    if rank == 0:
        meeting.tell("job", uuid.uuid4().hex)
    (job,) = meeting.hear("job", 0)
    rounds = 0

    def all_gather(mine: bytes) -> list[bytes]:
        nonlocal rounds
        rounds += 1
        return meeting.all(str(rounds), mine)

    place = Place(
        rank=rank,
        world=world,
        job=job.decode(),
        launcher="torch.distributed",
        hosts=_count(meeting),
    )
    seconds = timeout.total_seconds() if timeout is not None else None
    return recorded(Communicator.connect(place=place, all_gather=all_gather, timeout=seconds))


def _count(meeting: _Meeting) -> int:
    return len(set(meeting.all("host", host())))


def host() -> str:
    """A name that ranks share if they run on one start of one machine, in one container."""
    boot = Path("/proc/sys/kernel/random/boot_id")
    return f"{socket.gethostname()} {boot.read_text() if boot.exists() else ''}"
