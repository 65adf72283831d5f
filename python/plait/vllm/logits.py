"""The layer that vLLM makes in the place of its LogitsProcessor."""

from typing import Any

import torch
from vllm.distributed import get_tp_group
from vllm.model_executor.layers import logits_processor
from vllm.model_executor.layers.vocab_parallel_embedding import UnquantizedEmbeddingMethod

from plait.torch import deferred
from plait.torch.rows import as_rows
from plait.torch.weights import Native, plain
from plait.vllm.products import OPTIONS, calls
from plait.vllm.report import note


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


class LogitsProcessor(logits_processor.LogitsProcessor):  # type: ignore[misc]
    """vLLM's, whose logits are not gathered if a sampler needs the largest of each row alone."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # Its sampler's argmax on CPUs.
        deferred.SERVED[torch.ops._C.greedy_argmax] = lambda logits: logits.argmax(-1)
        group = get_tp_group()
        self.tp_rank, self.tp_size, self.is_noted = group.rank_in_group, group.world_size, False

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
        head = deferred.Head(
            size, group, OPTIONS, multiply, lambda: lm_head.weight, operand, vocab_size=size
        )
        return deferred.DeferredLogits.of(hidden_states, head)
