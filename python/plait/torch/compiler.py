"""A pass for torch.compile: products and functional collectives become plait's operators.

    from plait.torch.compiler import Pass

    step = torch.compile(model, options={"post_grad_custom_post_pass": Pass()})

In the graphs of inductor, forward and backward, these pairs are rewritten, with a view between them
too:

    mm, then all_reduce                 matmul_all_reduce
    mm, then reduce_scatter of rows     matmul_reduce_scatter
    all_gather of rows, then mm         all_gather_matmul; with a bias too

The collectives are those that DTensor and torch.distributed._functional_collectives leave in a
graph, with sums of f32, bf16 or f16 on the CPU. Anything else stays as it is. `Pass().rewritten`
counts what it has rewritten; graphs that inductor finds in its cache were rewritten before and are
not counted. The options belong to this compilation, not to the process.
"""

import math
import operator
from collections import Counter
from typing import Any

import torch
from torch._inductor.custom_graph_pass import CustomGraphPass, get_hash_for_files
from torch.fx import Graph, Node

import plait.torch.library  # noqa: F401  # registers the operators that graphs then have
from plait.torch.options import Options

__all__ = ["Pass"]

_DEFAULTS = Options()
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)
_aten = torch.ops.aten
_functional = torch.ops._c10d_functional
_plait = torch.ops.plait
_VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)


class Pass(CustomGraphPass):
    """Rewrites graphs of inductor. `options` name the plan, and what partial sums travel in."""

    def __init__(self, options: Options = _DEFAULTS) -> None:
        self.options = options
        self.rewritten: Counter[str] = Counter()

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

    def uuid(self) -> Any:
        """Identify the pass, for inductor's cache of what it has compiled."""
        how = (self.options.schedule, self.options.parts, self.options.wire)
        return get_hash_for_files((__file__,), repr(how))

    def _how(self, group: str, turned: bool) -> tuple[Any, ...]:
        options = self.options
        schedule = "" if options.schedule in (None, "auto") else options.schedule
        return (group, schedule, options.parts or 0, options.wire or "", turned)

    def _product_first(self, graph: Graph, collective: Node, name: str) -> None:
        wait = _only_user(collective)
        given = collective.args[0]
        if wait is None or not isinstance(given, Node) or collective.args[1] != "sum":
            return
        product = given
        if given.target in _VIEWS and isinstance(given.args[0], Node):
            product = given.args[0]
            if _only_user(product) is not given or not _keeps_last(given, product):
                return
        if product.target != _aten.mm.default or _only_user(given) is not collective:
            return
        x: Any
        by: Any
        x, by = product.args
        if not _takes(x) or not _takes(by):
            return
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
        if wait is None or not _takes(own, dims=None):
            return
        # All that reads the rows of all ranks, views of them by rows included.
        readers = [
            (user, source)
            for source in (wait, *(one for one in wait.users if _is_rows_of(one, wait)))
            for user in source.users
            if not (source is wait and _is_rows_of(user, wait))
        ]
        order = {node: at for at, node in enumerate(graph.nodes)}
        product, source = min(readers, key=lambda one: order[one[0]], default=(None, wait))
        bias, by = _factors(product, source)
        if product is None or by is None or not _takes(by):
            return
        weight, turned = _weight(by)
        rows, columns = math.prod(wait.meta["val"].shape[:-1]), wait.meta["val"].shape[-1]
        how = self._how(str(gather.args[-1]), turned)
        is_only = len(readers) == 1
        target = _plait.all_gather_matmul if is_only else _plait.all_gather_matmul_gathered
        with graph.inserting_before(product):
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


def _takes(node: Any, dims: int | None = 2) -> bool:
    """Say whether plait takes this operand: its sizes have to be known."""
    value = node.meta.get("val") if isinstance(node, Node) else None
    return (
        isinstance(value, torch.Tensor)
        and value.device.type == "cpu"
        and value.dtype in _DTYPES
        and (dims is None or value.dim() == dims)
        and all(isinstance(size, int) for size in value.shape)
    )


def _keeps_last(view: Node, product: Node) -> bool:
    """Say whether a view leaves columns as they are: its rows are the product's."""
    sizes = view.meta["val"].shape
    return len(sizes) > 1 and bool(sizes[-1] == product.meta["val"].shape[-1])


def _is_rows_of(view: Node, wait: Node) -> bool:
    return view.target in _VIEWS and view.meta["val"].dim() == 2 and _keeps_last(view, wait)


def _weight(by: Any) -> tuple[Any, bool]:
    """Return a right factor [k, n] as a weight [n, k], or itself, turned."""
    is_transpose = by.target == _aten.permute.default and list(by.args[1]) == [1, 0]
    if is_transpose or by.target == _aten.t.default:
        return by.args[0], False
    return by, True


def _factors(product: Node | None, rows: Node) -> tuple[Any, Any]:
    """Return bias and right factor of a product whose left factor these rows are."""
    if product is not None and product.target == _aten.mm.default and product.args[0] is rows:
        return None, product.args[1]
    if product is not None and product.target == _aten.addmm.default and product.args[1] is rows:
        bias, _, by = product.args
        if not product.kwargs and _takes(bias, dims=1):
            return bias, by
    return None, None


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
