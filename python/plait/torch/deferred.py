"""Logits that are multiplied when a program uses all of them, and not for the largest or a loss."""

import contextlib
import functools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch.nn import functional
from torch.utils._pytree import tree_map_only

from plait.errors import refuse
from plait.torch import tensors, weights
from plait.torch.context import context_of
from plait.torch.options import Options
from plait.torch.rows import as_rows
from plait.torch.vocabulary import linear_cross_entropy, top_of_rows


@dataclass(frozen=True)
class Head:
    """The last product of a language model, by a vocabulary of which each rank has some rows."""

    size: int  # of a row of what multiply() returns
    group: dist.ProcessGroup | None
    options: Options
    multiply: Callable[[torch.Tensor], torch.Tensor]  # rows, as the model's layer does
    weight: Callable[[], torch.Tensor]  # this rank's rows of the vocabulary
    # These rows, for a product without gradients. None: multiply() returns their columns alone.
    operand: Callable[[], weights.Native] | None
    main_grad: bool = False  # adds the weight's gradient to weight.main_grad
    vocab_size: int | None = None  # the weight's rows from this id on are padding
    parameter: torch.Tensor | None = None  # has the weight, if others may write to it

    def version(self) -> int:
        """Return autograd's count of writes to the weight."""
        if self.parameter is None or self.parameter.is_inference():
            return 0
        return self.parameter._version


class DeferredLogits(torch.Tensor):
    """Logits of the rows `x`, which are not there until an operation needs them all.

    Indexing rows, reshaping them and converting to f32 put it off, and argmax() and cross_entropy()
    do without. Any other operation multiplies, once, and sees a plain tensor.
    """

    x: torch.Tensor
    head: Head
    base: "DeferredLogits | None"  # has the same memory
    part: Callable[[torch.Tensor], torch.Tensor]  # of the base's values, these
    kept: torch.Tensor | None
    has_views: bool  # or is one: others have the same memory
    divided: Any  # what an integration knows of a division of these logits
    autocast: torch.dtype | None
    grads: bool  # autograd sees how they are made
    inference: bool  # they are made in inference mode
    version: int  # of the weight that they are made by

    @classmethod
    def of(cls, x: torch.Tensor, head: Head) -> "DeferredLogits":
        """Put off a product."""
        on = torch.is_autocast_enabled("cpu")
        autocast = torch.get_autocast_dtype("cpu") if on else None
        return cls._made(x, head, autocast or x.dtype, autocast)

    @classmethod
    def _made(
        cls, x: torch.Tensor, head: Head, dtype: torch.dtype, autocast: torch.dtype | None
    ) -> "DeferredLogits":
        size = (*x.shape[:-1], head.size)
        mark: Any = functools.partial(_Mark.forward, None)
        if tensors.require_gradients(x, head.parameter):
            mark = _Mark.apply
        made: DeferredLogits = mark(cls, size, dtype, x, head.parameter)
        made.x, made.head, made.autocast = x, head, autocast
        made.base = made.kept = made.divided = None
        made.has_views = False
        made.version = head.version()
        made.grads = torch.is_grad_enabled()
        made.inference = torch.is_inference_mode_enabled()
        return made

    def _like(
        self,
        x: torch.Tensor,
        part: Callable[[torch.Tensor], torch.Tensor] | None,
        dtype: torch.dtype | None = None,
    ) -> "DeferredLogits":
        """Return other rows, or a copy if there is no part."""
        grads = torch.is_grad_enabled() and self.grads
        with torch._C.DisableTorchFunctionSubclass(), torch.set_grad_enabled(grads):
            made = self._made(x, self.head, dtype or self.dtype, self.autocast)
        made.version = self.version
        if part is not None:
            made.base, made.part = self, part
            made.has_views = self.has_views = True
        return made

    @property
    def is_there(self) -> bool:
        """Say whether the logits have been multiplied: then their memory may have changed."""
        return self.kept is not None or (self.base is not None and self.base.is_there)

    def whole(self) -> torch.Tensor:
        """Return a plain tensor, the same in each call."""
        if self.kept is None and self.base is not None:
            with self._as_made():
                self.kept = self.part(self.base.whole())
        elif self.kept is None:
            self._check_weight()
            with self._as_made():
                rows = self.head.multiply(self.x)
                with torch._C.DisableTorchFunctionSubclass():
                    self.kept = rows.to(self.dtype)
        return self.kept

    def top(self, k: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the k largest logits of each row, and their ids."""
        head = self.head
        assert head.operand is not None
        self._check_weight()
        with torch.no_grad():
            rows = as_rows(self.x.reshape(-1, self.x.shape[-1]).to(self._rounded()))
            context = context_of(head.group, head.options, "linear_top")
            values, ids = top_of_rows(
                rows, head.operand(), k, context, logits=rows.dtype, vocab_size=head.vocab_size
            )
        return values.reshape(*self.x.shape[:-1], k), ids.reshape(*self.x.shape[:-1], k)

    def cross_entropy(self, targets: torch.Tensor, **how: Any) -> torch.Tensor:
        """Compute the loss that plait.torch.linear_cross_entropy() does."""
        self._check_weight()
        grads = torch.is_grad_enabled() and self.grads
        with torch.set_grad_enabled(grads), self._autocast_as_made():
            return linear_cross_entropy(
                self.x,
                self.head.weight(),
                targets,
                group=self.head.group,
                logits=self._rounded(),
                accumulate_into_main_grad=self.head.main_grad,
                vocab_size=self.head.vocab_size,
                options=self.head.options,
                **how,
            )

    def _check_weight(self) -> None:
        if self.version != self.head.version():
            refuse(
                "defer_logits",
                "the weight of these logits was changed before they were used; use them before "
                "the optimizer's step, or leave out defer_logits",
            )

    def _rounded(self) -> torch.dtype:
        """Return the dtype to which the layer rounds its results."""
        return self.autocast or self.x.dtype

    @contextlib.contextmanager
    def _as_made(self) -> Iterator[None]:
        """Let autograd see what it would have seen if the logits had not been put off."""
        mode: Any = contextlib.nullcontext()
        if torch.is_inference_mode_enabled() != self.inference:
            mode = torch.inference_mode(self.inference)
        with mode, torch.set_grad_enabled(self.grads), self._autocast_as_made():
            yield

    def _autocast_as_made(self) -> contextlib.AbstractContextManager[Any]:
        return torch.autocast("cpu", dtype=self.autocast, enabled=self.autocast is not None)

    @classmethod
    def __torch_function__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        """Put off, do without, or multiply."""
        if func in _METADATA:
            with torch._C.DisableTorchFunctionSubclass():
                return func(*args, **(kwargs or {}))
        serve = SERVED.get(func)
        first = args[0] if args else None
        if serve is not None and isinstance(first, DeferredLogits) and not first.is_there:
            found = serve(*args, **(kwargs or {}))
            if found is not NotImplemented:
                return found
        return func(*_plain(args), **_plain(kwargs or {}))

    @classmethod
    def __torch_dispatch__(  # type: ignore[override]
        cls, func: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        """Multiply, for what goes round Python."""
        return func(*_plain(args), **_plain(kwargs or {}))


def _plain(values: Any) -> Any:
    return tree_map_only(DeferredLogits, DeferredLogits.whole, values)


class _Mark(torch.autograd.Function):
    """Makes a tensor without memory. Operations use its rows, and their gradients go there."""

    @staticmethod
    def forward(
        ctx: Any,
        cls: type,
        size: tuple[int, ...],
        dtype: torch.dtype,
        x: torch.Tensor,
        parameter: torch.Tensor | None,
    ) -> Any:
        if ctx is not None:
            ctx.set_materialize_grads(False)
        return torch.Tensor._make_wrapper_subclass(cls, size, dtype=dtype, device=x.device)

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        if grad is None:  # the function's gradients are of other tensors
            return None, None, None, None, None
        refuse(
            "defer_logits",
            "a torch.autograd.Function of the program has used logits that are not there; use "
            "torch's own functions of them, or leave out defer_logits",
        )


# The functions below return NotImplemented for operations that need the logits.


def _index(logits: DeferredLogits, key: Any) -> Any:
    """Serve rows that integers and slices choose."""
    keys = key if isinstance(key, tuple) else (key,)
    if not all(one is Ellipsis or type(one) in (int, slice) for one in keys):
        return NotImplemented
    if Ellipsis in keys:
        at = keys.index(Ellipsis)
        every = (slice(None),) * (logits.x.dim() - len(keys) + 1)
        keys = (*keys[:at], *every, *keys[at + 1 :])
    if Ellipsis in keys or (len(keys) == logits.x.dim() and keys[-1] != slice(None)):
        return NotImplemented
    return logits._like(logits.x[keys], lambda whole: whole[key])


def _reshape(logits: DeferredLogits, *shape: Any, **named: Any) -> Any:
    """Serve other numbers of rows."""
    if len(shape) == 1 and isinstance(shape[0], (tuple, list, torch.Size)):
        shape = tuple(shape[0])
    if named or not shape or not all(type(one) is int for one in shape):
        return NotImplemented
    if shape[-1] != logits.head.size:
        return NotImplemented
    x = logits.x.reshape(*shape[:-1], logits.x.shape[-1])
    return logits._like(x, lambda whole: whole.reshape(shape))


def _contiguous(logits: DeferredLogits, **how: Any) -> Any:
    return NotImplemented if how else logits


def _clone(logits: DeferredLogits, **how: Any) -> Any:
    return NotImplemented if how else logits._like(logits.x, None)


def _float(logits: DeferredLogits) -> Any:
    return logits if logits.dtype == torch.float32 else logits._like(logits.x, None, torch.float32)


def _to(logits: DeferredLogits, *args: Any, copy: bool = False, **how: Any) -> Any:
    """Serve a conversion to f32, or none."""
    try:
        device, dtype, _, form = torch._C._nn._parse_to(*args, **how)
    except (RuntimeError, TypeError):
        return NotImplemented  # like another tensor
    if form is not None or (device is not None and device.type != "cpu"):
        return NotImplemented
    if dtype not in (None, logits.dtype, torch.float32):
        return NotImplemented
    converted = _float(logits) if dtype is torch.float32 else logits
    return _clone(converted) if copy else converted


def _argmax(logits: DeferredLogits, dim: Any = None, keepdim: bool = False, **how: Any) -> Any:
    if how or logits.head.operand is None or dim not in (-1, logits.x.dim() - 1):
        return NotImplemented
    _, ids = logits.top(1)
    return ids if keepdim else ids.squeeze(-1)


def _cross_entropy(
    logits: DeferredLogits,
    target: torch.Tensor,
    weight: torch.Tensor | None = None,
    size_average: bool | None = None,
    ignore_index: int = -100,
    reduce: bool | None = None,
    reduction: Any = "mean",
    label_smoothing: float = 0.0,
) -> Any:
    """Serve targets that are ids, without weights of classes."""
    if weight is not None or size_average is not None or reduce is not None:
        return NotImplemented
    if logits.head.operand is None:
        return NotImplemented
    if type(target) is not torch.Tensor or target.dtype != torch.int64:
        return NotImplemented
    if logits.x.dim() != 2 or target.shape != logits.x.shape[:1] or logits.dtype != torch.float32:
        return NotImplemented
    return logits.cross_entropy(
        target, ignore_index=ignore_index, reduction=reduction, label_smoothing=label_smoothing
    )


# The functions that serve operations. Integrations add their own.
SERVED: dict[Any, Callable[..., Any]] = {
    torch.Tensor.__getitem__: _index,
    torch.Tensor.view: _reshape,
    torch.Tensor.reshape: _reshape,
    torch.Tensor.contiguous: _contiguous,
    torch.Tensor.clone: _clone,
    torch.Tensor.float: _float,
    torch.Tensor.to: _to,
    torch.Tensor.argmax: _argmax,
    torch.argmax: _argmax,
    functional.cross_entropy: _cross_entropy,
}

_METADATA = frozenset(
    [
        *(
            getattr(torch.Tensor, name).__get__
            for name in (
                "device dtype grad_fn is_cpu is_cuda is_leaf layout ndim requires_grad shape"
            ).split()
        ),
        *(
            getattr(torch.Tensor, name)
            for name in "__len__ dim is_floating_point ndimension nelement numel size".split()
        ),
        torch.is_floating_point,
        torch.numel,
    ]
)
