"""Embeddings whose vocabulary is divided over ranks: looked up in plain tensors, summed by plait.

Transformers looks each token up through a DTensor, and adds up the ranks' rows over the process
group. A decode does this for every token, and over gloo it takes as long as several products.
"""

import logging
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.tensor import DTensor, Shard
from torch.nn import functional

from plait.torch import tensors
from plait.transformers.service import Service
from plait.transformers.styles import group_of

_ops = torch.ops.plait
_FLOATS = frozenset((torch.float32, torch.bfloat16, torch.float16))


class Embedding:
    """Replaces `forward` of nn.Embedding in calls without gradients; transformers has the rest."""

    service: Service
    style: str

    def install_forward(self, module: nn.Module, mesh: Any) -> nn.Module:
        """Put a forward that plait serves before theirs."""
        super().install_forward(module, mesh)  # type: ignore[misc]
        group = group_of(mesh)
        if type(module) is not nn.Embedding or module.max_norm is not None:
            sentence = "it may have a forward of its own, or renormalises its rows"
            self.service.leaves(module, sentence, group, logging.INFO)
            return module
        theirs, rank, world = module.forward, group.rank(), group.size()

        def forward(ids: Any) -> Any:
            # A mode of torch may be on one rank alone, and all ranks must add up in the same way.
            compiles = torch.compiler.is_compiling()
            if torch.is_grad_enabled() or compiles or tensors.is_transformed():
                return theirs(ids)
            table: Any = module.weight
            if type(ids) is not torch.Tensor or not ids.is_cpu or not _is_shared(table, world):
                return theirs(ids)
            return _looked_up(ids, table, rank, group)

        vars(module)["forward"] = forward  # as transformers does
        return module


def _is_shared(table: Any, world: int) -> bool:
    """Say whether every rank has some rows. The answer is the same on all ranks."""
    if not isinstance(table, DTensor) or table.dtype not in _FLOATS or not table.is_cpu:
        return False
    placements = table.placements
    if len(placements) != 1 or type(placements[0]) is not Shard or placements[0].dim != 0:
        return False
    return (world - 1) * -(-table.shape[0] // world) < table.shape[0]


def _looked_up(
    ids: torch.Tensor, table: DTensor, rank: int, group: dist.ProcessGroup
) -> torch.Tensor:
    """Return the rows of all tokens. A rank has zeros in those of others, which change no value."""
    own = table._local_tensor
    first = rank * -(-table.shape[0] // group.size())  # as DTensors divide a dimension
    at = ids - first
    others = (at < 0) | (at >= own.shape[0])
    rows = functional.embedding(at.masked_fill_(others, 0), own)
    rows.masked_fill_(others.unsqueeze(-1), 0)
    sums: torch.Tensor = _ops.all_reduce_rows(rows.view(-1, own.shape[1]), group.group_name)
    return sums.view(rows.shape)
