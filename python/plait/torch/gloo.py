"""Calls that an inner gloo group makes for the backend "plait".

gloo's own errors name an address at most. Where one comes of a lost rank, plait's communicator of
the same ranks knows which one, and Error says so.
"""

import time
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from plait._native import Code, Communicator
from plait.errors import Error

_POLL_INTERVAL = 1.0  # in seconds: how often ranks are checked while gloo works
_PATIENCE = 1.0  # seconds: a connection closes a moment before its process has ended
_TURN = 0.01


def call(
    inner: Any,
    comm: Communicator | None,
    name: str,
    given: tuple[Any, ...],
    named: dict[str, Any],
    peer: int | None = None,
) -> Any:
    """Make a call of the inner group.

    `peer` is the other rank of a call between two ranks, and -1 stands for any rank. A collective
    has none.
    """
    if comm is not None and peer is None:
        _check(comm, name)
    try:
        work = getattr(inner, name)(*given, **named)
    except RuntimeError as error:
        _blame(error, comm, name, peer)
        raise
    return _Watched(work, comm, name, peer) if isinstance(work, dist.Work) else work


class _Watched(dist.Work):
    """A work of gloo, whose failure names the rank that is lost."""

    def __init__(
        self, work: dist.Work, comm: Communicator | None, name: str, peer: int | None
    ) -> None:
        super().__init__()
        self._work, self._comm, self._name, self._peer = work, comm, name, peer

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return when it is done. Ranks are checked meanwhile."""
        deadline = time.monotonic() + timeout.total_seconds() if timeout else None
        try:
            # A wait for a message that passes its timeout breaks gloo's connection.
            while self._peer is None and self._comm is not None:
                left = _POLL_INTERVAL if deadline is None else deadline - time.monotonic()
                if left <= _POLL_INTERVAL and deadline is not None:
                    return self._work.wait(timedelta(seconds=max(left, 0.001)))
                if self._is_done_within(_POLL_INTERVAL):
                    break
                _check(self._comm, self._name)
            return self._work.wait(timeout)
        except Error:
            raise
        except RuntimeError as error:
            _blame(error, self._comm, self._name, self._peer)
            raise

    def _is_done_within(self, seconds: float) -> bool:
        """Wait for `seconds` at most. A work that fails earlier counts as done."""
        begin = time.monotonic()
        try:
            self._work.wait(timedelta(seconds=seconds))
        except RuntimeError:
            return self._work.is_completed() or time.monotonic() - begin < seconds / 2
        return True

    def is_completed(self) -> bool:
        """Ask gloo, as all functions below do."""
        return self._work.is_completed()

    def is_success(self) -> bool:
        """Say whether it has ended well."""
        return self._work.is_success()

    def exception(self) -> Any:
        """Return gloo's own error."""
        return self._work.exception()

    def source_rank(self) -> int:
        """Return the rank whose message was received."""
        return self._work.source_rank()

    def _source_rank(self) -> int:
        return self._work._source_rank()

    def result(self) -> list[torch.Tensor]:
        """Return the tensors."""
        return self._work.result()

    def synchronize(self) -> None:
        """Do nothing on a CPU."""
        self._work.synchronize()

    def get_future(self) -> torch.futures.Future[Any]:
        """Return gloo's future."""
        return self._work.get_future()


def _check(comm: Communicator, name: str) -> None:
    """Raise Error if a rank is lost."""
    if comm.has_left:
        return
    try:
        comm.check_ranks()
    except Error as lost:
        raise Error(
            lost.code, f"{name}, by gloo: {lost}", culprit=lost.culprit, operator=name
        ) from None


def _blame(error: RuntimeError, comm: Communicator | None, name: str, peer: int | None) -> None:
    """Raise Error if a call has failed because a rank is lost; otherwise return."""
    first = str(error).partition("\n")[0]
    # An error of gloo names the place in its sources; an error of torch names none.
    is_gloos = "gloo/" in first
    deadline = time.monotonic() + (_PATIENCE if is_gloos else 0.0)
    while comm is not None:
        _check(comm, name)
        if time.monotonic() >= deadline:
            break
        time.sleep(_TURN)
    if is_gloos and peer is not None and peer >= 0:
        code = Code.timeout if "imed out" in first else Code.peer_lost
        sentence = f"{name}: gloo has lost rank {peer}: {first}"
        raise Error(code, sentence, culprit=peer, operator=name) from error
