"""A pass for torch.compile: products and functional collectives become plait's operators.

    import plait.torch.compiler

    plait.torch.compiler.enable()
    step = torch.compile(model)
    ...
    print(plait.torch.compiler.report())

In the graphs of inductor, forward and backward, these pairs are rewritten, with a bias and with a
view between them too:

    mm, then all_reduce                 matmul_all_reduce
    mm, then reduce_scatter of rows     matmul_reduce_scatter
    all_gather of rows, then mm         all_gather_matmul

The collectives are those that DTensor and torch.distributed._functional_collectives leave in a
graph, with sums of f32, bf16 or f16 on the CPU. Rows are all dimensions but the last: ranks may
share any of them alike, such as the sequence of [batch, sequence, hidden]; for a batch of more than
one, rows are put in order by a copy, as torch's own collectives do. Sizes must be known: a pair of
sizes that vary ("dynamic shapes"), or of other dtypes, stays as it is, and one sentence a reason is
logged. So does a collective whose result has other readers than one wait for it.

Biases of ranks are added up first, by an all-reduce of their own, and the sum is added once. Each
rank compiles its own graph and can't see those of the others: in a product and its sum, either all
ranks have a bias or none has. Where only some have one, their all-reduce meets the product of the
others, and every rank gets an Error: the ranks disagree on the operator. A bias of zeros on the
other ranks avoids it.

`enable()` adds the pass to what inductor calls in every later compilation of this process. For one
compilation alone, hand it over by torch.compile's own options:

    step = torch.compile(model, options={"post_grad_custom_post_pass": Pass()})

Counts are of compilations in this process: graphs that inductor finds in its cache were rewritten
before and are not counted.
"""

import logging
import math
import operator
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch._inductor import config
from torch._inductor.custom_graph_pass import (
    CustomGraphPass,
    get_custom_graph_passes,
    get_hash_for_files,
)
from torch.distributed import distributed_c10d
from torch.fx import Graph, Node

import plait.torch.library  # noqa: F401  # registers the operators that graphs then have
from plait._native import Code
from plait.errors import Error
from plait.torch import row_order
from plait.torch.options import Options, Schedule
from plait.torch.report import counted
from plait.torch.row_order import (
    PRODUCTS,
    Added,
    Gathered,
    Order,
    comes_from_product,
    goes_to_product,
    keeps_last,
    left_factor,
    waited_for,
)

__all__ = ["Pass", "Report", "disable", "enable", "report"]

_log = logging.getLogger("plait.torch")
_DEFAULTS = Options()
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_aten = torch.ops.aten
_functional = torch.ops._c10d_functional
_plait = torch.ops.plait
_NOT_WAITED = "its result has other readers than one wait for it"


@dataclass(frozen=True)
class Report:
    """How many pairs were rewritten, and how many were left for which reason."""

    rewritten: tuple[tuple[str, int], ...] = ()  # by operator
    left: tuple[tuple[str, int], ...] = ()  # by sentence

    def __str__(self) -> str:
        if not self.rewritten and not self.left:
            return "plait.torch.compiler: no product with a collective was compiled"
        lines = [f"{name}: {counted(count, 'pair')} rewritten" for name, count in self.rewritten]
        lines += [f"{counted(count, 'pair')} left: {why}" for why, count in self.left]
        return "\n".join(lines)


class Pass(CustomGraphPass):
    """Rewrites graphs of inductor. `options` name the plan, and what partial sums travel in."""

    def __init__(self, options: Options = _DEFAULTS) -> None:
        # A graph has no place for the others.
        if options != Options(schedule=options.schedule, parts=options.parts, wire=options.wire):
            sentence = "a compiled graph keeps schedule, parts and wire alone; leave others out"
            raise Error(Code.invalid_argument, f"plait.torch.compiler.Pass: {sentence}")
        self.options = options
        self.rewritten: Counter[str] = Counter()
        self.left: Counter[str] = Counter()  # by sentence

    def __call__(self, graph: Graph) -> None:
        """Rewrite all pairs of a graph."""
        for node in list(graph.nodes):
            if node.op != "call_function" or not node.users:
                continue
            if node.target == _functional.all_reduce.default:
                self._product_first(graph, node, "matmul_all_reduce")
            elif node.target == _functional.reduce_scatter_tensor.default:
                self._product_first(graph, node, "matmul_reduce_scatter")
            elif node.target == _functional.all_gather_into_tensor.default:
                self._gather_first(graph, node)
        graph.eliminate_dead_code()

    def report(self) -> Report:
        """Say what was rewritten, and why pairs were left."""
        return Report(tuple(sorted(self.rewritten.items())), tuple(sorted(self.left.items())))

    def _leave(self, collective: Node, refusal: str) -> None:
        """Count a pair that stays as it is, and log the first of each reason on one rank."""
        target: Any = collective.target
        sentence = f"{target.__name__.split('.')[0]}: {refusal}"
        self.left[sentence] += 1
        if self.left[sentence] == 1 and _resolve(str(collective.args[-1])).rank() == 0:
            _log.warning("a product with a collective is left to torch: %s", sentence)

    def uuid(self) -> Any:
        """Identify the pass, for inductor's cache of what it has compiled."""
        how = (self.options.schedule, self.options.parts, self.options.wire)
        return get_hash_for_files((__file__, row_order.__file__), repr(how))

    def _how(self, group: str, turned: bool) -> tuple[Any, ...]:
        options = self.options
        schedule = "" if options.schedule in (None, "auto") else options.schedule
        return (group, schedule, options.parts or 0, options.wire or "", turned)

    def _product_first(self, graph: Graph, collective: Node, name: str) -> None:
        wait = waited_for(collective)
        group = str(collective.args[-1])
        added = Added.of(collective, _resolve(group).size())
        if added is None:
            if comes_from_product(collective.args[0]):
                self._leave(collective, "its product is cut and joined again in an unknown way")
            return
        if wait is None:
            self._leave(collective, _NOT_WAITED)
            return
        if (refusal := _pair_refusal(collective, added)) is not None:
            self._leave(collective, refusal)
            return
        bias, x, by = _operands(added.product)
        weight, turned = _weight(by)
        with graph.inserting_before(collective):
            if not added.order.is_by_ranks:
                x = _reordered(graph, x, added.order, is_by_ranks=False)
            if bias is not None:
                # Each rank adds its own to its part of the sum, DTensor an n-th of it. plait adds
                # one after the sum: that of all ranks.
                bias = _add(graph, _plait.all_reduce_rows.default, bias, group)
            new = _add(
                graph, getattr(_plait, name).default, x, weight, bias, *self._how(group, turned)
            )
            new = _shaped(graph, new, wait)
        wait.replace_all_uses_with(new)
        _erase(graph, wait, collective)
        self.rewritten[name] += 1

    def _gather_first(self, graph: Graph, gather: Node) -> None:
        wait = waited_for(gather)
        own: Any = gather.args[0]
        if wait is None:
            waits = (one for one in gather.users if one.target is _functional.wait_tensor.default)
            if any(map(goes_to_product, (gather, *waits))):
                self._leave(gather, _NOT_WAITED)
            return
        ranks: Any = gather.args[1]
        rows = Gathered.of(wait, ranks)
        # All that reads the rows of all ranks, views of them by rows included.
        readers = rows.readers()
        order = {node: at for at, node in enumerate(graph.nodes)}
        readers.sort(key=lambda one: order[one[0]])
        product = next(
            (one for one, of in readers if one.target in PRODUCTS and left_factor(one) is of), None
        )
        if product is None:
            if goes_to_product(wait):
                self._leave(gather, "it gathers no rows of its product's left factor")
            return
        bias, _, by = _operands(product)
        first = readers[0][0]
        refusal = _gathered_refusal(own, product, bias, by)
        if refusal is None:
            weight, turned = _weight(by)
            # The product moves before all that reads what it gathers.
            others = [one for one in (weight, bias) if one is not None]
            if any(one in rows.sources or order[one] >= order[first] for one in others):
                refusal = (
                    "something else reads the rows of all ranks before the product can be made"
                )
        if refusal is not None:
            self._leave(gather, refusal)
            return
        count, columns = math.prod(wait.meta["val"].shape[:-1]), wait.meta["val"].shape[-1]
        how = self._how(str(gather.args[-1]), turned)
        is_only = len(readers) == 1
        target = _plait.all_gather_matmul if is_only else _plait.all_gather_matmul_gathered
        with graph.inserting_before(first):
            x = own
            if x.meta["val"].dim() != 2:
                own_rows = math.prod(x.meta["val"].shape[:-1])
                x = _add(graph, _aten.reshape.default, x, [own_rows, columns])
            out = _add(graph, target.default, x, weight, bias, *how, count)
            if not is_only:
                pair, out = out, _add(graph, operator.getitem, out, 0)
                gathered = _add(graph, operator.getitem, pair, 1)
                if not rows.order.is_by_ranks:
                    gathered = _reordered(graph, gathered, rows.order, is_by_ranks=True)
            if not rows.order.is_by_ranks:
                out = _reordered(graph, out, rows.order, is_by_ranks=True)
            product.replace_all_uses_with(out)
            for source in rows.sources if not is_only else ():
                if any(user not in rows.views for user in source.users):
                    again = _shaped(graph, gathered, source)
                    source.replace_all_uses_with(again, lambda user: user not in rows.views)
        graph.erase_node(product)
        graph.eliminate_dead_code()
        _erase(graph, wait, gather)
        self.rewritten["all_gather_matmul"] += 1


def _refusals(operands: dict[str, tuple[Any, int | None]]) -> Iterator[str]:
    """Say which operands, of which numbers of dimensions, plait doesn't take."""
    for name, (node, dims) in operands.items():
        value = node.meta.get("val") if isinstance(node, Node) else None
        if not isinstance(value, torch.Tensor):
            yield f"its {name} is no tensor"
        elif value.device.type != "cpu":
            yield f"its {name} is on {value.device}, and plait computes on the CPU"
        elif value.dtype not in _DTYPES:
            yield f"its {name} is {value.dtype}"
        elif dims is not None and value.dim() != dims:
            yield f"its {name} has {value.dim()} dimensions, not {dims}"
        elif not all(isinstance(size, int) for size in value.shape):
            yield f"its {name} has sizes that vary (torch.compile(dynamic=False) has none)"


def _pair_refusal(collective: Node, added: Added) -> str | None:
    """Say why a product and what adds it up are not rewritten."""
    if collective.args[1] != "sum":
        return f"it reduces by {collective.args[1]!r}, and plait by 'sum'"
    if not added.is_alone:
        return "its product has other readers"
    product = added.product
    if not all(keeps_last(view, product) for view in added.between):
        return "a view of its product has other columns"
    bias, x, by = _operands(product)
    return _product_refusal(product, {"left factor": (x, 2)}, bias, by)


def _gathered_refusal(own: Any, product: Node, bias: Any, by: Any) -> str | None:
    """Say why rows of all ranks and their product are not rewritten."""
    refusal = _product_refusal(product, {"left factor": (own, None)}, bias, by)
    return refusal or ("its left factor has 1 dimension" if own.meta["val"].dim() < 2 else None)


def _product_refusal(
    product: Node, operands: dict[str, tuple[Any, int | None]], bias: Any, by: Any
) -> str | None:
    if product.kwargs:
        return "its product is scaled"
    operands = {**operands, "right factor": (by, 2)}
    operands |= {} if bias is None else {"bias": (bias, 1)}
    refusal = next(_refusals(operands), None)
    if refusal is None and bias is not None:
        values, columns = bias.meta["val"].shape[0], by.meta["val"].shape[1]
        if values != columns:
            return f"its bias has {values} values, not {columns}"
    return refusal


def _weight(by: Any) -> tuple[Any, bool]:
    """Return a right factor [k, n] as a weight [n, k], or itself, turned."""
    is_transpose = by.target == _aten.permute.default and list(by.args[1]) == [1, 0]
    if is_transpose or by.target == _aten.t.default:
        return by.args[0], False
    return by, True


def _operands(product: Node) -> tuple[Any, Any, Any]:
    """Return bias, left and right factor of a product."""
    if product.target == _aten.mm.default:
        return None, product.args[0], product.args[1]
    return product.args[0], product.args[1], product.args[2]


def _reordered(graph: Graph, rows: Node, order: Order, *, is_by_ranks: bool) -> Node:
    """Put the rows of a matrix into the order, or from it into that of ranks."""
    columns = rows.meta["val"].shape[1]
    groups = _add(graph, _aten.reshape.default, rows, order.sizes(columns, is_by_ranks=is_by_ranks))
    turned = _add(graph, _aten.permute.default, groups, [1, 0, 2, 3])
    moved = _add(graph, _aten.clone.default, turned, memory_format=torch.contiguous_format)
    return _shaped(graph, moved, rows)


def _shaped(graph: Graph, rows: Node, like: Node) -> Node:
    """Return rows in the shape of another node."""
    shape = like.meta["val"].shape
    if rows.meta["val"].shape == shape:
        return rows
    return _add(graph, _aten.reshape.default, rows, list(shape))


def _add(graph: Graph, target: Any, *args: Any, **kwargs: Any) -> Node:
    """Add a node, with the value that tracing would have given it."""
    node = graph.call_function(target, args, kwargs)
    values = torch.fx.map_arg(args, lambda one: one.meta["val"])
    mode = next(one for one in _fakes(values)).fake_mode
    with mode:
        node.meta["val"] = target(*values, **kwargs)
    return node


def _fakes(values: Any) -> list[Any]:
    flat = torch.utils._pytree.tree_leaves(values)
    return [one for one in flat if isinstance(one, torch.Tensor) and hasattr(one, "fake_mode")]


def _erase(graph: Graph, wait: Node, collective: Node) -> None:
    """Erase a collective that has no readers: dead code stays where it is one."""
    graph.erase_node(wait)
    graph.erase_node(collective)


_resolve: Any = vars(distributed_c10d)["_resolve_process_group"]

_enabled: Pass | None = None
_last: Pass | None = None  # report() answers after disable() too


def enable(
    *, schedule: Schedule | None = None, parts: int | None = None, wire: str | None = None
) -> None:
    """Rewrite what this process compiles from now on.

    Every rank makes the call, with the same options. Passes that others have set for inductor run
    first. What was compiled before stays as it is, until torch._dynamo.reset(). The same call again
    does nothing; other options raise, until disable().
    """
    global _enabled, _last
    options = Options(schedule=schedule, parts=parts, wire=wire)
    if _enabled is not None:
        if _enabled.options == options:
            return
        raise Error(
            Code.invalid_argument,
            "plait.torch.compiler.enable: it is enabled with other options; call disable() first",
        )
    _enabled = _last = Pass(options)
    _set_passes([*_passes(), _enabled])


def disable() -> None:
    """Leave what is compiled from now on to torch. What was compiled stays rewritten."""
    global _enabled
    if _enabled is None:
        return
    others = [one for one in _passes() if one is not _enabled]
    if len(others) == len(_passes()):
        _log.warning(
            "the passes of inductor were replaced after enable(); they are left as they are"
        )
    else:
        _set_passes(others)
    _enabled = None


def report() -> Report:
    """Say what was rewritten since enable(), and why pairs were left."""
    return Report() if _last is None else _last.report()


def _passes() -> list[Any]:
    return list(get_custom_graph_passes(config.post_grad_custom_post_pass))


def _set_passes(passes: list[Any]) -> None:
    alone = None if not passes else passes[0]
    config.post_grad_custom_post_pass = passes if len(passes) > 1 else alone
