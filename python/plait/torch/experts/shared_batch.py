"""Experts where all ranks have the same rows: results alone are exchanged.

A few rows are combined by every rank, which gathers the results of all slots: one exchange. Of more
rows each has an owner, who gets the results of its slots, combines them, and sends the sum to all,
which is fewer bytes. Both give the same bits.
"""

import torch
from torch.utils.dlpack import from_dlpack

from plait import _native
from plait.errors import refuse
from plait.torch.experts.call import Call
from plait.torch.experts.placement import NAME, Route
from plait.torch.rows import float_dtype, view

_FEW_ROWS = 64


def combine_shared(
    call: Call, outer: torch.Tensor, tokens: torch.Tensor, factors: torch.Tensor
) -> torch.Tensor:
    """Return all rows' sums, given the results of own experts and the rows that they are for."""
    rows = call.ids.shape[0]
    if rows <= _FEW_ROWS:
        results = _gathered(call, outer, call.route.of_ranks(call.placement))
        return call.combine(results, factors, rows, call.route)
    world = call.placement.world
    shards = [_native.balanced_shard(rows, rank, world) for rank in range(world)]
    ends = torch.tensor([shard.offset + shard.count for shard in shards])
    owners = torch.bucketize(tokens, ends, right=True)
    sent = outer[torch.argsort(owners, stable=True)]
    counts = torch.bincount(owners, minlength=world).tolist()
    assert call.comm is not None
    found = _native.all_to_all_rows(view(sent), counts, call.comm)
    mine = slice(shards[call.rank].offset, shards[call.rank].offset + shards[call.rank].count)
    route = Route.of(call.ids[mine], call.placement, call.rank)
    expected = route.of_ranks(call.placement)
    if found.counts != expected:
        refuse(
            NAME,
            f"rank {call.rank} of {world} expects {expected} results of the ranks, and they have "
            f"sent {found.counts}; with shared_batch, all ranks have the same top_k_index",
        )
    count = shards[call.rank].count
    own = call.combine(from_dlpack(found.rows), factors[mine], count, route)
    return _gathered(call, own, [shard.count for shard in shards])


def _gathered(call: Call, own: torch.Tensor, counts: list[int]) -> torch.Tensor:
    """Return the rows of all ranks, of which each has so many."""
    columns = own.shape[1]
    out = own.new_empty(sum(counts), columns)
    assert call.comm is not None
    _native._all_gather_at(
        own.data_ptr(),
        own.numel(),
        out.data_ptr(),
        out.numel(),
        float_dtype(own, NAME, "rows"),
        call.comm,
        [count * columns for count in counts],
    )
    return out
