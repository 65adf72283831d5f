"""Models whose ranks share rows between products: the same values, and fewer bytes for norms."""

import functools
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from models import COMMON, distance, gradients, saved_model, shared, whole
from ranks import agree
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed.mixin import DistributedMixin

import plait
import plait.torch
import plait.transformers
from plait.transformers import sequence
from plait.transformers.service import Service

GROUPED = COMMON | {"num_attention_heads": 8, "num_key_value_heads": 4}
GEMMA = COMMON | {"head_dim": 16, "query_pre_attn_scalar": 16, "sliding_window": 8}
CONFIGS: dict[str, Callable[[], Any]] = {
    "Arcee": lambda: transformers.ArceeConfig(**COMMON),
    "Exaone4": lambda: transformers.Exaone4Config(**COMMON, sliding_window=8),
    "Gemma": lambda: transformers.GemmaConfig(**COMMON, head_dim=16),
    "Gemma2": lambda: transformers.Gemma2Config(**GEMMA),
    "Gemma3": lambda: transformers.Gemma3TextConfig(**GEMMA),
    "Granite": lambda: transformers.GraniteConfig(**COMMON, residual_multiplier=0.5),
    "Helium": lambda: transformers.HeliumConfig(**COMMON, head_dim=16),
    "Llama": lambda: transformers.LlamaConfig(**GROUPED, attention_bias=True, mlp_bias=True),
    "Ministral": lambda: transformers.MinistralConfig(**COMMON, head_dim=16, sliding_window=8),
    "Ministral3": lambda: transformers.Ministral3Config(**COMMON, head_dim=16),
    "Mistral": lambda: transformers.MistralConfig(**COMMON, sliding_window=8),
    "Qwen2": lambda: transformers.Qwen2Config(**COMMON),
    "Qwen3": lambda: transformers.Qwen3Config(**COMMON, head_dim=16),
    "SmolLM3": lambda: transformers.SmolLM3Config(**COMMON),
}
SCHEDULES: list[dict[str, Any]] = [
    {"schedule": "serial"},
    {"schedule": "pipelined", "parts": 3},
    {"schedule": "fused"},
    {"schedule": "auto"},
]
# Two sequences, the first of which is padded on the left.
PADDED = torch.arange(2, 28).reshape(2, 13)
PADDED[0, :4] = 0
MASK = (PADDED != 0).long()


@pytest.fixture(autouse=True)
def few_rows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Share any number of rows: tests have few."""
    monkeypatch.setattr(sequence, "FEWEST_ROWS", 1)


@pytest.fixture(scope="module")
def llama(tmp_path_factory: Any) -> Path:
    return saved_model(CONFIGS["Llama"](), tmp_path_factory)


def forwards() -> dict[str | None, int]:
    return dict(plait.transformers.report().forwards)


def logits(model: Any, tokens: torch.Tensor, **inputs: Any) -> torch.Tensor:
    with torch.no_grad():
        found: torch.Tensor = model(tokens, **inputs).logits
    return found


def test_every_known_class_has_a_model() -> None:
    assert {f"{name}DecoderLayer" for name in CONFIGS} == sequence.LAYERS


@pytest.mark.parametrize("name", CONFIGS)
def test_values_and_gradients(name: str, tmp_path_factory: Any) -> None:
    """One process in f32 is as far from f64 as f32 makes it; ranks round as often.

    They add up in another order, as without sequence parallelism: four times the worst of one
    process is allowed.
    """
    path = saved_model(CONFIGS[name](), tmp_path_factory)
    # Without a fused attention, a row of padding alone has no values.
    mask = torch.ones_like(MASK) if name == "Gemma2" else MASK
    _, exact = gradients(whole(path, torch.float64), PADDED, attention_mask=mask)
    loss, alone = gradients(whole(path), PADDED, attention_mask=mask)
    with plait.transformers.enabled(sequence_parallel=True, schedule="fused"):
        model = shared(path)
        found_loss, found = gradients(model, PADDED, attention_mask=mask)
        agree(forwards() == {None: 1}, str(plait.transformers.report()))
        tokens = {"attention_mask": mask, "max_new_tokens": 6, "do_sample": False}
        with torch.no_grad():
            generated = model.generate(PADDED, **tokens)
            expected = whole(path).generate(PADDED, **tokens)
    agree(torch.equal(generated, expected), f"{generated} is not {expected}")
    agree(abs(found_loss - loss) < 1e-5, f"the loss is {found_loss}, not {loss}")
    allowed = 4 * max(distance(alone, exact).values())
    too_far = {at: off for at, off in distance(found, exact).items() if not off <= allowed}
    agree(not too_far, f"more than {allowed}: {too_far}")


@pytest.mark.parametrize("tokens", [1, 2, 3, 7])
def test_any_number_of_rows(llama: Path, tokens: int) -> None:
    """Ranks without rows, and uneven shares: the same bits in any schedule.

    They are other bits than those of all-reduces: torch's sum over a row depends on how many rows
    there are.
    """
    given = torch.arange(2, 2 + tokens)[None]
    exact, alone = logits(whole(llama, torch.float64), given), logits(whole(llama), given)
    found = []
    for options in SCHEDULES:
        with plait.transformers.enabled(**options, sequence_parallel=True):
            found.append(logits(shared(llama), given))
            agree(forwards() == {None: 1}, str(plait.transformers.report()))
    agree(all(torch.equal(one, found[0]) for one in found), "schedules differ")
    off, allowed = (found[0] - exact).norm(), 4 * (alone - exact).norm()
    agree(bool(off <= allowed), f"{off} is more than {allowed}")


def train(model: Any, **inputs: Any) -> list[float]:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    losses = []
    for _ in range(3):
        optimizer.zero_grad()
        for rows in (slice(0, 1), slice(1, 2)):  # gradients accumulate
            loss = model(PADDED[rows], labels=PADDED[rows], attention_mask=MASK[rows]).loss
            loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_losses(llama: Path, dtype: torch.dtype) -> None:
    """Five digits are equal in f32, three in bf16, and all bits in any schedule."""
    with plait.transformers.enabled(schedule="serial"):
        expected = train(shared(llama, dtype=dtype))
    assert expected[0] - expected[-1] > 0.1, f"nothing was learned: {expected}"
    found = []
    for options in SCHEDULES:
        with plait.transformers.enabled(**options, sequence_parallel=True):
            found.append(train(shared(llama, dtype=dtype)))
            assert forwards() == {None: 6}
    off = max(abs(a - b) / a for a, b in zip(expected, found[0], strict=True))
    digits = 1e-5 if dtype is torch.float32 else 1e-3
    agree(off < digits, f"{expected}, with sequence parallelism {found[0]}")
    agree(all(losses == found[0] for losses in found), f"schedules differ: {found}")


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers(llama: Path, reentrant: bool) -> None:
    """A layer is computed again in backward, after a forward of another shape."""
    found = []
    for checkpoints in (False, True):
        with plait.transformers.enabled(sequence_parallel=True):
            model = shared(llama).train()
            if checkpoints:
                model.activation_checkpointing_enable({"use_reentrant": reentrant})
                model.enable_input_require_grads()
            loss = model(PADDED, labels=PADDED, attention_mask=MASK).loss
            logits(model, PADDED[:1, :5])
            loss.backward()
            found.append([one.grad.full_tensor() for one in weights(model)])
            agree(forwards() == {None: 2}, str(plait.transformers.report()))
    agree(all(map(torch.equal, *found)), "gradients differ")


def weights(model: Any) -> list[Any]:
    return [one.weight for one in model.modules() if isinstance(one, torch.nn.Linear)]


def test_rows_are_shared_from_a_number_on(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sequence, "FEWEST_ROWS", 20)
    tokens = {"attention_mask": MASK, "max_new_tokens": 6, "do_sample": False}
    plait.torch.forget_report()
    with plait.transformers.enabled(sequence_parallel=True, schedule="fused"):
        with torch.no_grad():
            found = shared(llama).generate(PADDED, **tokens)
            expected = whole(llama).generate(PADDED, **tokens)
        agree(forwards() == {None: 1, "its rows are fewer than 20": 5}, str(forwards()))
        report = plait.transformers.report()
    agree(torch.equal(found, expected), f"{found} is not {expected}")
    agree("1 forward shared the rows" in str(report), str(report))
    calls: Counter[tuple[str, int]] = Counter()
    for row in plait.torch.report().rows:
        if row.operator != "linear_top":  # the head's choice of a token
            calls[row.operator, row.m] += row.calls
    two_layers = {("all_gather_matmul", 26): 4, ("matmul_reduce_scatter", 26): 4}
    agree(calls == two_layers | {("matmul_all_reduce", 2): 20}, str(calls))


def test_weights_are_packed_and_changes_seen(llama: Path) -> None:
    """Packing weights changes no bit, and a weight that was written to is packed again."""
    with plait.transformers.enabled(sequence_parallel=True, fixed_weights=True):
        model = shared(llama)
        first = logits(model, PADDED)
        agree(all(torch.equal(logits(model, PADDED), first) for _ in range(10)), "calls differ")
        with torch.no_grad():
            model.model.layers[1].self_attn.v_proj.weight.mul_(0.5)
        found = logits(model, PADDED)
        expected = whole(llama)
        with torch.no_grad():
            expected.model.layers[1].self_attn.v_proj.weight.mul_(0.5)
        off = (found - logits(expected, PADDED)).abs().max().item()
        agree(not torch.equal(found, first) and off < 1e-4, f"it is {off} from the changed model")
        model.bfloat16()  # moves all weights
        off = (logits(model, PADDED) - found).abs().max().item()
        agree(off < 0.05, f"bfloat16 is {off} from float32")


def test_saves_what_it_has_loaded(llama: Path, tmp_path: Path) -> None:
    saved: list[Any] = [tmp_path]
    dist.broadcast_object_list(saved)
    with plait.transformers.enabled(sequence_parallel=True):
        model = shared(llama)
        logits(model, PADDED)
        model.save_pretrained(saved[0])
    dist.barrier()
    first, again = whole(llama).state_dict(), whole(saved[0]).state_dict()
    agree(all(torch.equal(first[name], again[name]) for name in first), "weights differ")


def replace_linear(model: Any) -> None:
    layer = model.model.layers[1]
    layer.mlp.up_proj = torch.nn.Sequential(layer.mlp.up_proj)


def replace_forward(model: Any) -> None:
    norm = model.model.layers[1].input_layernorm
    norm.forward = functools.partial(norm.forward)


def hook(model: Any) -> None:
    model.model.layers[1].register_forward_hook(lambda *_: None)


CHANGES: dict[str, tuple[Callable[[Any], object], str]] = {
    "linear": (replace_linear, "modules of its layers were replaced since they were loaded"),
    "forward": (replace_forward, "the forward of LlamaRMSNorm was replaced since it was loaded"),
    "hook": (hook, "a hook of LlamaDecoderLayer would see this rank's rows alone"),
    "config": (
        lambda model: setattr(model.config, "output_hidden_states", True),
        "hidden states of all rows are an output of the call",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_changed_models_keep_their_all_reduces(
    llama: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    apply, sentence = CHANGES[change]
    with plait.transformers.enabled(schedule="serial"):
        expected = logits(shared(llama), PADDED, attention_mask=MASK)
    with plait.transformers.enabled(schedule="serial", sequence_parallel=True):
        model = shared(llama)
        apply(model)
        for _ in range(2):
            found = logits(model, PADDED, attention_mask=MASK)
        agree(forwards() == {sentence: 2}, str(forwards()))
    agree(torch.equal(found, expected), "values differ")
    said = [one.getMessage() for one in caplog.records if one.name == "plait.transformers"]
    expected_words = [f"a forward keeps its all-reduces: {sentence}"]
    agree(said == expected_words * (dist.get_rank() == 0), str(said))


def test_hidden_states_have_all_rows(llama: Path) -> None:
    """Its hooks stay, and do nothing to later calls."""
    with plait.transformers.enabled(sequence_parallel=True):
        model = shared(llama)
        with torch.no_grad():
            out = model(PADDED, output_hidden_states=True)
        assert [tuple(one.shape) for one in out.hidden_states] == [(2, 13, 64)] * 3
        logits(model, PADDED)
        agree(forwards()[None] == 1, str(forwards()))
        with torch.no_grad():
            first, *_ = model.model(PADDED, return_dict=False)
        assert first.shape == (2, 13, 64)


def test_another_dtype_keeps_its_all_reduces(llama: Path) -> None:
    with plait.transformers.enabled(sequence_parallel=True):
        model = shared(llama).double()
        off = (logits(model, PADDED) - logits(whole(llama, torch.float64), PADDED)).abs().max()
        agree(forwards() == {"its input is torch.float64": 1}, str(forwards()))
        agree(off.item() < 1e-6, f"it is off by {off}")


@pytest.mark.parametrize(
    ("config", "sentence"),
    [
        (
            lambda: transformers.MixtralConfig(**COMMON, num_local_experts=4),
            "MixtralDecoderLayer: it is not known to work row by row outside of its attention",
        ),
        (
            lambda: transformers.CohereConfig(**COMMON),
            "CohereDecoderLayer: it is not known to work row by row outside of its attention",
        ),
    ],
    ids=["experts", "parallel blocks"],
)
def test_other_layers_keep_their_all_reduces(
    config: Callable[[], Any],
    sentence: str,
    tmp_path_factory: Any,
    caplog: pytest.LogCaptureFixture,
) -> None:
    path = saved_model(config(), tmp_path_factory)
    expected = logits(whole(path), PADDED)
    with plait.transformers.enabled(sequence_parallel=True):
        off = (logits(shared(path), PADDED) - expected).abs().max().item()
        report = plait.transformers.report()
    agree(off < 1e-5, f"it is off by {off}")
    agree((report.layers, report.forwards) == (((sentence, 2),), ()), str(report))
    said = [one.getMessage() for one in caplog.records if "keep their" in one.getMessage()]
    expected_words = [f"layers keep their all-reduces: {sentence}"]
    agree(said == expected_words * (dist.get_rank() == 0), str(said))


def test_other_styles_keep_their_all_reduces(llama: Path) -> None:
    plan = {"model.layers.*.mlp.down_proj": "rowwise_split_input"}
    plan |= {f"model.layers.*.mlp.{one}_proj": "colwise_gather_output" for one in ("gate", "up")}
    with plait.transformers.enabled(sequence_parallel=True):
        shared(llama, plan)
        report = plait.transformers.report()
    sentence = "LlamaDecoderLayer: LlamaMLP has linear layers of other styles"
    agree(report.layers == ((sentence, 2),), str(report))


def drop_bias(model: Any) -> None:
    model.model.layers[1].self_attn.k_proj.bias = None


def drop_norm(model: Any) -> None:
    del model.model.norm


@pytest.mark.parametrize(
    ("change", "config", "why"),
    [
        (id, {"dp_size": 2}, "dp_size is 2, and rows are shared with tensor parallelism alone"),
        (drop_bias, {}, "some linear layers of LlamaAttention have a bias, some have none"),
        (drop_norm, {}, "the model has layers of other classes too, or no norm after them"),
    ],
    ids=["data parallel", "a bias", "no norm"],
)
def test_other_models_keep_their_all_reduces(
    llama: Path, change: Callable[[Any], object], config: dict[str, int], why: str
) -> None:
    with plait.transformers.enabled():
        model = shared(llama)
    change(model)
    service = Service(plait.torch.Options(), None)
    mesh = init_device_mesh("cpu", (dist.get_world_size(),))
    sequence.share_rows(model, SimpleNamespace(**config), mesh, service)
    agree(service.layers == {f"LlamaDecoderLayer: {why}": 2}, str(service.layers))


def test_another_wire(llama: Path) -> None:
    expected = logits(whole(llama), PADDED)
    with plait.transformers.enabled(sequence_parallel=True, wire="bf16"):
        off = (logits(shared(llama), PADDED) - expected).abs().max().item()
        agree(forwards() == {None: 1}, str(forwards()))
    agree(off < 0.05, f"it is off by {off}")


def test_autocast(llama: Path) -> None:
    expected = logits(whole(llama), PADDED)
    with plait.transformers.enabled(sequence_parallel=True), torch.autocast("cpu", torch.bfloat16):
        off = (logits(shared(llama), PADDED) - expected).abs().max().item()
        agree(forwards() == {None: 1}, str(forwards()))
    agree(off < 0.05, f"it is off by {off}")


def test_compiled(llama: Path) -> None:
    with plait.transformers.enabled(sequence_parallel=True), torch.inference_mode():
        model = shared(llama)
        expected = logits(model, PADDED)
        found = logits(torch.compile(model, backend="eager"), PADDED)
        agree(forwards() == {None: 2}, str(forwards()))
    agree(torch.equal(found, expected), "values differ")


def test_enable_is_undone() -> None:
    before = vars(DistributedMixin)["maybe_distribute_model"]
    plait.transformers.enable(sequence_parallel=True)
    plait.transformers.enable(sequence_parallel=True)
    with pytest.raises(plait.Error, match="other options"):
        plait.transformers.enable()
    assert vars(DistributedMixin)["maybe_distribute_model"] is not before
    plait.transformers.disable()
    assert vars(DistributedMixin)["maybe_distribute_model"] is before
    with pytest.raises(plait.Error, match="weight='s8' can't be combined with sequence_parallel"):
        plait.transformers.enable(weight="s8", sequence_parallel=True)


def test_an_unknown_version_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patched:
        other = classmethod(lambda cls, model: model)
        patched.setattr(DistributedMixin, "maybe_distribute_model", other)
        with pytest.raises(plait.Error, match=r"maybe_distribute_model takes \(cls, model\)"):
            plait.transformers.enable(sequence_parallel=True)
        plait.transformers.enable()
        plait.transformers.disable()
