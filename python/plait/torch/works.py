"""The works that the backend "plait" returns."""

from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist


class Done(dist.Work):
    """The work of a call that was done when it returned."""

    def __init__(self, received: Any) -> None:
        super().__init__()
        self._received = received

    def wait(self, timeout: timedelta = timedelta(0)) -> bool:
        """Return at once, whatever the timeout."""
        return True

    def is_completed(self) -> bool:
        """Say that it is done."""
        return True

    def is_success(self) -> bool:
        """Say that it has ended well: otherwise the call would have raised."""
        return True

    def exception(self) -> Any:
        """Return None, for the same reason."""
        return None

    def result(self) -> list[torch.Tensor]:
        """Return the tensors."""
        return [] if self._received is None else self._received

    def synchronize(self) -> None:
        """Do nothing on a CPU."""

    def get_future(self) -> torch.futures.Future[Any]:
        """Return a future that has the tensors."""
        future: torch.futures.Future[Any] = torch.futures.Future()
        future.set_result(self._received)
        return future
