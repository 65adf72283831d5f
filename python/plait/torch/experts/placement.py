"""The ranks of experts, and the ways of rows to them."""

import functools
from dataclasses import dataclass

import torch

from plait import _native
from plait.errors import refuse

NAME = "expert_parallel"


@dataclass(frozen=True)
class Placement:
    """On which rank each expert is, and in which bin its rows are sorted."""

    ranks: tuple[int, ...]  # of each expert
    world: int
    groups: int  # of each rank: as many as the rank with most experts has
    bins: list[int]  # of each expert: rank * groups + its number on that rank

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(experts: int, given: tuple[int, ...] | None, world: int) -> "Placement":
        """Place experts as a map says, or in contiguous blocks."""
        ranks = given
        if ranks is None:
            shares = [_native.balanced_shard(experts, rank, world).count for rank in range(world)]
            ranks = tuple(rank for rank, count in enumerate(shares) for _ in range(count))
        if len(ranks) != experts:
            refuse(NAME, f"placement has {len(ranks)} ranks for {experts} experts")
        own = [0] * world
        numbers = []
        for expert, rank in enumerate(ranks):
            if not 0 <= rank < world:
                refuse(NAME, f"expert {expert} is placed on rank {rank} of {world}")
            numbers.append(own[rank])
            own[rank] += 1
        groups = max(1, *own)
        bins = [rank * groups + number for rank, number in zip(ranks, numbers, strict=True)]
        return Placement(ranks, world, groups, bins)

    def own(self, rank: int) -> list[int]:
        """List a rank's experts, in their order."""
        return [expert for expert, its_rank in enumerate(self.ranks) if its_rank == rank]


@dataclass
class Route:
    """The ways of a call's rows: slots that have an expert, sorted by its rank and number."""

    counts: list[int]  # of each bin
    tokens: torch.Tensor  # the row of hidden of each
    places: torch.Tensor  # of each slot, its row among the sorted ones; -1: it has no expert

    @staticmethod
    def of(ids: torch.Tensor, placement: Placement, rank: int) -> "Route":
        """Sort the slots of [tokens, slots]."""
        tokens, slots = ids.shape
        rows, places = torch.empty(2, tokens * slots, dtype=torch.int64)
        counts = _native._route(
            ids.data_ptr(),
            tokens,
            slots,
            placement.bins,
            placement.world * placement.groups,
            rows.data_ptr(),
            places.data_ptr(),
            f"{NAME}: rank {rank} of {placement.world}",
        )
        return Route(counts, rows[: sum(counts)], places)

    def of_ranks(self, placement: Placement) -> list[int]:
        """Count the slots whose experts are on each rank."""
        step = placement.groups
        return [
            sum(self.counts[rank * step : (rank + 1) * step]) for rank in range(placement.world)
        ]

    def of_rank(self, rank: int, placement: Placement) -> slice:
        """Return which of the sorted slots have their experts on a rank."""
        counts = self.of_ranks(placement)
        first = sum(counts[:rank])
        return slice(first, first + counts[rank])
