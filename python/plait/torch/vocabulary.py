"""Largest logits and losses of a vocabulary that ranks share, without the logits themselves."""

from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, Literal, get_args

import torch
import torch.distributed as dist

from plait import _native
from plait.errors import refuse
from plait.torch import tensors, weights
from plait.torch.context import Context, context_of
from plait.torch.graphs import outside_of_graphs
from plait.torch.main_grad import main_grad_of, placeholder
from plait.torch.once import differentiable_once
from plait.torch.options import Options
from plait.torch.rows import as_rows, check_matrix, float_dtype, view
from plait.torch.unplanned import timed

_DEFAULTS = Options()

Reduction = Literal["mean", "sum", "none"]


@outside_of_graphs
def linear_top(
    x: torch.Tensor,
    weight: torch.Tensor,
    k: int = 1,
    *,
    group: dist.ProcessGroup | None = None,
    vocab_size: int | None = None,
    logits: torch.dtype = torch.float32,
    options: Options = _DEFAULTS,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Find the k largest logits of each row and their ids, the lowest of equal ones first.

    >>> linear_top(torch.ones(1, 2), torch.tensor([[1.0, 2.0], [3.0, 4.0]]))
    (tensor([[7.]]), tensor([[1]]))

    `x` is [..., inputs], the same on all ranks, and `weight` [ids of this rank, inputs]. All ranks
    make the call, and get the values in f32 and the ids, both [..., k]. A NaN is larger than any
    number. Ids from `vocab_size` on are padding. Logits are rounded to the dtype `logits` before
    they are compared: with that of x, the ids are those of torch's argmax of rounded logits, if no
    two are equal. There are no gradients.
    """
    name = "linear_top"
    with torch.no_grad():
        rows, by = _operands(name, x, weight)
        operand: Any = weights.plain(by)
        if options.fixed_weights:
            operand = weights.packed(by, by.dtype, weights.owner_of(weight))
        context = _context(name, group, options)
        values, ids = top_of_rows(rows, operand, k, context, vocab_size=vocab_size, logits=logits)
    most = values.shape[-1]
    return values.reshape(*x.shape[:-1], most), ids.reshape(*x.shape[:-1], most)


def top_of_rows(
    rows: torch.Tensor,
    operand: weights.Native,
    k: int,
    context: Context,
    *,
    logits: torch.dtype,
    vocab_size: int | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """Do what linear_top() does, for rows and a weight as the native call takes them."""
    most = max(k, 0) if isinstance(k, int) else 0
    values = torch.empty(rows.shape[0], most)
    ids = torch.empty(rows.shape[0], most, dtype=torch.int64)
    how = _how("linear_top", context, vocab_size, logits)
    with timed("linear_top", rows, how["vocab_size"]):
        _native.matmul_top(view(rows), operand, k, values, ids, context.comm, **how)
    return values, ids


@outside_of_graphs
def linear_cross_entropy(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    reduction: Reduction = "mean",
    label_smoothing: float = 0.0,
    z_loss: float = 0.0,
    ignore_index: int = -100,
    row_weights: torch.Tensor | None = None,
    vocab_size: int | None = None,
    logits: torch.dtype = torch.float32,
    accumulate_into_main_grad: bool = False,
    gradient_ahead: bool = True,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Compute the cross entropy of logits that are never in memory together.

    >>> linear_cross_entropy(torch.ones(1, 2), torch.zeros(4, 2), torch.tensor([3]))
    tensor(1.3863)

    `x` is [..., inputs], the same on all ranks, `weight` [ids of this rank, inputs], and `targets`
    [...] ids. All ranks make the call and get the same loss in f32, with the same bits for every
    number of ranks. The mean is that of rows whose target is not `ignore_index`. `label_smoothing`
    is torch's, and `z_loss` is multiplied by the square of each row's log-sum-exp. `row_weights`
    [...], the same on all ranks, such as a mask, multiply the losses, and the mean divides by the
    sum of those that count: it is not a number where that is 0.
    Ids from `vocab_size` on are padding. Logits are rounded to the dtype `logits` before they are
    used. The gradient of `x` is summed over the ranks. `accumulate_into_main_grad` adds the
    weight's gradient to `weight.main_grad`.

    A sum or mean computes its gradients beside the losses, if autograd will want them, and the
    backward pass multiplies them by the gradient of the result. This takes three products in place
    of four, and the weight's gradient is rounded after each 512 rows. Until then a loss keeps them,
    which take as much memory as `x` and `weight`: without `gradient_ahead` they are computed in the
    backward pass. So they also are in float16, where a sum may overflow, and with
    `accumulate_into_main_grad`. A second backward pass computes them anew.
    """
    name = "linear_cross_entropy"
    if reduction not in get_args(Reduction):
        refuse(name, f"reduction is {reduction!r}; it can be {', '.join(get_args(Reduction))}")
    how: dict[str, Any] = {"label_smoothing": float(label_smoothing), "z_loss": float(z_loss)}
    how["ignored_target"] = ignore_index
    context = _context(name, group, options)
    how.update(_how(name, context, vocab_size, logits))
    call = _Call(name, context, how, weight if accumulate_into_main_grad else None)
    ahead = gradient_ahead and not accumulate_into_main_grad and reduction != "none"
    if row_weights is not None:
        _check_row_weights(name, row_weights, targets)
        ahead = ahead and not row_weights.requires_grad
    rows, by, ids = _checked(call, x, weight, targets)
    sums = _Reduction.of(reduction, ids, ignore_index, row_weights)
    if ahead and rows.dtype != torch.float16 and tensors.require_gradients(rows, by):
        total: torch.Tensor = _WithGradient.apply(rows, by, ids, sums, call)  # type: ignore[no-untyped-call]
        return total
    loss, _ = _CrossEntropy.apply(rows, by, ids, call)  # type: ignore[no-untyped-call]
    return sums.weighted(loss).reshape(targets.shape) if reduction == "none" else sums.total(loss)


@outside_of_graphs
def linear_log_probs(
    x: torch.Tensor,
    weight: torch.Tensor,
    targets: torch.Tensor,
    *,
    group: dist.ProcessGroup | None = None,
    ignore_index: int = -100,
    vocab_size: int | None = None,
    logits: torch.dtype = torch.float32,
    options: Options = _DEFAULTS,
) -> torch.Tensor:
    """Compute the logarithms of the targets' probabilities, of which 0 stands for ignored ones.

    >>> linear_log_probs(torch.ones(1, 2), torch.zeros(4, 2), torch.tensor([3]))
    tensor([-1.3863])

    What the arguments mean is said at linear_cross_entropy().
    """
    name = "linear_log_probs"
    context = _context(name, group, options)
    how = {"ignored_target": ignore_index, **_how(name, context, vocab_size, logits)}
    call = _Call(name, context, how, None)
    operands = _checked(call, x, weight, targets)
    loss: torch.Tensor = _CrossEntropy.apply(*operands, call)[0]  # type: ignore[no-untyped-call]
    return 0 - loss.reshape(targets.shape)


def _operands(
    name: str, x: torch.Tensor, weight: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return both as rows that a product reads, in autocast's dtype where that is on."""
    tensors.refuse_tracing(name, x)
    tensors.refuse_transforms(name, {"x": x, "weight": weight})
    x, weight = tensors.resolved(x), tensors.resolved(weight)
    tensors.check(x, name, "x")
    check_matrix(weight, name, "weight")
    if x.dim() == 0 or x.shape[-1] != weight.shape[1]:
        refuse(name, f"x is {list(x.shape)}; its last dimension must be {weight.shape[1]}")
    if torch.is_autocast_enabled("cpu"):
        dtype = torch.get_autocast_dtype("cpu")
        x, weight = tensors.cast(x, dtype), tensors.cast(weight, dtype)
    float_dtype(x, name, "x")
    return as_rows(x.reshape(-1, x.shape[-1])), as_rows(weight)


def _context(name: str, group: dist.ProcessGroup | None, options: Options) -> Context:
    if options.engine != "native":
        refuse(name, f"it has the engine native alone, and options have {options.engine}")
    return context_of(group, options, name)


def _how(
    name: str, context: Context, vocab_size: int | None, logits: torch.dtype
) -> dict[str, Any]:
    dtype = tensors.DTYPES.get(logits)
    if dtype is None:
        refuse(name, f"logits is {logits}; it can be float32, bfloat16 or float16")
    settings = context.settings
    return {
        "vocab_size": -1 if vocab_size is None else vocab_size,
        "logits": dtype,
        "threads": settings.threads,
        "backend": settings.backend,
    }


@dataclass
class _Call:
    name: str
    context: Context
    how: dict[str, Any]  # arguments of the native calls
    main_grad: torch.Tensor | None

    def timed(self, x: torch.Tensor, what: str = "no plan") -> AbstractContextManager[None]:
        """Count a native call."""
        return timed(self.name, x, self.how["vocab_size"], what)


def _checked(
    call: _Call, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Return rows of x, the weight and ids, as the native calls take them."""
    rows, by = _operands(call.name, x, weight)
    if targets.dtype != torch.int64 or not targets.is_cpu or targets.shape != x.shape[:-1]:
        refuse(
            call.name,
            f"targets is {targets.dtype} {list(targets.shape)} on {targets.device}; it must be "
            f"torch.int64 {list(x.shape[:-1])} on cpu",
        )
    return rows, by, targets.reshape(-1).contiguous()


def _check_row_weights(name: str, row_weights: torch.Tensor, targets: torch.Tensor) -> None:
    if row_weights.shape != targets.shape or not row_weights.is_cpu or row_weights.is_complex():
        refuse(
            name,
            f"row_weights is {row_weights.dtype} {list(row_weights.shape)} on "
            f"{row_weights.device}; it must be real {list(targets.shape)} on cpu",
        )


@dataclass
class _Reduction:
    """How the losses of rows become one."""

    row_weights: torch.Tensor | None
    divisor: torch.Tensor | None  # of the sum

    @classmethod
    def of(
        cls, name: str, targets: torch.Tensor, ignored: int, row_weights: torch.Tensor | None
    ) -> "_Reduction":
        flat = None if row_weights is None else row_weights.reshape(-1).float()
        if name != "mean":
            return cls(flat, None)
        counts = targets != ignored
        return cls(flat, (counts if flat is None else flat * counts).sum())

    def weighted(self, loss: torch.Tensor) -> torch.Tensor:
        return loss if self.row_weights is None else loss * self.row_weights

    def total(self, loss: torch.Tensor) -> torch.Tensor:
        total = self.weighted(loss).sum()
        return total if self.divisor is None else total / self.divisor

    def gradient(self, rows: int) -> torch.Tensor:
        """Return the total's gradient, with the bits that autograd would give it."""
        ones = torch.ones(rows)
        return self.weighted(ones if self.divisor is None else ones / self.divisor)


def _gradients(
    ctx: Any, grad_loss: torch.Tensor, grad_log_sum_exp: torch.Tensor | None
) -> tuple[torch.Tensor | None, torch.Tensor | None]:
    """Multiply the logits again, for the gradients of x and the weight."""
    call: _Call = ctx.call
    x, weight, targets, log_sum_exp = ctx.saved_tensors[:4]
    needs_x, needs_weight = ctx.needs_input_grad[:2]
    dx = torch.empty_like(x) if needs_x else None
    dw, given = None, None
    if needs_weight and call.main_grad is None:
        dw = given = torch.empty_like(weight)
    elif needs_weight:
        dw = main_grad_of(call.main_grad, call.name)
    with call.timed(x, "gradient alone"):
        _native.matmul_cross_entropy_gradient(
            view(x),
            weights.plain(weight),
            targets,
            log_sum_exp,
            grad_loss.contiguous(),
            call.context.comm,
            grad_log_sum_exp=None if grad_log_sum_exp is None else grad_log_sum_exp.contiguous(),
            dx=None if dx is None else view(dx),
            dw=None if dw is None else view(dw),
            accumulate_dw=given is None,
            **call.how,
        )
    if needs_weight and given is None:
        given = placeholder(call.main_grad, weight)
    return dx, given


class _CrossEntropy(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: torch.Tensor, weight: torch.Tensor, targets: torch.Tensor, call: _Call
    ) -> tuple[torch.Tensor, torch.Tensor]:
        loss = torch.empty(x.shape[0])
        log_sum_exp = torch.empty(x.shape[0])
        with call.timed(x):
            _native.matmul_cross_entropy(
                view(x),
                weights.plain(weight),
                targets,
                loss,
                call.context.comm,
                log_sum_exp=log_sum_exp,
                **call.how,
            )
        ctx.call = call
        ctx.save_for_backward(x, weight, targets, log_sum_exp)
        return loss, log_sum_exp

    @staticmethod
    @differentiable_once
    def backward(
        ctx: Any, grad_loss: torch.Tensor, grad_log_sum_exp: torch.Tensor
    ) -> tuple[torch.Tensor | None, ...]:
        return (*_gradients(ctx, grad_loss, grad_log_sum_exp), None, None)


class _WithGradient(torch.autograd.Function):
    """A total of losses, whose gradient is there before the backward pass."""

    @staticmethod
    def forward(
        ctx: Any,
        x: torch.Tensor,
        weight: torch.Tensor,
        targets: torch.Tensor,
        reduction: _Reduction,
        call: _Call,
    ) -> torch.Tensor:
        losses, log_sum_exp = torch.empty(x.shape[0]), torch.empty(x.shape[0])
        grad_loss = reduction.gradient(x.shape[0])
        needs_x, needs_weight = ctx.needs_input_grad[:2]
        dx = torch.empty_like(x) if needs_x else None
        dw = torch.empty_like(weight) if needs_weight else None
        with call.timed(x, "with its gradient"):
            _native.matmul_cross_entropy_with_gradient(
                view(x),
                weights.plain(weight),
                targets,
                grad_loss,
                call.context.comm,
                losses=losses,
                log_sum_exp=log_sum_exp,
                dx=None if dx is None else view(dx),
                dw=None if dw is None else view(dw),
                **call.how,
            )
        ctx.call, ctx.made = call, (dx, dw)
        ctx.save_for_backward(x, weight, targets, log_sum_exp, grad_loss)
        return reduction.total(losses)

    @staticmethod
    @differentiable_once
    def backward(ctx: Any, grad: torch.Tensor) -> tuple[torch.Tensor | None, ...]:
        # The gradients are given away, and may be changed then: another pass makes new ones.
        made, ctx.made = ctx.made, None
        if made is None:
            made = _gradients(ctx, grad * ctx.saved_tensors[4], None)
        elif float(grad) != 1:
            made = [None if one is None else one.mul_(grad) for one in made]
        return (*made, None, None, None)
