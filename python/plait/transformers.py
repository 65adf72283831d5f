"""Hugging Face's tensor parallelism with plait's layers.

    import plait.transformers

    plait.transformers.enable()
    model = AutoModelForCausalLM.from_pretrained(
        name, distributed_config=DistributedConfig(tp_size=2)
    )
    model.generate(**inputs)

`enable()` puts styles under the names of theirs ("colwise", "rowwise", ...) for models that are
loaded from then on. Sharded loading, saving, plans and `generate()` stay as they are. A call that
plait does not serve is made by their code, and one sentence a reason is logged.
"""

import atexit
import contextlib
import logging
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor
from transformers.distributed import tensor_parallel
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

import plait
import plait.torch
from plait import _native
from plait.torch.columns import gather_columns, split_columns
from plait.torch.linear import quantized_linear
from plait.torch.weights import Owner

__all__ = ["disable", "enable", "enabled", "report"]

_log = logging.getLogger("plait.transformers")


@dataclass
class _Service:
    """How modules are served, and what was."""

    options: plait.torch.Options
    weight: str | None
    calls: Counter[str | None] = field(default_factory=Counter)  # None: served

    def serves(self, refusal: str | None, group: dist.ProcessGroup) -> bool:
        self.calls[refusal] += 1
        if refusal is not None and self.calls[refusal] == 1 and group.rank() == 0:
            _log.warning("a linear layer is left to transformers: %s", refusal)
        return refusal is None


_service: _Service | None = None
_last: _Service | None = None


def enable(
    *,
    weight: str | None = None,
    schedule: plait.torch.Schedule | None = None,
    parts: int | None = None,
    wire: str | None = None,
    settings: plait.Settings | None = None,
) -> None:
    """Serve the linear layers of models that are loaded from now on.

    Every rank makes the call, with the same options. `weight` quantises what is served ("s8",
    "s8:group=128"): for generation. The same call again does nothing; other options raise, until
    disable().
    """
    global _service, _last
    asked = plait.torch.Options(schedule=schedule, parts=parts, wire=wire, settings=settings)
    # Settings are read now, and what is wrong in them is refused now, on all ranks.
    options = replace(asked, settings=asked.resolved())
    if weight is not None:
        _native.QuantScheme(weight)  # refuses what is no scheme
    if _service is not None:
        if (_service.options, _service.weight) == (options, weight):
            return
        raise plait.Error(
            plait.Code.invalid_argument,
            "plait.transformers.enable: it is enabled with other options; call disable() first",
        )
    missing = [name for name in _STYLES if name not in ALL_PARALLEL_STYLES]
    if missing:
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.transformers.enable: this version of transformers has no style "
            f"{', '.join(missing)}; nothing was replaced",
        )
    _service = _last = _Service(options, weight)
    for name, mixin in _STYLES.items():
        theirs: Any = ALL_PARALLEL_STYLES[name]
        style: Any = type(f"Plait{type(theirs).__name__}", (mixin, type(theirs)), {})
        ours = style.__new__(style)
        ours.__dict__.update(theirs.__dict__)
        ours.service = _service
        ALL_PARALLEL_STYLES[name] = ours
    _log.info("tensor-parallel layers of transformers are served by plait: %s", asked)


def disable() -> None:
    """Load models with transformers' own styles again. What was loaded stays served."""
    global _service
    if _service is None:
        return
    for name in _STYLES:
        if getattr(ALL_PARALLEL_STYLES[name], "service", None) is _service:
            del ALL_PARALLEL_STYLES[name]
        else:
            _log.warning("the style %s was replaced since, and is left as it is", name)
    _service = None


@atexit.register
def _forget() -> None:
    """Drop what is native before the module that made it: models hold what serves them."""
    if _last is not None:
        _last.options = plait.torch.Options()


@contextlib.contextmanager
def enabled(**options: Any) -> Iterator[None]:
    """Enable for a block."""
    enable(**options)
    try:
        yield
    finally:
        disable()


@dataclass(frozen=True)
class Report:
    """How many calls were served, and how many were left for which reason."""

    served: int = 0
    refusals: tuple[tuple[str, int], ...] = ()
    operators: str = ""

    def __str__(self) -> str:
        lines = [f"linear layers: {self.served} calls served by plait"]
        lines += [f"{calls} calls left to transformers: {why}" for why, calls in self.refusals]
        return "\n".join([*lines, self.operators])


def report() -> Report:
    """Say how many calls were served, and why others were not."""
    if _last is None:
        return Report()
    refusals = tuple((why, calls) for why, calls in _last.calls.items() if why is not None)
    return Report(_last.calls[None], refusals, str(plait.torch.report()))


def _local(tensor: Any) -> Any:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _refusal(module: nn.Linear, x: Any) -> str | None:
    if type(x) not in (torch.Tensor, nn.Parameter):
        return f"its input is a {type(x).__name__}"
    weight = _local(module.weight)
    if x.device.type != "cpu":
        return f"its input is on {x.device}, and plait computes on the CPU"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"its input is {x.dtype}"
    if weight.dtype != x.dtype and not torch.is_autocast_enabled("cpu"):
        return f"its input is {x.dtype}, and its weight is {weight.dtype}"
    return None


class _Style:
    """Replaces `forward` of nn.Linear, and leaves all else of a style as it is."""

    service: _Service

    def serve(self, module: nn.Linear, x: torch.Tensor, site: "_Site") -> torch.Tensor:
        raise NotImplementedError

    def install_forward(self, module: nn.Module, mesh: Any) -> nn.Module:
        super().install_forward(module, mesh)  # type: ignore[misc]
        theirs: Callable[..., Any] = module.forward
        if type(module) is not nn.Linear or getattr(module, "_hf_quantized_needs_local_tp", False):
            return module
        group = mesh.get_group() if mesh.ndim == 1 else mesh.get_group("tp")
        site = _Site(group, self.service)

        def forward(x: Any, *args: Any, **kwargs: Any) -> Any:
            if args or kwargs or not self.service.serves(_refusal(module, x), group):
                return theirs(x, *args, **kwargs)
            return self.serve(module, x, site)

        vars(module)["forward"] = forward  # as transformers does
        return module


@dataclass
class _Site:
    """What a served module keeps from call to call."""

    group: dist.ProcessGroup
    service: _Service
    owner: Owner = field(default_factory=Owner)
    quantized: _native.PackedWeight | None = None

    def multiply(
        self, kind: plait.torch.linear.Kind, module: nn.Linear, x: torch.Tensor
    ) -> torch.Tensor:
        weight, bias = _local(module.weight), _local(module.bias)
        options = self.service.options
        if self.service.weight is not None:
            if self.quantized is None:
                self.quantized = _quantized(weight, self.service.weight)
            return quantized_linear(
                kind, x, self.quantized, bias, group=self.group, options=options, layer=self.owner
            )
        self.owner.requires_grad = module.weight.requires_grad
        call = (
            plait.torch.column_parallel_linear
            if kind == "column"
            else plait.torch.row_parallel_linear
        )
        return call(x, weight, bias, group=self.group, options=options, layer=self.owner)


def _quantized(weight: torch.Tensor, scheme: str) -> _native.PackedWeight:
    values = weight.detach().float().contiguous().numpy()
    return _native.PackedWeight(
        _native.quantize(
            values, layout=_native.WeightLayout.out_in, scheme=_native.QuantScheme(scheme)
        )
    )


class _Column(_Style):
    def serve(self, module: nn.Linear, x: torch.Tensor, site: _Site) -> torch.Tensor:
        return site.multiply("column", module, x)


class _GatheredColumn(_Style):
    def serve(self, module: nn.Linear, x: torch.Tensor, site: _Site) -> torch.Tensor:
        own = site.multiply("column", module, x)
        return gather_columns(own, module.out_features, site.group)


class _Row(_Style):
    def serve(self, module: nn.Linear, x: torch.Tensor, site: _Site) -> torch.Tensor:
        return site.multiply("row", module, x)


class _SplitRow(_Style):
    def serve(self, module: nn.Linear, x: torch.Tensor, site: _Site) -> torch.Tensor:
        return site.multiply("row", module, split_columns(x, site.group))


_STYLES: dict[str, type[_Style]] = {
    "colwise": _Column,
    "packed_colwise": _Column,
    "colwise_gather_output": _GatheredColumn,
    "colwise_rep": _GatheredColumn,
    "rowwise": _Row,
    "packed_rowwise": _Row,
    "rowwise_split_input": _SplitRow,
    "rowwise_rep": _SplitRow,
}

assert tensor_parallel is not None  # importing it registers the styles
