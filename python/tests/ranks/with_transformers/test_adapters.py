"""Adapters of peft: on plait's own layers, and on models that transformers has shared."""

import copy
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora import LoraLayer
from ranks import UNIT, Estimate, agree, known, product, shard, whole_and_parts
from torch import nn
from torch.distributed.tensor import DTensor
from torch.utils.checkpoint import checkpoint
from transformers.distributed import DistributedConfig

import plait
import plait.peft
import plait.torch as pt
import plait.transformers

TARGETS = ["q_proj", "o_proj", "up_proj", "down_proj"]
TOKENS = torch.arange(2, 26).reshape(2, 12)


def lora(**options: Any) -> LoraConfig:
    """Both factors are random: with a B of zeros, A would have no gradient."""
    chosen = {"r": 4, "lora_alpha": 8, "init_lora_weights": False, "target_modules": ["0"]}
    return LoraConfig(**{**chosen, **options})


def linear(inputs: int, outputs: int, dtype: torch.dtype = torch.float32) -> nn.Linear:
    torch.manual_seed(1)  # the same layer on every rank
    return nn.Linear(inputs, outputs, dtype=dtype)


def adapted(layer: nn.Module, **options: Any) -> Any:
    return get_peft_model(nn.Sequential(layer), plait.peft.register(lora(**options)))


def added(a: Estimate, b: Estimate, dtype: torch.dtype) -> Estimate:
    """Add two products, the second of which is rounded to the dtype before or after."""
    off = a.off + b.off
    sizes = a.exact.abs() + b.exact.abs() + off
    return Estimate(a.exact + b.exact, off + 2 * UNIT[dtype] * sizes)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
@pytest.mark.parametrize("kind", [pt.ColumnParallelLinear, pt.RowParallelLinear])
def test_results_and_gradients(kind: Any, dtype: torch.dtype) -> None:
    """peft keeps adapters in f32, and multiplies by 8 / 4, which is exact."""
    is_row = kind is pt.RowParallelLinear
    inputs, outputs = (25, 12) if is_row else (12, 25)
    whole = linear(inputs, outputs, dtype)
    model = adapted(kind.from_linear(whole))
    a, _ = whole_and_parts((4, inputs), torch.float32, seed=2)
    b, _ = whole_and_parts((outputs, 4), torch.float32, seed=3)
    at = "base_model.model.0.lora_{}.default.weight"
    model.load_state_dict({at.format("A"): a, at.format("B"): b}, strict=False)
    state = model.state_dict()
    agree(torch.equal(state[at.format("A")], a), "A is saved otherwise")
    agree(torch.equal(state[at.format("B")], b), "B is saved otherwise")

    x, _ = whole_and_parts((7, inputs), dtype, seed=4)
    grad, _ = whole_and_parts((7, outputs), dtype, seed=5)
    own = shard(inputs if is_row else outputs)
    every = slice(None)
    x_own, y_own = (own, every) if is_row else (every, own)
    given = x[:, x_own].clone().requires_grad_()
    found = model(given)
    found.backward(grad[:, y_own])

    f32 = torch.float32
    weight, bias = known(whole.weight.detach()), known(whole.bias.detach())
    inner = product(known(x), known(a.t()), f32)
    twice = known(2 * grad.float())
    y = added(
        product(known(x), weight.t(), dtype, bias=bias),
        product(inner, known(2 * b.t()), f32),
        dtype,
    )
    inner_grad = product(twice, known(b), f32)
    x_grad = added(product(known(grad), weight, dtype), product(inner_grad, known(a), f32), dtype)
    factors = model.base_model.model[0]
    for what, estimate, computed in (
        ("the result", y[:, y_own], found),
        ("x's gradient", x_grad[:, x_own], given.grad),
        (
            "A's gradient",
            product(inner_grad.t(), known(x), f32)[:, x_own],
            factors.lora_A["default"].weight.grad,
        ),
        (
            "B's gradient",
            product(twice.t(), inner, f32)[y_own],
            factors.lora_B["default"].weight.grad,
        ),
    ):
        assert computed is not None
        why_not = estimate.why_not(computed)
        agree(not why_not, f"{what} is {why_not}")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A saved model and adapters for it, in a folder that all ranks know."""
    where: list[Any] = [None]
    if dist.get_rank() == 0:
        where[0] = tmp_path_factory.mktemp("model")
        torch.manual_seed(3)
        config = transformers.LlamaConfig(
            hidden_size=64,
            intermediate_size=96,
            num_hidden_layers=2,
            num_attention_heads=4,
            vocab_size=128,
        )
        transformers.LlamaForCausalLM(config).save_pretrained(where[0])
        adapters = get_peft_model(whole_model(where[0]), lora(target_modules=TARGETS))
        adapters.save_pretrained(where[0] / "adapters")
    dist.broadcast_object_list(where)
    path: Path = where[0]
    return path


def whole_model(path: Path, dtype: torch.dtype = torch.float32) -> Any:
    return transformers.LlamaForCausalLM.from_pretrained(path, dtype=dtype)


def load(model: Any, path: Path, **options: Any) -> Any:
    return PeftModel.from_pretrained(model, path / "adapters", is_trainable=True, **options)


def by_parallelize(path: Path) -> Any:
    config = plait.peft.register(LoraConfig.from_pretrained(path / "adapters"))
    return load(pt.parallelize(whole_model(path)), path, config=config)


def by_transformers(path: Path) -> Any:
    how = DistributedConfig(tp_size=dist.get_world_size())
    with plait.transformers.enabled():
        model = transformers.LlamaForCausalLM.from_pretrained(path, distributed_config=how)
        return load(model, path)


WAYS = pytest.mark.parametrize("shared", [by_parallelize, by_transformers])
Shared = Callable[[Path], Any]


def backward(model: Any) -> float:
    loss = model(TOKENS, labels=TOKENS).loss
    loss.backward()
    return float(loss.detach())


def gathered(name: str, grad: torch.Tensor, whole: torch.Tensor) -> torch.Tensor:
    """Make a gradient whole: a rank may have its share of the outputs, or of the inputs."""
    if isinstance(grad, DTensor):
        return grad.full_tensor()
    if grad.shape == whole.shape:
        return grad
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, grad)
    return torch.cat(parts, 1 if ".lora_A." in name else 0)


def gradients(model: Any) -> dict[str, torch.Tensor]:
    return {name: one.grad for name, one in model.named_parameters() if one.grad is not None}


@WAYS
def test_gradients_of_a_model(shared: Shared, folder: Path) -> None:
    """Errors are up to four times those of one process in f32: ranks add up in another order."""
    precise, alone = (
        load(whole_model(folder).double(), folder).double(),
        load(whole_model(folder), folder),
    )
    exact_loss, loss = backward(precise), backward(alone)
    exact, single = gradients(precise), gradients(alone)
    model = shared(folder)
    found_loss = backward(model)
    found = gradients(model)
    agree(found.keys() == exact.keys(), f"{found.keys() ^ exact.keys()}")
    agree(len(found) == 2 * len(TARGETS) * 2, f"{len(found)} gradients")

    def off(name: str, one: torch.Tensor) -> float:
        return float((one.double() - exact[name]).norm() / exact[name].norm())

    allowed = 4 * max(off(name, one) for name, one in single.items())
    for name, grad in found.items():
        distance = off(name, gathered(name, grad, exact[name]))
        agree(distance <= allowed, f"{name}: {distance}, more than {allowed}")
    agree(
        abs(found_loss - exact_loss) <= 4 * abs(loss - exact_loss) + 2**-22 * loss, f"{found_loss}"
    )


def test_calls_of_transformers_adapters_are_served(folder: Path) -> None:
    model = by_transformers(folder)
    with torch.no_grad():
        model(TOKENS)
    report = plait.transformers.report()
    every = 2 * (7 + len(TARGETS)) + 1  # of two blocks, and the logits
    agree((report.served, report.refusals) == (every, ()), str(report))


def train(model: Any) -> list[float]:
    optimizer = torch.optim.SGD(
        [one for one in model.parameters() if one.requires_grad], lr=0.5, foreach=False
    )
    losses = []
    for _ in range(5):
        optimizer.zero_grad()
        losses.append(backward(model))
        optimizer.step()
    return losses


@WAYS
def test_losses_and_saved_adapters_are_those_of_one_process(
    shared: Shared, folder: Path, tmp_path: Path
) -> None:
    where = [tmp_path]
    dist.broadcast_object_list(where)
    alone, model = load(whole_model(folder), folder), shared(folder)
    expected, found = train(alone), train(model)
    assert expected[0] - expected[-1] > 0.05, f"nothing was learnt: {expected}"
    agree(
        all(abs(a - b) < 1e-5 * a for a, b in zip(expected, found, strict=True)),
        f"{expected}, with plait {found}",
    )
    model.save_pretrained(where[0], is_main_process=dist.get_rank() == 0)
    dist.barrier()
    again = PeftModel.from_pretrained(whole_model(folder), where[0])
    with torch.no_grad():
        logits, trained = again(TOKENS).logits, alone(TOKENS).logits
        agree(torch.allclose(logits, trained, atol=1e-4), "the saved adapters compute otherwise")
        agree(torch.allclose(model(TOKENS).logits, trained, atol=1e-4), "plait computes otherwise")


def test_first_values_are_those_of_one_process() -> None:
    """Each rank draws other numbers, and rank 0 draws those of one process."""
    torch.manual_seed(5)
    alone = get_peft_model(nn.Sequential(linear(12, 25)), lora(init_lora_weights=True)).state_dict()
    layer = pt.ColumnParallelLinear.from_linear(linear(12, 25))
    if dist.get_rank() > 0:
        torch.manual_seed(100 + dist.get_rank())
    found = adapted(layer, init_lora_weights=True).state_dict()
    for name, one in alone.items():
        if "lora_" in name:
            agree(torch.equal(found[name], one), f"{name} is another one")


def test_what_all_ranks_have_stays_the_same_on_them(folder: Path) -> None:
    """Each rank draws other numbers, but all drop the same values."""
    config = plait.peft.register(lora(target_modules=TARGETS, lora_dropout=0.3))
    model = get_peft_model(pt.parallelize(whole_model(folder)), config)
    again = copy.deepcopy(model)
    torch.manual_seed(7 + dist.get_rank())
    train(model)
    trained = 0
    for name, one in model.named_parameters():
        column = any(at in name for at in ("q_proj", "up_proj"))
        if f"lora_{'A' if column else 'B'}" in name:
            theirs = [torch.empty_like(one) for _ in range(dist.get_world_size())]
            dist.all_gather(theirs, one.detach())
            agree(all(torch.equal(one, other) for other in theirs), f"{name} differs")
            agree(not torch.equal(one, again.get_parameter(name)), f"{name} was not trained")
            trained += 1
    agree(trained == 2 * len(TARGETS), f"{trained} factors")


def test_dropout_in_a_checkpointed_block() -> None:
    model = adapted(pt.ColumnParallelLinear.from_linear(linear(12, 25)), lora_dropout=0.5)
    x = torch.ones(7, 12)
    found = []
    for run in (model, functools.partial(checkpoint, model, use_reentrant=False)):
        torch.manual_seed(7 + dist.get_rank())
        model.zero_grad()
        run(x).square().sum().backward()
        found.append([one.clone() for one in gradients(model).values()])
    agree(all(map(torch.equal, *found)), "the second forward has dropped other values")


def test_merged_adapters(folder: Path) -> None:
    model = by_parallelize(folder).eval()
    with torch.no_grad():
        expected = model(TOKENS).logits
        with model.disable_adapter():
            agree(not torch.allclose(model(TOKENS).logits, expected, atol=1e-2), "they add nothing")
        found = model.merge_and_unload()(TOKENS).logits
    agree(torch.allclose(found, expected, atol=1e-4), f"off by {(found - expected).abs().max()}")


def test_quantised_layers_generate_with_adapters(folder: Path) -> None:
    model = by_parallelize(folder)
    for module in model.modules():
        if isinstance(module, LoraLayer):
            module.get_base_layer().quantize("s8:group=32")
    with torch.no_grad():
        expected = load(whole_model(folder), folder)(TOKENS).logits
        off = (model(TOKENS).logits - expected).abs().max()
    agree(bool(off < 0.05 * expected.abs().max()), f"off by {off}")
    with pytest.raises(plait.Error, match="a quantised layer has no weight"):
        model.merge_adapter()


@pytest.mark.parametrize(
    ("layer", "options", "sentence"),
    [
        ({"quantized": "s8"}, {}, "0 is quantised"),
        ({"sequence_parallel": True}, {}, "0 has sequence_parallel"),
        ({"skip_bias_add": True}, {}, "0 has skip_bias_add"),
        ({}, {"fan_in_fan_out": True}, "fan_in_fan_out is True"),
        ({}, {"init_lora_weights": "pissa"}, "init_lora_weights='pissa'"),
        ({}, {"use_dora": True}, "variant combination.*use_dora"),
    ],
    ids=str,
)
def test_is_refused(layer: dict[str, Any], options: dict[str, Any], sentence: str) -> None:
    quantized = layer.pop("quantized", None)
    column = pt.ColumnParallelLinear.from_linear(linear(12, 25), **layer)
    column.quantize(quantized)
    with pytest.raises((plait.Error, ValueError), match=sentence):
        adapted(column, **options)


def test_takes_no_other_configuration() -> None:
    other: Any = {"r": 4}
    with pytest.raises(plait.Error, match="config is of type dict; it can be a LoraConfig"):
        plait.peft.register(other)
