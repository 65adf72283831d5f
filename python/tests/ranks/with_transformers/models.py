"""Small models: whole in one process, shared over the ranks, and their gradients."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import transformers
from torch.distributed.tensor import DTensor
from transformers.distributed import DistributedConfig

COMMON = {
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 4,
    "vocab_size": 128,
    "max_position_embeddings": 64,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
}
TOKENS = torch.arange(2, 26).reshape(2, 12)
LENGTH = 24  # of the sequences that models learn to count from


def saved_model(config: Any, tmp_path_factory: Any, teach: Callable[[Any], object] = id) -> Path:
    """Save a model with random weights, or a taught one, in a folder that all ranks know."""
    where: list[Any] = [None]
    if dist.get_rank() == 0:
        where[0] = tmp_path_factory.mktemp("model")
        torch.manual_seed(3)
        model = transformers.AutoModelForCausalLM.from_config(config)
        teach(model)
        model.save_pretrained(where[0])
    dist.broadcast_object_list(where)
    path: Path = where[0]
    return path


def learn_to_count(model: Any, steps: int | None = None) -> list[float]:
    """Return the losses of these steps, or of as many as the model needs.

    With random weights two tokens are often closer than another order of sums rounds.
    """
    starts = model.config.vocab_size - LENGTH
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2, foreach=False)
    generator = torch.Generator().manual_seed(4)
    losses: list[float] = []
    while len(losses) < (steps or 300):
        tokens = torch.randint(2, starts, (8, 1), generator=generator) + torch.arange(LENGTH)
        optimizer.zero_grad()
        loss = model(tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if steps is None and losses[-1] < 0.05:
            return losses
    assert steps is not None, f"it has not learnt to count: {losses[-1]}"
    return losses


def whole(path: Path, dtype: torch.dtype = torch.float32) -> Any:
    # Experts one by one: torch's grouped product takes no f64.
    how = {"experts_implementation": "eager"} if dtype is torch.float64 else {}
    return transformers.AutoModelForCausalLM.from_pretrained(path, dtype=dtype, **how)


def shared(path: Path, plan: Any = "auto", dtype: torch.dtype = torch.float32) -> Any:
    return transformers.AutoModelForCausalLM.from_pretrained(
        path,
        dtype=dtype,
        distributed_config=DistributedConfig(tp_size=dist.get_world_size(), tp_plan=plan),
    )


Gradients = dict[str, torch.Tensor]


def gradients(model: Any, tokens: torch.Tensor, **inputs: Any) -> tuple[float, Gradients]:
    loss = model(tokens, labels=tokens, **inputs).loss
    loss.backward()
    found = {}
    for name, parameter in model.named_parameters():
        if parameter.grad is not None:
            grad = parameter.grad
            found[name] = (grad.full_tensor() if isinstance(grad, DTensor) else grad).double()
    return loss.item(), found


def distance(found: Gradients, exact: Gradients) -> dict[str, float]:
    """How far each gradient is from the exact one, as a share of it."""
    assert found.keys() == exact.keys()
    return {
        name: ((found[name] - one).norm() / one.norm().clamp(min=1e-30)).item()
        for name, one in exact.items()
    }


def train(model: Any) -> list[float]:
    """Return the losses of four steps."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, foreach=False)
    losses = []
    for _ in range(4):
        optimizer.zero_grad()
        loss = model(TOKENS, labels=TOKENS).loss
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses
