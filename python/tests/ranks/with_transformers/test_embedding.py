"""Embeddings whose vocabulary ranks share: looked up by plait in calls without gradients."""

import contextlib
from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.utils.flop_counter import FlopCounterMode
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

import plait.torch
import plait.transformers

Place = tuple[DeviceMesh, dist.ProcessGroup]


@pytest.fixture(scope="module")
def place() -> Iterator[Place]:
    """Ranks over gloo, so that plait's messages are those of plait's own calls."""
    group = dist.new_group(backend="gloo")
    yield DeviceMesh.from_group(group, "cpu"), group
    dist.destroy_process_group(group)


class OtherEmbedding(nn.Embedding):
    """A layer of a model's own."""


def shared(module: Any, place: Place) -> Any:
    with plait.transformers.enabled():
        style = ALL_PARALLEL_STYLES["embedding_rowwise"]
        style.shard_param(module, "weight", place[0])
        return style.install_forward(module, place[0])


def call(module: Any, ids: torch.Tensor, place: Place) -> tuple[torch.Tensor, bool]:
    """Return the rows, and say whether plait has added them up."""
    with plait.torch.profile(place[1]) as profile:
        found = module(ids)
    calls = sum(row.calls for row in profile.table().rows if row.operator == "all_reduce")
    return found, calls == 1


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("rows", [16, 21])
def test_rows_are_those_of_one_process(rows: int, dtype: torch.dtype, place: Place) -> None:
    """The ranks' shares of 21 rows are unequal."""
    torch.manual_seed(6)
    module = nn.Embedding(rows, 24, padding_idx=2).to(dtype)
    every = torch.arange(rows)
    expected = module.weight.detach().clone()
    module = shared(module, place)
    with torch.no_grad():
        for ids in (every, every[:, None], every.int().reshape(1, 1, -1), every[-1]):
            found, is_ours = call(module, ids, place)
            agree(is_ours and torch.equal(found, expected[ids]), f"rows of {list(ids.shape)}")
        with torch.inference_mode():
            agree(torch.equal(module(every), expected), "in inference mode")
        nothing, _ = call(module, every[:0], place)
        agree(nothing.shape == (0, 24), f"{list(nothing.shape)}")


def test_loaded_values_are_looked_up(place: Place) -> None:
    module = shared(nn.Embedding(10, 4), place)
    with torch.no_grad():
        module.weight.fill_(3)
        module(torch.arange(10))
        module.weight.fill_(5)
        found = module(torch.arange(10))
    agree(bool((found == 5).all()), str(found))


def test_a_mode_may_be_on_one_rank_alone(place: Place) -> None:
    """If it led to transformers' sum on this rank, all would wait until their timeout."""
    module = shared(nn.Embedding(10, 4), place)
    expected = module.weight.full_tensor()
    mode = FlopCounterMode(display=False) if dist.get_rank() == 0 else contextlib.nullcontext()
    with torch.no_grad(), mode:
        found, is_ours = call(module, torch.arange(10), place)
    agree(is_ours and torch.equal(found, expected), str(found))


def test_gradients_are_transformers(place: Place) -> None:
    module = shared(nn.Embedding(10, 4), place)
    found, is_ours = call(module, torch.arange(10), place)
    found.sum().backward()
    agree(not is_ours, "plait has added up")
    agree(bool((module.weight.grad.full_tensor() == 1).all()), "gradient")


@pytest.mark.parametrize(
    "make",
    [
        lambda: OtherEmbedding(10, 4),
        lambda: nn.Embedding(10, 4, max_norm=0.5),
        lambda: nn.Embedding(10, 4).double(),
        lambda: nn.Embedding(1, 4),
    ],
    ids=["a class of its own", "renormalised", "float64", "ranks without rows"],
)
def test_others_are_left_to_transformers(make: Any, place: Place) -> None:
    whole = make()
    rows = min(whole.num_embeddings, 10)
    expected = whole.weight.detach().clone()
    module = shared(whole, place)
    with torch.no_grad():
        if whole.max_norm is None:
            found, is_ours = call(module, torch.arange(rows), place)
            agree(not is_ours and torch.equal(found, expected), f"{found}")
