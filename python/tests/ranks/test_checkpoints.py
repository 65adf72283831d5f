"""Saving and loading sharded layers, also into models of another number of ranks."""

import copy
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from ranks import agree
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    set_model_state_dict,
)
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import save
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import parallelize_module

import plait.torch as pt
from plait.torch.dtensor import ColwiseParallel, RowwiseParallel

WHOLE = StateDictOptions(full_state_dict=True)


def plain(seed: int, inner: int = 24) -> nn.Sequential:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(12, inner), nn.ReLU(), nn.Linear(inner, 12))


def sharded(seed: int) -> nn.Module:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    plan: dict[str, Any] = {"0": ColwiseParallel(), "2": RowwiseParallel()}
    return parallelize_module(plain(seed), mesh, plan)


def same(theirs: dict[str, Any], ours: dict[str, Any]) -> None:
    agree(theirs.keys() == ours.keys(), f"{theirs.keys()} and {ours.keys()}")
    for name, value in theirs.items():
        agree(torch.equal(value, ours[name]), f"{name} has other values")


def test_shares_become_a_whole_model() -> None:
    model = sharded(1)
    agree(isinstance(model.state_dict()["0.weight"], DTensor), "is whole already")
    whole = get_model_state_dict(model, options=WHOLE)
    same(plain(1).state_dict(), whole)
    other = plain(2)
    other.load_state_dict(whole)
    x = torch.ones(3, 12)
    agree(torch.allclose(other(x), model(x), atol=1e-6), "computes something else")


@pytest.mark.parametrize("has_rank_0", [False, True], ids=["all ranks", "rank 0"])
def test_a_whole_model_becomes_shares(has_rank_0: bool) -> None:
    model = sharded(2)
    how = StateDictOptions(full_state_dict=True, broadcast_from_rank0=has_rank_0)
    is_given = dist.get_rank() == 0 or not has_rank_0
    given: dict[str, Any] = plain(1).state_dict() if is_given else {}
    set_model_state_dict(model, given, options=how)
    same(plain(1).state_dict(), get_model_state_dict(model, options=WHOLE))


def test_a_checkpoint_of_all_ranks_is_loaded_by_one(tmp_path: Path) -> None:
    folders = [str(tmp_path)]
    dist.broadcast_object_list(folders, 0)
    save(get_model_state_dict(sharded(1)), checkpoint_id=folders[0])
    alone = plain(2)
    state = alone.state_dict()
    load(state, checkpoint_id=folders[0], no_dist=True)
    alone.load_state_dict(state)
    same(plain(1).state_dict(), alone.state_dict())
    again = sharded(3)
    state = get_model_state_dict(again)
    load(state, checkpoint_id=folders[0])
    set_model_state_dict(again, state)
    same(plain(1).state_dict(), get_model_state_dict(again, options=WHOLE))


def test_shares_of_layers_become_a_whole_weight() -> None:
    """plait's own layers have plain tensors, and perhaps unequal shares."""
    world = dist.get_world_size()
    whole = plain(1, inner=5 * world + 1)
    model: Any = pt.parallelize(copy.deepcopy(whole), {"0": "colwise", "2": "rowwise"})
    expected = whole.state_dict()
    for place, dim in ((0, 0), (2, 1)):
        parts: list[Any] = [None] * world
        dist.all_gather_object(parts, model[place].state_dict())
        weight = torch.cat([part["weight"] for part in parts], dim=dim)
        agree(torch.equal(weight, expected[f"{place}.weight"]), f"the weight of {place}")
        bias = parts[0]["bias"] if dim else torch.cat([part["bias"] for part in parts])
        agree(torch.equal(bias, expected[f"{place}.bias"]), f"the bias of {place}")
    other = plain(2, inner=5 * world + 1)
    pt.parallelize(other, {"0": "colwise", "2": "rowwise"})
    other.load_state_dict(model.state_dict())
    same(model.state_dict(), other.state_dict())
