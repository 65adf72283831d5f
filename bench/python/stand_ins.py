#!/usr/bin/env python3
"""Measure what the stand-ins for tensors on "cuda" take of a training step, on a host without CUDA.

    torchrun --standalone --nproc-per-node 2 bench/python/stand_ins.py --steps 60

Steps of the GPT of examples/python/megatron_gpt.py, by plait's layers, take turns in one process:
with torch's own functions, with those that plait.megatron.host.devices puts in their place, and
under a mode of torch's functions that does nothing, which is the other way to see every call.
Prints the median of each, and of its ratio to the first of the same turn.
"""

import argparse
import contextlib
import statistics
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode

import plait.megatron
from plait.megatron.host import devices

sys.path.insert(0, str(Path(__file__).parents[2] / "examples" / "python"))
import megatron_gpt

PLACES = [
    *devices.makers(),
    *((torch.Tensor, name) for name in ("cuda", "pin_memory", "to", "type")),
]


class Mode(TorchFunctionMode):
    """Sees every call, and makes it."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Make the call."""
        return func(*args, **kwargs or {})


def values() -> list[Any]:
    return [getattr(owner, name) for owner, name in PLACES]


@contextlib.contextmanager
def put(functions: list[Any]) -> Iterator[None]:
    before = values()
    for (owner, name), function in zip(PLACES, functions, strict=True):
        setattr(owner, name, function)
    try:
        yield
    finally:
        for (owner, name), function in zip(PLACES, before, strict=True):
            setattr(owner, name, function)


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure what stand-ins for CUDA take of a step.")
    parser.add_argument("--steps", type=int, default=60, help="of each contender")
    own, rest = parser.parse_known_args()
    sys.argv[1:] = rest
    options = megatron_gpt.read_options()
    torch.set_num_threads(1)
    theirs = values()
    plait.megatron.enable(stand_ins=True)
    ours = values()
    dist.init_process_group("gloo")
    world = dist.get_world_size()
    megatron_gpt.parallel_state.initialize_model_parallel(tensor_model_parallel_size=world)
    megatron_gpt.model_parallel_cuda_manual_seed(0)
    step = megatron_gpt.make_step(options)
    contenders: dict[str, Callable[[], contextlib.AbstractContextManager[Any]]] = {
        "torch's own": lambda: put(theirs),
        "stand-ins": lambda: put(ours),
        "a mode": Mode,
    }
    turns: list[list[float]] = []
    for turn in range(own.steps + 2):
        times = []
        for context in contenders.values():
            with context():
                times.append(step()[1])
        if turn > 1:  # the first prepare
            turns.append(times)
    if dist.get_rank() == 0:
        for at, name in enumerate(contenders):
            milliseconds = 1e3 * statistics.median(times[at] for times in turns)
            ratio = statistics.median(times[at] / times[0] for times in turns)
            print(f"{name:<12} {milliseconds:8.2f} ms a step  {ratio:.3f}")
    plait.megatron.disable()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
