"""What tests on several ranks share: operands that are the same everywhere, and one verdict."""

import torch
import torch.distributed as dist

from plait import _native


def agree(passed: bool, sentence: str) -> None:
    """Fail on all ranks where one fails, so that none is left waiting."""
    verdicts: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(verdicts, None if passed else sentence)
    failed = {rank: said for rank, said in enumerate(verdicts) if said is not None}
    assert not failed, failed


def shard(size: int) -> slice:
    """This rank's part of a dimension."""
    part = _native.balanced_shard(size, dist.get_rank(), dist.get_world_size())
    return slice(part.offset, part.offset + part.count)


def whole_and_parts(
    shape: tuple[int, ...], dtype: torch.dtype, seed: int
) -> tuple[torch.Tensor, list[torch.Tensor]]:
    """Random values that all ranks have alike: one tensor, and one for each rank."""
    generator = torch.Generator().manual_seed(seed)
    whole = torch.randn(shape, generator=generator).to(dtype)
    parts = [
        torch.randn(shape, generator=generator).to(dtype) for _ in range(dist.get_world_size())
    ]
    return whole, parts


UNIT = {torch.float32: 2.0**-24, torch.bfloat16: 2.0**-8, torch.float16: 2.0**-11}


def bound(sizes: torch.Tensor, terms: int, dtype: torch.dtype, roundings: int = 1) -> torch.Tensor:
    """How far a sum of `terms` products may be from the exact one, whose sizes add up to `sizes`.

    nu / (1 - nu) of the sum of sizes, with u of f32, and some roundings to the dtype.
    """
    nu = terms * UNIT[torch.float32]
    smallest = 2.0**-24 if dtype is torch.float16 else 0.0
    return (nu / (1 - nu) + roundings * UNIT[dtype] * (1 + nu)) * sizes + smallest
