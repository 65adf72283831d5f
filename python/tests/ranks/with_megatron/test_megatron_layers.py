"""Every branch of Megatron's two layers: served with the same numbers, or left with a sentence.

The reference is Megatron's own code in the same process: the layer runs, plait is enabled, and the
same layer runs again.
"""

import contextlib
import functools
import logging
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import pytest
import shims
import torch
import torch.distributed as dist

shims.apply()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.tensor_parallel import layers  # noqa: E402
from megatron.core.transformer.transformer_config import TransformerConfig  # noqa: E402

import plait  # noqa: E402
import plait.megatron  # noqa: E402
import plait.torch  # noqa: E402
from plait.megatron import fusion, seams  # noqa: E402

INPUTS, OUTPUTS, ROWS, BATCH = 96, 80, 12, 3


@dataclass
class Case:
    """A layer, how it is called, and whether plait serves it."""

    name: str
    kind: str = "column"
    config: dict[str, Any] = field(default_factory=dict)
    layer: dict[str, Any] = field(default_factory=dict)
    prepare: Callable[[Any], None] = lambda layer: None
    call: dict[str, Any] = field(default_factory=dict)
    refusal: str | None = None
    backward: bool = True
    two_dimensions: bool = False
    without_values: str = ""  # a tensor of this name has its shape and dtype alone in common

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


def frozen(layer: Any) -> None:
    layer.weight.requires_grad_(False)


def without_reduction(layer: Any) -> None:
    layer.disable_grad_reduce = True
    layer.allreduce_dgrad = False


def main_grad(dtype: torch.dtype, flags: tuple[str, ...] = ()) -> Callable[[Any], None]:
    def prepare(layer: Any) -> None:
        layer.weight.main_grad = torch.ones(layer.weight.shape, dtype=dtype)
        for flag in flags:
            setattr(layer.weight, flag, flag == "zero_out_wgrad")

    return prepare


@functools.cache
def alone() -> Any:
    """A group of this rank alone."""
    made = [dist.new_group([rank]) for rank in range(dist.get_world_size())]
    return made[dist.get_rank()]


def by_itself(layer: Any) -> None:
    layer.tp_group = alone()


def offloading(is_inside: bool) -> Callable[[Any], None]:
    def prepare(layer: Any) -> None:
        # Megatron asks its context, which Transformer Engine makes, where a forward is.
        layer.config._cpu_offloading_context = SimpleNamespace(inside_context=is_inside)

    return prepare


def fsdp(layer: Any) -> None:
    weight = layer.weight
    main_grad(weight.dtype)(layer)
    weight.__fsdp_param__ = True
    weight.get_main_grad = lambda: weight.main_grad


def inference_optimized(layer: Any) -> None:
    layer.config.transformer_impl = "inference_optimized"


def inference_optimized_and_not_training(layer: Any) -> None:
    inference_optimized(layer)
    layer.eval()


def of_shared_experts(layer: Any) -> None:
    layer.explicit_expert_comm = True  # moe/shared_experts.py sets it after construction


FUSION = {"gradient_accumulation_fusion": True}
SEQUENCE = {"sequence_parallel": True}

CASES = [
    case
    for kind in ("column", "row")
    for case in (
        Case("plain", kind),
        Case("two dimensions", kind, two_dimensions=True),
        Case("sequence parallel", kind, config=SEQUENCE),
        Case("without a bias", kind, layer={"bias": False}),
        Case("skip_bias_add", kind, layer={"skip_bias_add": True}),
        Case("skip_bias_add, sequence parallel", kind, SEQUENCE, {"skip_bias_add": True}),
        Case("frozen", kind, prepare=frozen),
        Case("frozen, sequence parallel", kind, SEQUENCE, prepare=frozen),
        Case("main_grad", kind, FUSION, prepare=main_grad(torch.float32)),
        Case("main_grad, sequence", kind, {**FUSION, **SEQUENCE}, prepare=main_grad(torch.float32)),
        Case(
            "main_grad, added",
            kind,
            FUSION,
            prepare=main_grad(torch.float32, ("grad_added_to_main_grad", "zero_out_wgrad")),
        ),
        Case(
            "main_grad, added, of any values",
            kind,
            FUSION,
            prepare=main_grad(torch.float32, ("grad_added_to_main_grad",)),
            without_values="weight.grad",
        ),
        Case("main_grad of bf16", kind, FUSION, prepare=main_grad(torch.bfloat16)),
        Case("main_grad of f16", kind, FUSION, prepare=main_grad(torch.float16)),
        Case("no main_grad", kind, FUSION, refusal="no main_grad", backward=False),
        Case(
            "main_grad of f64",
            kind,
            FUSION,
            prepare=main_grad(torch.float64),
            refusal="main_grad is torch.float64",
            backward=False,
        ),
        Case("one rank", kind, prepare=by_itself, refusal="group has one rank"),
        Case("offloaded", kind, prepare=offloading(True), refusal="activations are offloaded"),
        Case("not offloaded where it is called", kind, prepare=offloading(False)),
        Case("FSDP", kind, FUSION, prepare=fsdp, refusal="a parameter of Megatron-FSDP"),
        Case("inference_optimized, in training", kind, prepare=inference_optimized),
        Case(
            "inference_optimized",
            kind,
            prepare=inference_optimized_and_not_training,
            refusal="transformer_impl is inference_optimized",
        ),
        Case(
            "expert",
            kind,
            layer={"is_expert": True, "bias": False, "skip_bias_add": True},
            refusal="expert",
        ),
        Case(
            "expert, set later",
            kind,
            layer={"bias": False, "skip_bias_add": True},
            prepare=of_shared_experts,
            refusal="expert",
        ),
    )
] + [
    Case("disable_grad_reduce", prepare=without_reduction, refusal="disable_grad_reduce"),
    Case("gather_output", layer={"gather_output": True}),
    Case("runtime_gather_output", call={"runtime_gather_output": True}),
    Case(
        "no runtime_gather_output",
        layer={"gather_output": True},
        call={"runtime_gather_output": False},
    ),
    Case(
        "deferred embedding gradient",
        config={
            "defer_embedding_wgrad_compute": True,
            "pipeline_model_parallel_size": 2,
            "pipeline_dtype": torch.float32,
            "gradient_accumulation_fusion": True,
        },
        layer={"embedding_activation_buffer": [], "grad_output_buffer": []},
        refusal="defer_embedding_wgrad_compute",
        backward=False,
    ),
    Case("input not parallel", "row", layer={"input_is_parallel": False}),
]


@pytest.fixture(scope="module", autouse=True)
def groups() -> Iterator[None]:
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    yield
    plait.megatron.disable()
    parallel_state.destroy_model_parallel()


def config_of(case: Case, dtype: torch.dtype) -> TransformerConfig:
    settings = dict(
        num_layers=1,
        hidden_size=INPUTS,
        num_attention_heads=4,
        tensor_model_parallel_size=dist.get_world_size(),
        use_cpu_initialization=True,
        params_dtype=dtype,
        gradient_accumulation_fusion=False,
    )
    return TransformerConfig(**{**settings, **case.config})


def make(case: Case, dtype: torch.dtype, classes: Any = layers) -> Any:
    """Make the layer; Megatron's own needs APEX, or plait in its place."""
    torch.manual_seed(7)
    common: dict[str, Any] = {
        "config": config_of(case, dtype),
        "init_method": lambda weight: torch.nn.init.normal_(weight, std=0.1),
        "bias": True,
        "skip_bias_add": False,
    }
    with fusion.provided() if classes is layers else contextlib.nullcontext():
        if case.kind == "column":
            layer = classes.ColumnParallelLinear(INPUTS, OUTPUTS, **{**common, **case.layer})
        else:
            options = {"input_is_parallel": True, **common, **case.layer}
            layer = classes.RowParallelLinear(INPUTS, OUTPUTS, **options)
    if layer.bias is not None:
        with torch.no_grad():
            layer.bias.normal_()
    return layer


def input_of(case: Case, dtype: torch.dtype) -> torch.Tensor:
    world, rank = dist.get_world_size(), dist.get_rank()
    generator = torch.Generator().manual_seed(3)
    shape = (ROWS, INPUTS) if case.two_dimensions else (ROWS, BATCH, INPUTS)
    whole = torch.randn(shape, generator=generator)
    if case.kind == "column" and case.config.get("sequence_parallel"):
        whole = whole.chunk(world)[rank]
    if case.kind == "row" and case.layer.get("input_is_parallel", True):
        whole = whole.chunk(world, dim=-1)[rank]
    return whole.to(dtype).contiguous()


def run(case: Case, layer: Any, dtype: torch.dtype) -> dict[str, torch.Tensor | None]:
    """Run forward and backward, and return all that they make."""
    case.prepare(layer)
    for parameter in layer.parameters():
        parameter.grad = None
    x = input_of(case, dtype).requires_grad_()
    out, bias = layer(x, **case.call)
    results: dict[str, torch.Tensor | None] = {"out": out.detach(), "bias": bias}
    if case.backward:
        generator = torch.Generator().manual_seed(11 + out.shape[-1])
        grad = torch.randn(out.shape, generator=generator).to(dtype)
        if case.kind == "row" and case.config.get("sequence_parallel"):
            grad = grad * (1 + dist.get_rank())  # shards of ranks differ
        out.backward(grad)
        results["x.grad"] = x.grad
        for name, parameter in layer.named_parameters():
            results[f"{name}.grad"] = parameter.grad
            results[f"{name}.main_grad"] = getattr(parameter, "main_grad", None)
            results[f"{name}.added"] = torch.tensor(
                float(getattr(parameter, "grad_added_to_main_grad", 0))
            )
    return results


def agree(mine: str | None) -> None:
    """Fail on all ranks where one fails."""
    verdicts: list[str | None] = [None] * dist.get_world_size()
    dist.all_gather_object(verdicts, mine)
    failed = {rank: said for rank, said in enumerate(verdicts) if said is not None}
    assert not failed, failed


def difference(
    expected: dict[str, torch.Tensor | None],
    found: dict[str, torch.Tensor | None],
    bound: float,
    without_values: str = "",
) -> str | None:
    """Compare what two runs have made; sums of `terms` products of values of order 1."""
    for name, theirs in expected.items():
        ours = found[name]
        if theirs is None or ours is None:
            if theirs is not ours:
                return f"{name}: Megatron made {type(theirs)}, plait {type(ours)}"
            continue
        if theirs.shape != ours.shape or theirs.dtype != ours.dtype:
            return f"{name}: {theirs.shape} {theirs.dtype}, {ours.shape} {ours.dtype}"
        if name == without_values:
            continue
        worst = (theirs.double() - ours.double()).abs().max().item() if theirs.numel() else 0.0
        scale = theirs.double().abs().max().item() if theirs.numel() else 1.0
        if not worst <= (bound + ROUNDINGS.get(theirs.dtype, 0.0)) * max(scale, 1.0):
            return f"{name}: differs by {worst} where values go up to {scale}"
    return None


# A sum of n products in f32 is wrong by n·u·Σ|ab| at most, and Σ|ab| of random values is about √n
# times the largest sum; both sides round. Products and sums of fewer bits are rounded twice more on
# each side.
TERMS = INPUTS + ROWS * BATCH
BOUND = 2 * TERMS * 2.0**-24 * TERMS**0.5
ROUNDINGS = {torch.bfloat16: 4 * 2.0**-8, torch.float16: 4 * 2.0**-11}


@pytest.mark.parametrize("how", [{}, {"engine": "c10d"}], ids=["native", "c10d"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("case", CASES, ids=str)
def test_layer(
    case: Case, dtype: torch.dtype, how: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    layer = make(case, dtype)
    with fusion.provided():  # in place of APEX, for Megatron's own code
        expected = run(case, layer, dtype)
    plait.torch.forget_report()
    with caplog.at_level(logging.WARNING), plait.megatron.enabled(**how):
        found = run(case, layer, dtype)
        rows = plait.megatron.report().rows
    served = [row for row in rows if row.refusal is None]
    # Without APEX, Megatron's own products have the dtype of x, those for main_grad too.
    bound = BOUND + ROUNDINGS.get(dtype, 0.0)
    verdict = difference(expected, found, bound, case.without_values)
    if case.refusal is None:
        if not served:
            verdict = f"it was left to Megatron: {rows}"
        elif (ran := engines()) != {how.get("engine", "native")}:
            verdict = f"another engine ran: {ran}"
    elif served or case.refusal not in str(rows[0].refusal):
        verdict = f"it should be left to Megatron ({case.refusal}): {rows}"
    elif dist.get_rank() == 0 and case.refusal not in caplog.text:
        verdict = "nothing was logged"
    agree(verdict)


def engines() -> set[str]:
    """Which have made calls of layers since forget_report()."""
    others = [what for what, _ in plait.torch.report().others]
    ran = {"c10d" if "engine 'c10d'" in what else "torch" for what in others}
    return ran or {"native"}


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_sums_travel_in_the_wire(sequence: bool) -> None:
    """In bf16 they are rounded once a rank, and are not those of f32."""
    case = Case("wire", "row", config=SEQUENCE if sequence else {})
    layer = make(case, torch.float32)
    expected = run(case, layer, torch.float32)
    with plait.megatron.enabled(wire="f32"):
        exact = run(case, layer, torch.float32)
    with plait.megatron.enabled(wire="bf16"):
        found = run(case, layer, torch.float32)
        report = str(plait.megatron.report())
    verdict = difference(expected, exact, BOUND)
    verdict = verdict or difference(expected, found, BOUND + ROUNDINGS[torch.bfloat16])
    assert exact["out"] is not None and found["out"] is not None  # noqa: PT018
    if torch.equal(exact["out"], found["out"]):
        verdict = f"the wire has no effect: {report}"
    agree(verdict)


@pytest.mark.parametrize("friendly", ["true", "false"])
@pytest.mark.parametrize("kind", ["column", "row"])
def test_matmul_soc_friendly_leaves_values_as_they_are(kind: str, friendly: str) -> None:
    case = Case("soc", kind, config=SEQUENCE)
    layer = make(case, torch.float32)
    expected = run(case, layer, torch.float32)
    settings = plait.parse_settings(f"[coc_cfgs]\nmatmul_soc_friendly = {friendly}")
    with plait.megatron.enabled(settings=settings):
        found = run(case, layer, torch.float32)
        served = plait.megatron.report().served
    agree(difference(expected, found, BOUND) or (None if served == 1 else "it was not served"))


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("kind", ["column", "row"])
def test_schedules_give_the_same_bits(kind: str, sequence: bool) -> None:
    case = Case("bits", kind, config=SEQUENCE if sequence else {})
    layer = make(case, torch.float32)
    results = []
    for options in (
        {"schedule": "serial"},
        {"schedule": "pipelined", "parts": 3},
        {"schedule": "fused"},
        {"schedule": "auto"},
    ):
        with plait.megatron.enabled(**options):
            results.append(run(case, layer, torch.float32))
    verdict = None
    for other in results[1:]:
        for name, tensor in results[0].items():
            if tensor is not None and not torch.equal(tensor, other[name]):  # type: ignore[arg-type]
                verdict = f"{name} differs"
    agree(verdict)


class Tagged(torch.Tensor):
    """A tensor that may lie anywhere, as those of other packages do."""


def test_other_kinds_of_tensors_are_left() -> None:
    case = Case("tagged")
    layer = make(case, torch.float32)
    with plait.megatron.enabled():
        layer(input_of(case, torch.float32).as_subclass(Tagged))
        rows = plait.megatron.report().rows
    agree(None if [row.refusal for row in rows] == ["its input is a Tagged"] else str(rows))


def test_tied_weight_is_an_argument() -> None:
    case = Case("tied", layer={"skip_weight_param_allocation": True, "bias": False})
    layer = make(case, torch.float32)
    weight = torch.randn(
        OUTPUTS // dist.get_world_size(), INPUTS, generator=torch.Generator().manual_seed(5)
    ).requires_grad_()
    x = input_of(case, torch.float32)
    layer(x, weight=weight)[0].sum().backward()
    expected, weight.grad = weight.grad, None
    with plait.megatron.enabled():
        layer(x, weight=weight)[0].sum().backward()
        served = plait.megatron.report().served
        with pytest.raises(RuntimeError, match="shape"):
            layer(x, weight=weight[:-1])
        with pytest.raises(RuntimeError, match="not supplied"):
            layer(x)
    assert expected is not None
    assert weight.grad is not None
    torch.testing.assert_close(weight.grad, expected, rtol=0, atol=BOUND * 10)
    assert served == 1


def test_enable_is_whole_and_undone() -> None:
    column = layers.ColumnParallelLinear.forward
    row = layers.RowParallelLinear.forward
    plait.megatron.enable(schedule="serial")
    plait.megatron.enable(schedule="serial")
    with pytest.raises(plait.Error, match="other options"):
        plait.megatron.enable(schedule="fused")
    assert layers.ColumnParallelLinear.forward is not column
    plait.megatron.disable()
    plait.megatron.disable()
    assert layers.ColumnParallelLinear.forward is column
    assert layers.RowParallelLinear.forward is row


def test_an_unknown_version_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    column = layers.ColumnParallelLinear.forward

    def forward(self: Any, input_: Any, scale: Any) -> None: ...

    monkeypatch.setenv("RANK", "0")
    with monkeypatch.context() as patched:
        patched.setattr(layers.RowParallelLinear, "forward", forward)
        plait.megatron.enable()
        plait.megatron.enable()
        assert layers.ColumnParallelLinear.forward is column
        assert layers.RowParallelLinear.forward is forward
        sentence = (
            "this version of Megatron-Core is unknown: RowParallelLinear.forward takes (self, "
            "input_, scale), and plait knows (self, input_); its layers are left as they are"
        )
        assert [one.getMessage() for one in caplog.records] == [sentence]
        assert str(plait.megatron.report()) == f"plait.megatron: {sentence}"
        patched.delattr(layers.RowParallelLinear, "forward")
        assert seams.mismatch() == "RowParallelLinear has no forward of its own"
    plait.megatron.enable()
    assert layers.ColumnParallelLinear.forward is not column
    plait.megatron.disable()


def test_a_later_replacement_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    row = layers.RowParallelLinear.forward

    def forward(self: Any, input_: Any) -> None: ...

    plait.megatron.enable()
    layers.RowParallelLinear.forward = forward
    try:
        plait.megatron.disable()
        assert layers.RowParallelLinear.forward is forward
        assert "another package" in caplog.text
    finally:
        layers.RowParallelLinear.forward = row
