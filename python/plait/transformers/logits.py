"""Logits of a model's last layer, put off: a greedy token or a loss needs few numbers of them."""

from collections.abc import Callable
from typing import Any

import torch
from transformers.generation.logits_process import (
    LogitsProcessor,
    LogitsProcessorList,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
)

from plait.torch.deferred import DeferredLogits
from plait.transformers.styles import Site

_MOST = 1024  # of linear_top()


def head_of(model: Any) -> Site | None:
    """Return what serves the product by the vocabulary; None if its logits are never put off."""
    layer = model.get_output_embeddings()
    site = None if layer is None else vars(layer).get("plait_site")
    return site if isinstance(site, Site) and layer.bias is None else None


def defer_logits_of(model: Any) -> None:
    """Put off the logits of all forwards of a model."""
    if (site := head_of(model)) is not None:
        site.defers = True


def with_deferred_logits(theirs: Callable[..., Any]) -> Callable[..., Any]:
    """Return GenerationMixin._sample, which gets logits that are put off."""

    def _sample(
        self: Any,
        input_ids: torch.Tensor,
        logits_processor: LogitsProcessorList,
        stopping_criteria: Any,
        generation_config: Any,
        *args: Any,
        **kwargs: Any,
    ) -> Any:
        site = head_of(self)
        # The program may look at scores on one rank alone, and multiplying takes all ranks.
        asked = generation_config.output_scores or generation_config.output_logits
        seen = (asked and generation_config.return_dict_in_generate) or not all(
            type(one).__module__.startswith("transformers.") for one in logits_processor
        )
        if site is None:
            how = (logits_processor, stopping_criteria, generation_config, *args)
            return theirs(self, input_ids, *how, **kwargs)
        before, site.defers = site.defers, not seen
        try:
            processors = logits_processor if seen else _with_top_k(logits_processor)
            how = (processors, stopping_criteria, generation_config, *args)
            return theirs(self, input_ids, *how, **kwargs)
        finally:
            site.defers = before

    return _sample


def _with_top_k(processors: LogitsProcessorList) -> LogitsProcessorList:
    """Let the k largest logits be found by all ranks, if no processor needs others before."""
    first: list[Any] = []
    for processor in processors:
        first.append(processor)
        if type(processor) is not TemperatureLogitsWarper:
            break
    if not first or type(first[-1]) is not TopKLogitsWarper or first[-1].top_k >= _MOST:
        return processors
    return LogitsProcessorList([_TopK(LogitsProcessorList(first)), *processors[len(first) :]])


class _TopK(LogitsProcessor):  # type: ignore[misc]
    """Does what temperatures and a TopKLogitsWarper do, by the k largest logits."""

    def __init__(self, theirs: LogitsProcessorList) -> None:
        self.theirs = theirs

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        k = self.theirs[-1].top_k
        if not isinstance(scores, DeferredLogits) or k >= scores.shape[-1]:
            done: torch.Tensor = self.theirs(input_ids, scores)
            return done
        values, ids = scores.top(k + 1)
        for temperature in self.theirs[:-1]:
            values = temperature(input_ids, values)
        # Transformers keeps more than k scores if some are equal, and scores may be NaN. All ranks
        # have the same values, and so decide alike.
        if not bool((values[..., k - 1] > values[..., k]).all()):
            whole: torch.Tensor = self.theirs(input_ids, scores.whole())
            return whole
        left = torch.full(scores.shape, self.theirs[-1].filter_value)
        return left.scatter_(-1, ids[..., :k], values[..., :k])
