"""The styles that take the place of transformers' own, and what a served module does."""

import logging
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor

import plait.torch
from plait import _native
from plait.torch import direct, tensors
from plait.torch.columns import chunked, gather_columns, split_columns
from plait.torch.deferred import DeferredLogits, Head
from plait.torch.engines.engine import Kind
from plait.torch.graphs import outside_of_graphs
from plait.torch.linear import quantized_linear
from plait.torch.rows import as_rows
from plait.torch.weights import Native, Owner, packed, plain
from plait.transformers.service import Service

# Looking for it in torch takes as long as calling it.
_is_grad_enabled = torch.is_grad_enabled


def local(tensor: Any) -> Any:
    """Return this rank's share of a parameter."""
    if not isinstance(tensor, DTensor):
        return tensor
    return tensor.to_local() if torch.is_grad_enabled() else tensor._local_tensor


def refusal_of_call(module: nn.Linear, x: Any) -> str | None:
    """Say why plait does not serve a call; None if it does."""
    if type(x) not in (torch.Tensor, nn.Parameter):
        return f"its input is a {type(x).__name__}"
    if x.device.type != "cpu":
        return f"its input is on {x.device}, and plait computes on the CPU"
    if x.dtype not in (torch.float32, torch.bfloat16, torch.float16):
        return f"its input is {x.dtype}"
    if module.weight.dtype != x.dtype and not torch.is_autocast_enabled("cpu"):
        return f"its input is {x.dtype}, and its weight is {module.weight.dtype}"
    return None


def group_of(mesh: Any) -> dist.ProcessGroup:
    """Return the group of tensor parallelism."""
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


class Style:
    """Replaces `forward` of nn.Linear, and leaves all else of a style as it is."""

    service: Service
    style: str  # its name
    kind: Kind | None = None  # None: other collectives belong to it

    def serve(self, module: nn.Linear, x: torch.Tensor, site: "Site") -> torch.Tensor:
        """Do what the module's forward does."""
        raise NotImplementedError

    def install_forward(self, module: nn.Module, mesh: Any) -> nn.Module:
        """Put a forward that plait serves before theirs."""
        super().install_forward(module, mesh)  # type: ignore[misc]
        theirs: Callable[..., Any] = module.forward
        group = group_of(mesh)
        if (refusal := _module_refusal(module)) is not None:
            self.service.leaves(module, refusal, group, logging.WARNING)
            return module
        assert isinstance(module, nn.Linear)
        service = self.service
        site = Site(group, service, self.kind)
        owner, calls = site.owner, service.calls
        is_simple = self.kind is not None and service.weight is None

        # The weights of a token's products displace Python from the caches, so that each function
        # and attribute that is looked for takes some tenths of a microsecond.
        @outside_of_graphs
        def forward(x: Any, *args: Any, **kwargs: Any) -> Any:
            if site.ready is not None and x is site.ready[0]:
                service.serves(None, group)
                return site.ready[1]
            if is_simple and not args and not kwargs and not site.shares_rows:
                native, out = owner.direct(), None
                if native is None:
                    pass
                elif native.packs:
                    out = site.multiply_packed(module, x)
                else:
                    parameters = module._parameters
                    out = native.multiply_shares(x, parameters, DTensor, group, service.options)
                if out is not None:
                    calls[None] += 1
                    return out
            if args or kwargs or not self.service.serves(refusal_of_call(module, x), group):
                return theirs(x, *args, **kwargs)
            return self.serve(module, x, site)

        vars(module)["forward"] = forward  # as transformers does
        vars(module)["plait_site"] = site
        return module


@dataclass
class Site:
    """The state that a served module keeps from call to call."""

    group: dist.ProcessGroup
    service: Service
    kind: Kind | None
    # An input, and its product, which sequence.py has made together with others of that input.
    ready: tuple[torch.Tensor, torch.Tensor] | None = None
    shares_rows: bool = False  # a row layer keeps this rank's rows of its result
    defers: bool = False  # the layer's results are logits, which may be put off
    owner: Owner = field(default_factory=Owner)
    quantized: _native.PackedWeight | None = None
    rows: torch.Tensor | None = None  # what operand() gave a view of, which keeps nothing alive

    def multiply_packed(self, module: nn.Linear, x: Any) -> torch.Tensor | None:
        """Make a call without gradients by the packed weight; None: it needs more checks."""
        if _is_grad_enabled():
            return None
        parameters: dict[str, Any] = module._parameters
        weight, bias = parameters.get("weight"), parameters.get("bias")
        if self.kind is None or type(weight) is not DTensor:
            return None
        self.owner.see_changes(weight)
        added = bias._local_tensor if type(bias) is DTensor else bias
        how = (self.group, self.service.options, self.owner)
        return direct.multiply(self.kind, x, weight._local_tensor, added, *how)

    def multiply(self, kind: Kind, module: nn.Linear, x: torch.Tensor) -> torch.Tensor:
        """Multiply by the module's weight, or by what it was quantised to."""
        weight, bias = local(module.weight), local(module.bias)
        options = self.service.options
        if self.service.weight is not None:
            by = self.quantized_once(weight)
            return quantized_linear(
                kind, x, by, bias, group=self.group, options=options, layer=self.owner
            )
        if options.fixed_weights:
            self.owner.see_changes(module.weight)
        call = (
            plait.torch.column_parallel_linear
            if kind == "column"
            else plait.torch.row_parallel_linear
        )
        return call(
            x.flatten(0, -2) if self.shares_rows else x,
            weight,
            bias,
            group=self.group,
            sequence_parallel=self.shares_rows,
            options=options,
            layer=self.owner,
        )

    def operand(self, module: nn.Linear, dtype: torch.dtype) -> Native:
        """Return what multiply() multiplies by, for a product without gradients."""
        weight = local(module.weight).detach()
        if self.service.weight is not None:
            return self.quantized_once(weight)
        if self.service.options.fixed_weights:
            self.owner.see_changes(module.weight)
            return packed(weight, dtype, self.owner)
        self.rows = as_rows(weight.to(dtype))
        return plain(self.rows)

    def quantized_once(self, weight: torch.Tensor) -> _native.PackedWeight:
        """Return the module's weight quantised, as it was when it was first used."""
        if self.quantized is None:
            self.quantized = _quantized(weight, str(self.service.weight))
        return self.quantized


def _quantized(weight: torch.Tensor, scheme: str) -> _native.PackedWeight:
    values = weight.detach().float().contiguous().numpy()
    return _native.PackedWeight(
        _native.quantize(
            values, layout=_native.WeightLayout.out_in, scheme=_native.QuantScheme(scheme)
        )
    )


class _Column(Style):
    kind = "column"

    def serve(self, module: nn.Linear, x: torch.Tensor, site: Site) -> torch.Tensor:
        return site.multiply("column", module, x)


class _GatheredColumn(Style):
    def serve(self, module: nn.Linear, x: torch.Tensor, site: Site) -> torch.Tensor:
        def multiply(rows: torch.Tensor) -> torch.Tensor:
            own = site.multiply("column", module, rows)
            return gather_columns(own, chunked(module.out_features, site.group.size()), site.group)

        if not site.defers or torch.compiler.is_compiling() or tensors.is_transformed():
            return multiply(x)
        head = Head(
            module.out_features,
            site.group,
            site.service.options,
            multiply,
            lambda: local(module.weight),
            lambda: site.operand(module, x.dtype),
            parameter=module.weight,
        )
        return DeferredLogits.of(x, head)


class _Row(Style):
    kind = "row"

    def serve(self, module: nn.Linear, x: torch.Tensor, site: Site) -> torch.Tensor:
        return site.multiply("row", module, x)


class _SplitRow(Style):
    def serve(self, module: nn.Linear, x: torch.Tensor, site: Site) -> torch.Tensor:
        shares = chunked(x.shape[-1], site.group.size())
        return site.multiply("row", module, split_columns(x, shares, site.group))


# Styles of embeddings, norms and gradients: there is no product to serve.
_WITHOUT_PRODUCT = (
    "all_reduce",
    "embedding_colwise",
    "replicate",
    "replicated_with_grad_allreduce",
    "sequence_parallel",
)


class Left:
    """Says that a style is not served, and leaves it as it is."""

    service: Service
    style: str

    def install_forward(self, module: nn.Module, *meshes: Any, **options: Any) -> nn.Module:
        """Leave theirs, and count the module."""
        left: nn.Module = super().install_forward(module, *meshes, **options)  # type: ignore[misc]
        group = group_of(meshes[0] if meshes else options["ep_mesh"])
        if self.style in _WITHOUT_PRODUCT:
            refusal, level = f"the style {self.style} has no product", logging.INFO
        else:
            refusal, level = f"the style {self.style} is not served", logging.WARNING
        self.service.leaves(module, refusal, group, level)
        return left


STYLES: dict[str, type[Style]] = {
    "colwise": _Column,
    "packed_colwise": _Column,
    "colwise_gather_output": _GatheredColumn,
    "colwise_rep": _GatheredColumn,
    "rowwise": _Row,
    "packed_rowwise": _Row,
    "rowwise_split_input": _SplitRow,
    "rowwise_rep": _SplitRow,
}
