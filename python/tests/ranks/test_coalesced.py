"""Several collectives of the backend "plait" as one call, beside gloo's of the same tensors."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

from plait import _native

pytestmark = pytest.mark.filterwarnings("ignore:.*is deprecated:FutureWarning")

Group = dist.ProcessGroup
SIZES = (4, 9)


def values(n: int, dtype: torch.dtype) -> torch.Tensor:
    return ((torch.arange(n) * 5 + dist.get_rank() * 3) % 7).to(dtype)


def reduce_scatters(group: Group, dtype: torch.dtype, later: bool) -> list[torch.Tensor]:
    outs = [torch.empty(n, dtype=dtype) for n in SIZES]
    with _coalescing_manager(group, async_ops=later) as manager:
        for n, out in zip(SIZES, outs, strict=True):
            dist.reduce_scatter_tensor(out, values(n * group.size(), dtype), group=group)
    if later:
        manager.wait()
    return outs


def functional_all_reduces(group: Group, dtype: torch.dtype, later: bool) -> list[torch.Tensor]:
    return functional.all_reduce_coalesced([values(n, dtype) for n in SIZES], "sum", group)


def functional_all_gathers(group: Group, dtype: torch.dtype, later: bool) -> list[torch.Tensor]:
    mine = [values(n, dtype) for n in SIZES]
    return functional.all_gather_into_tensor_coalesced(mine, group)


def functional_reduce_scatters(group: Group, dtype: torch.dtype, later: bool) -> list[torch.Tensor]:
    wholes = [values(n * group.size(), dtype) for n in SIZES]
    dims = [0] * len(SIZES)
    return functional.reduce_scatter_tensor_coalesced(wholes, "sum", dims, group)


# Each with the native call that serves one of its tensors.
CASES: dict[str, tuple[Callable[[Group, torch.dtype, bool], list[torch.Tensor]], str]] = {
    "reduce_scatters": (reduce_scatters, "_reduce_scatter_at"),
    "functional all_reduces": (functional_all_reduces, "_all_reduce_at"),
    "functional all_gathers": (functional_all_gathers, "_all_gather_at"),
    "functional reduce_scatters": (functional_reduce_scatters, "_reduce_scatter_at"),
}


@pytest.mark.parametrize("later", [False, True], ids=["now", "async"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int32], ids=str)
@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_coalesced(
    gloo: Group, monkeypatch: pytest.MonkeyPatch, case: Any, dtype: torch.dtype, later: bool
) -> None:
    call, native = case
    real = getattr(_native, native)
    served = 0

    def counted(*arguments: Any) -> None:
        nonlocal served
        served += 1
        real(*arguments)

    monkeypatch.setattr(_native, native, counted)
    assert dist.group.WORLD is not None
    found = [one.clone() for one in call(dist.group.WORLD, dtype, later)]
    by_plait = dtype is not torch.int32 or native == "_all_gather_at"
    assert served == (len(SIZES) if by_plait else 0)
    expected = [one.clone() for one in call(gloo, dtype, later)]
    assert all(map(torch.equal, found, expected))
