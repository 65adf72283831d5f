"""Experts that ranks share have the bits of one rank that has them all."""

import copy
import re
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from expert_cases import CASES, INNER, WIDTH, Case, run
from ranks import agree

import plait
import plait.torch as pt
from plait import _native
from plait.torch.context import communicator_of
from plait.torch.experts import checks, counts
from plait.torch.experts import layer as layers


@pytest.fixture(scope="module")
def alone(world: int) -> dist.ProcessGroup:
    """This rank by itself."""
    groups = [dist.new_group([rank]) for rank in range(world)]
    group: dist.ProcessGroup = groups[dist.get_rank()]
    return group


@pytest.mark.parametrize("name", CASES)
def test_bits_are_those_of_one_rank(name: str, alone: dist.ProcessGroup) -> None:
    case = CASES[name]()
    grad = torch.randn(case.hidden.shape, generator=torch.Generator().manual_seed(6))
    grad = grad.to(case.dtype)
    expected = run(case.layer(alone), case, slice(None), grad)
    for schedule in ("serial", "fused", None):
        layer = case.layer(None, options=pt.Options(schedule=schedule))
        found = run(layer, case, case.own, grad)
        for what, ours in found.items():
            own = case.own_experts() if what.startswith("of ") else case.own
            agree(torch.equal(ours, expected[what][own]), f"{what} differs, {schedule}")


@pytest.mark.parametrize("is_oss", [False, True])
def test_parts_that_are_nodes_have_the_bits_of_whole_experts(
    is_oss: bool, alone: dist.ProcessGroup, world: int
) -> None:
    case = Case(experts=4, inner=1024, rows=(5, 0, 3), dtype=torch.bfloat16, is_oss=is_oss)
    case.whole = (
        case.whole[:2] if not is_oss else [*case.whole[:3], torch.zeros(4, WIDTH).bfloat16()]
    )
    options = pt.Options(wire="f32")
    with torch.no_grad():
        whole = case.layer(alone, options=options)(case.hidden, case.ids, case.weights)
        case.parts = 2
        cut = case.layer(None, options=options)
        found = cut(case.hidden[case.own], case.ids[case.own], case.weights[case.own])
    agree(torch.equal(found, whole[case.own]), "values differ")
    if world % 2 == 0:
        agree(cut.down.shape[0] == 8 // world and "in 2 parts" in repr(cut), repr(cut))


def test_the_wire_is_of_ones_choice(alone: dist.ProcessGroup) -> None:
    """Results that are not rounded on their way are others, and the same on any number of ranks."""
    case = Case(dtype=torch.bfloat16)
    given = {
        "auto": pt.Options(wire="auto"),
        "s8 of the settings": pt.Options(settings=plait.parse_settings("wire = 's8'")),
        "f32": pt.Options(wire="f32"),
        "f32 of the settings": pt.Options(settings=plait.parse_settings("wire = 'f32'")),
    }
    found = {}
    for name, options in given.items():
        whole = case.layer(alone, options=options)(case.hidden, case.ids, case.weights)
        own = case.hidden[case.own], case.ids[case.own], case.weights[case.own]
        agree(torch.equal(case.layer(None, options=options)(*own), whole[case.own]), name)
        found[name] = whole
    agree(not torch.equal(found["auto"], found["f32"]), "the wire makes no difference")
    for name, same in [("s8 of the settings", "auto"), ("f32 of the settings", "f32")]:
        agree(torch.equal(found[name], found[same]), f"{name} is not as {same}")


@pytest.mark.parametrize("under", [torch.float32, torch.bfloat16], ids=["as it is", "autocast"])
def test_a_change_of_weights_that_are_copied_to_be_packed(under: torch.dtype) -> None:
    """A copy of the new version may have the address of the old one's."""
    case = Case()
    up, down = (one[case.own_experts()].mT.contiguous().mT for one in case.whole if one is not None)
    layer = pt.ExpertParallel(up, down, experts=5, options=pt.Options(fixed_weights=True))
    operands = case.hidden[case.own], case.ids[case.own], case.weights[case.own]
    with torch.no_grad(), torch.autocast("cpu", under, enabled=under is not torch.float32):
        expected = case.layer(None)(*operands)
        agree(torch.equal(layer(*operands), expected), "values differ")
        for factor in (2, 4):
            layer.down.mul_(2)
            agree(torch.equal(layer(*operands), factor * expected), f"not {factor} times as much")


def test_a_shared_batch_has_the_same_bits(alone: dist.ProcessGroup) -> None:
    """Each rank adds up the results of its block of the rows, and all get these sums."""
    case = Case(rows=(5, 0, 0))
    with torch.no_grad():
        expected = case.layer(alone)(case.hidden, case.ids, case.weights)
        layer = case.layer(None, options=pt.Options(fixed_weights=True))
        for _ in range(2):  # weights are packed by the first
            out = layer(case.hidden, case.ids, case.weights, shared_batch=True)
            agree(torch.equal(out, expected), "values differ")
        layer.down.mul_(2)
        out = layer(case.hidden, case.ids, case.weights, shared_batch=True)
        agree(torch.equal(out, 2 * expected), "a change of a packed weight was not seen")


@pytest.mark.parametrize("what", ["ids", "weights"])
def test_a_shared_batch_in_another_order_is_refused(what: str, world: int) -> None:
    """Every expert has as many rows on each rank, and the last rank has them in another order."""
    case = Case(rows=(5, 0, 0), experts=2 * world, slots=1)
    case.ids = torch.arange(len(case.ids))[:, None] % case.experts
    case.weights = torch.arange(1.0, len(case.ids) + 1)[:, None]
    if dist.get_rank() == world - 1:
        setattr(case, what, getattr(case, what).flip(0))
    layer = case.layer(dist.new_group())  # which is of no use afterwards
    if world == 1:
        pytest.skip("one rank agrees with itself")
    with torch.no_grad(), pytest.raises(plait.Error, match="the fingerprint of ids and weights"):
        layer(case.hidden, case.ids, case.weights, shared_batch=True)


def test_ranks_that_want_gradients_beside_others_are_refused(world: int) -> None:
    case = Case()
    layer = case.layer(dist.new_group())  # which is of no use afterwards
    operands = case.hidden[case.own], case.ids[case.own], case.weights[case.own]
    if world == 1:
        pytest.skip("one rank agrees with itself")
    sentence = "forward with(out)? gradients and forward with(out)? gradients"
    with torch.set_grad_enabled(dist.get_rank() == 0), pytest.raises(plait.Error, match=sentence):
        layer(*operands)


VALUES = ["f32", "f32, gpt-oss", "bf16", "f32, SiLU", "bf16, weights at the activation"]


@pytest.mark.parametrize("name", VALUES)
def test_values_are_right(name: str) -> None:
    case = CASES[name]()
    with torch.no_grad():
        found = case.layer(None)(case.hidden[case.own], case.ids[case.own], case.weights[case.own])
    exact, theirs = (one["out"][case.own] for one in by_torch(case))
    check_distance(found, exact, theirs, name)


@pytest.mark.parametrize("name", VALUES)
def test_gradients_are_right(name: str, alone: dist.ProcessGroup) -> None:
    case = CASES[name]()
    found = run(case.layer(alone), case, slice(None), torch.ones_like(case.hidden))
    exact, theirs = by_torch(case)
    assert found.keys() == exact.keys()
    for what, one in found.items():
        check_distance(one, exact[what], theirs[what], f"{name}: {what}")


def check_distance(
    found: torch.Tensor, exact: torch.Tensor, theirs: torch.Tensor, what: str
) -> None:
    """Torch rounds the same values, but its sums are of up to sixteen lanes, and ours of one chain.

    n roundings err by about the root of n, so that ours may be the root of sixteen as far off.
    """
    off, their_off = ((one.double() - exact).norm() for one in (found, theirs))
    agree(bool(off <= 4 * their_off), f"{what} is off by {off}, and torch's by {their_off}")


def by_torch(case: Case) -> tuple[dict[str, torch.Tensor], ...]:
    """Return the result and the gradients of its sum, in f64 and in the case's dtype."""
    found = []
    for dtype in (torch.float64, case.dtype):
        hidden = case.hidden.to(dtype).requires_grad_()
        weights = case.weights.to(max(dtype, torch.float32, key=lambda one: one.itemsize))
        weights.requires_grad_()
        stacks = [one.detach().to(dtype).requires_grad_() for one in case.whole if one is not None]
        rows = []
        for row, ids, by in zip(hidden, case.ids.tolist(), weights, strict=True):
            slots = [result(row, stacks, expert) * one for expert, one in zip(ids, by, strict=True)]
            rows.append(torch.stack(slots).sum(0))
        out = torch.stack(rows)
        out.sum().backward()
        names = ["of gate_up", "of down", "of gate_up_bias", "of down_bias"]
        leaves = {"hidden": hidden, "weights": weights, **dict(zip(names, stacks, strict=False))}
        grads = {name: one.grad for name, one in leaves.items() if one.grad is not None}
        found.append({"out": out.detach(), **grads})
    return tuple(found)


def result(row: torch.Tensor, stacks: list[torch.Tensor], expert: int) -> torch.Tensor:
    if expert < 0:
        return torch.zeros_like(row)
    if len(stacks) == 2:
        first = stacks[0][expert] @ row
        gate, more = first.chunk(2) if len(first) > stacks[1].shape[2] else (first, 1.0)
        return stacks[1][expert] @ (torch.nn.functional.silu(gate) * more)
    both = row @ stacks[0][expert] + stacks[2][expert]
    gate, more = both[::2].clamp(max=1.5), both[1::2].clamp(-1.5, 1.5)
    return (more + 1) * gate * torch.sigmoid(gate * 1.702) @ stacks[1][expert] + stacks[3][expert]


def test_the_report_has_rows_and_skew() -> None:
    pt.forget_report()
    case = Case(slots=1, experts=2 * dist.get_world_size(), rows=(8, 8, 8))
    case.ids.fill_(0)
    with torch.no_grad():
        case.layer(None)(case.hidden[case.own], case.ids[case.own], case.weights[case.own])
    [row] = pt.report().experts
    world = dist.get_world_size()
    mine = sum(case.counts) if dist.get_rank() == 0 else 0
    agree((row.calls, row.multiplied) == (1, mine), str(row))
    agree(row.sent == (8,) + (0,) * (world - 1) and row.skew == world, str(row))
    words = f"sent 8, 0 to ranks 0 to 1, skew {world}.00" if world == 2 else f"skew {world}.00"
    agree((words if world > 1 else "multiplied 8 of 8 rows") in str(row), str(row))


def test_the_report_of_one_rank_tells_what_others_multiply() -> None:
    pt.forget_report()
    counts.add((4, 8, 6, 2, "f32", "serial", 1), (47, [47]), 2_000_000, chosen=96)
    [row] = pt.report().experts
    agree(str(row).endswith("serial: 1 call, 2.000 ms each; multiplied 47 of 96 rows"), str(row))
    pt.forget_report()


def test_a_stored_plan_says_the_schedule(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`plait tune --experts` stores plans of layers whose weights are packed."""
    case, world, plans = Case(), dist.get_world_size(), tmp_path / "plans"
    monkeypatch.setenv("PLAIT_PLAN_CACHE", str(plans))

    def store(machine: str) -> None:
        problem = (
            f"op=experts m={case.slots} n={INNER} k={WIDTH} x=f32 w=f32 out=f32 wire=f32 "
            f"ranks={world} threads=1 transport=shm columns={case.experts}"
        )
        plans.write_text(f"plait plans 2\nmachine {machine}\n{problem} | serial | 1 | 2\n")

    def call(**how: Any) -> tuple[str, torch.Tensor]:
        pt.forget_report()
        layer = case.layer(group, options=pt.Options(**how))
        with torch.no_grad():
            out = layer(case.hidden[case.own], case.ids[case.own], case.weights[case.own])
        [row] = pt.report().experts
        agree(f", {row.schedule}: 1 call" in str(row), str(row))
        return row.schedule, out

    store("nowhere")
    with pytest.raises(plait.Error, match="this is") as refusal:
        _native.automatic_plans(communicator_of(None, "a test"))
    machine = re.search('this is "(.+)"', str(refusal.value))
    assert machine is not None
    store(machine[1])
    group = dist.new_group()  # whose plans are read when it is used first
    schedule, out = call(fixed_weights=True)
    agree(schedule == "serial", schedule)
    for how in ({"schedule": "fused", "fixed_weights": True}, {}):  # of the user; not stored
        other, same = call(**how)
        agree(other == "fused" and torch.equal(same, out), f"{other} by {how}")


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
def test_its_gradient_is_differentiated_once(frozen: bool) -> None:
    """With frozen experts too: the gradient of a row depends on the row, by the activation."""
    case = Case()
    layer = case.layer(None).requires_grad_(not frozen)
    hidden = case.hidden[case.own].clone().requires_grad_()
    out = layer(hidden, case.ids[case.own], case.weights[case.own])
    [grad] = torch.autograd.grad(out.sum(), hidden, create_graph=True)
    with pytest.raises(plait.Error, match="its gradient has no gradient"):
        grad.sum().backward()


@pytest.mark.parametrize("name", ["bf16", "f16, gpt-oss", "ranks without rows"])
@pytest.mark.parametrize("fixed", [False, True], ids=["as they lie", "packed"])
def test_later_calls_go_straight_to_the_native_layer(
    name: str, fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = CASES[name]()
    hidden, ids, weights = case.hidden[case.own], case.ids[case.own], case.weights[case.own]
    layer = case.layer(None, options=pt.Options(fixed_weights=fixed))
    checked: list[object] = []
    check = checks.check_operands

    def note(*operands: Any) -> None:
        checked.append(operands)
        check(*operands)

    monkeypatch.setattr(layers, "check_operands", note)

    def call(checks: int, *given: torch.Tensor) -> torch.Tensor:
        """Call the layer; tensors without memory are always looked at in Python."""
        checked.clear()
        out: torch.Tensor = layer(*given)
        wanted = 1 if hidden.numel() == 0 else checks
        agree(len(checked) == wanted, f"{len(checked)} calls were checked in Python, not {wanted}")
        return out

    pt.forget_report()
    with torch.no_grad():
        first = call(1, hidden, ids, weights)
        agree(torch.equal(call(0, hidden, ids, weights), first), "values differ")
        [row] = pt.report().experts
        agree(row.calls == 2 and sum(row.sent) == 2 * int((ids >= 0).sum()), str(row))
        more = [one.unsqueeze(1) for one in (hidden, ids, weights)]
        agree(torch.equal(call(0, *more).squeeze(1), first), "values of more dimensions differ")
        call(0, hidden, ids, weights.to(hidden.dtype))
        agree(torch.equal(call(1, hidden, ids.int(), weights), first), "values by int32 differ")
        by_columns = weights.t().contiguous().t()
        agree(torch.equal(layer(hidden, ids, by_columns), first), "values by columns differ")
        layer.down.data = torch.zeros_like(layer.down)
        out = call(1, hidden, ids, weights)
        agree(layer.down_bias is not None or not out.any(), "new memory was not seen")
        layer.down.fill_(1)
        grown = layer(hidden, ids, weights)
        agree(hidden.numel() == 0 or not torch.equal(grown, out), "new values were not seen")
    agree(layer(hidden, ids, weights).requires_grad, "a call with gradients makes none")
    wrong = [(ids[:, :0], weights), (ids.flatten(), weights), (ids, weights.double())]
    for other_ids, other_weights in wrong:
        with torch.no_grad(), pytest.raises(plait.Error, match=r"top_k_(index|weights) is"):
            layer(hidden, other_ids, other_weights)


def test_a_copy_of_a_module() -> None:
    case = Case()
    layer = case.layer(None)
    copied = copy.deepcopy(layer)
    agree(copied.gate_up is not layer.gate_up, "a parameter is shared")
    operands = case.hidden[case.own], case.ids[case.own], case.weights[case.own]
    agree(torch.equal(layer(*operands), copied(*operands)), "values differ")


def test_refusals() -> None:
    case = Case()
    layer = case.layer(None)
    rank, world = dist.get_rank(), dist.get_world_size()
    hidden, ids, weights = case.hidden[case.own], case.ids[case.own], case.weights[case.own]
    own = len(case.own_experts())
    wrong = ids.clone()
    wrong[2, 1] = 5
    for given, sentence in [
        (
            (hidden, wrong, weights),
            f"rank {rank}'s row 2 has the expert 5 in slot 1; it can be -1, or 0 to 4",
        ),
        (
            (hidden, ids[:1], weights[:1]),
            f"rank {rank} of {world}: top_k_index is torch.int64 "
            f"[1, 3], and hidden {list(hidden.shape)}",
        ),
        (
            (hidden, ids, weights[:, :2]),
            f"rank {rank} of {world}: top_k_weights is "
            f"[{len(ids)}, 2], and top_k_index [{len(ids)}, 3]",
        ),
        (
            (hidden.half(), ids, weights),
            f"rank {rank} of {world}: hidden is torch.float16, and gate_up torch.float32",
        ),
    ]:
        with pytest.raises(plait.Error) as caught:
            layer(*given)
        assert str(caught.value) == f"expert_parallel_mlp: {sentence}"
        assert caught.value.operator == "expert_parallel_mlp"
    layer.experts = 11
    with pytest.raises(plait.Error, match=f"of 11 experts: gate_up is \\[{own}, 40, 48\\], not"):
        layer(hidden, ids, weights)
    layer.experts, layer.placement = 5, (0, 0, 0, 0, world)
    with pytest.raises(plait.Error, match=f"expert 4 is placed on rank {world} of {world}$"):
        layer(hidden, ids, weights)
    layer.placement = None
    with pytest.raises(plait.Error, match="shared_batch is for inference"):
        layer(hidden, ids, weights, shared_batch=True)
    for options, asked in [
        (pt.Options(engine="c10d"), "engine='c10d' has no experts"),
        (
            pt.Options(schedule="pipelined"),
            "schedule='pipelined': experts have the schedules serial and fused",
        ),
        (pt.Options(wire="s8"), "wire='s8': results of experts travel in f32, bf16 or f16"),
    ]:
        layer.options = options
        with pytest.raises(plait.Error) as caught:
            layer(hidden, ids, weights)
        assert str(caught.value) == f"expert_parallel_mlp: {asked}"


def test_settings_choose_the_backend(alone: dist.ProcessGroup) -> None:
    case = Case()
    settings = plait.load_settings()
    settings.backend = "none"
    layer = case.layer(alone, options=pt.Options(settings=settings))
    with pytest.raises(plait.Error, match="there is no backend none"):
        layer(case.hidden, case.ids, case.weights)
