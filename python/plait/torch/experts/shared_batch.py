"""Experts where all ranks have the same rows: results alone are exchanged.

A few rows are combined by every rank, which gathers the results of all slots: one exchange. More
rows have an owner each: it receives the results of its slots, combines them, and sends the sum to
all, which is fewer bytes. Both give the same bits.

Behind its results a rank sends a row with a fingerprint of its experts' ids and weights, so that
all ranks find out if their batches differ.
"""

import dataclasses
import hashlib
from collections.abc import Sequence

import torch
from torch.utils.dlpack import from_dlpack

from plait import _native
from plait.errors import refuse
from plait.torch.experts.call import Call
from plait.torch.experts.placement import NAME, Route
from plait.torch.rows import float_dtype, view

_FEW_ROWS = 64
_FINGERPRINT_BYTES = 8


def combine_shared(
    call: Call, outer: torch.Tensor, tokens: torch.Tensor, factors: torch.Tensor
) -> torch.Tensor:
    """Return all rows' sums, given the results of own experts and the rows that they are for."""
    rows = call.ids.shape[0]
    with_mark = torch.cat([outer, _mark(call, factors, outer)])
    if rows <= _FEW_ROWS:
        counts = [count + 1 for count in call.route.of_ranks(call.placement)]
        results = _gathered(call, with_mark, counts)
        return call.combine(results, factors, rows, _checked(call, call.route, results, counts))
    world = call.placement.world
    shards = [_native.balanced_shard(rows, rank, world) for rank in range(world)]
    ends = torch.tensor([shard.offset + shard.count for shard in shards])
    # The mark is sent to each of the owners, behind its results.
    owners = torch.cat([torch.bucketize(tokens, ends, right=True), torch.arange(world)])
    sent = with_mark[torch.argsort(owners, stable=True).clamp(max=outer.shape[0])]
    counts = torch.bincount(owners, minlength=world).tolist()
    assert call.comm is not None
    found = _native.all_to_all_rows(view(sent), counts, call.comm)
    results = from_dlpack(found.rows)
    shard = shards[call.rank]
    mine = slice(shard.offset, shard.offset + shard.count)
    route = Route.of(call.ids[mine], call.placement, call.rank)
    route = _checked(call, route, results, found.counts)
    own = call.combine(results, factors[mine], shard.count, route)
    return _gathered(call, own, [shard.count for shard in shards])


def _mark(call: Call, factors: torch.Tensor, like: torch.Tensor) -> torch.Tensor:
    """Return a row whose bytes begin with the fingerprint of what all ranks must have alike."""
    taken = hashlib.blake2b(digest_size=_FINGERPRINT_BYTES)
    for one in (torch.tensor(call.placement.bins), call.ids, factors):
        taken.update(one.numpy().tobytes())
    row = like.new_zeros(1, like.shape[1])
    there = row.view(torch.uint8)[0, :_FINGERPRINT_BYTES]  # fewer, of a narrow row
    there.copy_(torch.tensor(list(taken.digest())[: there.numel()], dtype=torch.uint8))
    return row


def _checked(call: Call, route: Route, results: torch.Tensor, counts: Sequence[int]) -> Route:
    """Refuse batches that differ, and return the route to results with the ranks' marks between.

    All ranks see the same marks, so that all refuse. A difference is seen before the route is used.
    """
    ends = torch.cumsum(torch.tensor(counts), 0)
    marks = results[ends - 1].view(torch.uint8)[:, :_FINGERPRINT_BYTES]
    other = (marks != marks[:1]).any(1).nonzero()
    if len(other) > 0:
        refuse(
            NAME,
            f"rank {int(other[0])} of {len(counts)} has other top_k_index, top_k_weights or "
            "placement than rank 0; with shared_batch, all ranks have the same",
        )
    before = torch.bucketize(route.places, ends - torch.arange(1, len(counts) + 1), right=True)
    return dataclasses.replace(route, places=route.places + before)


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
