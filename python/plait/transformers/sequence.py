"""Sequence parallelism: ranks share the rows of hidden states between products.

A decoder layer normalises its hidden states, multiplies them in attention, adds what comes out,
and does the same with its MLP. All but attention works row by row, a row being a token. So each
rank needs no more than its own rows there: a row layer ends with a reduce-scatter in the place of
an all-reduce, and an all-gather comes before the column layers, which are multiplied together.

Hidden states of own rows have two dimensions, [own rows, hidden]; those that every rank has alike
have three, [batch, tokens, hidden]. A module sees by its input which of the two a call has, in the
recomputation of a checkpointed layer too.

Attention is given an input without values, on meta: it has the shape of all rows, and whatever
reads its values raises. Its column layers return products that were made before it was called.
"""

import logging
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from transformers.modeling_layers import GradientCheckpointingLayer

from plait.torch.graphs import outside_of_graphs
from plait.transformers.service import Service
from plait.transformers.shared import JoinedColumns, all_rows, own_rows, with_summed_gradient
from plait.transformers.styles import Site, group_of, refusal_of_call

# Classes of transformers whose forward works row by row but in `self_attn`, and calls `mlp` after
# it. The tests compare each of them with one process.
LAYERS = frozenset(
    f"{name}DecoderLayer"
    for name in (
        *("Arcee", "Exaone4", "Gemma", "Gemma2", "Gemma3", "Granite", "Helium", "Llama"),
        *("Ministral", "Ministral3", "Mistral", "Qwen2", "Qwen3", "SmolLM3"),
    )
)
# Few rows take no longer to multiply than a message to arrive.
FEWEST_ROWS = 64
_CALL = "plait_call"  # a keyword that a model hands to each layer, and a layer to its attention


@dataclass
class _Call:
    """One forward of a model."""

    refusal: str | None = None  # why every rank has all rows, as far as the model can tell
    shape: torch.Size | None = None  # of the hidden states, where ranks share them


def share_rows(model: nn.Module, config: Any, mesh: Any, service: Service) -> None:
    """Let the ranks share rows in the layers of a model whose modules plait serves."""
    group = group_of(mesh)
    for backbone in list(model.modules()):
        for layers in backbone.children():
            if not isinstance(layers, nn.ModuleList) or not any(map(_site, layers.modules())):
                continue
            if not isinstance(layers[0], GradientCheckpointingLayer):
                continue  # another list of modules within a layer
            refusal = _refusal_of_config(config) or _refusal_of_layers(backbone, layers)
            if refusal is None:
                _Model(backbone, layers, group, service).serve()
            else:
                service.keeps(layers, refusal, group)


def _refusal_of_config(config: Any) -> str | None:
    for what in ("pp_size", "dp_size", "ep_size"):
        if (size := getattr(config, what, 1)) > 1:
            return f"{what} is {size}, and rows are shared with tensor parallelism alone"
    return None


def _refusal_of_layers(backbone: nn.Module, layers: nn.ModuleList) -> str | None:
    kind = type(layers[0])
    if kind.__name__ not in LAYERS or not kind.__module__.startswith("transformers.models."):
        return "it is not known to work row by row outside of its attention"
    if any(type(layer) is not kind for layer in layers) or not hasattr(backbone, "norm"):
        return "the model has layers of other classes too, or no norm after them"
    for layer in layers:
        block: Any
        for block in (layer.self_attn, layer.mlp):
            columns, rows = _linears(block, "column"), _linears(block, "row")
            others = [one for one in block.modules() if isinstance(one, nn.Linear)]
            if len(rows) != 1 or not columns or len(others) != len(columns) + 1:
                return f"{type(block).__name__} has linear layers of other styles"
            if len({one.bias is None for one in columns}) > 1:
                return f"some linear layers of {type(block).__name__} have a bias, some have none"
    return None


def _linears(block: nn.Module, kind: str) -> list[nn.Linear]:
    found = (one for one in block.modules() if isinstance(one, nn.Linear))
    return [one for one in found if (site := _site(one)) is not None and site.kind == kind]


def _site(linear: nn.Module) -> Any:
    return vars(linear).get("plait_site")


class _Model:
    """A model whose ranks share rows from its first layer to the norm after its last one."""

    def __init__(
        self, backbone: Any, layers: nn.ModuleList, group: dist.ProcessGroup, service: Service
    ) -> None:
        self.backbone, self.layers, self.group, self.service = backbone, layers, group, service
        self.linears = [one for one in layers.modules() if isinstance(one, nn.Linear)]

    def serve(self) -> None:
        """Replace the forward of modules, as transformers does."""
        for layer in self.layers:
            shape: list[torch.Size] = []  # of the last call's hidden states, for the MLP
            _serve_block(layer.self_attn, shape, self.group)
            _serve_block(layer.mlp, shape, self.group)
            for child in layer.children():
                if child is not layer.self_attn and child is not layer.mlp:
                    _sum_gradients(child, self.group)
        _sum_gradients(self.backbone.norm, self.group)
        self._begin(self.layers[0])
        self._end()
        self.known: dict[nn.Module, Any] = {
            module: vars(module).get("forward")
            for module in (*self.layers.modules(), self.backbone.norm)
        }

    def _begin(self, layer: nn.Module) -> None:
        theirs = layer.forward

        def forward(x: torch.Tensor, *args: Any, **kwargs: Any) -> Any:
            call: _Call | None = kwargs.get(_CALL)
            if call is not None and self._shares(x, call):
                call.shape = x.shape
                x = own_rows(x.flatten(0, -2), self.group)
            return theirs(x, *args, **kwargs)

        vars(layer)["forward"] = forward

    def _end(self) -> None:
        theirs = self.backbone.forward

        # Graphs would hold parts of it, each for one of the two forms of a call.
        @outside_of_graphs
        def forward(*args: Any, **kwargs: Any) -> Any:
            call = _Call()
            config = self.backbone.config
            wanted = "output_hidden_states"
            if kwargs.get(wanted, getattr(config, wanted, False)):
                call.refusal = "hidden states of all rows are an output of the call"
            out = theirs(*args, **kwargs, **{_CALL: call})
            if call.shape is not None:
                last = out[0] if isinstance(out, tuple) else out.last_hidden_state
                rows = math.prod(call.shape[:-1])
                whole = all_rows(last, rows, self.group).reshape(call.shape)
                if isinstance(out, tuple):
                    return (whole, *out[1:])
                out.last_hidden_state = whole
            return out

        vars(self.backbone)["forward"] = forward

    def _shares(self, x: torch.Tensor, call: _Call) -> bool:
        """Say whether ranks share the rows of a call: the same on all of them."""
        if math.prod(x.shape[:-1]) < FEWEST_ROWS:
            few = f"its rows are fewer than {FEWEST_ROWS}"
            return self.service.shares(few, self.group, logging.INFO)
        refusal = call.refusal or self._changed()
        for linear in self.linears:
            refusal = refusal or refusal_of_call(linear, x)
        return self.service.shares(refusal, self.group, logging.WARNING)

    def _changed(self) -> str | None:
        """Say why modules are no longer as they were loaded."""
        found = list(self.layers.modules())
        if len(found) != len(self.known) - 1 or not all(one in self.known for one in found):
            return "modules of its layers were replaced since they were loaded"
        for module, forward in self.known.items():
            name = type(module).__name__
            if vars(module).get("forward") is not forward:
                return f"the forward of {name} was replaced since it was loaded"
            hooks = (*module._forward_hooks.values(), *module._forward_pre_hooks.values())
            hooks += (*module._backward_hooks.values(), *module._backward_pre_hooks.values())
            if any(getattr(hook, "__module__", None) != _CAPTURES for hook in hooks):
                return f"a hook of {name} would see this rank's rows alone"
        return None


_CAPTURES = "transformers.utils.output_capturing"  # its hooks do nothing unless they are asked to


def _serve_block(block: Any, shape: list[torch.Size], group: dist.ProcessGroup) -> None:
    """Make the products that begin attention or an MLP together, and keep own rows of the last."""
    theirs: Callable[..., Any] = block.forward
    columns, [row] = _linears(block, "column"), _linears(block, "row")
    sites: list[Site] = [_site(one) for one in columns]
    row_site: Site = _site(row)
    joined = JoinedColumns(columns)

    def forward(*args: Any, **kwargs: Any) -> Any:
        call: _Call | None = kwargs.pop(_CALL, None)
        x = args[0] if args else kwargs["hidden_states"]
        if any(refusal_of_call(one, x) for one in columns):
            return theirs(*args, **kwargs)
        is_own, given, rows = x.dim() == 2, x, None
        if call is not None and call.shape is not None:
            shape[:] = [call.shape]
        if is_own:
            rows = math.prod(shape[0][:-1])
            # Attention looks for batch and tokens in the shape; an MLP works row by row.
            all_of_it = (rows, x.shape[-1]) if call is None else shape[0]
            given = x.new_empty(all_of_it, device="meta")
            if args:
                args = (given, *args[1:])
            else:
                kwargs["hidden_states"] = given
        products = joined.multiply(x, sites[0], rows)
        try:
            for site, product in zip(sites, products, strict=True):
                # torch's attention and activations have other bits where rows lie apart.
                out = product.contiguous()
                site.ready = given, out.reshape(*given.shape[:-1], out.shape[-1])
            row_site.shares_rows = is_own
            return theirs(*args, **kwargs)
        finally:
            row_site.shares_rows = False
            for site in sites:
                site.ready = None

    vars(block)["forward"] = forward


def _sum_gradients(norm: nn.Module, group: dist.ProcessGroup) -> None:
    """Add up the gradients of a norm's parameters where each rank has normalised its own rows."""
    theirs: Callable[..., Any] = norm.forward

    def forward(x: torch.Tensor) -> Any:
        if x.dim() != 2 or not torch.is_grad_enabled():
            return theirs(x)
        parameters = dict(norm._parameters)
        for name, one in parameters.items():
            if one is not None and one.requires_grad:
                norm._parameters[name] = with_summed_gradient(one, group)  # type: ignore[assignment]
        try:
            return theirs(x)
        finally:
            norm._parameters.update(parameters)

    vars(norm)["forward"] = forward
