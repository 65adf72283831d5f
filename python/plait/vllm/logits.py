"""The layer that vLLM makes in the place of its LogitsProcessor."""

import dataclasses
from typing import Any

import torch
from vllm.distributed import get_tp_group
from vllm.model_executor.layers import logits_processor
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod
from vllm.v1.sample.ops import topk_topp_sampler

from plait.torch import deferred
from plait.torch.columns import gather_columns
from plait.torch.rows import as_rows
from plait.torch.weights import Native, plain
from plait.vllm.products import OPTIONS, calls
from plait.vllm.report import note

_MOST = 1024  # of the logits of a row that plait finds without the others


def _refusal(layer: Any, head: Any, x: torch.Tensor) -> str | None:
    """Say why logits are gathered, as on all ranks; None if they are put off."""
    if head.tp_size == 1 or head.tp_size != get_tp_group().world_size:
        return "its tensor-parallel group is not vLLM's, or has one rank"
    if type(head.quant_method) is not UnquantizedEmbeddingMethod:
        return f"plait has no product for {type(head.quant_method).__name__}"
    if layer.head_dtype not in (None, x.dtype) or x.dtype != head.weight.dtype or not x.is_cpu:
        return "its logits have another dtype than the model"
    if head.num_embeddings != head.org_vocab_size or layer.org_vocab_size != head.org_vocab_size:
        return "ids were added to its vocabulary"
    return None


@dataclasses.dataclass(frozen=True)
class _Divided:
    """Logits as the sampler divided them by temperatures, and the logits before."""

    before: deferred.DeferredLogits
    temperatures: torch.Tensor  # of each row


def _divide(logits: deferred.DeferredLogits, by: Any, **how: Any) -> Any:
    """Serve the sampler's division of all rows by their temperatures."""
    rows = logits.x.shape[:-1]
    if how or logits.dtype != torch.float32 or len(rows) != 1 or logits.has_views:
        return NotImplemented
    if type(by) is not torch.Tensor or by.shape != (*rows, 1) or logits.head.operand is None:
        return NotImplemented
    before, by = logits._like(logits.x, None), by.clone()

    def multiply(x: torch.Tensor) -> torch.Tensor:
        return before.head.multiply(x).to(torch.float32).div_(by)

    logits.head = dataclasses.replace(before.head, multiply=multiply, operand=None)
    logits.divided = _Divided(before, by)
    return logits


def _largest(logits: deferred.DeferredLogits, k: torch.Tensor) -> torch.Tensor | None:
    """Return what vLLM's sampler leaves of the logits: minus infinity but for each row's largest.

    None: only all logits show it. Of equal ones the sampler leaves more than k, so some more are
    asked for.
    """
    most, size = int(k.max()), logits.head.size
    asked = min(2 * most + 32, size, _MOST)
    if logits.is_there or logits.divided is None or most >= asked:
        return None
    values, ids = logits.divided.before.top(asked)
    values = values.to(torch.float32).div_(logits.divided.temperatures)
    least = values.gather(1, k.long().unsqueeze(1) - 1)
    if asked < size and not bool((values[:, -1:] < least).all()):
        return None
    values.masked_fill_(values < least, -torch.inf)
    left: torch.Tensor = values.new_full((len(k), size), -torch.inf)
    return left.scatter_(1, ids, values)


def _serve_samplers() -> None:
    """Let vLLM's samplers do without whole logits, for as long as there may be layers of plait."""
    # The argmax on CPUs.
    deferred.SERVED[torch.ops._C.greedy_argmax] = lambda logits: logits.argmax(-1)
    deferred.SERVED[torch.Tensor.div_] = _divide
    theirs = topk_topp_sampler.apply_top_k_top_p
    if hasattr(theirs, "of_plait"):
        return

    def apply_top_k_top_p(
        logits: torch.Tensor, k: torch.Tensor | None, p: torch.Tensor | None
    ) -> Any:
        if isinstance(logits, deferred.DeferredLogits):
            chosen = None if k is None else _largest(logits, k)
            if chosen is not None and p is None:
                return chosen
            logits = logits.whole() if chosen is None else chosen
        return theirs(logits, k, p)

    apply_top_k_top_p.of_plait = True  # type: ignore[attr-defined]
    topk_topp_sampler.apply_top_k_top_p = apply_top_k_top_p


class LogitsProcessor(logits_processor.LogitsProcessor):  # type: ignore[misc]
    """vLLM's, whose logits are not gathered if a sampler needs the largest of each row alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        _serve_samplers()
        group = get_tp_group()
        self.tp_rank, self.tp_size, self.is_noted = group.rank_in_group, group.world_size, False

    def _gather_logits(self, logits: torch.Tensor) -> Any:
        """Bring the columns of all ranks to their places at once."""
        known = logits.is_cpu and logits.dtype in (torch.float32, torch.bfloat16, torch.float16)
        if not known or not self.use_all_gather:
            return super()._gather_logits(logits)
        shares = (logits.shape[-1],) * self.tp_size
        return gather_columns(logits, shares, get_tp_group().device_group)

    def _get_logits(
        self,
        hidden_states: torch.Tensor,
        lm_head: Any,
        embedding_bias: torch.Tensor | None,
        skip_gather: bool = False,
    ) -> Any:
        """Put off the logits. What is done with them is done on all ranks."""
        theirs = super()._get_logits
        refusal = "it has a bias" if embedding_bias is not None else None
        refusal = refusal or _refusal(self, lm_head, hidden_states)
        if not self.is_noted:
            self.is_noted = True
            note(self, refusal)
        if skip_gather or refusal is not None:
            return theirs(hidden_states, lm_head, embedding_bias, skip_gather)
        calls[type(self).__name__] += 1

        def multiply(rows: torch.Tensor) -> torch.Tensor:
            logits: torch.Tensor = theirs(rows, lm_head, None)
            return logits

        def operand() -> Native:
            return plain(as_rows(lm_head.weight.detach()))

        size, group = self.org_vocab_size, get_tp_group().device_group
        padded = size if lm_head.num_embeddings_padded > size else None
        head = deferred.Head(
            size, group, OPTIONS, multiply, lambda: lm_head.weight, operand, vocab_size=padded
        )
        return deferred.DeferredLogits.of(hidden_states, head)
