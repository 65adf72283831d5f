"""Nodes between a product and its collective in a graph: views, and rows in another order.

A collective goes by the first dimension. Where a program cuts another one, such as the sequence of
[batch, sequence, hidden], torch cuts the tensor and puts the parts together along the first
dimension before it adds them up, and the other way round behind what it has gathered. plait's
operators take rows in the order of ranks, so that these copies become one of the product's rows, or
none for a batch of one.
"""

import math
import operator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch.fx import Node

_aten = torch.ops.aten
VIEWS = (_aten.view.default, _aten.reshape.default, _aten._unsafe_view.default)
PRODUCTS = (_aten.mm.default, _aten.addmm.default)
_WAIT = torch.ops._c10d_functional.wait_tensor.default
_MOVES = (
    *VIEWS,
    _aten.split.Tensor,
    operator.getitem,
    _aten.cat.default,
    _aten.slice.Tensor,
    _aten.constant_pad_nd.default,
)


def only_user(node: Node) -> Node | None:
    """Return what alone reads a node; None if nothing or several do."""
    return next(iter(node.users)) if len(node.users) == 1 else None


def waited_for(collective: Node) -> Node | None:
    """Return the wait for a collective; None if something else reads what is not waited for."""
    wait = only_user(collective)
    return None if wait is None or wait.target != _WAIT else wait


def keeps_last(view: Node, of: Node) -> bool:
    """Say whether a view leaves columns as they are: its rows are those of the other."""
    sizes, others = view.meta["val"].shape, of.meta["val"].shape
    # A comparison of sizes that vary would fix them.
    is_known = len(sizes) > 1 and isinstance(sizes[-1], int) and isinstance(others[-1], int)
    return is_known and bool(sizes[-1] == others[-1])


def left_factor(product: Node) -> Any:
    """Return what a product multiplies from the left."""
    return product.args[0 if product.target == _aten.mm.default else 1]


@dataclass(frozen=True)
class Order:
    """How rows lie: in each of `outer` groups there are `inner` rows of every rank."""

    outer: int
    ranks: int
    inner: int

    @staticmethod
    def by_ranks(ranks: int) -> "Order":
        """All rows of a rank before those of the next."""
        return Order(1, ranks, -1)

    @property
    def is_by_ranks(self) -> bool:
        """Say whether all rows of a rank come before those of the next."""
        return self.outer == 1

    def sizes(self, columns: int, *, is_by_ranks: bool) -> list[int]:
        """Return rows of a matrix as groups, ranks and rows, in one order or the other."""
        groups = [self.ranks, self.outer] if is_by_ranks else [self.outer, self.ranks]
        return [*groups, self.inner, columns]


@dataclass
class Gathered:
    """Rows of all ranks: where they are read, and in which order."""

    base: Node  # in this order
    order: Order
    views: list[Node] = field(default_factory=list)

    @staticmethod
    def of(wait: Node, ranks: int) -> "Gathered":
        """Find what reads the rows, and what are views of them."""
        found = _put_together(wait, ranks)
        base, order = (wait, Order.by_ranks(ranks)) if found is None else found
        rows, at = Gathered(base, order), 0
        while at <= len(rows.views):
            source = rows.sources[at]
            rows.views += [one for one in source.users if _is_view(one) and keeps_last(one, source)]
            at += 1
        return rows

    @property
    def sources(self) -> list[Node]:
        """Return the rows and their views."""
        return [self.base, *self.views]

    def readers(self) -> list[tuple[Node, Node]]:
        """Return all that reads the rows, each with what it reads."""
        views = set(self.views)
        return [(user, one) for one in self.sources for user in one.users if user not in views]


@dataclass
class Added:
    """A product and what lies between it and the collective that adds it up."""

    product: Node
    order: Order
    between: list[Node]  # views, whose rows are the product's if all keep the last dimension
    is_alone: bool  # nothing else reads what lies between

    @staticmethod
    def of(collective: Node, ranks: int) -> "Added | None":
        """Find the product that a collective adds up."""
        given, order, is_alone = collective.args[0], Order.by_ranks(ranks), True
        if not isinstance(given, Node):
            return None
        if (cut := _cut(given, ranks)) is not None:
            is_alone = only_user(given) is collective and cut.is_alone
            given, order = cut.given, cut.order
        else:
            is_alone = only_user(given) is collective
        between = []
        while _is_view(given) and isinstance(given.args[0], Node):
            between.append(given)
            given = given.args[0]
            is_alone = is_alone and only_user(given) is not None
        if given.target not in PRODUCTS:
            return None
        return Added(given, order, between, is_alone)


def comes_from_product(node: Any) -> bool:
    """Say whether a tensor is a product whose values were only moved."""
    while isinstance(node, Node) and node.target in _MOVES:
        given: Any = node.args[0]
        node = given[0] if isinstance(given, (list, tuple)) else given
    return isinstance(node, Node) and node.target in PRODUCTS


def goes_to_product(node: Node) -> bool:
    """Say whether a product takes values from the left that were only moved."""
    seen, waiting = set(), [node]
    while waiting:
        one = waiting.pop()
        for user in one.users:
            if user.target in PRODUCTS and left_factor(user) is one:
                return True
            if user.target in _MOVES and user not in seen:
                seen.add(user)
                waiting.append(user)
    return False


@dataclass
class _Cut:
    given: Node
    order: Order
    is_alone: bool


def _is_view(node: Node) -> bool:
    return node.target in VIEWS


def _parts(cat: Any, ranks: int) -> Node | None:
    """Return the split whose parts, one a rank, are put together again."""
    if not isinstance(cat, Node) or cat.target != _aten.cat.default:
        return None
    parts: Any = cat.args[0]
    if len(parts) != ranks or any(one.target is not operator.getitem for one in parts):
        return None
    split = parts[0].args[0]
    if any(one.args != (split, at) for at, one in enumerate(parts)):
        return None
    return split if split.target == _aten.split.Tensor else None


def _argument(node: Node, at: int, otherwise: int) -> Any:
    return node.args[at] if len(node.args) > at else otherwise


def _order_of(shape: torch.Size, dim: int, ranks: int) -> Order | None:
    """Return how rows lie where ranks share this dimension alike."""
    is_known = all(isinstance(size, int) for size in shape)
    if not is_known or not 0 < dim < len(shape) - 1 or shape[dim] % ranks != 0:
        return None
    inner = shape[dim] // ranks * math.prod(shape[dim + 1 : -1])
    return Order(math.prod(shape[:dim]), ranks, inner)


def _put_together(wait: Node, ranks: int) -> tuple[Node, Order] | None:
    """Find the parts of ranks that are put together along another dimension than the first."""
    split = only_user(wait)
    cat = None if split is None else next((u for part in split.users for u in part.users), None)
    if split is None or cat is None or _parts(cat, ranks) is not split:
        return None
    if any(only_user(part) is not cat for part in split.users) or _argument(split, 2, 0) != 0:
        return None
    order = _order_of(cat.meta["val"].shape, _argument(cat, 1, 0), ranks)
    rows: Any = split.args[1]
    if order is None or not isinstance(rows, int) or rows * ranks != wait.meta["val"].shape[0]:
        return None
    return cat, order


def _cut(cat: Node, ranks: int) -> _Cut | None:
    """Find a tensor that is cut along another dimension than the first, a part for each rank."""
    split = _parts(cat, ranks)
    if split is None or _argument(cat, 1, 0) != 0:
        return None
    given, dim = split.args[0], _argument(split, 2, 0)
    assert isinstance(given, Node)
    shape = given.meta["val"].shape
    order = _order_of(shape, dim, ranks)
    if order is None or split.args[1] * ranks != shape[dim]:  # type: ignore[operator]
        return None
    is_alone = only_user(given) is split and all(only_user(one) is cat for one in split.users)
    return _Cut(given, order, is_alone)
