"""Profiles of steps: which calls were made, where their time went, and what is written of it."""

import json
import re
from pathlib import Path

import pytest
import torch
import torch.distributed as dist
from expert_cases import INNER, WIDTH, Case, run
from ranks import agree
from torch import nn

import plait
import plait.torch as pt


def step(model: nn.Module) -> None:
    model(torch.ones(8, 64, requires_grad=True)).square().mean().backward()


def shared_mlp() -> nn.Module:
    whole = nn.Sequential(nn.Linear(64, 96), nn.ReLU(), nn.Linear(96, 64))
    return pt.parallelize(whole, {"0": "colwise", "2": "rowwise"})


def operators(p: pt.Profile) -> set[str]:
    return {row.operator for row in p.table().rows}


def test_a_training_step(tmp_path: Path) -> None:
    model, world = shared_mlp(), dist.get_world_size()
    step(model)  # before: not recorded
    with pt.profile() as p:
        step(model)
        step(model)
    step(model)  # after
    rows = {row.operator: row for row in p.table().rows}
    down = rows["matmul_all_reduce"]
    agree((down.m, down.n, down.calls) == (8, 64, 2), str(down))
    agree(rows["all_reduce"].calls == 2, "the sum of up's gradients, beside its weight's gradient")
    agree(rows["weight gradient"].calls == 4, "weight gradients")
    agree(down.dtype == "f32", str(down))
    for row in p.table().rows:
        parts = row.multiplying + row.communicating + row.waiting
        agree(0 <= row.multiplying <= row.seconds, f"multiplying: {row}")
        agree(parts <= row.seconds * 1.001, f"parts of one thread are more than the whole: {row}")
        agree(row.hidden is None or 0 <= row.hidden <= 1, f"hidden: {row}")
    agree(down.multiplying > 0 and rows["matmul"].multiplying > 0, "no product was recorded")
    agree(down.hidden is not None, "no communication was recorded")
    text = str(p.table())
    agree("matmul_all_reduce" in text and "hidden" in text.splitlines()[0], text)
    own = world if dist.get_rank() == 0 else 1
    page = p.page()
    ranks = set(re.findall(r">rank (\d+)<", page))
    agree(len(ranks) == own or dist.get_rank() > 0, f"the page has ranks {ranks}")
    agree(">product<" in page and "<script" in page, "the page lacks something")
    cell = p._repr_html_()
    agree(cell is not None and cell.startswith("<iframe srcdoc="), "a cell shows something else")
    p.save(tmp_path / "step.html")
    agree((tmp_path / "step.html").read_text() == page, "another page was written")
    p.save(str(tmp_path / "step.json"))
    events = json.loads((tmp_path / "step.json").read_text())["traceEvents"]
    agree(len({one["pid"] for one in events}) == own, "the timeline has other ranks")
    with pytest.raises(plait.Error, match=r"neither in \.html nor in \.json"):
        p.save("step.txt")


def test_experts() -> None:
    case = Case()
    layer, grad = case.layer(None), torch.ones(case.hidden.shape)
    run(layer, case, case.own, grad)  # before: not recorded
    with pt.profile() as p:
        run(layer, case, case.own, grad)
        with torch.no_grad():
            layer(case.hidden[case.own], case.ids[case.own], case.weights[case.own])
    found = {row.operator: row for row in p.table().rows}
    for name, calls in (("experts", 2), ("experts backward", 1)):
        row = found[name]
        sizes = (row.m, row.n, row.k, row.dtype, row.calls)
        agree(sizes == (case.counts[dist.get_rank()], INNER, WIDTH, "f32", calls), str(row))
        agree(0 < row.multiplying <= row.seconds, f"multiplying: {row}")
        agree(dist.get_world_size() == 1 or row.communicating + row.waiting > 0, str(row))


def test_what_is_made_meanwhile_records_too() -> None:
    with pt.profile() as p:
        group = dist.new_group(backend="gloo")
        assert isinstance(group, dist.ProcessGroup)
        pt.matmul_all_reduce(torch.ones(4, 3), torch.ones(5, 3), group=group)
    agree("matmul_all_reduce" in operators(p), str(p.table()))
    dist.destroy_process_group(group)


def test_an_error_ends_it_without_the_others() -> None:
    mine = pt.profile()

    def fails() -> None:
        with mine:
            pt.matmul_all_reduce(torch.ones(4, 3), torch.ones(5, 3))
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        fails()
    agree("matmul_all_reduce" in operators(mine), str(mine.table()))
    agree(pt.communicator().rank == dist.get_rank(), "the communicator is of no use")


def test_before_its_end_there_is_nothing() -> None:
    p = pt.profile()
    assert p._repr_html_() is None
    with pytest.raises(plait.Error, match="has to end first"):
        p.table()
    with p:
        pass
    agree(str(p.table()) == "plait: no operator was called", str(p.table()))
