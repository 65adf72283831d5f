"""Types of arguments, for type checkers."""

from typing import Any, Protocol


class Array(Protocol):
    """An array of NumPy, or a tensor of any framework that speaks DLPack."""

    def __dlpack__(self, *, stream: None = None) -> Any: ...
