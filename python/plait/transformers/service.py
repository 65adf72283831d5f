"""The report of the modules that were served, and of those that were not."""

import functools
import logging
from collections import Counter
from dataclasses import dataclass, field, replace

import torch.distributed as dist
from torch import nn

import plait.torch
from plait.torch.report import counted

_log = logging.getLogger("plait.transformers")


@dataclass
class Service:
    """How modules are served, and what was."""

    options: plait.torch.Options
    weight: str | None
    sequence_parallel: bool = False
    defer_logits: bool = False
    calls: Counter[str | None] = field(default_factory=Counter)  # None: served
    modules: Counter[str] = field(default_factory=Counter)  # which are left, by sentence
    forwards: Counter[str | None] = field(default_factory=Counter)  # None: ranks share rows
    layers: Counter[str] = field(default_factory=Counter)  # whose rows are never shared
    experts: Counter[str | None] = field(default_factory=Counter)  # calls of them; None: served

    @functools.cached_property
    def options_of_experts(self) -> plait.torch.Options:
        """Return the options without what is for linear layers alone."""
        schedule = None if self.options.schedule == "pipelined" else self.options.schedule
        return replace(self.options, schedule=schedule, parts=None, wire=None)

    def serves(self, refusal: str | None, group: dist.ProcessGroup) -> bool:
        """Count a call, log the first of each refusal, and say whether plait serves it."""
        self.calls[refusal] += 1
        if refusal is not None and self.calls[refusal] == 1 and group.rank() == 0:
            _log.warning("a linear layer is left to transformers: %s", refusal)
        return refusal is None

    def serves_experts(self, refusal: str | None, group: dist.ProcessGroup) -> bool:
        """Do what serves() does for a call of experts."""
        self.experts[refusal] += 1
        if refusal is not None and self.experts[refusal] == 1 and group.rank() == 0:
            _log.warning("experts are left to transformers: %s", refusal)
        return refusal is None

    def leaves(self, module: nn.Module, refusal: str, group: dist.ProcessGroup, level: int) -> None:
        """Count a module that is left, and log the first of each sentence."""
        sentence = f"{type(module).__name__}: {refusal}"
        self.modules[sentence] += 1
        if self.modules[sentence] == 1 and group.rank() == 0:
            _log.log(level, "a module is left to transformers: %s", sentence)

    def shares(self, refusal: str | None, group: dist.ProcessGroup, level: int) -> bool:
        """Count a model's forward, log the first of each refusal, and say if ranks share rows."""
        self.forwards[refusal] += 1
        if refusal is not None and self.forwards[refusal] == 1 and group.rank() == 0:
            _log.log(level, "a forward keeps its all-reduces: %s", refusal)
        return refusal is None

    def keeps(self, layers: nn.ModuleList, refusal: str, group: dist.ProcessGroup) -> None:
        """Count layers whose rows are never shared, and log the first of each sentence."""
        sentence = f"{type(layers[0]).__name__}: {refusal}"
        if sentence not in self.layers and group.rank() == 0:
            _log.warning("layers keep their all-reduces: %s", sentence)
        self.layers[sentence] += len(layers)


@dataclass(frozen=True)
class Report:
    """How many calls were served, and how many calls and modules were left for which reason."""

    served: int = 0
    refusals: tuple[tuple[str, int], ...] = ()  # of calls
    modules: tuple[tuple[str, int], ...] = ()
    operators: str = ""
    forwards: tuple[tuple[str | None, int], ...] = ()  # of models; None: ranks shared the rows
    layers: tuple[tuple[str, int], ...] = ()  # that keep their all-reduces
    experts: tuple[tuple[str | None, int], ...] = ()  # calls of experts; None: served

    def __str__(self) -> str:
        lines = [f"linear layers: {counted(self.served, 'call')} served by plait"]
        lines += [
            f"{counted(calls, 'call')} left to transformers: {why}" for why, calls in self.refusals
        ]
        lines += [
            f"{counted(count, 'module')} left to transformers: {why}" for why, count in self.modules
        ]
        lines += [
            f"{counted(count, 'forward')} {'shared the rows' if why is None else _KEPT + why}"
            for why, count in self.forwards
        ]
        lines += [f"{counted(count, 'layer')} {_KEPT}{why}" for why, count in self.layers]
        lines += [
            f"experts: {counted(calls, 'call')} {'served by plait' if why is None else _LEFT + why}"
            for why, calls in self.experts
        ]
        return "\n".join([*lines, self.operators])


_KEPT = "with all-reduces: "
_LEFT = "left to transformers: "
