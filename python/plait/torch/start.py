"""Beginning a program: the default process group, whatever started the ranks."""

import os
import socket
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import HashStore, Store, TCPStore

import plait
from plait._native import Code, Communicator
from plait.errors import Error
from plait.torch.groups import communicator

# Variables of torch's own protocol, which torchrun and other launchers set.
_TORCHS = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_ADDRESS_BYTES = 512


def init(backend: str | None = None, *, timeout: float | None = None) -> Communicator:
    """Make the default process group, unless there is one, and return its communicator.

    Collective. The ranks are those of torchrun, `plait run`, mpirun or srun, or this process alone
    where nothing has started others. A group that is made here has the backend "plait", unless
    another one is named, and `timeout` in seconds. Programs that make the group themselves need not
    call this: operators and layers make communicators when they are first called.
    """
    if not dist.is_initialized():
        _begin(backend or "plait", timeout)
    elif backend is not None and dist.get_backend() != backend:
        raise Error(
            Code.invalid_argument,
            f"plait.torch.init: the default process group has the backend {dist.get_backend()!r}, "
            f"not {backend!r}",
        )
    return communicator()


def _begin(backend: str, timeout: float | None) -> None:
    how: dict[str, Any] = {} if timeout is None else {"timeout": timedelta(seconds=timeout)}
    if all(name in os.environ for name in _TORCHS):
        dist.init_process_group(backend, **how)
        return
    with Communicator.connect(timeout=timeout) as comm:
        rank, world = comm.rank, comm.world
        store = _store(comm) if world > 1 else HashStore()
        dist.init_process_group(backend, store=store, rank=rank, world_size=world, **how)


def _store(comm: Communicator) -> Store:
    """Return a store that rank 0 keeps, at a port that the system chooses."""
    name = socket.gethostname()
    mine: TCPStore | None = None
    address = torch.zeros(_ADDRESS_BYTES, dtype=torch.int8)
    if comm.rank == 0:
        mine = TCPStore("localhost", 0, comm.world, is_master=True, wait_for_workers=False)
        text = f"{name}:{mine.port}".encode()
        address[: len(text)] = torch.frombuffer(bytearray(text), dtype=torch.int8)
    plait.broadcast(address, 0, comm)
    if mine is not None:
        return mine
    host, _, port = bytes(address.tolist()).rstrip(b"\0").decode().rpartition(":")
    return TCPStore("localhost" if host == name else host, int(port), comm.world, is_master=False)
