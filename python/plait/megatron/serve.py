"""Serving a layer's call, or leaving it to Megatron's own code."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

import torch
import torch.distributed as dist
from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
from megatron.core.tensor_parallel.mappings import (
    gather_from_tensor_model_parallel_region,
    scatter_to_tensor_model_parallel_region,
)

import plait
import plait.torch
from plait.megatron import losses
from plait.megatron.refusals import column_refusal, row_refusal
from plait.megatron.report import Calls
from plait.torch.columns import gather_columns

_log = logging.getLogger("plait.megatron")

_OF_OTHER_LAYERS = ("tp_comm_overlap", "fp8", "fp4")

Result = tuple[torch.Tensor, torch.Tensor | None]


@dataclass
class Service:
    """How layers are served, and what Megatron's own forwards are."""

    options: plait.torch.Options
    column: Callable[..., Result]
    row: Callable[..., Result]
    defer_logits: bool = False
    calls: Calls = field(default_factory=Calls)
    noticed: set[str] = field(default_factory=set)  # settings without an effect

    def column_forward(
        self,
        layer: ColumnParallelLinear,
        input_: torch.Tensor,
        weight: torch.Tensor | None = None,
        runtime_gather_output: bool | None = None,
    ) -> Result:
        """Do what ColumnParallelLinear.forward does."""
        shared = layer.weight if weight is None else weight
        refusal = column_refusal(layer, input_, shared, self.options.engine)
        if not self._serves(layer, refusal):
            return self.column(layer, input_, weight, runtime_gather_output)
        assert shared is not None
        gathers = layer.gather_output if runtime_gather_output is None else runtime_gather_output
        if self.defer_logits and not gathers and losses.has_logits(layer, shared):
            return losses.deferred(layer, input_, shared, self.options), None
        bias = None if layer.skip_bias_add else layer.bias
        if bias is not None and not shared.requires_grad:
            bias = bias.detach()  # Megatron's frozen column layers give their bias no gradient
        with _tokens_are_shared_equally(layer):
            output = plait.torch.column_parallel_linear(
                input_,
                shared,
                bias,
                group=layer.tp_group,
                sequence_parallel=layer.sequence_parallel,
                accumulate_into_main_grad=layer.gradient_accumulation_fusion,
                options=self.options,
            )
        if gathers:
            output = _gathered(output, layer.tp_group, self.options)
        return output, layer.bias if layer.skip_bias_add else None

    def row_forward(self, layer: RowParallelLinear, input_: torch.Tensor) -> Result:
        """Do what RowParallelLinear.forward does."""
        if not self._serves(layer, row_refusal(layer, input_, layer.weight, self.options.engine)):
            return self.row(layer, input_)
        if not layer.input_is_parallel:
            input_ = scatter_to_tensor_model_parallel_region(input_, group=layer.tp_group)
        if layer.sequence_parallel and input_.shape[0] % layer.tp_group.size() != 0:
            raise _unequal_shares(layer, f"its input has {input_.shape[0]} tokens")
        output = plait.torch.row_parallel_linear(
            input_,
            layer.weight,
            None if layer.skip_bias_add else layer.bias,
            group=layer.tp_group,
            sequence_parallel=layer.sequence_parallel,
            # Megatron adds up the gradients of what ranks share when the step ends.
            bias_gradient_of_own_rows=True,
            accumulate_into_main_grad=layer.gradient_accumulation_fusion,
            options=self.options,
        )
        return output, layer.bias if layer.skip_bias_add else None

    def leave(self, layer: torch.nn.Module, refusal: str) -> None:
        """Count a call that Megatron makes, and log the first of its class and reason."""
        if self.calls.add(layer, refusal) and _speaks(layer):
            _log.warning("%s is left to Megatron: %s", type(layer).__name__, refusal)

    def _serves(self, layer: ColumnParallelLinear | RowParallelLinear, refusal: str | None) -> bool:
        if refusal is not None:
            self.leave(layer, refusal)
            return False
        self.calls.add(layer, None)
        for name in _OF_OTHER_LAYERS:
            if getattr(layer.config, name, None) and name not in self.noticed:
                self.noticed.add(name)
                if _speaks(layer):
                    _log.warning(
                        "%s has no effect on %s, with plait or without: it is a setting of "
                        "layers of Transformer Engine",
                        name,
                        type(layer).__name__,
                    )
        return True


def _gathered(
    own: torch.Tensor, group: dist.ProcessGroup, options: plait.torch.Options
) -> torch.Tensor:
    """Gather columns, straight to their places where plait can."""
    if options.engine == "native" and own.is_cpu:
        return gather_columns(own, (own.shape[-1],) * group.size(), group)
    out: torch.Tensor = gather_from_tensor_model_parallel_region(own, group=group)
    return out


@contextlib.contextmanager
def _tokens_are_shared_equally(layer: ColumnParallelLinear) -> Iterator[None]:
    """Name Megatron's rule where ranks have different numbers of tokens; each knows its own."""
    try:
        yield
    except plait.Error as error:
        differ = error.code == plait.Code.mismatch and "disagree on m:" in str(error)
        if not layer.sequence_parallel or not differ:
            raise
        raise _unequal_shares(layer, str(error)) from error


def _unequal_shares(layer: ColumnParallelLinear | RowParallelLinear, found: str) -> plait.Error:
    ranks = layer.tp_group.size()
    return plait.Error(
        plait.Code.invalid_argument,
        f"{type(layer).__name__}: {found}; with sequence parallelism, Megatron's rule is that "
        f"tokens are shared equally: their number must be a multiple of {ranks}, the ranks of "
        "tensor parallelism",
    )


def _speaks(layer: torch.nn.Module) -> bool:
    """Say whether this rank logs for its group."""
    group = getattr(layer, "tp_group", None)
    return group is None or group.rank() == 0
