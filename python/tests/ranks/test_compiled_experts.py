"""Calls of experts in one graph of torch.compile(), with the bits of calls outside of it."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from expert_cases import CASES, WIDTH, Case, run
from ranks import agree
from torch import nn
from torch._dynamo.testing import CompileCounterWithBackend

import plait
import plait.torch as pt
from plait import _native

pytestmark = pytest.mark.long


def counted(backend: str = "aot_eager") -> Any:
    """Return a backend that counts its graphs."""
    torch._dynamo.reset()
    return CompileCounterWithBackend(backend)


def check_one_graph(backend: Any) -> None:
    """Fail unless one graph calls the operator; dynamic shapes make an empty one too."""
    found = [str(node.target) for graph in backend.graphs for node in graph.graph.nodes]
    calls = found.count("plait.expert_parallel_mlp")
    agree(calls == 1, f"{calls} calls in {len(backend.graphs)} graphs: {found}")


def operands(case: Case) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return case.hidden[case.own], case.ids[case.own], case.weights[case.own]


@pytest.mark.parametrize(
    ("name", "backend"),
    [
        ("f32", "aot_eager"),
        ("f16, gpt-oss", "aot_eager"),
        ("SiLU in two parts", "aot_eager"),
        ("ranks without rows", "inductor"),  # which looks for operations without elements
    ],
)
def test_results_have_the_bits_of_eager(name: str, backend: str) -> None:
    case = CASES[name]()
    layer = case.layer(None)
    grad = torch.randn(case.hidden.shape, generator=torch.Generator().manual_seed(6))
    grad = grad.to(case.dtype)
    expected = run(layer, case, case.own, grad)
    layer.zero_grad()
    graphs = counted(backend)
    compiled: Any = torch.compile(layer, backend=graphs, fullgraph=True)
    found = run(compiled, case, case.own, grad)
    found = {what.replace("_orig_mod.", ""): one for what, one in found.items()}
    agree(found.keys() == expected.keys(), f"{found.keys()}")
    for what, ours in found.items():
        agree(torch.equal(ours, expected[what]), f"{what} differs")
    check_one_graph(graphs)


@pytest.mark.parametrize("fixed", [False, True], ids=["as they lie", "packed"])
def test_layers_share_a_graph_for_any_number_of_rows(
    fixed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = Case()
    options = pt.Options(fixed_weights=fixed)
    layers = [case.layer(None, options=options) for _ in range(2)]
    graphs = counted()
    packed: list[object] = []
    pack = _native.PackedWeight

    def note(*given: Any) -> Any:
        packed.append(given)
        return pack(*given)

    monkeypatch.setattr(_native, "PackedWeight", note)

    @torch.compile(backend=graphs, fullgraph=True, dynamic=True)
    def step(layer: pt.ExpertParallel, *given: torch.Tensor) -> torch.Tensor:
        out: torch.Tensor = layer(*given).relu()
        return out

    def call(layer: pt.ExpertParallel, rows: int) -> torch.Tensor:
        given = [one[:rows].clone() for one in (case.hidden, case.ids, case.weights)]
        found: torch.Tensor = step(layer, *given)
        agree(torch.equal(found, layer(*given).relu()), f"values of {rows} rows differ")
        return found

    with torch.no_grad():
        for rows in range(2, 6):
            for layer in layers:
                call(layer, rows)
        experts = len(case.own_experts())
        wanted = 4 * experts if fixed else 0  # two layers, two products
        agree(len(packed) == wanted, f"{len(packed)} weights were packed, not {wanted}")
        before = call(layers[1], 3)
        layers[1].down.mul_(2)
        agree(torch.equal(call(layers[1], 3), 2 * before), "not twice as much")
    check_one_graph(graphs)


@pytest.mark.parametrize("fixed", [False, True], ids=["as they lie", "packed"])
def test_under_autocast(fixed: bool) -> None:
    case = Case()
    layer = case.layer(None, options=pt.Options(fixed_weights=fixed))
    compiled = torch.compile(layer, backend=counted(), fullgraph=True)
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        found = compiled(*operands(case))
        agree(torch.equal(found, layer(*operands(case))), "values differ")
    agree(found.dtype is torch.bfloat16, str(found.dtype))


def test_a_graph_that_writes_to_a_packed_weight() -> None:
    """It hands on the new values in memory of its own, which may be where older ones were."""
    case = Case()
    layer = case.layer(None, options=pt.Options(fixed_weights=True))
    given = operands(case)

    def step(*given: torch.Tensor) -> torch.Tensor:
        layer.down.mul_(2)
        out: torch.Tensor = layer(*given)
        return out

    compiled = torch.compile(step, backend=counted(), fullgraph=True)
    with torch.no_grad():
        expected = layer(*given)
        for factor in (2, 4, 8):
            agree(torch.equal(compiled(*given), factor * expected), f"not {factor} times as much")


def test_a_shared_expert_is_in_the_graph() -> None:
    case = Case()
    layer, shared = case.layer(None), nn.Linear(WIDTH, WIDTH)
    leaves = [*layer.parameters(), *shared.parameters()]

    def found(call: Callable[..., torch.Tensor]) -> list[torch.Tensor]:
        hidden, ids, weights = operands(case)
        hidden = hidden.clone().requires_grad_()
        out = call(hidden, ids, weights, shared=shared)
        return [out, *torch.autograd.grad(out.square().sum(), [hidden, *leaves])]

    graphs = counted()
    ours = found(torch.compile(layer, backend=graphs, fullgraph=True))
    same = [torch.equal(*pair) for pair in zip(ours, found(layer), strict=True)]
    agree(all(same), f"results differ: {same}")
    check_one_graph(graphs)


def test_ranks_of_a_group_share_a_batch() -> None:
    case = Case(rows=(5, 0, 0))
    layer = case.layer(dist.group.WORLD)
    compiled = torch.compile(layer, backend=counted(), fullgraph=True)
    given = case.hidden, case.ids, case.weights
    with torch.no_grad():
        expected = layer(*given, shared_batch=True)
        agree(torch.equal(compiled(*given, shared_batch=True), expected), "values differ")
    with pytest.raises(plait.Error, match="shared_batch is for inference"):
        compiled(*given, shared_batch=True)


def test_refusals() -> None:
    case = Case()
    layer = case.layer(None)
    hidden, ids, weights = operands(case)
    rank, world = dist.get_rank(), dist.get_world_size()
    compiled = torch.compile(layer, backend=counted(), fullgraph=True)
    with torch.no_grad(), pytest.raises(plait.Error) as caught:
        compiled(hidden, ids, weights[:, :2])
    sentence = f"top_k_weights is [{len(ids)}, 2], and top_k_index [{len(ids)}, 3]"
    assert str(caught.value) == f"expert_parallel_mlp: rank {rank} of {world}: {sentence}"
    layer.options = pt.Options(schedule="pipelined")
    with torch.no_grad(), pytest.raises(plait.Error, match="have the schedules serial and fused"):
        compiled(hidden, ids, weights)


def test_its_gradient_is_differentiated_once() -> None:
    case = Case()
    hidden, ids, weights = operands(case)
    hidden = hidden.clone().requires_grad_()
    compiled = torch.compile(case.layer(None), backend="eager", fullgraph=True)
    [grad] = torch.autograd.grad(compiled(hidden, ids, weights).sum(), hidden, create_graph=True)
    with pytest.raises(plait.Error, match="its gradient has no gradient"):
        grad.sum().backward()


def test_settings_end_the_graph() -> None:
    """A call with settings of its own is made between two graphs."""
    case = Case()
    layer = case.layer(None, options=pt.Options(settings=plait.load_settings()))
    graphs = counted()
    compiled = torch.compile(lambda *given: layer(*given).relu(), backend=graphs)
    with torch.no_grad():
        for _ in range(2):
            found = compiled(*operands(case))
            agree(torch.equal(found, layer(*operands(case)).relu()), "values differ")
    found = [str(node.target) for graph in graphs.graphs for node in graph.graph.nodes]
    agree("plait.expert_parallel_mlp" not in found, f"{found}")
    agree(graphs.frame_count == 1, f"{graphs.frame_count} graphs")


def test_a_program_that_is_exported() -> None:
    case = Case()
    layer = case.layer(None, options=pt.Options(fixed_weights=True))
    given = operands(case)
    with torch.no_grad():
        program = torch.export.export(layer, given)
        targets = [str(one.target) for one in program.graph.nodes if one.op == "call_function"]
        agree(targets == ["plait.expert_parallel_mlp.default"], str(targets))
        agree(torch.equal(program.module()(*given), layer(*given)), "values differ")
