"""The methods that every engine has: operators, collectives of rows, and the two layers."""

import abc
from dataclasses import dataclass, field
from typing import Literal

import torch

from plait import _native
from plait.torch import weights
from plait.torch.rows import rows_that_all_have

Kind = Literal["column", "row"]
Pair = tuple[torch.Tensor, torch.Tensor]
Operands = tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]  # x, weight and bias
Gradients = tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]


@dataclass
class Call:
    """A layer's call without its tensors, and what its forward leaves to its backward."""

    kind: Kind
    sequence_parallel: bool
    own_bias_gradient: bool
    main_grad: torch.Tensor | None  # the parameter whose main_grad takes the gradient
    layer: weights.Owner | None  # the module's; None: the weight stands for itself
    rows: int = -1  # of all ranks
    engine: "Engine" = field(init=False)

    # The native engine alone uses the rest.
    owner: weights.Owner = field(init=False)
    dtype: torch.dtype = torch.float32  # of the product
    bias_dtype: torch.dtype | None = None
    packs: bool = False
    is_direct: bool = False  # later calls of the owner can be; see plait.torch.direct
    weight: torch.Tensor | None = None  # as the caller has it, where it is packed
    state: _native.LinearState | None = None

    @property
    def name(self) -> str:
        """The function that was called."""
        return f"{self.kind}_parallel_linear"

    def own_rows(self) -> int:
        """Count the rows that this rank has where ranks share them."""
        if not self.sequence_parallel:
            return self.rows
        return _native.balanced_shard(self.rows, *self.engine.place()).count


class Engine(abc.ABC):
    """Makes the products and collectives of some ranks. Operators take a plain weight."""

    @abc.abstractmethod
    def place(self) -> tuple[int, int]:
        """Return this rank and the number of ranks."""

    @abc.abstractmethod
    def multiply(
        self,
        operator: str,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        turned: bool,
        rows: int,
        gathered: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """Make an operator's call; `gathered` takes the rows of all ranks."""

    def multiply_and_gather(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        turned: bool,
        rows: int,
    ) -> Pair:
        """Make a call of all_gather_matmul that returns the gathered rows too."""
        name = "all_gather_matmul"
        rows = rows_that_all_have(name, x.shape[0], self.place, rows)
        gathered = x.new_empty(rows, x.shape[1])
        return self.multiply(name, x, weight, bias, turned, rows, gathered), gathered

    @abc.abstractmethod
    def gathered(self, x: torch.Tensor, rows: int) -> torch.Tensor:
        """Return the rows of all ranks, `rows` in all."""

    @abc.abstractmethod
    def sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum over ranks."""

    @abc.abstractmethod
    def own_sum_of(self, x: torch.Tensor) -> torch.Tensor:
        """Return this rank's rows of the sum over ranks."""

    @abc.abstractmethod
    def prepare(
        self, call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> Operands:
        """Return the operands as forward() takes them: chosen on all ranks alike."""

    @abc.abstractmethod
    def forward(
        self, call: Call, x: torch.Tensor, weight: torch.Tensor, bias: torch.Tensor | None
    ) -> torch.Tensor:
        """Multiply what prepare() has returned."""

    @abc.abstractmethod
    def backward(
        self,
        call: Call,
        needs: tuple[bool, bool, bool],
        grad_out: torch.Tensor,
        x: torch.Tensor | None,
        weight: torch.Tensor,
    ) -> Gradients:
        """Return the gradients of x, weight and bias that are needed.

        `x` is None where the weight needs no gradient, or the call has kept what it needs of it.
        """
