"""One call of experts, in the native layer: the operands of torch as it takes them."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from plait import _native
from plait.torch import tensors
from plait.torch.context import Context
from plait.torch.experts.placement import Placement
from plait.torch.rows import as_rows, view
from plait.torch.weights import Owner, packed_stack

_LAYOUTS = (_native.WeightLayout.out_in, _native.WeightLayout.in_out)


@dataclass(frozen=True)
class Swiglu:
    """The activation between experts' products: (up + added) * gate * sigmoid(alpha * gate).

    gate is the first half of a row and up the second, or they alternate. `limit` bounds gate from
    above and up from both sides. `weighted`: a row's weight is multiplied with the activation,
    before that is rounded, and not with the expert's result.
    """

    interleaved: bool = False
    alpha: float = 1.0
    limit: float | None = None
    added: float = 0.0
    weighted: bool = False
    widths = 2  # F of which the first product has outputs

    @property
    def name(self) -> str:
        """Its name in the native layer."""
        return "swiglu_interleaved" if self.interleaved else "swiglu"


@dataclass(frozen=True)
class Silu:
    """Gates alone: gate * sigmoid(alpha * gate), where the first product has F outputs, not 2F.

    `limit` and `weighted` are as in Swiglu.
    """

    alpha: float = 1.0
    limit: float | None = None
    weighted: bool = False
    name, widths, interleaved, added = "silu", 1, False, 0.0


Activation = Swiglu | Silu


@dataclass
class Stacks:
    """Own experts' weights, of both products, and their biases."""

    gate_up: torch.Tensor
    down: torch.Tensor
    gate_up_bias: torch.Tensor | None = None
    down_bias: torch.Tensor | None = None
    packs: tuple[Owner, Owner] | tuple[None, None] = (None, None)  # keep packed weights
    converts: bool = False  # packing does, from another dtype

    def contiguous(self) -> "Stacks":
        """Return them as the native layer reads them, without their gradients."""
        return self._each(lambda one: one.detach().contiguous())

    def cast(self, dtype: torch.dtype) -> "Stacks":
        """Return them as autocast makes them."""
        made = self._each(lambda one: tensors.cast(one, dtype))
        made.converts = made.are_packed
        return made

    def _each(self, make: Callable[[torch.Tensor], torch.Tensor]) -> "Stacks":
        """Replace all but weights with packs: these are copied and converted as they are packed."""
        gate_up, down = self.gate_up, self.down
        if not self.are_packed:
            gate_up, down = make(gate_up), make(down)
        biases = (self.gate_up_bias, self.down_bias)
        first, second = (None if one is None else make(one) for one in biases)
        return Stacks(gate_up, down, first, second, self.packs, self.converts)

    @property
    def are_packed(self) -> bool:
        """Say whether weights are packed."""
        return self.packs[0] is not None

    def tensors(self) -> tuple[torch.Tensor | None, ...]:
        """Return all of them, as autograd takes them."""
        return self.gate_up, self.down, self.gate_up_bias, self.down_bias


@dataclass
class Call:
    """All that a call knows beside its tensors."""

    placement: Placement
    context: Context
    activation: Activation
    turned: bool  # weights are [e, inputs, outputs]
    shared_batch: bool = False  # all ranks have the same rows
    # what forward computes while it would wait; it may let rows travel by calling its argument
    beside: Callable[[Callable[[], None]], None] | None = None
    schedule: str = ""  # of the native layer, once there is one

    def layer(self, hidden: torch.Tensor, slots: int, stacks: Stacks) -> Any:
        """Return the native layer, which all modules of experts of these sizes share."""
        settings = self.context.settings
        inner = stacks.down.shape[1 if self.turned else 2]
        width = hidden.shape[1]
        how = (self.placement, self.activation, self.turned, self.shared_batch, stacks.are_packed)
        key = (how, inner, width, slots, hidden.dtype)
        found = self.context.experts.get(key)
        if found is None:
            dtype = tensors.DTYPES[hidden.dtype]
            found = self.context.experts[key] = _native._Experts(
                self.context.comm,
                hidden=width,
                inner=inner,
                experts=self.placement.experts,
                top=slots,
                parts=self.placement.parts,
                dtype=dtype,
                wire=dtype if settings.wire in (None, _native.Dtype.s8) else settings.wire,
                is_packed=stacks.are_packed,
                layout=_LAYOUTS[self.turned],
                activation=self.activation.name,
                alpha=self.activation.alpha,
                limit=self.activation.limit,
                added=self.activation.added,
                weighted=self.activation.weighted,
                ranks=self.placement.ranks,
                plans=self.context.plans,
                replicated=self.shared_batch,
                threads=settings.threads,
                backend=settings.backend,
            )
        self.schedule = found.schedule.name
        return found

    def operands(self, stacks: Stacks, dtype: torch.dtype) -> tuple[Any, ...]:
        """Return weights and biases as the native layer takes them: contiguous, or packed."""
        first, second = stacks.packs
        if first is None or second is None:
            return views(*stacks.tensors())
        return (
            packed_stack(stacks.gate_up, dtype, first, turned=self.turned),
            packed_stack(stacks.down, dtype, second, turned=self.turned),
            *views(stacks.gate_up_bias, stacks.down_bias),
        )


def views(*stacks: torch.Tensor | None) -> tuple[Any, ...]:
    """View contiguous stacks as matrices, one below another; the caller keeps them."""
    return tuple(
        None if one is None else view(one.view(-1, max(1, one.shape[-1]))) for one in stacks
    )


def run_forward(
    call: Call,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    stacks: Stacks,
    *,
    gradients: bool = False,
) -> tuple[torch.Tensor, tuple[int, list[int]]]:
    """Return the result, and how many rows were multiplied here and sent to each rank."""
    stacks, factors = stacks.contiguous(), weights.float().contiguous()
    out = hidden.new_empty(hidden.shape)
    counted = call.layer(hidden, ids.shape[1], stacks).forward(
        view(hidden),
        ids.data_ptr(),
        factors.data_ptr(),
        call.operands(stacks, hidden.dtype),
        view(out),
        gradients,
        call.beside,
    )
    return out, counted


def run_backward(
    call: Call,
    grad: torch.Tensor,
    hidden: torch.Tensor,
    ids: torch.Tensor,
    weights: torch.Tensor,
    given: Stacks,
    needs: Sequence[bool],
) -> tuple[torch.Tensor | None, ...]:
    """Return the gradients of hidden, weights and stacks, or None where they aren't needed."""
    stacks, factors = given.contiguous(), weights.float().contiguous()
    grad = as_rows(grad)
    wanted = zip((hidden, factors, *stacks.tensors()), needs, strict=False)
    made = [one.new_empty(one.shape) if one is not None and need else None for one, need in wanted]
    grad_hidden, grad_factors, *grads = made
    call.layer(hidden, ids.shape[1], stacks).backward(
        view(hidden),
        ids.data_ptr(),
        factors.data_ptr(),
        call.operands(stacks, hidden.dtype),
        view(grad),
        None if grad_hidden is None else view(grad_hidden),
        0 if grad_factors is None else grad_factors.data_ptr(),
        views(*grads),
    )
    grad_weights = None if grad_factors is None else grad_factors.to(weights.dtype)
    return grad_hidden, grad_weights, *grads
