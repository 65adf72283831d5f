"""Models of Hugging Face with random weights: tensor-parallel, and the same in one process."""

import contextlib
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from models import (
    COMMON,
    TOKENS,
    distance,
    gradients,
    learn_to_count,
    saved_model,
    shared,
    train,
    whole,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Replicate
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES

import plait
import plait.torch
import plait.transformers

MODELS: dict[str, Any] = {
    "llama": lambda: transformers.LlamaConfig(**COMMON),
    "qwen3, which normalises heads": lambda: transformers.Qwen3Config(**COMMON, head_dim=16),
    "phi3, whose projections are packed": lambda: transformers.Phi3Config(**COMMON),
    "mixtral, of experts": lambda: transformers.MixtralConfig(
        **COMMON, num_local_experts=4, num_experts_per_tok=2
    ),
}
MODELS["phi3, packed"] = MODELS["phi3, whose projections are packed"]
MODELS["llama, packed"] = MODELS["llama"]
MLP = "model.layers.*.mlp."
PLANS = {
    # Gate and up are one weight: a rank has rows of both.
    "phi3, packed": {f"{MLP}gate_up_proj": "packed_colwise", f"{MLP}down_proj": "rowwise"},
    # Any share of the hidden values will do, where the next layer has the same one.
    "llama, packed": {
        f"{MLP}gate_proj": "packed_colwise",
        f"{MLP}up_proj": "packed_colwise",
        f"{MLP}down_proj": "packed_rowwise",
    },
}
PACKED = {  # a module of each style that the plan has changed
    "phi3, packed": ("gate_up_proj",),
    "llama, packed": ("gate_proj", "down_proj"),
}


@pytest.fixture(params=MODELS, ids=str)
def folder(request: pytest.FixtureRequest, tmp_path_factory: Any) -> Iterator[tuple[str, Path]]:
    """A saved model, in a folder that all ranks know."""
    yield request.param, saved_model(MODELS[request.param](), tmp_path_factory)
    dist.barrier()


def generate(model: Any) -> torch.Tensor:
    with torch.no_grad():
        tokens: torch.Tensor = model.generate(TOKENS, max_new_tokens=8, do_sample=False)
    return tokens


def test_generates_the_same_tokens(folder: tuple[str, Path]) -> None:
    name, path = folder
    expected = generate(whole(path))
    with plait.transformers.enabled():
        model = shared(path, PLANS.get(name, "auto"))
        assert torch.equal(generate(model), expected)
        report = plait.transformers.report()
    assert report.served > 0
    for packed in PACKED.get(name, ()):
        [module] = [one for at, one in model.named_modules() if at.endswith(f"0.mlp.{packed}")]
        assert module.weight.placements[0].split_factor == 2
    assert not [sentence for sentence, _ in report.modules if sentence.startswith("Linear")]


def test_unmodified_on_the_backend(folder: tuple[str, Path]) -> None:
    """Hugging Face's own layers over the backend "plait" generate what one process does."""
    _, path = folder
    assert dist.get_backend() == "plait"
    assert torch.equal(generate(shared(path)), generate(whole(path)))


@pytest.fixture(scope="module")
def counting(tmp_path_factory: Any) -> Path:
    """A saved model that counts, in a folder that all ranks know."""
    return saved_model(transformers.LlamaConfig(**COMMON), tmp_path_factory, learn_to_count)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_a_trained_model_counts_in_every_dtype(counting: Path, dtype: torch.dtype) -> None:
    expected = TOKENS[:, :1] + torch.arange(12 + 8)
    assert torch.equal(generate(whole(counting, dtype)), expected)
    assert torch.equal(generate(shared(counting, dtype=dtype)), expected)
    for options in ({}, {"schedule": "fused"}, {"schedule": "pipelined", "parts": 3}):
        with plait.transformers.enabled(**options):
            assert torch.equal(generate(shared(counting, dtype=dtype)), expected)
            assert plait.transformers.report().served > 0


def test_gradients(folder: tuple[str, Path]) -> None:
    """One process in f32 is as far from f64 as f32 makes it; ranks round as often.

    They add up in another order, so that errors differ, and in any one of the gradients by more
    than in all of them together: four times the worst of one process is allowed.
    """
    name, path = folder
    _, exact = gradients(whole(path, torch.float64), TOKENS)
    loss, alone = gradients(whole(path), TOKENS)
    with plait.transformers.enabled(schedule="fused"):
        found_loss, found = gradients(shared(path, PLANS.get(name, "auto")), TOKENS)
    assert abs(found_loss - loss) < 1e-5
    allowed = 4 * max(distance(alone, exact).values())
    too_far = {at: off for at, off in distance(found, exact).items() if not off <= allowed}
    assert not too_far, f"more than {allowed}: {too_far}"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("folder", ["llama", "phi3, packed"], indirect=True)
def test_losses(folder: tuple[str, Path], dtype: torch.dtype) -> None:
    """Five digits are equal in f32, three in bf16, and all bits in any schedule."""
    name, path = folder
    expected = train(shared(path, PLANS.get(name, "auto"), dtype))
    assert expected[0] - expected[-1] > 0.1, f"nothing was learned: {expected}"
    found = []
    for options in (
        {"schedule": "serial"},
        {"schedule": "pipelined", "parts": 3},
        {"schedule": "fused"},
        {"schedule": "auto"},
    ):
        with plait.transformers.enabled(**options):
            found.append(train(shared(path, PLANS.get(name, "auto"), dtype)))
            assert plait.transformers.report().served > 0
    off = max(abs(a - b) / a for a, b in zip(expected, found[0], strict=True))
    digits = 1e-5 if dtype is torch.float32 else 1e-3
    assert off < digits, f"{expected}, with plait {found[0]}"
    assert all(losses == found[0] for losses in found), f"schedules differ: {found}"


def test_saves_what_it_has_loaded(folder: tuple[str, Path], tmp_path: Path) -> None:
    name, path = folder
    saved: list[Any] = [tmp_path]
    dist.broadcast_object_list(saved)
    with plait.transformers.enabled():
        shared(path, PLANS.get(name, "auto")).save_pretrained(saved[0])
    dist.barrier()
    first, again = whole(path).state_dict(), whole(saved[0]).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_quantised_weights(folder: tuple[str, Path]) -> None:
    _, path = folder
    with torch.no_grad():
        expected = whole(path)(TOKENS).logits
        with plait.transformers.enabled(weight="s8:group=32"):
            found = shared(path)(TOKENS).logits
    assert (found - expected).abs().max() < 0.05 * expected.abs().max()


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_changes_of_fixed_weights_that_autograd_counts(folder: tuple[str, Path]) -> None:
    _, path = folder
    alone = whole(path)
    with plait.transformers.enabled(fixed_weights=True), torch.no_grad():
        model = shared(path)
        for factor in (1.0, 0.5):
            for one in (model, alone):
                one.model.layers[1].self_attn.v_proj.weight.mul_(factor)
            for _ in range(10):  # the weight is packed by then
                off = (model(TOKENS).logits - alone(TOKENS).logits).abs().max().item()
            assert off < 1e-5, f"times {factor} it is off by {off}"


@pytest.mark.parametrize("folder", ["llama"], indirect=True)
def test_another_dtype_is_left_with_a_sentence(
    folder: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    _, path = folder
    with plait.transformers.enabled():
        model = shared(path)
        model.double()
        with torch.no_grad():
            model(TOKENS)
        assert plait.transformers.report().served == 0
    if dist.get_rank() == 0:
        assert "left to transformers: its input is torch.float64" in caplog.text


@pytest.mark.parametrize("folder", ["mixtral, of experts"], indirect=True)
def test_modules_are_left_with_a_sentence(
    folder: tuple[str, Path], caplog: pytest.LogCaptureFixture
) -> None:
    _, path = folder
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with caplog.at_level(logging.INFO), plait.transformers.enabled():
        shared(path)
        style = ALL_PARALLEL_STYLES["replicated_with_grad_allreduce"]
        style.install_forward(torch.nn.LayerNorm(8), mesh)
        modules = dict(plait.transformers.report().modules)
    experts = "MixtralExperts: the style moe_tp_experts is not served"
    norm = "LayerNorm: the style replicated_with_grad_allreduce has no product"
    assert modules == {experts: 2, norm: 1}, modules
    if dist.get_rank() == 0:
        said = {(one.levelname, one.getMessage()) for one in caplog.records}
        assert ("WARNING", f"a module is left to transformers: {experts}") in said
        assert ("INFO", f"a module is left to transformers: {norm}") in said


class OtherLinear(torch.nn.Linear):
    """A layer of a model's own."""


@pytest.mark.parametrize(
    ("layer", "quantized", "sentence"),
    [
        (torch.nn.Linear, True, "Linear: transformers has quantised its weight"),
        (OtherLinear, False, "OtherLinear: it may have a forward of its own, and is no nn.Linear"),
    ],
    ids=["quantised", "a class of its own"],
)
def test_linear_layers_are_left_with_a_sentence(
    layer: type[torch.nn.Linear], quantized: bool, sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with plait.transformers.enabled():
        for _ in range(2):
            module: Any = layer(8, 8)
            module._hf_quantized_needs_local_tp = quantized  # as transformers marks them
            ALL_PARALLEL_STYLES["colwise"].install_forward(module, mesh)
        assert plait.transformers.report().modules == ((sentence, 2),)
    said = [one.getMessage() for one in caplog.records if one.name == "plait.transformers"]
    expected = [f"a module is left to transformers: {sentence}"]
    assert said == expected * (dist.get_rank() == 0)


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        (lambda x, mesh: x.to("meta"), "its input is on meta, and plait computes on the CPU"),
        (lambda x, mesh: DTensor.from_local(x, mesh, [Replicate()]), "its input is a DTensor"),
        (lambda x, mesh: x.to(torch.int32), "its input is torch.int32"),
        (lambda x, mesh: x.half(), "its input is torch.float16, and its weight is torch.float32"),
    ],
    ids=["meta", "DTensor", "int32", "float16"],
)
def test_calls_are_left_with_a_sentence(
    given: Callable[[torch.Tensor, Any], Any], sentence: str, caplog: pytest.LogCaptureFixture
) -> None:
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    with plait.transformers.enabled():
        style = ALL_PARALLEL_STYLES["colwise"]
        module: Any = torch.nn.Linear(8, 8)
        style.shard_param(module, "weight", mesh)
        style.shard_param(module, "bias", mesh)
        style.install_forward(module, mesh)
        x = given(torch.ones(3, 8), mesh)
        for _ in range(2):
            with contextlib.suppress(RuntimeError, NotImplementedError):  # theirs may refuse it too
                module(x)
        report = plait.transformers.report()
    assert (report.served, report.refusals) == (0, ((sentence, 2),))
    said = [one.getMessage() for one in caplog.records if one.name == "plait.transformers"]
    expected = [f"a linear layer is left to transformers: {sentence}"]
    assert said == expected * (dist.get_rank() == 0)


def test_enable_is_undone() -> None:
    before = dict(ALL_PARALLEL_STYLES)
    plait.transformers.enable(schedule="serial")
    plait.transformers.enable(schedule="serial")
    with pytest.raises(plait.Error, match="other options"):
        plait.transformers.enable()
    assert ALL_PARALLEL_STYLES["colwise"] is not before["colwise"]
    plait.transformers.disable()
    plait.transformers.disable()
    assert all(ALL_PARALLEL_STYLES[name] is style for name, style in before.items())
    with pytest.raises(plait.Error, match="scheme"):
        plait.transformers.enable(weight="s9")
