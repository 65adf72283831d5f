"""One call of experts: the exchanges of its rows, and what is computed with rows alone."""

import functools
import math
from dataclasses import dataclass, field

import torch
from torch.utils.dlpack import from_dlpack

from plait import _native
from plait.torch import grouped
from plait.torch.experts.placement import Placement, Route
from plait.torch.rows import view
from plait.torch.weights import Owner, packed_stack


@dataclass(frozen=True)
class Swiglu:
    """The activation between experts' products: (up + added) * gate * sigmoid(alpha * gate).

    gate is the first half of a row and up the second, or they alternate. `limit` bounds gate from
    above and up from both sides.
    """

    interleaved: bool = False
    alpha: float = 1.0
    limit: float | None = None
    added: float = 0.0

    @functools.cached_property
    def native(self) -> _native._Gate:
        """Return it as the native module takes it."""
        limit = math.inf if self.limit is None else self.limit
        return _native._Gate(
            interleaved=self.interleaved, alpha=self.alpha, limit=limit, added=self.added
        )

    def __reduce__(self) -> tuple[object, ...]:
        return Swiglu, (self.interleaved, self.alpha, self.limit, self.added)


@dataclass
class Call:
    """All that a call knows beside its tensors."""

    ids: torch.Tensor
    placement: Placement
    rank: int
    comm: _native.Communicator | None  # None: this rank has all experts
    activation: Swiglu
    turned: bool  # weights are [e, inputs, outputs]
    threads: int = 0
    backend: str = ""  # of products; otherwise the best
    route: Route = field(init=False)
    received: list[int] = field(init=False)  # from each rank for each group
    rows: list[int] = field(init=False)  # of each own expert

    @property
    def slots(self) -> int:
        """How many experts a token has."""
        return self.ids.shape[1]

    def dispatch(self, sent: torch.Tensor) -> torch.Tensor:
        """Send sorted rows to their experts, and return those of own experts."""
        found, self.received = self._exchange(sent, self.route.counts, back=False)
        return found

    def return_rows(self, rows: torch.Tensor) -> torch.Tensor:
        """Send rows back where they came from."""
        return self._exchange(rows, self.received, back=True)[0]

    def _exchange(
        self, x: torch.Tensor, counts: list[int], *, back: bool
    ) -> tuple[torch.Tensor, list[int]]:
        if self.comm is None:
            return x, counts
        found = _native.all_to_all_rows(
            view(x), counts, self.comm, groups=self.placement.groups, back=back
        )
        return from_dlpack(found.rows), found.counts

    def count_rows(self, own: int) -> None:
        """Add up what has come for each of `own` experts."""
        groups = self.placement.groups
        self.rows = [sum(self.received[group::groups]) for group in range(own)]

    def gate(self, x: torch.Tensor) -> torch.Tensor:
        """Apply the activation."""
        out = x.new_empty(x.shape[0], x.shape[1] // 2)
        _native._gate(view(x), view(out), self.activation.native, self.threads)
        return out

    def gate_gradient(self, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        """Return the gradient of what gate() was given."""
        out = torch.empty_like(x)
        _native._gate_gradient(view(x), view(grad), view(out), self.activation.native, self.threads)
        return out

    def combine(
        self, rows: torch.Tensor, weights: torch.Tensor | None, tokens: int, route: Route
    ) -> torch.Tensor:
        """Add each token's rows up, in the order of its slots."""
        out = rows.new_empty(tokens, rows.shape[1])
        at = 0 if weights is None else weights.data_ptr()
        places = route.places.data_ptr()
        _native._combine(view(rows), places, at, self.slots, view(out), self.threads)
        return out

    def combine_gradient(
        self, grad: torch.Tensor, rows: torch.Tensor, weights: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the gradients of what combine() was given: of rows, and of weights."""
        grad_rows, grad_weights = torch.empty_like(rows), torch.empty_like(weights)
        _native._combine_gradient(
            view(grad),
            view(rows),
            self.route.places.data_ptr(),
            weights.data_ptr(),
            self.slots,
            view(grad_rows),
            grad_weights.data_ptr(),
            self.threads,
        )
        return grad_rows, grad_weights

    def multiply(
        self,
        x: torch.Tensor,
        weight: torch.Tensor,
        bias: torch.Tensor | None = None,
        *,
        turned: bool = False,
        packs: Owner | None = None,
    ) -> torch.Tensor:
        """Multiply own experts' rows by one of their stacks.

        `turned`: by its transpose. `packs` keeps the packed weights of the stack.
        """
        is_turned = turned != self.turned
        if packs is None:
            return grouped.multiply(
                x, weight, self.rows, bias, is_turned, self.threads, self.backend
            )
        out = x.new_empty(x.shape[0], weight.shape[2 if is_turned else 1])
        added = None if bias is None else [one.contiguous()[None] for one in bias.detach()]
        _native.grouped_matmul(
            view(x),
            packed_stack(weight, packs, turned=is_turned),
            self.rows,
            view(out),
            biases=None if added is None else [view(one) for one in added],
            threads=self.threads,
            backend=self.backend,
        )
        return out

    def weight_gradient(self, x: torch.Tensor, grad: torch.Tensor) -> torch.Tensor:
        """Return the gradient of a stack of weights, of which x were the rows."""
        pair = (x, grad) if self.turned else (grad, x)
        return grouped.sum_over_rows(*pair, self.rows, self.threads, self.backend)

    def bias_gradient(self, grad: torch.Tensor) -> torch.Tensor:
        """Return the gradient of own experts' biases."""
        return grouped.sum_of_biases(grad, self.rows, self.threads, self.backend)
