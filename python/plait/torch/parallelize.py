"""Replacing the linear layers of a model by this rank's shares of them."""

import fnmatch
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any, NoReturn

import torch
import torch.distributed as dist
from torch import nn

import plait
from plait.torch import tensors
from plait.torch.columns import balanced, gather_columns, split_columns
from plait.torch.context import group_place
from plait.torch.layers import ColumnParallelLinear, RowParallelLinear, check_linear
from plait.torch.options import Options, check_options
from plait.torch.quantized import scheme_of
from plait.torch.rows import float_dtype

_log = logging.getLogger("plait.torch")

_DEFAULTS = Options()
# The names that Hugging Face's plans have, old ones too.
_COLUMN = ("colwise", "colwise_gather_output", "colwise_rep")
_ROW = ("rowwise", "rowwise_split_input", "rowwise_rep")


class _GatheredColumns(nn.Module):
    """A column layer whose result every rank gets whole."""

    def __init__(self, layer: ColumnParallelLinear, outputs: int) -> None:
        super().__init__()
        self.layer = layer
        self.outputs = outputs

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, world = group_place(self.layer.group, "gather_columns")
        return gather_columns(self.layer(x), balanced(self.outputs, world), self.layer.group)


class _SplitInput(nn.Module):
    """A row layer that every rank gives the whole input."""

    def __init__(self, layer: RowParallelLinear) -> None:
        super().__init__()
        self.layer = layer

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        _, world = group_place(self.layer.group, "split_columns")
        shares = balanced(x.shape[-1], world)
        out: torch.Tensor = self.layer(split_columns(x, shares, self.layer.group))
        return out


def parallelize(
    model: nn.Module,
    plan: Mapping[str, str] | str = "auto",
    *,
    group: dist.ProcessGroup | None = None,
    weight: str | None = None,
    options: Options = _DEFAULTS,
) -> nn.Module:
    """Share the linear layers of a loaded model over the ranks of a group, in place.

    >>> mlp = torch.nn.Sequential(torch.nn.Linear(3, 8), torch.nn.ReLU(), torch.nn.Linear(8, 3))
    >>> parallelize(mlp, {"0": "colwise", "2": "rowwise"})(torch.ones(2, 3)).shape
    torch.Size([2, 3])

    Every rank has the whole model, and makes the call. `plan` says which modules (names, with `*`)
    become what: "colwise" or "rowwise", "colwise_gather_output" where every rank needs the whole
    result, "rowwise_split_input" where every rank has the whole input. "auto" takes the plan that
    the model brings, as those of Hugging Face do. `weight` quantises them: "s8", "s8:group=128".
    A pattern that matches nothing raises.
    """
    check_options(options, "parallelize")
    if isinstance(plan, str) and plan != "auto":
        _refuse(f"plan is {plan!r}; it can be 'auto' or a mapping of module names to styles")
    if not isinstance(plan, (str, Mapping)):
        _refuse(f"plan is of type {type(plan).__name__}; it can be 'auto' or a mapping")
    styles = _own_plan(model) if isinstance(plan, str) else dict(plan)
    # All is looked at before the first module is replaced.
    for pattern, style in styles.items():
        if not isinstance(pattern, str):
            _refuse(f"plan has the key {pattern!r}; its keys are names of modules")
        if style not in (*_COLUMN, *_ROW):
            _refuse(f"there is no style {style!r}; there are {', '.join((*_COLUMN, *_ROW))}")
    if weight is not None:
        _check_scheme(weight, options)
    group_place(group, "parallelize")  # raises where this rank is no member
    found = _matching(model, styles, is_own_plan=plan == "auto")
    for name, linear, _ in found:
        check_linear(linear, options, "parallelize", f"{name}: weight")
    for name, linear, _ in found if weight is not None else ():
        refusal = tensors.refusal(linear.weight)
        if refusal is not None:
            _refuse(f"{name}: weight {refusal}")
        float_dtype(linear.weight, "parallelize", f"{name}: weight")
    for name, linear, style in found:
        _replace(model, name, _layer(linear, style, group, weight, options))
    return model


def _matching(
    model: nn.Module, styles: Mapping[str, str], *, is_own_plan: bool
) -> list[tuple[str, nn.Linear, str]]:
    """List the modules to share. A model's own plan also names what is left as it is."""
    owners = Counter(id(one) for _, one in model.named_parameters(remove_duplicate=False))
    unused = set(styles)
    found: list[tuple[str, nn.Linear, str]] = []
    for name, module in model.named_modules():
        pattern = next((one for one in styles if _matches(name, one)), None)
        if pattern is None or not name:  # the model itself has no name
            continue
        unused.discard(pattern)
        refusal = None
        if type(module) is not nn.Linear:  # another class may compute something else
            refusal = f"{name} is of type {type(module).__name__}; only nn.Linear can be shared"
        elif owners[id(module.weight)] > 1:
            refusal = f"{name} shares its weight with another module"
        if refusal is None:
            assert isinstance(module, nn.Linear)
            found.append((name, module, styles[pattern]))
        elif not is_own_plan:
            _refuse(refusal)
        else:
            _log.warning("%s; it is left as it is", refusal)
    if unused and not is_own_plan:
        _refuse(f"no module is called {', '.join(sorted(unused))}")
    if not found:
        _refuse(f"the plan of {type(model).__name__} matches none of its linear layers")
    return found


def _own_plan(model: nn.Module) -> dict[str, str]:
    found: Any = getattr(model, "tp_plan", None) or getattr(model, "_tp_plan", None)
    if not found:
        _refuse(
            f"{type(model).__name__} has no plan of its own; pass one: "
            '{"layers.*.up": "colwise", "layers.*.down": "rowwise"}'
        )
    return {name: style for name, style in dict(found).items() if style in _COLUMN or style in _ROW}


def _matches(name: str, pattern: str) -> bool:
    """Compare part by part: a `*` is one part of a name."""
    parts, wanted = name.split("."), pattern.split(".")
    return len(parts) == len(wanted) and all(map(fnmatch.fnmatchcase, parts, wanted))


def _check_scheme(weight: str, options: Options) -> None:
    scheme_of(weight, "parallelize", "weight")  # says what it can't read
    if options.engine == "c10d":
        _refuse(f"weight is {weight!r}, and engine='c10d' has no products of quantised weights")


def _layer(
    linear: nn.Linear,
    style: str,
    group: dist.ProcessGroup | None,
    weight: str | None,
    options: Options,
) -> nn.Module:
    if style in _COLUMN:
        column = ColumnParallelLinear.from_linear(linear, group=group, options=options)
        column.quantize(weight)
        return column if style == "colwise" else _GatheredColumns(column, linear.out_features)
    row = RowParallelLinear.from_linear(linear, group=group, options=options)
    row.quantize(weight)
    return row if style == "rowwise" else _SplitInput(row)


def _replace(model: nn.Module, name: str, module: nn.Module) -> None:
    parent, _, last = name.rpartition(".")
    setattr(model.get_submodule(parent), last, module.train(model.training))


def _refuse(sentence: str) -> NoReturn:
    raise plait.Error(plait.Code.invalid_argument, f"parallelize: {sentence}")
