"""The two methods of Megatron-Core that plait replaces, and the versions that it knows."""

import inspect
from dataclasses import dataclass
from types import FunctionType

from megatron.core.tensor_parallel import layers


@dataclass(frozen=True)
class Seam:
    """A method that is looked up on its class at every call."""

    owner: type
    name: str
    parameters: tuple[str, ...]  # in the versions that the tests run

    def current(self) -> FunctionType:
        """Return the method that the class has now."""
        method: FunctionType = vars(self.owner)[self.name]
        return method

    def mismatch(self) -> str | None:
        """Say how the method differs from the one that plait knows; None if it doesn't."""
        if self.name not in vars(self.owner):
            return f"{self.owner.__name__} has no {self.name} of its own"
        found = tuple(inspect.signature(self.current()).parameters)
        if found == self.parameters:
            return None
        return (
            f"{self.owner.__name__}.{self.name} takes ({', '.join(found)}), "
            f"and plait knows ({', '.join(self.parameters)})"
        )


COLUMN = Seam(
    owner=layers.ColumnParallelLinear,
    name="forward",
    parameters=("self", "input_", "weight", "runtime_gather_output"),
)
ROW = Seam(owner=layers.RowParallelLinear, name="forward", parameters=("self", "input_"))


def mismatch() -> str | None:
    """Compare all seams before the first is replaced: enabled whole, or not at all."""
    return COLUMN.mismatch() or ROW.mismatch()
