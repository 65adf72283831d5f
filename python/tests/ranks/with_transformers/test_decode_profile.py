"""Profiles of tokens: parts that add up, and nothing that is left behind."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
import transformers
from models import COMMON, saved_model, shared, whole
from ranks import agree
from transformers.distributed import DistributedConfig

import plait
import plait.torch
import plait.transformers
from plait.torch import recording
from plait.transformers.experts import PlaitEP
from plait.transformers.shared import JoinedColumns

PROMPT = torch.arange(2, 7)[None]


@pytest.fixture(scope="module")
def llama(tmp_path_factory: Any) -> Path:
    return saved_model(transformers.LlamaConfig(**COMMON), tmp_path_factory)


def forwards(model: Any) -> list[Any]:
    return [vars(one).get("forward") for one in model.modules()]


def generated(model: Any) -> list[int]:
    tokens: torch.Tensor = model.generate(PROMPT, max_new_tokens=12, do_sample=False)
    return tokens.tolist()


@pytest.fixture(scope="module")
def moe(tmp_path_factory: Any) -> Path:
    config = transformers.Qwen3MoeConfig(
        **COMMON, num_experts=4, num_experts_per_tok=2, moe_intermediate_size=40, head_dim=16
    )
    return saved_model(config, tmp_path_factory)


# Two layers of four column and three row layers less what is joined, and the last product.
@pytest.mark.parametrize(("sequence_parallel", "products"), [(False, 15), (True, 9)])
def test_parts_add_up(llama: Path, sequence_parallel: bool, products: int) -> None:
    with plait.transformers.enabled(sequence_parallel=sequence_parallel):
        model = shared(llama)
        tokens, before = generated(model), forwards(model)
        joined = JoinedColumns.multiply
        found = plait.transformers.profile(model, PROMPT, new_tokens=12)
        agree(forwards(model) == before and JoinedColumns.multiply is joined, "it left something")
        agree(not recording.is_on() and plait.torch.communicator().trace is None, "it records")
        agree(generated(model) == tokens, "the model generates other tokens")
    agree((found.tokens, found.products) == (12, products), str(found))
    seconds = {part.what: part.seconds for part in found.parts}
    agree(abs(sum(seconds.values()) - found.seconds) < 1e-9, f"{found}")
    agree(all(one >= 0 for one in seconds.values()), str(found))
    for what in ("transformers and torch", "plait in Python", "product"):
        agree(seconds[what] > 0, str(found))
    if dist.get_world_size() > 1:
        agree(seconds["copies and sums"] + seconds["waiting for other ranks"] > 0, str(found))
    text = str(found)
    agree(text.startswith("a token takes ") and f", {products} products each" in text, text)


# Two layers, whose attention has four products if ranks share it, and the last product.
@pytest.mark.parametrize(("shares_attention", "products"), [(False, 0), (True, 9)])
def test_experts_are_not_left_to_torch(moe: Path, shares_attention: bool, products: int) -> None:
    world = dist.get_world_size()
    how = DistributedConfig(tp_size=world, ep_size=world)
    if not shares_attention:
        config: Any = transformers.AutoConfig.from_pretrained(moe)
        names = [f"model.{name}" for name in config.base_model_tp_plan]
        how.tp_plan = dict.fromkeys([*names, "lm_head", "model.embed_tokens"], "replicate")
    with plait.transformers.enabled():
        model = transformers.AutoModelForCausalLM.from_pretrained(moe, distributed_config=how)
        multiply = PlaitEP.multiply
        found = plait.transformers.profile(model, PROMPT, new_tokens=12)
        agree(PlaitEP.multiply is multiply, "it left something")
    agree((found.experts, found.products) == (2, products), str(found))
    seconds = {part.what: part.seconds for part in found.parts}
    agree(abs(sum(seconds.values()) - found.seconds) < 1e-9, str(found))
    agree(all(one >= 0 for one in seconds.values()), str(found))
    agree(seconds["product"] > 0, str(found))
    if world > 1:
        agree(seconds["copies and sums"] + seconds["waiting for other ranks"] > 0, str(found))
    agree(" and 2 calls of experts each\n" in str(found), str(found))
    agree(" us a call\n" in str(found), str(found))


def test_what_is_refused(llama: Path) -> None:
    with pytest.raises(plait.Error, match=r"no layer of the model is served by plait"):
        plait.transformers.profile(whole(llama), PROMPT)
    with plait.transformers.enabled():
        model = shared(llama)
    with pytest.raises(plait.Error, match=r"new_tokens is 3; it takes at least 4"):
        plait.transformers.profile(model, PROMPT, new_tokens=3)
    with pytest.raises(plait.Error, match=r"tokens has 64 rows, and at most 63"):
        plait.transformers.profile(model, PROMPT.expand(64, -1))
    with plait.torch.profile(), pytest.raises(plait.Error, match=r"records already"):
        plait.transformers.profile(model, PROMPT)


def test_an_error_ends_it(llama: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with plait.transformers.enabled():
        model = shared(llama)
    before, count = forwards(model), [0]
    lm_head = model.lm_head.forward

    def failing(*operands: Any) -> Any:
        count[0] += 1
        if count[0] == 10:
            raise ZeroDivisionError
        return lm_head(*operands)

    vars(model.lm_head)["forward"] = failing
    with pytest.raises(ZeroDivisionError):
        plait.transformers.profile(model, PROMPT)
    vars(model.lm_head)["forward"] = lm_head
    agree(forwards(model) == before and not recording.is_on(), "it left something")
