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

_ROWS = (1, 64, 512)  # of a token, of a small prompt, and of a part of a long one
_TURNS = 20  # of short calls
_SECONDS = 0.5  # the longest comparison of more than two turns
# A product that is slower by less than both of these is so by chance, or too little to be noticed.
_FACTOR = 1.05
_NOTICED = 50e-6

_known: dict[Hashable, str | None] = {}
_log = logging.getLogger("plait.vllm")


def slower(
    key: Hashable, loaded: Loaded, weight: torch.Tensor, group: dist.ProcessGroup
) -> str | None:
    """Say that vLLM's product is clearly faster than plait's on a rank of the group; None if not.

    All ranks make the call for the same weight; for each key only the first one measures. The first
    rank warns of the first such weight alone.
    """
    if key not in _known:
        was_left = bool(left())
        served = calls[loaded.layer]
        _known[key] = _compare(loaded, weight, group)
        calls[loaded.layer] = served  # the comparison's calls are not the model's
        if left() and not was_left and dist.get_rank(group) == 0:
            _log.warning(
                "vLLM's own product is faster for some layers: plait.vllm.report() has them"
            )
    return _known[key]


def left() -> list[str]:
    """Name the weights that are left to vLLM, the same on all ranks of the group."""
    return sorted(str(key) for key, refusal in _known.items() if refusal is not None)


def _compare(loaded: Loaded, weight: torch.Tensor, group: dist.ProcessGroup) -> str | None:
    method = UnquantizedLinearMethod()
    theirs = nn.Module()
    theirs.weight = nn.Parameter(weight.detach(), requires_grad=False)
    method.process_weights_after_loading(theirs)
    for rows in _ROWS:
        x = torch.ones(rows, weight.shape[1], dtype=weight.dtype)
        factor = _slowest(
            partial(method.apply, theirs, x),
            partial(multiply, x, None, loaded, adds_up=False),
            group,
        )
        if factor is not None:
            return f"its own product of x [{rows}, k] takes {1 / factor:.2f} of plait's time"
    return None


def _slowest(
    theirs: Callable[[], object], ours: Callable[[], object], group: dist.ProcessGroup
) -> float | None:
    """Return by which factor plait is slower on the slowest rank, where it clearly is."""
    first = sum(_seconds(theirs, ours))  # these calls make what later ones find
    turns = max(2, min(_TURNS, int(_SECONDS / first)))
    times = [_seconds(theirs, ours) for _ in range(turns)]
    least = min(one for one, _ in times), min(one for _, one in times)
    is_clear = least[1] > least[0] * _FACTOR and least[1] > least[0] + _NOTICED
    factor = torch.tensor(least[1] / least[0] if is_clear else 0.0)
    dist.all_reduce(factor, dist.ReduceOp.MAX, group)
    return float(factor) or None


def _seconds(theirs: Callable[[], object], ours: Callable[[], object]) -> tuple[float, float]:
    """Return how long each call takes."""
    begin = time.perf_counter()
    theirs()
    between = time.perf_counter()
    ours()
    return between - begin, time.perf_counter() - between
