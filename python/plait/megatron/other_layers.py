"""Layers of Transformer Engine: classes of their own, which stay as they are.

A model that is made of them would leave plait idle without a word. Their calls are counted, and the
first of each class is logged.
"""

import functools
import importlib
import importlib.util
import logging
from collections.abc import Callable, Iterable
from typing import Any

import torch

_log = logging.getLogger("plait.megatron")

MODULE = "megatron.core.extensions.transformer_engine"
NAMES = ("TELinear", "TELayerNormColumnParallelLinear", "TEGroupedLinear", "TEFusedMLP")
REFUSAL = "it is a layer of Transformer Engine, which has an overlap of its own (tp_comm_overlap)"


def classes() -> list[type]:
    """Return those that have a forward of their own; none where Transformer Engine is missing."""
    if importlib.util.find_spec("transformer_engine") is None:
        return []
    known = vars(importlib.import_module(MODULE))
    found = [known.get(name) for name in NAMES]
    return [one for one in found if isinstance(one, type) and "forward" in vars(one)]


def watch(
    owners: Iterable[type], left: Callable[[torch.nn.Module, str], object]
) -> Callable[[], None]:
    """Tell `left` of every forward of these classes and their subclasses; the result ends it."""
    made = [(owner, vars(owner)["forward"], _counted(owner, left)) for owner in owners]

    def end() -> None:
        for owner, original, ours in made:
            if vars(owner)["forward"] is ours:
                setattr(owner, "forward", original)  # noqa: B010  # of any class
            else:
                _log.warning(
                    "%s.forward was later replaced by another package, and is left as it is",
                    owner.__name__,
                )

    return end


def _counted(owner: type, left: Callable[[torch.nn.Module, str], object]) -> Callable[..., Any]:
    original: Callable[..., Any] = vars(owner)["forward"]

    @functools.wraps(original)
    def forward(self: torch.nn.Module, *args: Any, **kwargs: Any) -> Any:
        if getattr(self, "tp_size", None) != 1:  # a group of one rank has no communication
            left(self, REFUSAL)
        return original(self, *args, **kwargs)

    setattr(owner, "forward", forward)  # noqa: B010
    return forward
