"""A pass for torch.compile: products and functional collectives become plait's operators.

    import plait.torch.compiler

    plait.torch.compiler.enable()
    step = torch.compile(model)
    ...
    print(plait.torch.compiler.report())

In the graphs of inductor, forward and backward, these pairs are rewritten, with a view between them
too:

    mm, then all_reduce                 matmul_all_reduce
    mm, then reduce_scatter of rows     matmul_reduce_scatter
    all_gather of rows, then mm         all_gather_matmul; with a bias too

The collectives are those that DTensor and torch.distributed._functional_collectives leave in a
graph, with sums of f32, bf16 or f16 on the CPU. Sizes must be known: a pair of sizes that vary
("dynamic shapes"), or of other dtypes, stays as it is, and one sentence a reason is logged.

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
from plait.torch.options import Options, Schedule

__all__ = ["Pass", "Report", "disable", "enable", "report"]

_log = logging.getLogger("plait.torch")
_DEFAULTS = Options()
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_aten = torch.ops.aten
_functional = torch.ops._c10d_functional
_plait = torch.ops.plait
_PRODUCTS = (_aten.mm.default, _aten.addmm.default)
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)


@dataclass(frozen=True)
class Report:
    """How many pairs were rewritten, and how many were left for which reason."""

    rewritten: tuple[tuple[str, int], ...] = ()  # by operator
    left: tuple[tuple[str, int], ...] = ()  # by sentence

    def __str__(self) -> str:
        if not self.rewritten and not self.left:
            return "plait.torch.compiler: no product with a collective was compiled"
        lines = [f"{name}: {count} pairs rewritten" for name, count in self.rewritten]
        return "\n".join([*lines, *(f"{count} pairs left: {why}" for why, count in self.left)])


class Pass(CustomGraphPass):
    """Rewrites graphs of inductor. `options` name the plan, and what partial sums travel in."""

    def __init__(self, options: Options = _DEFAULTS) -> None:
        self.options = options
        self.rewritten: Counter[str] = Counter()
        self.left: Counter[str] = Counter()  # by sentence

    def __call__(self, graph: Graph) -> None:
        """Rewrite all pairs of a graph."""
        for node in list(graph.nodes):
            if node.op != "call_function":
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
        return get_hash_for_files((__file__,), repr(how))

    def _how(self, group: str, turned: bool) -> tuple[Any, ...]:
        options = self.options
        schedule = "" if options.schedule in (None, "auto") else options.schedule
        return (group, schedule, options.parts or 0, options.wire or "", turned)

    def _product_first(self, graph: Graph, collective: Node, name: str) -> None:
        wait, given = _only_user(collective), collective.args[0]
        product = given
        if isinstance(given, Node) and given.target in _VIEWS:
            product = given.args[0]
        if not isinstance(product, Node) or product.target not in _PRODUCTS or wait is None:
            return
        assert isinstance(given, Node)
        if (refusal := _pair_refusal(collective, given, product)) is not None:
            self._leave(collective, refusal)
            return
        x: Any
        by: Any
        x, by = product.args
        weight, turned = _weight(by)
        group = str(collective.args[-1])
        with graph.inserting_before(collective):
            new = _add(
                graph, getattr(_plait, name).default, x, weight, None, *self._how(group, turned)
            )
            if new.meta["val"].shape != wait.meta["val"].shape:
                new = _add(graph, _aten.reshape.default, new, list(wait.meta["val"].shape))
        _replace(graph, wait, new)
        self.rewritten[name] += 1

    def _gather_first(self, graph: Graph, gather: Node) -> None:
        wait = _only_user(gather)
        own: Any = gather.args[0]
        if wait is None:
            return
        # All that reads the rows of all ranks, views of them by rows included.
        readers = [
            (user, source)
            for source in (wait, *(one for one in wait.users if _is_rows_of(one, wait)))
            for user in source.users
            if not (source is wait and _is_rows_of(user, wait))
        ]
        order = {node: at for at, node in enumerate(graph.nodes)}
        readers.sort(key=lambda one: order[one[0]])
        product, factors = next(
            ((one, found) for one, rows in readers if (found := _factors(one, rows))), (None, None)
        )
        if product is None or factors is None:
            return
        bias, by = factors
        first = readers[0][0]
        refusal = _gathered_refusal(own, product, bias, by)
        if refusal is None:
            weight, turned = _weight(by)
            # The product moves before all that reads what it gathers.
            if any(order[one] > order[first] for one in (weight, bias) if one is not None):
                refusal = (
                    "something else reads the rows of all ranks before the product can be made"
                )
        if refusal is not None:
            self._leave(gather, refusal)
            return
        rows, columns = math.prod(wait.meta["val"].shape[:-1]), wait.meta["val"].shape[-1]
        how = self._how(str(gather.args[-1]), turned)
        is_only = len(readers) == 1
        target = _plait.all_gather_matmul if is_only else _plait.all_gather_matmul_gathered
        with graph.inserting_before(first):
            x = own
            if x.meta["val"].dim() != 2:
                own_rows = math.prod(x.meta["val"].shape[:-1])
                x = _add(graph, _aten.reshape.default, x, [own_rows, columns])
            out = _add(graph, target.default, x, weight, bias, *how, rows)
            if not is_only:
                pair, out = out, _add(graph, operator.getitem, out, 0)
                gathered = _add(graph, operator.getitem, pair, 1)
                if gathered.meta["val"].shape != wait.meta["val"].shape:
                    shape = list(wait.meta["val"].shape)
                    gathered = _add(graph, _aten.reshape.default, gathered, shape)
        product.replace_all_uses_with(out)
        graph.erase_node(product)
        if not is_only:
            # Views come before the product that now gathers: they are made anew behind it.
            for view in [one for one in wait.users if _is_rows_of(one, wait)]:
                if view.users:
                    with graph.inserting_after(gathered):
                        again = _add(graph, view.target, gathered, *view.args[1:])
                    view.replace_all_uses_with(again)
                graph.erase_node(view)
            wait.replace_all_uses_with(gathered)
        self.rewritten["all_gather_matmul"] += 1


def _only_user(node: Node) -> Node | None:
    return next(iter(node.users)) if len(node.users) == 1 else None


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


def _pair_refusal(collective: Node, given: Node, product: Node) -> str | None:
    """Say why a product and what adds it up are not rewritten."""
    if collective.args[1] != "sum":
        return f"it reduces by {collective.args[1]!r}, and plait by 'sum'"
    if product.target != _aten.mm.default:
        return "each rank adds a bias to its product"
    if _only_user(given) is not collective or (
        given is not product and _only_user(product) is not given
    ):
        return "its product has other readers"
    x, by = product.args
    refusal = next(_refusals({"left factor": (x, 2), "right factor": (by, 2)}), None)
    if refusal is None and given is not product and not _keeps_last(given, product):
        return "a view of its product has other columns"
    return refusal


def _gathered_refusal(own: Any, product: Node, bias: Any, by: Any) -> str | None:
    """Say why rows of all ranks and their product are not rewritten."""
    if product.kwargs:
        return "its product is scaled"
    operands: dict[str, tuple[Any, int | None]] = {"left factor": (own, None)}
    operands |= {"right factor": (by, 2)} | ({} if bias is None else {"bias": (bias, 1)})
    return next(_refusals(operands), None)


def _keeps_last(view: Node, product: Node) -> bool:
    """Say whether a view leaves columns as they are: its rows are the product's."""
    sizes, of_product = view.meta["val"].shape, product.meta["val"].shape
    # A comparison of sizes that vary would fix them.
    is_known = len(sizes) > 1 and isinstance(sizes[-1], int) and isinstance(of_product[-1], int)
    return is_known and bool(sizes[-1] == of_product[-1])


def _is_rows_of(view: Node, wait: Node) -> bool:
    return view.target in _VIEWS and view.meta["val"].dim() == 2 and _keeps_last(view, wait)


def _weight(by: Any) -> tuple[Any, bool]:
    """Return a right factor [k, n] as a weight [n, k], or itself, turned."""
    is_transpose = by.target == _aten.permute.default and list(by.args[1]) == [1, 0]
    if is_transpose or by.target == _aten.t.default:
        return by.args[0], False
    return by, True


def _factors(product: Node, rows: Node) -> tuple[Any, Any] | None:
    """Return bias and right factor of a product whose left factor these rows are."""
    if product.target == _aten.mm.default and product.args[0] is rows:
        return None, product.args[1]
    if product.target == _aten.addmm.default and product.args[1] is rows:
        return product.args[0], product.args[2]
    return None


def _add(graph: Graph, target: Any, *args: Any) -> Node:
    """Add a node, with the value that tracing would have given it."""
    node = graph.call_function(target, args)
    values = torch.fx.map_arg(args, lambda one: one.meta["val"])
    mode = next(one for one in _fakes(values)).fake_mode
    with mode:
        node.meta["val"] = target(*values)
    return node


def _fakes(values: Any) -> list[Any]:
    flat = torch.utils._pytree.tree_leaves(values)
    return [one for one in flat if isinstance(one, torch.Tensor) and hasattr(one, "fake_mode")]


def _replace(graph: Graph, wait: Node, new: Node) -> None:
    wait.replace_all_uses_with(new)
    collective = wait.args[0]
    graph.erase_node(wait)
    if isinstance(collective, Node):
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
        _log.warning("the passes of inductor were replaced since, and are left as they are")
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
