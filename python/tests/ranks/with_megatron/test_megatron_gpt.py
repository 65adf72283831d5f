"""The model of examples/python/megatron_gpt.py: the same losses, whatever Megatron is set to."""

import argparse
import functools
import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import shims
import torch
import torch.distributed as dist
from ranks import agree

shims.apply()

from megatron.core import parallel_state  # noqa: E402
from megatron.core.tensor_parallel import vocab_parallel_cross_entropy  # noqa: E402
from megatron.core.tensor_parallel.cross_entropy import _VocabParallelCrossEntropy  # noqa: E402

import plait.megatron  # noqa: E402
import plait.torch  # noqa: E402
from plait.torch.deferred import DeferredLogits, Head  # noqa: E402

TOKENS = 24


@pytest.fixture(scope="module")
def example() -> Iterator[Any]:
    folder = Path(__file__).parents[4] / "examples" / "python"
    spec = importlib.util.spec_from_file_location("megatron_gpt", folder / "megatron_gpt.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    yield module
    plait.megatron.disable()
    parallel_state.destroy_model_parallel()


def added_as_megatron_does(parameter: Any) -> torch.Tensor:
    """Add a gradient as Megatron's DDP does: a fused layer leaves autograd none, or any values.

    Of a tied weight, autograd has the embedding's share, and zeros of the output layer.
    """
    is_whole = parameter.grad_added_to_main_grad and not getattr(parameter, "zero_out_wgrad", False)
    if parameter.grad is not None and not is_whole:
        parameter.main_grad.add_(parameter.grad)
    main_grad: torch.Tensor = parameter.main_grad
    return main_grad


def train(
    example: Any, sequence: bool, settings: dict[str, Any], dtype: str = "f32"
) -> list[float]:
    options = argparse.Namespace(
        hidden=64, layers=1, tokens=TOKENS, dtype=dtype, sequence_parallel=sequence
    )
    model = example.make_model(options, **settings)
    fused = settings.get("gradient_accumulation_fusion", False)
    parameters = list(model.parameters())
    for parameter in parameters if fused else ():
        parameter.main_grad = torch.zeros_like(parameter)
    tokens = torch.randint(1024, (2, TOKENS + 1), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(TOKENS).expand(2, -1)
    later = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1)[None, None]
    losses = []
    for _ in range(5):
        out = model(tokens[:, :-1], positions, later, labels=tokens[:, 1:])
        loss = out.float().mean()
        for parameter in parameters if fused else ():
            parameter.grad_added_to_main_grad = False
        loss.backward()
        for parameter in parameters:
            grad = added_as_megatron_does(parameter) if fused else parameter.grad
            if grad is None:
                continue
            if getattr(parameter, "sequence_parallel", False):
                dist.all_reduce(grad)
            parameter.data.add_(grad, alpha=-0.05)  # as Megatron's optimizers write
            parameter.grad = None
            if fused:
                parameter.main_grad.zero_()
        losses.append(loss.item())
    return losses


RECOMPUTED = {
    "recompute_granularity": "full",
    "recompute_method": "uniform",
    "recompute_num_layers": 1,
}
FUSED = {"gradient_accumulation_fusion": True}


@pytest.mark.parametrize(
    "settings",
    [{}, RECOMPUTED, FUSED, {**RECOMPUTED, **FUSED}],
    ids=["plain", "recomputed", "fused", "recomputed, fused"],
)
@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_losses(example: Any, sequence: bool, settings: dict[str, Any]) -> None:
    check_losses(example, sequence, settings, "f32", 1e-5)


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_losses_in_bf16(example: Any, sequence: bool) -> None:
    check_losses(example, sequence, {}, "bf16", 1e-3)


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_unmodified_on_the_backend(example: Any, sequence: bool) -> None:
    """Megatron's own layers over the backend "plait" have the losses of one process."""
    assert dist.get_backend(parallel_state.get_tensor_model_parallel_group()) == "plait"
    found = train(example, sequence, {})
    parallel_state.destroy_model_parallel()
    parallel_state.initialize_model_parallel(tensor_model_parallel_size=1)
    try:
        expected = train(example, False, {})
    finally:
        parallel_state.destroy_model_parallel()
        parallel_state.initialize_model_parallel(tensor_model_parallel_size=dist.get_world_size())
    off = max(abs(a - b) for a, b in zip(expected, found, strict=True))
    agree(expected[0] - expected[-1] > 0.1, f"nothing was learned: {expected}")
    agree(off < 1e-5 * expected[0], f"{expected}, on the backend {found}")


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
@pytest.mark.parametrize("dtype", ["f32", "bf16"])
def test_losses_of_tied_weights(
    example: Any, sequence: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Embedding and output layer share a weight, and its main_grad."""
    tied = functools.partial(example.GPTModel, share_embeddings_and_output_weights=True)
    monkeypatch.setattr(example, "GPTModel", tied)
    check_losses(example, sequence, FUSED, dtype, 1e-5 if dtype == "f32" else 1e-3)


def check_losses(
    example: Any, sequence: bool, settings: dict[str, Any], dtype: str, digits: float
) -> None:
    """Compare with Megatron's own, in the digits that are promised, and schedules in all bits."""
    unfused = {key: value for key, value in settings.items() if key not in FUSED}
    expected = train(example, sequence, unfused, dtype)
    found = []
    for options in (
        {"schedule": "serial"},
        {"schedule": "pipelined", "parts": 3},
        {"schedule": "fused"},
        {"schedule": "auto"},
        {"defer_logits": True},
    ):
        with plait.megatron.enabled(**options):
            found.append(train(example, sequence, settings, dtype))
            report = plait.megatron.report()
        agree(report.served > 0, "nothing was served")
        agree(all(row.refusal is None for row in report.rows), str(report))
    deferred = found.pop()
    for losses in (found[0], deferred):
        off = max(abs(a - b) / a for a, b in zip(expected, losses, strict=True))
        agree(off < digits, f"{expected}, with plait {losses}")
    agree(expected[0] - expected[-1] > 0.1, f"nothing was learned: {expected}")
    agree(all(losses == found[0] for losses in found), f"schedules differ: {found}")


@pytest.mark.parametrize("sequence", [False, True], ids=["whole", "sequence"])
def test_deferred_logits_are_never_there(
    example: Any, sequence: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A loss in Megatron's place multiplies blocks; what else looks at logits gets them."""
    kept: list[torch.Tensor] = []
    theirs = DeferredLogits.whole

    def whole(logits: DeferredLogits) -> torch.Tensor:
        kept.append(theirs(logits))
        return kept[-1]

    monkeypatch.setattr(DeferredLogits, "whole", whole)
    with plait.megatron.enabled(defer_logits=True):
        train(example, sequence, {})
        agree(not kept, f"{len(kept)} products")
        options = argparse.Namespace(
            hidden=64, layers=1, tokens=TOKENS, dtype="f32", sequence_parallel=sequence
        )
        model = example.make_model(options)
        tokens = torch.arange(TOKENS)[None]
        later = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1)[None, None]
        found = model(tokens, tokens, later)
        agree(len(kept) == 1, f"{len(kept)} products")
        smoothed = vocab_parallel_cross_entropy(
            DeferredLogits.of(kept[0].new_ones(3, 2, 4), HEAD),
            torch.zeros(3, 2, dtype=torch.int64),
            0.1,
        )
        agree(smoothed.shape == (3, 2) and len(kept) == 2, f"{smoothed}")
    with plait.megatron.enabled():
        agree(torch.equal(found, model(tokens, tokens, later)), "logits")
    agree(vars(_VocabParallelCrossEntropy).get("apply") is None, "apply is left")
    with pytest.raises(plait.Error, match="defer_logits needs the engine native, not c10d"):
        plait.megatron.enable(defer_logits=True, engine="c10d")


def test_a_fused_loss_gets_logits(example: Any) -> None:
    fused = {"cross_entropy_loss_fusion": True}
    expected = train(example, False, fused)
    with plait.megatron.enabled(defer_logits=True):
        found = train(example, False, fused)
    off = max(abs(a - b) / a for a, b in zip(expected, found, strict=True))
    agree(off < 1e-5, f"{expected}, with plait {found}")


HEAD = Head(5, None, plait.torch.Options(), lambda x: x.new_ones(3, 2, 5), torch.ones, None)


def test_evaluation_between_steps(example: Any) -> None:
    """Every evaluation multiplies by the weights of the step before it."""
    options = argparse.Namespace(
        hidden=64, layers=1, tokens=TOKENS, dtype="f32", sequence_parallel=False
    )
    tokens = torch.randint(1024, (2, TOKENS + 1), generator=torch.Generator().manual_seed(1))
    positions = torch.arange(TOKENS).expand(2, -1)
    later = torch.triu(torch.ones(TOKENS, TOKENS, dtype=torch.bool), 1)[None, None]
    model = example.make_model(options)

    def loss() -> torch.Tensor:
        out: torch.Tensor = model(tokens[:, :-1], positions, later, labels=tokens[:, 1:]).mean()
        return out

    for _ in range(3):
        with torch.no_grad():
            expected = loss().item()
            with plait.megatron.enabled():
                found = [loss().item() for _ in range(3)]
        agree(max(abs(one - expected) for one in found) < 1e-5 * expected, f"{expected}, {found}")
        with plait.megatron.enabled():
            loss().backward()
        for parameter in model.parameters():
            parameter.data.add_(parameter.grad, alpha=-0.05)
            parameter.grad = None
