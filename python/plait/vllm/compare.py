"""Finds out whose product by a layer's weight is faster here: vLLM's own, or plait's."""

import logging
import time
from collections.abc import Callable, Hashable
from functools import partial

import torch
import torch.distributed as dist
from torch import nn
from vllm.model_executor.layers.linear import UnquantizedLinearMethod

from plait.vllm.products import Loaded, calls, multiply

# Rows of a token, of a small prompt and of a part of a long one, and how many seconds more are
# noticed.
_ROWS = {1: 20e-6, 64: 50e-6, 512: 100e-6}
# A product is clearly slower if it takes so many times as long: more if a sum over the ranks
# follows, because plait hides the sum.
_FACTOR = 1.05
_FACTOR_BEFORE_SUM = 1.25
_SECONDS = 0.5  # of a comparison of more than _FEWEST turns
_FEWEST, _MOST = 5, 20
_LONGEST_TURN = 0.25

_known: dict[Hashable, str | None] = {}
_log = logging.getLogger("plait.vllm")


def slower(
    key: Hashable,
    loaded: Loaded,
    weight: torch.Tensor,
    group: dist.ProcessGroup,
    *,
    adds_up: bool,
) -> str | None:
    """Say that vLLM's product is clearly faster than plait's on the slowest rank; None if not.

    All ranks make the call for the same weight; for each key only the first one measures. The first
    rank warns of the first such weight alone. `adds_up`: the layer adds up over the ranks.
    """
    if key not in _known:
        was_left = bool(left())
        served = calls[loaded.layer]
        _known[key] = _compare(loaded, weight, group, _FACTOR_BEFORE_SUM if adds_up else _FACTOR)
        calls[loaded.layer] = served  # the comparison's calls are not the model's
        if left() and not was_left and dist.get_rank(group) == 0:
            _log.warning(
                "vLLM's own product is faster for some layers: plait.vllm.report() has them"
            )
    return _known[key]


def left() -> list[str]:
    """Name the weights that are left to vLLM, the same on all ranks of the group."""
    return sorted(str(key) for key, refusal in _known.items() if refusal is not None)


def _compare(
    loaded: Loaded, weight: torch.Tensor, group: dist.ProcessGroup, factor: float
) -> str | None:
    method = UnquantizedLinearMethod()
    layer = nn.Module()
    layer.weight = nn.Parameter(weight.detach(), requires_grad=False)
    method.process_weights_after_loading(layer)
    for rows, noticed in _ROWS.items():
        x = torch.ones(rows, weight.shape[1], dtype=weight.dtype)
        theirs, ours = _least(
            partial(method.apply, layer, x),
            partial(multiply, x, None, loaded, adds_up=False),
            group,
        )
        if ours > theirs * factor and ours > theirs + noticed:
            return f"its own product of x [{rows}, k] takes {theirs / ours:.2f} of plait's time"
    return None


def _least(
    theirs: Callable[[], object], ours: Callable[[], object], group: dist.ProcessGroup
) -> torch.Tensor:
    """Return how long each takes at best on the slowest rank; nothing where that takes too long."""
    _seconds(theirs, ours)  # these calls make what later ones find
    turn = float(_most(_seconds(theirs, ours), group).sum())
    if turn > _LONGEST_TURN:
        return torch.zeros(2)
    turns = max(_FEWEST, min(_MOST, int(_SECONDS / turn)))
    times = [_seconds(theirs, ours) for _ in range(turns)]
    return _most((min(one for one, _ in times), min(one for _, one in times)), group)


def _most(seconds: tuple[float, float], group: dist.ProcessGroup) -> torch.Tensor:
    found = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(found, dist.ReduceOp.MAX, group)
    return found


def _seconds(theirs: Callable[[], object], ours: Callable[[], object]) -> tuple[float, float]:
    """Return how long each call takes."""
    begin = time.perf_counter()
    theirs()
    between = time.perf_counter()
    ours()
    return between - begin, time.perf_counter() - between
