"""Hugging Face's tensor parallelism with plait's layers.

    import plait.transformers

    plait.transformers.enable()
    model = AutoModelForCausalLM.from_pretrained(
        name, distributed_config=DistributedConfig(tp_size=2)
    )
    model.generate(**inputs)

`enable()` puts styles under the names of theirs ("colwise", "rowwise", ...) for models that are
loaded from then on. Sharded loading, saving, plans and `generate()` stay as they are. A module or a
call that plait does not serve is left to their code, and one sentence a reason is logged.
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
from plait.torch.options import Product
from plait.torch.report import counted
from plait.torch.weights import Owner

__all__ = ["disable", "enable", "enabled", "report"]

_log = logging.getLogger("plait.transformers")


@dataclass
class _Service:
    """How modules are served, and what was."""

    options: plait.torch.Options
    weight: str | None
    calls: Counter[str | None] = field(default_factory=Counter)  # None: served
    modules: Counter[str] = field(default_factory=Counter)  # which are left, by sentence

    def serves(self, refusal: str | None, group: dist.ProcessGroup) -> bool:
        self.calls[refusal] += 1
        if refusal is not None and self.calls[refusal] == 1 and group.rank() == 0:
            _log.warning("a linear layer is left to transformers: %s", refusal)
        return refusal is None

    def leaves(self, module: nn.Module, refusal: str, group: dist.ProcessGroup, level: int) -> None:
        sentence = f"{type(module).__name__}: {refusal}"
        self.modules[sentence] += 1
        if self.modules[sentence] == 1 and group.rank() == 0:
            _log.log(level, "a module is left to transformers: %s", sentence)


_service: _Service | None = None
_last: _Service | None = None


def enable(
    *,
    weight: str | None = None,
    schedule: plait.torch.Schedule | None = None,
    parts: int | None = None,
    wire: str | None = None,
    settings: plait.Settings | None = None,
    product: Product = "plait",
    fixed_weights: bool = False,
) -> None:
    """Serve the linear layers of models that are loaded from now on.

    Every rank makes the call, with the same options. `weight` quantises what is served ("s8",
    "s8:group=128"): for generation. `product="torch"` multiplies by torch's product, serially, with
    plait's collectives; "auto" by the faster one, which the first call of each shape measures.
    `fixed_weights=True` promises that nothing writes to `weight.data` (plait.torch.Options), which
    makes decoding faster. The same call again does nothing; other options raise, until disable().
    """
    global _service, _last
    asked = plait.torch.Options(
        schedule=schedule,
        parts=parts,
        wire=wire,
        settings=settings,
        product=product,
        fixed_weights=fixed_weights,
    )
    if weight is not None and product != "plait":
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.transformers.enable: weight={weight!r} needs plait's product; product is "
            f"{product!r}",
        )
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
    for name in _replaced():
        theirs: Any = ALL_PARALLEL_STYLES[name]
        mixin = _STYLES.get(name, _Left)
        style: Any = type(f"Plait{type(theirs).__name__}", (mixin, type(theirs)), {})
        ours = style.__new__(style)
        ours.__dict__.update(theirs.__dict__)
        ours.service, ours.style = _service, name
        ALL_PARALLEL_STYLES[name] = ours
    _log.info("tensor-parallel layers of transformers are served by plait: %s", asked)


def disable() -> None:
    """Load models with transformers' own styles again. What was loaded stays served."""
    global _service
    if _service is None:
        return
    for name in _replaced():
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
    """How many calls were served, and how many calls and modules were left for which reason."""

    served: int = 0
    refusals: tuple[tuple[str, int], ...] = ()  # of calls
    modules: tuple[tuple[str, int], ...] = ()
    operators: str = ""

    def __str__(self) -> str:
        lines = [f"linear layers: {counted(self.served, 'call')} served by plait"]
        lines += [
            f"{counted(calls, 'call')} left to transformers: {why}" for why, calls in self.refusals
        ]
        lines += [
            f"{counted(count, 'module')} left to transformers: {why}" for why, count in self.modules
        ]
        return "\n".join([*lines, self.operators])


def report() -> Report:
    """Say how many calls were served, and why others were not."""
    if _last is None:
        return Report()
    refusals = tuple((why, calls) for why, calls in _last.calls.items() if why is not None)
    modules = tuple(_last.modules.items())
    return Report(_last.calls[None], refusals, modules, str(plait.torch.report()))


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


def _group(mesh: Any) -> dist.ProcessGroup:
    names = mesh.mesh_dim_names or ()
    group: dist.ProcessGroup
    if mesh.ndim == 1:
        group = mesh.get_group()
    else:
        group = mesh.get_group("tp" if "tp" in names else mesh.ndim - 1)
    return group


def _module_refusal(module: nn.Module) -> str | None:
    if getattr(module, "_hf_quantized_needs_local_tp", False):
        return "transformers has quantised its weight"
    if type(module) is not nn.Linear:
        return "it may have a forward of its own, and is no nn.Linear"
    return None


class _Style:
    """Replaces `forward` of nn.Linear, and leaves all else of a style as it is."""

    service: _Service
    style: str  # its name

    def serve(self, module: nn.Linear, x: torch.Tensor, site: "_Site") -> torch.Tensor:
        raise NotImplementedError

    def install_forward(self, module: nn.Module, mesh: Any) -> nn.Module:
        super().install_forward(module, mesh)  # type: ignore[misc]
        theirs: Callable[..., Any] = module.forward
        group = _group(mesh)
        if (refusal := _module_refusal(module)) is not None:
            self.service.leaves(module, refusal, group, logging.WARNING)
            return module
        assert isinstance(module, nn.Linear)
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


# Styles of embeddings, norms and gradients: there is no product to serve.
_WITHOUT_PRODUCT = (
    "all_reduce",
    "embedding_colwise",
    "embedding_rowwise",
    "replicated_with_grad_allreduce",
    "sequence_parallel",
)


class _Left:
    """Says that a style is not served, and leaves it as it is."""

    service: _Service
    style: str

    def install_forward(self, module: nn.Module, *meshes: Any, **options: Any) -> nn.Module:
        left: nn.Module = super().install_forward(module, *meshes, **options)  # type: ignore[misc]
        group = _group(meshes[0] if meshes else options["ep_mesh"])
        if self.style in _WITHOUT_PRODUCT:
            refusal, level = f"the style {self.style} has no product", logging.INFO
        else:
            refusal, level = f"the style {self.style} is not served", logging.WARNING
        self.service.leaves(module, refusal, group, level)
        return left


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


def _replaced() -> list[str]:
    """Return the names of all styles that have a forward, those of expert parallelism included."""
    return [
        name
        for name in ALL_PARALLEL_STYLES
        if hasattr(ALL_PARALLEL_STYLES[name], "install_forward")
    ]


assert tensor_parallel is not None  # importing it registers the styles
