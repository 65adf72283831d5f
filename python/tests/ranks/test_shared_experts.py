"""An expert that all rows have is computed while a layer waits for other ranks."""

from collections.abc import Callable

import pytest
import torch
import torch.distributed as dist
from expert_cases import WIDTH, Case
from ranks import agree
from torch.utils.checkpoint import checkpoint

import plait
import plait.torch as pt
from plait.torch.experts import layer as layers


@pytest.mark.parametrize("options", [pt.Options(schedule="serial"), pt.Options()], ids=str)
def test_a_shared_expert_is_computed_within_the_call(options: pt.Options) -> None:
    case = Case()
    layer = case.layer(None, options=options)
    shared = torch.nn.Linear(WIDTH, WIDTH)
    grad = torch.ones(case.counts[dist.get_rank()], WIDTH)
    calls = []

    def once(hidden: torch.Tensor) -> torch.Tensor:
        calls.append(hidden.shape)
        out: torch.Tensor = shared(hidden)
        return out

    def found(within: bool) -> list[torch.Tensor]:
        hidden = case.hidden[case.own].clone().requires_grad_()
        operands = (hidden, case.ids[case.own], case.weights[case.own])
        out = layer(*operands, shared=once) if within else layer(*operands) + shared(hidden)
        leaves = [hidden, *shared.parameters(), *layer.parameters()]
        return [out, *torch.autograd.grad(out, leaves, grad)]

    pairs = zip(found(True), found(False), strict=True)
    agree(all(torch.equal(ours, other) for ours, other in pairs), "the results differ")
    agree(len(calls) == 1, f"it was called {len(calls)} times")
    with torch.no_grad():
        rows = (case.hidden, case.ids, case.weights)
        out = layer(*rows, shared_batch=True, shared=once)
        expected = layer(*rows, shared_batch=True) + shared(case.hidden)
    agree(torch.equal(out, expected) and not out.requires_grad, "shared batches differ")


def test_rows_travel_while_a_shared_expert_is_computed(monkeypatch: pytest.MonkeyPatch) -> None:
    case = Case(rows=(40, 30, 20))
    layer = case.layer(None)
    operands = (case.hidden[case.own], case.ids[case.own], case.weights[case.own])
    shared = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.SiLU())
    polls: list[int] = []

    class Counted(layers._Polling):
        def __init__(self, poll_step: Callable[[], None]):
            def step() -> None:
                polls.append(1)
                poll_step()

            super().__init__(step)

    monkeypatch.setattr(layers, "_Polling", Counted)
    with torch.no_grad():
        out = layer(*operands, shared=shared)
        agree(torch.equal(out, layer(*operands) + shared(operands[0])), "values differ")
    agree(len(polls) >= 2, f"{len(polls)} polls for two functions")


def test_a_shared_expert_may_be_compiled() -> None:
    case = Case()
    layer = case.layer(None)
    operands = (case.hidden[case.own], case.ids[case.own], case.weights[case.own])
    shared = torch.nn.Linear(WIDTH, WIDTH)
    with torch.no_grad():
        out = layer(*operands, shared=torch.compile(shared, backend="aot_eager"))
        agree(torch.equal(out, layer(*operands) + shared(operands[0])), "values differ")


@pytest.mark.parametrize("reentrant", [False, True])
def test_a_shared_expert_under_checkpoints(reentrant: bool) -> None:
    case = Case()
    layer = case.layer(None)
    shared = torch.nn.Sequential(torch.nn.Linear(WIDTH, WIDTH), torch.nn.SiLU())
    leaves = [*shared.parameters(), *layer.parameters()]

    def block(hidden: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(hidden.tanh(), case.ids[case.own], weights, shared=shared)
        return out.sigmoid()

    def found(is_checked: bool) -> list[torch.Tensor]:
        hidden, weights = (
            one[case.own].clone().requires_grad_() for one in (case.hidden, case.weights)
        )
        for leaf in leaves:
            leaf.grad = None
        out = hidden
        for _ in range(2):
            if is_checked:
                out = checkpoint(block, out, weights, use_reentrant=reentrant)
            else:
                out = block(out, weights)
        out.square().sum().backward()
        grads = [one.grad for one in (hidden, weights, *leaves)]
        return [out.detach(), *(grad for grad in grads if grad is not None)]

    expected = found(False)
    ours = found(True)
    agree(len(ours) == len(expected) == 3 + len(leaves), f"{len(ours)} of {len(expected)}")
    same = [torch.equal(one, other) for one, other in zip(ours, expected, strict=True)]
    agree(all(same), f"results differ: {same}")


def test_a_shared_expert_makes_no_calls_of_the_group(world: int) -> None:
    case = Case()
    group = [dist.new_group([rank]) for rank in range(world)][dist.get_rank()]
    layer = case.layer(group)
    operands = (case.hidden, case.ids, case.weights)

    def shared(hidden: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(hidden, *operands[1:])
        return out

    with torch.no_grad(), pytest.raises(plait.Error) as caught:
        layer(*operands, shared=shared)
    agree(caught.value.code == plait.Code.invalid_argument, str(caught.value))


def test_what_a_shared_expert_raises_is_told_to_all_ranks() -> None:
    case = Case()
    layer = case.layer(dist.new_group())
    operands = (case.hidden[case.own], case.ids[case.own], case.weights[case.own])

    def shared(hidden: torch.Tensor) -> torch.Tensor:
        if dist.get_rank() == 0:
            raise ValueError("it has no weights")
        return hidden

    def call_twice() -> None:
        layer(*operands, shared=shared)
        layer(*operands)  # another rank's first call may have ended before it was told

    with torch.no_grad(), pytest.raises((ValueError, plait.Error)) as caught:
        call_twice()
    sentence = "expert_parallel_mlp: rank 0: ValueError: it has no weights"
    expected = "it has no weights" if dist.get_rank() == 0 else sentence
    agree(str(caught.value) == expected, str(caught.value))
