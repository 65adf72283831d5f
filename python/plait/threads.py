"""Ranks that are threads of this process."""

import threading
from collections.abc import Callable

from plait._native import Communicator, ThreadGroup


def run_in_threads(world: int, body: Callable[[Communicator], None]) -> None:
    """Run `body` as `world` ranks, each in a thread of its own.

    >>> import numpy as np, plait
    >>> def body(comm):
    ...     x = np.full(2, comm.rank + 1.0, dtype=np.float32)
    ...     plait.all_reduce(x, comm)
    ...     assert x.tolist() == [3, 3]
    >>> plait.run_in_threads(2, body)

    When a rank raises, the others are told, and the first exception is raised here once all ranks
    have ended. plait's calls release the GIL; other code of Python takes turns.
    """
    group = ThreadGroup(world)
    raised: list[BaseException] = []

    def rank(number: int) -> None:
        try:
            with group.join(number) as comm:
                try:
                    body(comm)
                except BaseException as exception:
                    comm.abort(f"rank {number} raised {type(exception).__name__}: {exception}")
                    raise
        except BaseException as exception:
            raised.append(exception)

    threads = [threading.Thread(target=rank, args=(number,)) for number in range(world)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if raised:
        raise raised[0]
