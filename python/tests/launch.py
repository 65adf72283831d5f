"""Starts ranks of programs from a process that has imported all they need.

    python launch.py MODULE...

Imports take many times as long as a few steps of a small model. Each line of stdin asks for a run,
as JSON: its number of ranks, its program, its environment and folder, a file for the output of
each rank, and whether `plait.megatron` starts it. It may name a network namespace for each rank,
which is then on a host of its own, and say how long others may go on when a rank fails. The answer
is a line with the ranks' exit statuses.
"""

import ctypes
import gc
import importlib
import json
import os
import runpy
import signal
import socket
import sys
import time
import types
from pathlib import Path
from typing import Any

import torch


def free_port() -> int:
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


def answer(line: str) -> None:
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


NEW_NAMES, NEW_NETWORK = 0x04000000, 0x40000000  # as sched.h has them; Python 3.12 has a setns


def move_to_host(rank: int, namespace: str) -> None:
    """Leave the network and the name of this host for another's (tools/netlab.py)."""
    libc = ctypes.CDLL(None, use_errno=True)
    with Path("/run/netns", namespace).open() as file:
        failed = libc.setns(file.fileno(), NEW_NETWORK) or libc.unshare(NEW_NAMES)
    if failed:
        raise OSError(ctypes.get_errno(), f"no host {namespace}")
    socket.sethostname(f"host{rank}")
    os.environ.update(LOCAL_RANK="0", LOCAL_WORLD_SIZE="1", GROUP_RANK=str(rank))


def be_rank(request: dict[str, Any], rank: int, port: int) -> None:
    """Run the program as torchrun would."""
    file = os.open(f"{request['output']}.{rank}", os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(file, 1)
    os.dup2(file, 2)
    world = str(request["ranks"])
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank), WORLD_SIZE=world)
    os.environ.update(LOCAL_WORLD_SIZE=world, MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    if request.get("namespaces"):
        move_to_host(rank, request["namespaces"][rank])
    os.environ.update(request.get("environment", {}))
    torch.set_num_threads(1)
    os.chdir(request.get("folder", "."))
    script, *arguments = request["program"]
    sys.path[0] = str(Path(script).parent)
    if request.get("served"):
        import plait.megatron.__main__

        sys.argv = ["plait.megatron", *request.get("options", ()), script, *arguments]
        plait.megatron.__main__.main()
    else:
        sys.argv = [script, *arguments]
        # The program has its objects until the interpreter ends, as in a process of its own.
        ran = sys.modules["__main__"] = types.ModuleType("__main__")
        vars(ran).update(runpy.run_path(script, run_name="__main__"))


def wait(ranks: list[int], deadline: float, patience: float) -> list[int]:
    """Return the exit status of each; the others of a rank that fails have some seconds to end."""
    found: dict[int, int] = {}
    while len(found) < len(ranks):
        for pid in ranks:
            if pid not in found and (ended := os.waitpid(pid, os.WNOHANG))[0]:
                found[pid] = os.waitstatus_to_exitcode(ended[1])
                if found[pid] != 0:
                    deadline = min(deadline, time.monotonic() + patience)
        if time.monotonic() > deadline:
            for pid in set(ranks) - set(found):
                os.kill(pid, signal.SIGKILL)
            deadline += 60
        time.sleep(0.02)
    return [found[pid] for pid in ranks]


def main() -> None:
    for module in sys.argv[1:]:
        importlib.import_module(module)
    gc.freeze()  # no rank copies the pages of these objects to count them at its end
    answer("ready")
    for line in sys.stdin:
        request = json.loads(line)
        port = free_port()
        ranks = []
        for rank in range(request["ranks"]):
            pid = os.fork()
            if pid == 0:
                be_rank(request, rank, port)
                return
            ranks.append(pid)
        deadline = time.monotonic() + request["seconds"]
        answer(json.dumps(wait(ranks, deadline, request.get("patience", 5))))


if __name__ == "__main__":
    main()
