"""The layers as classes, for programs that write specs, and a provider that names them."""

import inspect
from typing import Any

import torch
from megatron.core.models.backends import LocalSpecProvider
from megatron.core.tensor_parallel import layers

from plait.megatron import fusion
from plait.megatron.serve import Result
from plait.megatron.swap import refuse_unknown_version, service


class ColumnParallelLinear(layers.ColumnParallelLinear):
    """Megatron's column layer served by plait: as enable() says, or else as the environment."""

    __signature__ = inspect.signature(layers.ColumnParallelLinear)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse_unknown_version("ColumnParallelLinear")
        with fusion.provided():
            super().__init__(*args, **kwargs)

    def forward(
        self,
        input_: torch.Tensor,
        weight: torch.Tensor | None = None,
        runtime_gather_output: bool | None = None,
    ) -> Result:
        """Return the output, and the bias where it is skipped."""
        return service().column_forward(self, input_, weight, runtime_gather_output)


class RowParallelLinear(layers.RowParallelLinear):
    """Megatron's row layer served by plait: as enable() says, or else as the environment."""

    __signature__ = inspect.signature(layers.RowParallelLinear)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        refuse_unknown_version("RowParallelLinear")
        with fusion.provided():
            super().__init__(*args, **kwargs)

    def forward(self, input_: torch.Tensor) -> Result:
        """Return the output, and the bias where it is skipped."""
        return service().row_forward(self, input_)


class SpecProvider(LocalSpecProvider):
    """Megatron's local specs with the two layers of plait."""

    def column_parallel_linear(self) -> type:
        """Return the class of a column layer."""
        return ColumnParallelLinear

    def row_parallel_linear(self) -> type:
        """Return the class of a row layer."""
        return RowParallelLinear
