"""The collectives that vLLM's communicator for CPUs lacks: of ranks with rows of their own.

vLLM gathers and scatters the rows of experts with them, where it has data-parallel ranks.
"""

from typing import Any

import torch

from plait import _native
from plait.errors import refuse
from plait.torch.context import communicator_of
from plait.torch.flat import Flat
from plait.torch.rows import float_dtype


def all_gatherv(self: Any, input_: Any, dim: int = 0, sizes: list[int] | None = None) -> Any:
    """Gather the rows of all ranks, of which `sizes` has the numbers; of each tensor of a list."""
    if isinstance(input_, (list, tuple)):
        return [all_gatherv(self, one, dim, sizes) for one in input_]
    if dim != 0:
        refuse("all_gather", f"rows are dimension 0, not {dim}")
    rows = [input_.shape[0]] * self.world_size if sizes is None else sizes
    if input_.shape[0] != rows[self.rank_in_group]:
        rank = self.rank_in_group
        refuse("all_gather", f"rank {rank} has {input_.shape[0]} rows, and the sizes are {rows}")
    out = input_.new_empty(sum(rows), *input_.shape[1:])
    own, whole = Flat(input_, "all_gather"), Flat(out, "all_gather")
    _native._all_gather_at(
        own.at,
        own.n,
        whole.at,
        whole.n,
        own.dtype,
        communicator_of(self.device_group, "all_gather"),
        _counts(whole, rows),
    )
    return out


def reduce_scatterv(
    self: Any, input_: torch.Tensor, dim: int = -1, sizes: list[int] | None = None
) -> torch.Tensor:
    """Sum over the ranks, and keep this rank's part, whose size is in `sizes`."""
    float_dtype(input_, "reduce_scatter", "input_")  # all else would be moved by the byte
    whole = Flat(input_.movedim(dim, 0).contiguous(), "reduce_scatter")
    rows = sizes
    if rows is None:
        each, left = divmod(whole.flat.shape[0], self.world_size)
        if left:
            refuse("reduce_scatter", f"{self.world_size} ranks can't share {input_.shape[dim]}")
        rows = [each] * self.world_size
    if sum(rows) != whole.flat.shape[0]:
        refuse("reduce_scatter", f"{input_.shape[dim]} is not the sum of the sizes {rows}")
    out = input_.new_empty(rows[self.rank_in_group], *whole.flat.shape[1:])
    own = Flat(out, "reduce_scatter")
    _native._reduce_scatter_at(
        whole.at,
        whole.n,
        own.at,
        own.n,
        whole.dtype,
        communicator_of(self.device_group, "reduce_scatter"),
        _counts(whole, rows),
    )
    return out.movedim(0, dim).contiguous()


def _counts(whole: Flat, rows: list[int]) -> list[int]:
    """Count the elements of each rank."""
    each = whole.n // max(1, sum(rows))
    return [each * one for one in rows]
