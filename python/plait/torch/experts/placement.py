"""The ranks of experts."""

import functools
from dataclasses import dataclass

from plait import _native
from plait.errors import refuse

NAME = "expert_parallel_mlp"  # as the native layer calls itself


@dataclass(frozen=True)
class Placement:
    """On which rank each expert is, or each part of one: part p of expert e is e * parts + p."""

    ranks: tuple[int, ...]  # of each part
    world: int
    parts: int = 1  # of each expert

    @staticmethod
    @functools.lru_cache(maxsize=64)
    def of(experts: int, given: tuple[int, ...] | None, world: int, parts: int = 1) -> "Placement":
        """Place experts as a map says, or in contiguous blocks, parts on neighbouring ranks."""
        if parts < 1:
            refuse(NAME, f"experts can't have {parts} parts")
        ranks = given
        if ranks is None:
            each = parts if world % parts == 0 else 1
            runs, blocks = world // each, experts * parts // each
            shares = [_native.balanced_shard(blocks, run, runs).count for run in range(runs)]
            ranks = tuple(
                run * each + at
                for run, count in enumerate(shares)
                for _ in range(count)
                for at in range(each)
            )
        what = "expert" if parts == 1 else "part"
        if len(ranks) != experts * parts:
            refuse(NAME, f"placement has {len(ranks)} ranks for {experts * parts} {what}s")
        for number, rank in enumerate(ranks):
            if not 0 <= rank < world:
                refuse(NAME, f"{what} {number} is placed on rank {rank} of {world}")
        return Placement(ranks, world, parts)

    @property
    def experts(self) -> int:
        """Return the number of whole experts."""
        return len(self.ranks) // self.parts

    def own(self, rank: int) -> list[int]:
        """List a rank's experts, or parts, in their order."""
        return [expert for expert, its_rank in enumerate(self.ranks) if its_rank == rank]
