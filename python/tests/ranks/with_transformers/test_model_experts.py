"""Models of experts that learn to count: logits, tokens and training of one rank, bit for bit."""

import logging
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from models import COMMON, TOKENS, gradients, learn_to_count, saved_model, train
from ranks import agree
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from transformers.distributed import DistributedConfig
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES
from transformers.models.mixtral.modeling_mixtral import MixtralExperts

import plait
import plait.torch
import plait.transformers
from plait.transformers.experts import UNASKED, activation_of

EXPERTS = 4
FEW_NUMBERS = {**COMMON, "vocab_size": 40}
MOE = {**FEW_NUMBERS, "num_experts_per_tok": 2, "moe_intermediate_size": 40}
LATENT = {
    **MOE,
    "n_routed_experts": EXPERTS,
    "n_shared_experts": 1,
    "first_k_dense_replace": 1,
    "n_group": 2,
    "topk_group": 1,
    "kv_lora_rank": 16,
    "q_lora_rank": 24,
    "qk_nope_head_dim": 16,
    "qk_rope_head_dim": 8,
    "v_head_dim": 16,
    "head_dim": 8,
}
MODELS: dict[str, Any] = {
    "mixtral": lambda: transformers.MixtralConfig(
        **FEW_NUMBERS, num_local_experts=EXPERTS, num_experts_per_tok=2
    ),
    "qwen3": lambda: transformers.Qwen3MoeConfig(**MOE, num_experts=EXPERTS, head_dim=16),
    "olmoe": lambda: transformers.OlmoeConfig(
        **FEW_NUMBERS, num_experts=EXPERTS, num_experts_per_tok=2
    ),
    "deepseek v2": lambda: transformers.DeepseekV2Config(**LATENT),
    "deepseek v3": lambda: transformers.DeepseekV3Config(**LATENT),
    "glm4": lambda: transformers.Glm4MoeConfig(
        **MOE,
        n_routed_experts=EXPERTS,
        n_shared_experts=1,
        first_k_dense_replace=1,
        n_group=1,
        topk_group=1,
        head_dim=16,
    ),
    "gpt-oss": lambda: transformers.GptOssConfig(
        **FEW_NUMBERS, num_local_experts=EXPERTS, num_experts_per_tok=2, head_dim=16
    ),
}


class Learnt:
    """A saved model that one rank has taught to count with plait's experts."""

    def __init__(self, config: Any, tmp_path_factory: Any) -> None:
        self.random = saved_model(config, tmp_path_factory)
        config._experts_implementation = "plait"
        losses: list[Any] = [[]]
        self.folder = saved_model(
            config, tmp_path_factory, lambda model: losses[0].extend(learn_to_count(model))
        )
        dist.broadcast_object_list(losses)
        self.losses: list[float] = losses[0]


@pytest.fixture(scope="module")
def known() -> dict[str, Learnt]:
    return {}


@pytest.fixture(params=MODELS, ids=str)
def learnt(
    request: pytest.FixtureRequest, known: dict[str, Learnt], tmp_path_factory: Any
) -> Iterator[Learnt]:
    name = request.param
    if name not in known:
        known[name] = Learnt(MODELS[name](), tmp_path_factory)
    yield known[name]
    dist.barrier()


@pytest.fixture
def folder(learnt: Learnt) -> Path:
    return learnt.folder


def load(path: Path, **how: Any) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **how)


def shared(path: Path, implementation: str = "plait") -> Any:
    """Experts alone are shared: everything else is computed by every rank alike."""
    world = dist.get_world_size()
    config: Any = transformers.AutoConfig.from_pretrained(path)
    names = ["lm_head", "model.embed_tokens"]
    names += [f"model.{name}" for name in config.base_model_tp_plan]
    how = DistributedConfig(
        tp_size=world,
        tp_plan=dict.fromkeys(names, "replicate"),
        ep_size=world,
        ep_implementation=implementation,
    )
    return load(path, distributed_config=how)


COUNTED = TOKENS[:, :1] + torch.arange(12 + 6)


def generate(model: Any) -> torch.Tensor:
    with torch.no_grad():
        tokens: torch.Tensor = model.generate(TOKENS, max_new_tokens=6, do_sample=False)
    return tokens


def test_logits_and_tokens_are_those_of_one_rank(folder: Path) -> None:
    with torch.no_grad():
        alone = load(folder, experts_implementation="plait")
        expected, tokens = alone(TOKENS).logits, generate(alone)
        theirs = load(folder)(TOKENS).logits
        model = shared(folder)
        agree(torch.equal(model(TOKENS).logits, expected), "logits differ")
        found = generate(model)
    agree(torch.equal(tokens, COUNTED), f"one rank doesn't count: {tokens.tolist()}")
    agree(torch.equal(found, COUNTED), f"the ranks don't count: {found.tolist()}")
    agree(torch.allclose(expected, theirs, rtol=1e-4, atol=1e-5), "transformers' are others")


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["f32", "bf16"])
def test_counts_where_everything_is_shared(folder: Path, dtype: torch.dtype) -> None:
    """Ranks share linear layers too, as in a program that only calls enable()."""
    world = dist.get_world_size()
    with plait.transformers.enabled():
        model = transformers.AutoModelForCausalLM.from_pretrained(
            folder,
            dtype=dtype,
            distributed_config=DistributedConfig(tp_size=world, ep_size=world),
        )
        found = generate(model)
        report = plait.transformers.report()
    agree(torch.equal(found, COUNTED), f"the ranks don't count: {found.tolist()}")
    [(refusal, calls)] = report.experts
    agree(refusal is None and calls > 0 and report.served > 0, str(report))


def test_gradients_are_those_of_one_rank(folder: Path) -> None:
    """Each rank sends a slice of the batch: gradients of what all have alike are gathered."""
    unknown = TOKENS.flip(1)
    loss, expected = gradients(load(folder, experts_implementation="plait"), unknown)
    found_loss, found = gradients(shared(folder), unknown)
    agree(found_loss == loss and found.keys() == expected.keys(), f"{found_loss}, not {loss}")
    for name, one in expected.items():
        agree(torch.equal(found[name], one), f"the gradient of {name} differs")


def test_learns_to_count(learnt: Learnt) -> None:
    """Steps have the losses of one rank, and teach as much."""
    model = shared(learnt.random)
    losses = learn_to_count(model, len(learnt.losses))
    agree(losses == learnt.losses, f"losses are {losses}, not {learnt.losses}")
    agree(losses[0] > 2, f"it could count before: {losses}")
    found = generate(model)
    agree(torch.equal(found, COUNTED), f"the ranks don't count: {found.tolist()}")


@pytest.mark.parametrize("learnt", ["qwen3", "gpt-oss"], indirect=True)
def test_losses_are_those_of_transformers_exchange(learnt: Learnt) -> None:
    found, theirs = (train(shared(learnt.random, how)) for how in ("plait", "all_to_all"))
    agree(found[0] - found[-1] > 0.1, f"nothing was learned: {found}")
    off = max(abs(a - b) / b for a, b in zip(found, theirs, strict=True))
    agree(off < 1e-5, f"{found}, with transformers' exchange {theirs}")


def test_experts_of_one_process_are_in_the_graph() -> None:
    config = transformers.MixtralConfig(hidden_size=24, intermediate_size=16, num_local_experts=4)
    config._experts_implementation = "plait"
    torch.manual_seed(6)
    experts: Any = MixtralExperts(config)
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.2)
    given = torch.randn(5, 24), torch.randint(0, 4, (5, 2)), torch.rand(5, 2)
    compiled: Any = torch.compile(experts, backend="aot_eager", fullgraph=True)
    with torch.no_grad():
        agree(torch.equal(compiled(*given), experts(*given)), "values differ")


def test_ranks_with_batches_of_their_own() -> None:
    """Data parallelism gives each rank other rows, here in unequal numbers."""
    world, rank = dist.get_world_size(), dist.get_rank()
    mesh = init_device_mesh("cpu", (world, 1), mesh_dim_names=("ep", "tp"))
    config = transformers.MixtralConfig(
        hidden_size=24, intermediate_size=16, num_local_experts=2 * world
    )
    config._experts_implementation = "plait"
    torch.manual_seed(6)
    experts: Any = MixtralExperts(config)
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.2)
    rows = [torch.randn(5 + 3 * one, 24) for one in range(world)]
    ids = [torch.randint(0, 2 * world, (5 + 3 * one, 2)) for one in range(world)]
    weights = [torch.rand(5 + 3 * one, 2) for one in range(world)]
    whole = experts(torch.cat(rows), torch.cat(ids), torch.cat(weights))
    whole.sum().backward()
    exact = [one.grad.clone() for one in experts.parameters()]
    experts.zero_grad()
    for name in ("gate_up_proj", "down_proj"):
        ALL_PARALLEL_STYLES["grouped_gemm"].shard_param(experts, name, mesh["ep"])
    style: Any = ALL_PARALLEL_STYLES["ep_dispatch_experts"]
    style.install_forward(
        experts, ep_mesh=mesh["ep"], tp_mesh=mesh["tp"], ep_implementation="plait"
    )
    out = experts(rows[rank], ids[rank], weights[rank])
    agree(torch.equal(out, whole.split([len(one) for one in rows])[rank]), "results differ")
    out.sum().backward()
    for one, wanted in zip(experts.parameters(), exact, strict=True):
        mine = one.grad.to_local()
        agree(torch.equal(mine, wanted[2 * rank : 2 * rank + 2]), "gradients differ")


@pytest.mark.parametrize("learnt", ["qwen3"], indirect=True)
def test_the_report_has_experts_without_enable(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("plait.transformers.swap._last", None)
    UNASKED.experts.clear()
    with torch.no_grad():
        shared(folder)(TOKENS)
    report = plait.transformers.report()
    agree(report.experts == ((None, 2),), str(report.experts))
    agree("experts of" in report.operators, report.operators)


@pytest.mark.parametrize("learnt", ["qwen3"], indirect=True)
def test_enable_chooses_it(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    """With packed weights too, whose changes are seen."""
    with caplog.at_level(logging.INFO), torch.no_grad():
        with plait.transformers.enabled(fixed_weights=True):
            model, left = shared(folder, "auto"), shared(folder, "all_to_all")
            alone = load(folder, experts_implementation="plait")
            for factor in (1.0, 0.5):
                for one in (model, left, alone):
                    one.model.layers[1].mlp.experts.down_proj.mul_(factor)
                expected = alone(TOKENS).logits
                agree(torch.equal(model(TOKENS).logits, expected), f"times {factor} it differs")
            left(TOKENS)
            report = plait.transformers.report()
    agree(report.experts == ((None, 4),), str(report.experts))
    sentence = "Qwen3MoeExperts: ep_implementation='all_to_all' is asked for"
    agree(dict(report.modules).get(sentence) == 2, str(report.modules))
    agree("experts: 4 calls served by plait" in str(report), str(report))


@pytest.mark.parametrize("learnt", ["mixtral"], indirect=True)
def test_calls_are_left_with_a_sentence(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    with plait.transformers.enabled(), torch.no_grad():
        model = shared(folder, "auto")
        with torch.autocast("cpu", torch.bfloat16):
            model(TOKENS)
        report = plait.transformers.report()
    agree(report.experts == (("autocast is on", 2),), str(report.experts))
    if dist.get_rank() == 0:
        assert "experts are left to transformers: autocast is on" in caplog.text


def experts_of_one_rank() -> tuple[Any, tuple[torch.Tensor, ...]]:
    """Experts, and their operands."""
    config = transformers.MixtralConfig(hidden_size=8, intermediate_size=8, num_local_experts=4)
    config._experts_implementation = "plait"
    experts: Any = MixtralExperts(config)
    for parameter in experts.parameters():
        nn.init.normal_(parameter, std=0.2)
    ids = torch.tensor([[0, 1], [3, 2], [1, 1]])
    return experts, (torch.randn(3, 8), ids, torch.rand(3, 2))


def test_experts_of_one_rank_in_a_forked_child() -> None:
    experts, operands = experts_of_one_rank()
    with torch.no_grad():
        expected = experts(*operands).numpy().tobytes()
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            found = b"no result"
            try:
                found = experts(*operands).numpy().tobytes()
            except plait.Error as error:
                found = str(error).encode()
            finally:
                os.write(write, found)
                os._exit(0)
    os.waitpid(child, 0)
    found = os.read(read, 1000)
    agree(found == expected, str(found))


def test_operands_of_one_rank_are_checked() -> None:
    experts, (hidden, ids, weights) = experts_of_one_rank()
    agree(torch.equal(experts(hidden, ids.int(), weights), experts(hidden, ids, weights)), "int32")
    with pytest.raises(plait.Error, match=r"top_k_weights is \[3, 1\], and top_k_index \[3, 2\]$"):
        experts(hidden, ids, weights[:, :1])
    experts.down_proj = nn.Parameter(experts.down_proj.detach()[:, :4])
    with pytest.raises(plait.Error, match=r"down is \[4, 4, 8\], not \[4, 8, 8\]$"):
        experts(hidden, ids, weights)


def test_activations_that_are_not_served() -> None:
    config = transformers.MixtralConfig(hidden_size=8, intermediate_size=8, num_local_experts=4)
    experts: Any = MixtralExperts(config)
    assert activation_of(experts) == plait.torch.Swiglu()
    experts.act_fn = nn.GELU()
    assert activation_of(experts) == "its activation is GELU, not SiLU"
    experts.has_post_expert_norm = True
    assert activation_of(experts) == "it normalises the results of experts"
    assert activation_of(nn.Linear(2, 2)) == "it has no gate"
