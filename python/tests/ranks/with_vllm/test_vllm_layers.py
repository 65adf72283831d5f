"""vLLM's layers on two ranks: with plait the same numbers as without, or left with a sentence."""

import contextlib
import functools
import logging
import os
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest
import torch
import torch.distributed as dist
import vllm.envs
import vllm.platforms
from ranks import agree
from vllm.config import VllmConfig, set_current_vllm_config
from vllm.distributed import parallel_state
from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
from vllm.model_executor import custom_op
from vllm.model_executor.layers import linear, logits_processor
from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner
from vllm.model_executor.layers.quantization.compressed_tensors.compressed_tensors import (
    CompressedTensorsConfig,
)
from vllm.model_executor.layers.vocab_parallel_embedding import ParallelLMHead
from vllm.platforms import interface
from vllm.v1.sample.logits_processor import LogitsProcessors
from vllm.v1.sample.metadata import SamplingMetadata
from vllm.v1.sample.ops import topk_topp_sampler
from vllm.v1.sample.sampler import Sampler

import plait
import plait.torch
import plait.vllm
from plait import _vllm_plugin
from plait.vllm import compare, layers, logits, products

INPUTS, OUTPUTS, TOKENS = 64, 96, 7
BOUNDS = {torch.float32: 1e-4, torch.bfloat16: 0.1, torch.float16: 0.02}


@pytest.fixture(scope="module", autouse=True)
def groups(world: int) -> Iterator[None]:
    # Ranks of one engine have it alike; vLLM names its shared memory after it.
    os.environ.setdefault("VLLM_DIST_IDENT", f"plait-{os.environ['MASTER_PORT']}")
    with set_current_vllm_config(VllmConfig()):
        parallel_state.init_distributed_environment(
            world, dist.get_rank(), "env://", dist.get_rank(), "gloo"
        )
        parallel_state.initialize_model_parallel(world, backend="gloo")
        yield
        parallel_state.destroy_model_parallel()


@pytest.fixture(autouse=True)
def disabled() -> Iterator[None]:
    yield
    plait.vllm.disable()


@dataclass
class Case:
    """A layer, and whether plait serves it."""

    name: str
    kind: str = "RowParallelLinear"
    options: dict[str, Any] = field(default_factory=dict)
    quantized: bool = False
    keeps_weight: bool = False  # as latent attention asks for
    refusal: str | None = None
    operator: str | None = None  # None: without communication of plait's

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


INT8 = {
    "format": "int-quantized",
    "ignore": [],
    "config_groups": {
        "group_0": {
            "targets": ["Linear"],
            "weights": {"num_bits": 8, "type": "int", "symmetric": True, "strategy": "channel"},
            "input_activations": {
                "num_bits": 8,
                "type": "int",
                "symmetric": True,
                "strategy": "token",
                "dynamic": True,
            },
        }
    },
}
SUM = "matmul_all_reduce"
COLUMNS = ("ColumnParallelLinear", "MergedColumnParallelLinear", "QKVParallelLinear")
CASES = [
    Case("plain", operator=SUM),
    Case("without a bias", options={"bias": False}, operator=SUM),
    Case("skip_bias_add", options={"skip_bias_add": True}, operator=SUM),
    Case("input not parallel", options={"input_is_parallel": False}, operator=SUM),
    Case("return_bias=False", options={"return_bias": False}, operator=SUM),
    Case("sums left to the caller", options={"reduce_results": False, "bias": False}),
    Case("disable_tp", options={"disable_tp": True}, refusal="group has one rank"),
    Case("latent attention", keeps_weight=True, refusal="read by latent attention"),
    Case("quantised", quantized=True, refusal="no product for CompressedTensorsLinearMethod"),
    *(Case("plain", kind) for kind in COLUMNS),
    *(Case("skip_bias_add", kind, {"skip_bias_add": True}) for kind in COLUMNS),
    Case("gather_output", COLUMNS[0], {"gather_output": True}),
    Case("disable_tp", COLUMNS[0], {"disable_tp": True}, refusal="group has one rank"),
]


def make(case: Case, dtype: torch.dtype) -> Any:
    options: dict[str, Any] = {"params_dtype": dtype, "bias": True, **case.options}
    if case.quantized:
        options["quant_config"] = CompressedTensorsConfig.from_config(INT8)
    cls = getattr(linear, case.kind)
    if case.kind == "QKVParallelLinear":
        layer = cls(INPUTS, 8, 4, **options)
    elif case.kind == "MergedColumnParallelLinear":
        layer = cls(INPUTS, [OUTPUTS, OUTPUTS], **options)
    else:
        layer = cls(INPUTS, OUTPUTS, **options)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    for name, parameter in layer.named_parameters():
        if parameter.dtype == torch.int8:
            values = torch.randint(-99, 99, parameter.shape, generator=generator)
        elif name == "bias" and case.kind == "RowParallelLinear":  # the same on all ranks
            values = torch.linspace(-1, 1, parameter.numel())
        else:
            values = torch.rand(parameter.shape, generator=generator) * 0.1
        parameter.data.copy_(values)
    if case.keeps_weight:
        layer._cpu_skip_gemm_dispatch = True
    layer.quant_method.process_weights_after_loading(layer)
    return layer


def input_of(case: Case, dtype: torch.dtype) -> torch.Tensor:
    whole = torch.randn((TOKENS, INPUTS), generator=torch.Generator().manual_seed(3)).to(dtype)
    is_whole = not case.options.get("input_is_parallel", True) or "disable_tp" in case.options
    if case.kind != "RowParallelLinear" or is_whole:
        return whole
    return whole.chunk(dist.get_world_size(), 1)[dist.get_rank()].contiguous()


def tensors(result: Any) -> list[torch.Tensor | None]:
    return list(result) if isinstance(result, tuple) else [result]


@pytest.mark.parametrize("dtype", BOUNDS, ids=lambda one: str(one).removeprefix("torch."))
@pytest.mark.parametrize("case", CASES, ids=str)
def test_layer(case: Case, dtype: torch.dtype) -> None:
    x = input_of(case, dtype)
    with torch.inference_mode():
        expected = tensors(make(case, dtype)(x))
        plait.torch.forget_report()
        plait.vllm.enable()
        layer = make(case, dtype)
        before = {row.layer: row.calls for row in plait.vllm.report().rows}
        found = tensors(layer(x))
    for theirs, ours in zip(expected, found, strict=True):
        agree((theirs is None) == (ours is None), "one has a bias")
        if theirs is not None and ours is not None:
            agree((theirs.shape, theirs.dtype) == (ours.shape, ours.dtype), f"{ours.shape}")
            off = (theirs.double() - ours.double()).abs().max().item()
            agree(off <= BOUNDS[dtype] * max(1, theirs.abs().max().item()), f"differs by {off}")
    agree(type(layer) is getattr(layers, case.kind), f"it is {type(layer)}")
    operators = [row.operator for row in plait.torch.report().rows]
    agree(operators == [case.operator] * (case.operator is not None), f"called: {operators}")
    rows = plait.vllm.report().rows
    if case.refusal is None:
        agree(layer.weight.numel() == 0, "the plain weight is kept")
        calls = sum(row.calls for row in rows if row.layer == case.kind)
        agree(calls == before.get(case.kind, 0) + 1, f"not served: {rows}")
    else:
        left = [row for row in rows if row.layer == case.kind and case.refusal in str(row.refusal)]
        agree(len(left) == 1, f"it should be left to vLLM: {rows}")


def test_a_sentence_a_class_and_reason(caplog: pytest.LogCaptureFixture) -> None:
    plait.vllm.enable()
    case = Case("float64", "ColumnParallelLinear")
    with caplog.at_level(logging.INFO, "plait.vllm"):
        for _ in range(2):
            make(case, torch.float64)
    ours = [one for one in caplog.records if one.name == "plait.vllm"]
    said = [(one.levelname, one.getMessage()) for one in ours]
    sentence = "ColumnParallelLinear is left to vLLM: its weight is torch.float64"
    agree(said == [("WARNING", sentence)] * (dist.get_rank() == 0), str(said))


def of_another_group(layer: Any) -> None:
    layer.tp_size += 1


def on_meta(layer: Any) -> None:
    layer.to("meta")


def of_three_dimensions(layer: Any) -> None:
    layer.weight = torch.nn.Parameter(layer.weight.detach()[None], requires_grad=False)


LEFT: dict[Callable[[Any], None], str] = {
    of_another_group: "its tensor-parallel group is a part of vLLM's",
    on_meta: "its weight is on meta, and plait computes on the CPU",
    of_three_dimensions: "its weight has 3 dimensions, not 2",
}


@pytest.mark.parametrize("kind", ["RowParallelLinear", COLUMNS[0]])
@pytest.mark.parametrize("prepare", LEFT, ids=lambda one: one.__name__)
def test_weights_that_are_left(
    prepare: Callable[[Any], None], kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """vLLM's own code, which has the weight then, may refuse it too."""
    plait.vllm.enable()
    layer = getattr(linear, kind)(INPUTS, OUTPUTS, bias=False, params_dtype=torch.float32)
    layer.weight.data.zero_()
    prepare(layer)
    with caplog.at_level(logging.WARNING, "plait.vllm"), contextlib.suppress(Exception):
        layer.quant_method.process_weights_after_loading(layer)
    rows = [row for row in plait.vllm.report().rows if row.refusal == LEFT[prepare]]
    agree(kind in [row.layer for row in rows], f"{plait.vllm.report()}")
    agree(layer.by_plait is None, "it is packed")
    said = [one.getMessage() for one in caplog.records if one.name == "plait.vllm"]
    expected = [f"{kind} is left to vLLM: {LEFT[prepare]}"] * (dist.get_rank() == 0)
    agree(said == expected, str(said))


@pytest.mark.parametrize("kind", ["RowParallelLinear", COLUMNS[0]])
def test_weights_whose_product_is_slower_on_a_rank(
    kind: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def slow(x: torch.Tensor, *others: Any, **more: Any) -> torch.Tensor:
        time.sleep(0.002 if dist.get_rank() == 1 else 0)
        return products.multiply(x, *others, **more)

    monkeypatch.setattr(compare, "multiply", slow)
    monkeypatch.setattr(compare, "_known", {})
    plait.vllm.enable()
    for outputs in (2 * OUTPUTS, 4 * OUTPUTS):
        layer = getattr(linear, kind)(INPUTS, outputs, bias=False, params_dtype=torch.float32)
        layer.weight.data.fill_(1)
        layer.quant_method.process_weights_after_loading(layer)
        agree(layer.by_plait is None, "plait serves it")
    warnings = [one.getMessage() for one in caplog.records if one.levelno == logging.WARNING]
    sentence = "vLLM's own product is faster for some layers: plait.vllm.report() has them"
    agree(warnings == [sentence] * (dist.get_rank() == 0), str(warnings))
    found = [str(row.refusal) for row in plait.vllm.report().rows if row.layer == kind]
    reason = re.compile(r"its own product of x \[1, k\] takes 0\.\d+ of plait's time")
    agree(any(map(reason.fullmatch, found)), str(found))
    own = INPUTS // 2 if kind == "RowParallelLinear" else INPUTS
    out = layer(torch.ones(3, own))
    result = out[0] if isinstance(out, tuple) else out
    agree(torch.equal(result, torch.full_like(result, INPUTS)), str(result))


def test_workers_say_where_their_time_goes() -> None:
    plait.vllm.enable()
    up, down = make(Case("", COLUMNS[0]), torch.float32), make(Case(""), torch.float32)
    worker = plait.vllm.WorkerReport()
    agree("call plait_record before" in worker.plait_profile(), "something was recorded")
    x = input_of(Case("", COLUMNS[0]), torch.float32)
    worker.plait_record()
    for _ in range(3):
        down(up(x)[0][:, : INPUTS // dist.get_world_size()])
    said = worker.plait_profile()
    agree(bool(re.match(rf"rank {dist.get_rank()}: \d+\.\d+ s recorded, \d+\.", said)), said)
    calls = {line.split()[0]: int(line.split()[5]) for line in said.splitlines()[2:]}
    agree(calls.items() >= {SUM: 3, "matmul": 3}.items(), said)
    agree("call plait_record before" in worker.plait_profile(), "it records again")


class OwnLayer(linear.RowParallelLinear):  # type: ignore[misc]
    """A layer of a model's own."""


def test_a_subclass_of_a_model_stays_as_it_is() -> None:
    plait.vllm.enable()
    layer = OwnLayer(INPUTS, OUTPUTS, bias=False, params_dtype=torch.float32)
    agree(type(layer) is OwnLayer, f"it is {type(layer)}")
    agree(type(layer.quant_method) is linear.UnquantizedLinearMethod, "its product is replaced")
    agree("OwnLayer" not in [row.layer for row in plait.vllm.report().rows], "it is counted")


def test_another_platform_is_left(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    accelerator = interface.UnspecifiedPlatform()  # vLLM's own for one need its driver
    accelerator.device_type = "tpu"
    monkeypatch.setattr(vllm.platforms, "current_platform", accelerator)
    with caplog.at_level(logging.INFO, "plait.vllm"):
        plait.vllm.enable()
    assert "vLLM computes on tpu, and plait on the CPU" in caplog.text
    assert "RowParallelLinear" not in custom_op.op_registry_oot


def test_compiled_graphs_call_plait() -> None:
    plait.vllm.enable()
    up, down = make(Case("", COLUMNS[0]), torch.float32), make(Case(""), torch.float32)

    def program(x: torch.Tensor) -> torch.Tensor:
        hidden = torch.relu(up(x)[0][:, : INPUTS // dist.get_world_size()])
        out: torch.Tensor = down(hidden)[0]
        return out

    x = input_of(Case("", COLUMNS[0]), torch.float32)
    with torch.inference_mode():
        expected = program(x)
        plait.torch.forget_report()
        torch._dynamo.reset()
        found = torch.compile(program, fullgraph=True, dynamic=True)(x)
        calls = [(row.operator, row.calls) for row in plait.torch.report().rows]
    agree(torch.allclose(expected, found, atol=1e-4), "values differ")
    agree(calls == [(SUM, 1)], f"called: {calls}")


def test_kept_graphs_of_their_layers_are_not_taken_for_ours(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """vLLM finds graphs that it has kept by these values."""
    known: dict[Any, str | None] = {("served", 64): None}
    monkeypatch.setattr(compare, "_known", known)
    theirs = vllm.envs.compile_factors()
    plait.vllm.enable()
    ours = vllm.envs.compile_factors()
    known["left", 96] = "its own product is faster"
    some = vllm.envs.compile_factors()
    plait.vllm.disable()
    assert ours == {**theirs, "PLAIT_LAYERS": plait.__version__}
    assert some == {**theirs, "PLAIT_LAYERS": f"{plait.__version__}, ('left', 96)"}
    assert vllm.envs.compile_factors() == theirs


def test_enable_is_whole_and_undone(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = custom_op.op_registry_oot
    before = dict(registry)
    methods = [dict(vars(one)) for one in (CpuCommunicator, MoERunner)]
    plait.vllm.enable()
    plait.vllm.enable()
    assert {"all_gatherv", "reduce_scatterv"} < set(vars(CpuCommunicator))
    assert {name: registry[name].__module__ for name in (*COLUMNS, "RowParallelLinear")} == {
        name: "plait.vllm.layers" for name in (*COLUMNS, "RowParallelLinear")
    }
    plait.vllm.disable()
    plait.vllm.disable()
    assert registry == before
    assert [dict(vars(one)) for one in (CpuCommunicator, MoERunner)] == methods
    monkeypatch.setitem(registry, "QKVParallelLinear", linear.RowParallelLinear)
    with pytest.raises(plait.Error, match="another plugin replaces QKVParallelLinear"):
        plait.vllm.enable()
    assert "RowParallelLinear" not in registry
    monkeypatch.delitem(registry, "QKVParallelLinear")

    def forward(self: Any, input_: Any, scale: Any) -> None: ...

    monkeypatch.setattr(linear.RowParallelLinear, "forward", forward)
    with pytest.raises(plait.Error, match=r"unknown: RowParallelLinear\.forward takes"):
        plait.vllm.enable()
    assert registry == before
    monkeypatch.undo()
    monkeypatch.setattr("plait.vllm.swap._factors", dict)
    with pytest.raises(plait.Error, match=r"unknown: vllm\.envs has no environment_variables"):
        plait.vllm.enable()
    assert registry == before


def test_the_plugin_never_raises(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("PLAIT_PLAN", "nothing known")
    _vllm_plugin.enable()
    assert "vLLM's layers are left as they are" in caplog.text
    assert "RowParallelLinear" not in custom_op.op_registry_oot
    monkeypatch.delenv("PLAIT_PLAN")
    _vllm_plugin.enable()
    _vllm_plugin.enable()
    assert custom_op.op_registry_oot["RowParallelLinear"] is layers.RowParallelLinear


def counted_gathers(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list with one more entry after each gather of logits."""
    gathers: list[int] = []
    for owner in (logits_processor.LogitsProcessor, logits.LogitsProcessor):
        theirs = owner._gather_logits

        @functools.wraps(theirs)  # enable() looks at what it takes
        def gather(layer: Any, own: torch.Tensor, theirs: Any = theirs) -> torch.Tensor:
            gathers.append(1)
            whole: torch.Tensor = theirs(layer, own)
            return whole

        monkeypatch.setattr(owner, "_gather_logits", gather)
    return gathers


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("scale", [1.0, 0.5])
def test_greedy_tokens_need_no_whole_logits(
    dtype: torch.dtype, scale: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """131 ids: the last rank's weight is padded. A scale is an operation on all of them."""
    gathers = counted_gathers(monkeypatch)
    head = ParallelLMHead(131, INPUTS, params_dtype=dtype)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    head.weight.data.copy_(torch.rand(head.weight.shape, generator=generator))
    head.quant_method.process_weights_after_loading(head)
    x = torch.randn((TOKENS, INPUTS), generator=torch.Generator().manual_seed(3)).to(dtype)
    expected = logits_processor.LogitsProcessor(131, scale=scale)(head, x)
    plait.vllm.enable()
    layer = logits_processor.LogitsProcessor(131, scale=scale)
    agree(type(layer) is logits.LogitsProcessor, "it is vLLM's")
    found = layer(head, x)
    agree(found.shape == expected.shape, f"{found.shape}")
    tokens = Sampler.greedy_sample(found.to(torch.float32))
    chosen = expected.float().gather(1, tokens.long().view(-1, 1)).squeeze(1)
    off = (expected.float().max(1).values - chosen).max()
    agree(bool(off <= BOUNDS[dtype]), f"{off}")
    agree(len(gathers) == (1 if scale == 1.0 else 2), f"{len(gathers)} gathers")
    agree("LogitsProcessor: " in str(plait.vllm.report()), str(plait.vllm.report()))
    agree(torch.equal(found[:, :7] + 0, expected[:, :7]), "others than vLLM's logits")


@dataclass
class Sampled:
    """Requests of one step, of as many rows, and the gathers of logits that they need."""

    name: str
    k: list[int]
    p: float | None = None
    cold: bool = False  # the first request is greedy
    equal: bool = True  # some logits of a row
    logprobs: int | None = None
    gathers: int = 0

    def metadata(self) -> SamplingMetadata:
        rows = len(self.k)
        temperatures = torch.linspace(0.5, 1.5, rows)
        if self.cold:
            temperatures[0] = 0
        return SamplingMetadata(
            temperature=temperatures,
            all_greedy=False,
            all_random=not self.cold,
            top_p=None if self.p is None else torch.full((rows,), self.p),
            top_k=torch.tensor(self.k, dtype=torch.int32),
            generators={1: torch.Generator().manual_seed(5)},
            max_num_logprobs=self.logprobs,
            no_penalties=True,
            prompt_token_ids=None,
            frequency_penalties=torch.zeros(rows),
            presence_penalties=torch.zeros(rows),
            repetition_penalties=torch.ones(rows),
            output_token_ids=[[] for _ in range(rows)],
            allowed_token_ids_mask=None,
            bad_words_token_ids={},
            logitsprocs=LogitsProcessors(),
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "case",
    [
        Sampled("one k", [5] * TOKENS),
        Sampled("other ks", [1, 2, 3, 40, 5, 6, 7]),
        # Its sort is not stable: which of equal logits it keeps depends on all of them.
        Sampled("top-p beside top-k", [40] * TOKENS, p=0.8, equal=False),
        Sampled("a greedy request", [5] * TOKENS, cold=True),
        Sampled("without top-k", [5] * (TOKENS - 1) + [131], gathers=1),
        Sampled("log-probabilities", [5] * TOKENS, logprobs=2, gathers=1),
    ],
    ids=lambda case: case.name,
)
def test_tokens_of_top_k_need_no_whole_logits(
    case: Sampled, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whole numbers have the same bits in both products, and many equal logits."""
    head = ParallelLMHead(131, INPUTS, params_dtype=dtype)
    generator = torch.Generator().manual_seed(1 + dist.get_rank())
    head.weight.data.copy_(torch.randint(-2, 3, head.weight.shape, generator=generator))
    if not case.equal:
        first = dist.get_rank() * len(head.weight)
        head.weight.data.zero_()[:, 0] = torch.arange(first, first + len(head.weight))
    head.quant_method.process_weights_after_loading(head)
    generator = torch.Generator().manual_seed(3)
    x = torch.randint(-1, 2, (TOKENS, INPUTS), generator=generator).to(dtype)
    if not case.equal:
        x[:, 0] = 1 / 16
    expected = logits_processor.LogitsProcessor(131)(head, x)
    plait.vllm.enable()
    gathers = counted_gathers(monkeypatch)
    layer, sampler = logits_processor.LogitsProcessor(131), Sampler()
    for seed in range(20):
        torch.manual_seed(seed)
        wanted = sampler(expected.clone(), case.metadata())
        torch.manual_seed(seed)
        found = sampler(layer(head, x), case.metadata())
        same = torch.equal(found.sampled_token_ids, wanted.sampled_token_ids)
        agree(same, f"{found.sampled_token_ids} {wanted.sampled_token_ids}")
    agree(len(gathers) == 20 * case.gathers, f"{len(gathers)} gathers")


def test_a_sampler_is_left_the_logits_that_it_would_have(monkeypatch: pytest.MonkeyPatch) -> None:
    """More equal logits than were asked for are gathered, as are those with a NaN at the end."""
    head = ParallelLMHead(131, INPUTS)
    head.weight.data.fill_(1)
    head.quant_method.process_weights_after_loading(head)
    rows = torch.arange(3.0).unsqueeze(1).expand(3, INPUTS).contiguous()
    theirs = topk_topp_sampler.apply_top_k_top_p
    plait.vllm.enable()
    gathers = counted_gathers(monkeypatch)
    layer = logits_processor.LogitsProcessor(131)
    temperatures, k = torch.tensor([[0.5], [1.0], [2.0]]), torch.tensor([3, 1, 2])
    for x in (rows, torch.full_like(rows, torch.nan)):
        found = topk_topp_sampler.apply_top_k_top_p(layer(head, x).div_(temperatures), k, None)
        whole = (x @ torch.ones(INPUTS, 131)).div_(temperatures)
        wanted = theirs(whole, k.clone(), None)
        agree(torch.equal(found.nan_to_num(7), wanted.nan_to_num(7)), f"{found} {wanted}")
    agree(len(gathers) == 2, f"{len(gathers)} gathers")
    logits = layer(head, rows)
    view = logits[1:]
    logits.div_(temperatures)
    agree(torch.equal(view + 0, (rows @ torch.ones(INPUTS, 131) / temperatures)[1:]), f"{view}")
