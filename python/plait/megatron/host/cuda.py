"""One table of stand-ins for torch.cuda on a host that has no such device, with the reasons.

A CPU does one thing after another, in the order of the program. Streams, events and waits for a
device therefore have nothing to do, and there is one generator of random numbers instead of two.
"""

import collections
import contextlib
import os
import resource
import time
import types
from typing import Any

import torch

# From this architecture on, Megatron doesn't ask for CUDA_DEVICE_MAX_CONNECTIONS=1.
_CAPABILITY = (10, 0)


class Stream:
    """A stream that is always done."""

    def __init__(self, *_: object, **__: object) -> None:
        self.device = torch.device("cpu")
        self.cuda_stream = 0

    @staticmethod
    def priority_range() -> tuple[int, int]:
        """Return the lowest and the highest priority: all are equal."""
        return 0, 0

    def wait_event(self, event: object) -> None:
        """Return: the event has happened."""

    def wait_stream(self, stream: object) -> None:
        """Return: the other stream is done."""

    def synchronize(self) -> None:
        """Return: the stream is done."""

    def query(self) -> bool:
        """Say that it is done."""
        return True

    def record_event(self, event: "Event | None" = None) -> "Event":
        """Record an event now."""
        event = event or Event()
        event.record()
        return event

    def __enter__(self) -> "Stream":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stream)

    def __hash__(self) -> int:
        return 0


class Event:
    """A moment of the host's clock."""

    def __init__(self, *_: object, **__: object) -> None:
        self.seconds = 0.0

    def record(self, stream: object = None) -> None:
        """Keep the time."""
        self.seconds = time.perf_counter()

    def wait(self, stream: object = None) -> None:
        """Return: the event has happened."""

    def synchronize(self) -> None:
        """Return: the event has happened."""

    def query(self) -> bool:
        """Say that it has happened."""
        return True

    def elapsed_time(self, end: "Event") -> float:
        """Return the milliseconds until `end`."""
        return 1e3 * (end.seconds - self.seconds)


def _nothing(*_: object, **__: object) -> None:
    pass


def _resident(*_: object, **__: object) -> int:
    with open("/proc/self/statm", encoding="ascii") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


def _peak(*_: object, **__: object) -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _total() -> int:
    return os.sysconf("SC_PHYS_PAGES") * resource.getpagesize()


def _free(*_: object) -> tuple[int, int]:
    return os.sysconf("SC_AVPHYS_PAGES") * resource.getpagesize(), _total()


def _properties(*_: object) -> types.SimpleNamespace:
    return types.SimpleNamespace(
        major=_CAPABILITY[0],
        minor=_CAPABILITY[1],
        name="cpu",
        total_memory=_total(),
        multi_processor_count=os.cpu_count(),
    )


def _seed(seed: int) -> None:
    torch.default_generator.manual_seed(int(seed))


def get_state(*_: object, **__: object) -> torch.Tensor:
    """Return the state of the one generator."""
    return torch.get_rng_state()


def set_state(state: torch.Tensor, *_: object, **__: object) -> None:
    """Set the state of the one generator."""
    torch.set_rng_state(state)


_STREAM = Stream()

# Each row: names, what stands in for them, and why Megatron needs it.
TABLE: tuple[tuple[str, Any, str], ...] = (
    ("is_available", lambda: True, "its start refuses a host without a device"),
    (
        "device_count",
        lambda: int(os.environ.get("LOCAL_WORLD_SIZE", "1")),
        "groups and seeds are only made where there are devices; each rank of a host has one",
    ),
    ("current_device", lambda: "cpu", "tensors are made on it"),
    ("set_device init synchronize empty_cache ipc_collect", _nothing, "nothing is queued"),
    ("device", lambda *_: contextlib.nullcontext(), "there is one device"),
    ("Stream", Stream, "copies and gradients are made beside the program's own stream"),
    ("Event", Event, "its timers record them"),
    ("current_stream default_stream", lambda *_: _STREAM, "streams wait for one another"),
    ("stream", lambda *_: contextlib.nullcontext(), "work is moved to another stream"),
    ("set_stream", _nothing, "work is moved to another stream"),
    ("is_current_stream_capturing", lambda: False, "layers ask whether a graph is captured"),
    ("get_rng_state", get_state, "dropout draws from the generator of the CPU"),
    ("set_rng_state", set_state, "tensor-parallel regions have a state of their own"),
    ("manual_seed manual_seed_all", _seed, "states are made from seeds"),
    ("memory_allocated memory_reserved", _resident, "it reports the memory of a step"),
    ("max_memory_allocated max_memory_reserved", _peak, "it reports the memory of a step"),
    ("device_memory_used", _resident, "it reports the memory of a step"),
    ("reset_peak_memory_stats", _nothing, "the peak is the process's"),
    ("memory_stats", lambda *_: collections.defaultdict(int), "it reports counts of allocations"),
    ("temperature power_draw utilization clock_rate", lambda *_: 0, "its log of slow ranks has it"),
    ("mem_get_info", _free, "buffers are sized by it"),
    ("get_device_capability", lambda *_: _CAPABILITY, "choices depend on the architecture"),
    ("get_device_properties", _properties, "choices depend on the architecture"),
    ("get_device_name", lambda *_: "cpu", "it is printed"),
    ("nvtx.range_push nvtx.range_pop nvtx.mark", _nothing, "steps have ranges for a profiler"),
    ("FloatTensor", torch.FloatTensor, "scalars are made with it"),
    ("LongTensor", torch.LongTensor, "scalars are made with it"),
    ("IntTensor", torch.IntTensor, "scalars are made with it"),
    ("HalfTensor", torch.HalfTensor, "parameters are compared with it"),
    ("BFloat16Tensor", torch.BFloat16Tensor, "parameters are compared with it"),
)


def stand_in() -> None:
    """Put the table's values into torch.cuda."""
    for names, value, _ in TABLE:
        for name in names.split():
            owner: Any = torch.cuda
            *path, last = name.split(".")
            for step in path:
                owner = getattr(owner, step)
            setattr(owner, last, _own(value))


def _own(value: Any) -> Any:
    """Give each name a function of its own: Dynamo lists them, and refuses one with two names."""
    if not isinstance(value, types.FunctionType):
        return value
    return types.FunctionType(value.__code__, value.__globals__, closure=value.__closure__)
