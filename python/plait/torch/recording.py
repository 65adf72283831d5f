"""The trace that this process's communicators share while a profile runs."""

from weakref import WeakSet

from plait._native import Communicator, Trace

_made: WeakSet[Communicator] = WeakSet()
_trace: Trace | None = None


def recorded(comm: Communicator) -> Communicator:
    """Let a communicator record where the others do, now and later."""
    _made.add(comm)
    if _trace is not None:
        comm.set_trace(_trace)
    return comm


def is_on() -> bool:
    """Say whether there is a profile."""
    return _trace is not None


def current() -> Trace | None:
    """Return what communicators record into."""
    return _trace


def record(trace: Trace | None) -> None:
    """Let all communicators record into a trace from now on, or into none."""
    global _trace
    _trace = trace
    for comm in list(_made):
        if not comm.has_left:
            comm.set_trace(trace)
