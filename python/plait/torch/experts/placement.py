"""The ranks of experts."""

import functools
from dataclasses import dataclass

from plait import _native
from plait.errors import refuse

NAME = "expert_parallel_mlp"  # as the native layer calls itself


@dataclass(frozen=True)
class Placement:
    """On which rank each expert is."""

    ranks: tuple[int, ...]  # of each expert
    world: int

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
        for expert, rank in enumerate(ranks):
            if not 0 <= rank < world:
                refuse(NAME, f"expert {expert} is placed on rank {rank} of {world}")
        return Placement(ranks, world)

    def own(self, rank: int) -> list[int]:
        """List a rank's experts, in their order."""
        return [expert for expert, its_rank in enumerate(self.ranks) if its_rank == rank]
