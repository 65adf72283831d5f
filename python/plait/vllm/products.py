"""Products by weights that vLLM has loaded, as an operator that its graphs call.

A graph holds no weight of plait's, which is no tensor: it is handed a tensor with the weight's
number. Layers of the same sizes are the same graph in this way, as vLLM compiles them, and a graph
that vLLM finds in its cache works in another process.
"""

import itertools
import math
from collections import Counter
from dataclasses import dataclass, field
from weakref import WeakValueDictionary

import torch
import torch.distributed as dist

from plait import _native
from plait._native import Code
from plait.errors import Error
from plait.torch.context import Context, context_of
from plait.torch.options import Options
from plait.torch.rows import as_rows, bias_row, check_matrix, view
from plait.torch.weights import plain

OPTIONS = Options()  # the environment's: vLLM's workers are processes of their own
_LIBRARY = torch.library.Library("plait", "FRAGMENT")
_numbers = itertools.count()

calls: Counter[str] = Counter()  # by class


@dataclass(eq=False)
class Loaded:
    """The weight of a layer, packed."""

    layer: str  # its class
    outputs: int  # an integer, which the compiler can read
    inputs: int  # of all ranks' shares, where ranks have shares of them
    weight: _native.PackedWeight
    context: Context
    number: torch.Tensor = field(default_factory=lambda: torch.tensor(next(_numbers)))


_loaded: WeakValueDictionary[int, Loaded] = WeakValueDictionary()


def load(layer: str, weight: torch.Tensor, inputs: int, group: dist.ProcessGroup) -> Loaded:
    """Pack a weight [outputs, this rank's inputs]. All ranks of the group make the call.

    `inputs`: those of the whole layer, which spare ranks an exchange in each call.
    """
    rows = as_rows(weight.detach())
    packed = _native.PackedWeight(plain(rows))
    made = Loaded(layer, rows.shape[0], inputs, packed, context_of(group, OPTIONS, layer))
    _loaded[int(made.number)] = made
    return made


def multiply(
    x: torch.Tensor, bias: torch.Tensor | None, loaded: Loaded, *, adds_up: bool
) -> torch.Tensor:
    """Multiply by a loaded weight; `adds_up`: and add up over the ranks, then the bias."""
    if not torch.compiler.is_compiling():
        return _multiply(x, bias, loaded, adds_up)
    out: torch.Tensor = torch.ops.plait.loaded_matmul(
        x, bias, loaded.number, loaded.outputs, adds_up
    )
    return out


def _run(
    x: torch.Tensor, bias: torch.Tensor | None, number: torch.Tensor, outputs: int, adds_up: bool
) -> torch.Tensor:
    loaded = _loaded.get(int(number))
    if loaded is None:
        name = "matmul_all_reduce" if adds_up else "matmul"
        raise Error(Code.invalid_argument, f"{name}: the layer's weight is gone", operator=name)
    return _multiply(x, bias, loaded, adds_up)


def _multiply(
    x: torch.Tensor, bias: torch.Tensor | None, loaded: Loaded, adds_up: bool
) -> torch.Tensor:
    name = "matmul_all_reduce" if adds_up else "matmul"
    whole_size = loaded.inputs if adds_up else -1
    operator = loaded.context.operators[name]
    out: torch.Tensor | None = operator.run_packed(x, loaded.weight, bias, whole_size)
    if out is None:  # it is refused, or takes a copy
        out = _multiply_views(x, bias, loaded, name, whole_size)
    calls[loaded.layer] += 1
    return out


def _multiply_views(
    x: torch.Tensor, bias: torch.Tensor | None, loaded: Loaded, name: str, whole_size: int
) -> torch.Tensor:
    rows = x.reshape(math.prod(x.shape[:-1]), x.shape[-1])
    check_matrix(rows, name, "x")
    rows = as_rows(rows)
    added = bias_row(bias, loaded.outputs, name)
    out = x.new_empty(rows.shape[0], loaded.outputs)
    context = loaded.context
    getattr(_native, name)(
        view(rows),
        loaded.weight,
        view(out),
        context.comm,
        bias=None if added is None else view(added),
        wire=context.settings.wire,
        plans=context.plans if name == "matmul_all_reduce" else None,
        whole_size=whole_size,
        threads=context.settings.threads,
        backend=context.settings.backend,
    )
    return out.reshape(*x.shape[:-1], loaded.outputs)


def _fake(
    x: torch.Tensor, bias: torch.Tensor | None, number: torch.Tensor, outputs: int, adds_up: bool
) -> torch.Tensor:
    return x.new_empty(*x.shape[:-1], outputs)


_LIBRARY.define(
    "loaded_matmul(Tensor x, Tensor? bias, Tensor number, int outputs, bool adds_up) -> Tensor"
)
_LIBRARY.impl("loaded_matmul", _run, "CPU")
torch.library.register_fake("plait::loaded_matmul", _fake, lib=_LIBRARY)
