"""Memory of a rank that generates: plait needs hardly more than transformers alone."""

import ctypes
import gc
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from models import COMMON, saved_model, shared
from ranks import agree

import plait.transformers

STEPS = 100
# 110 MB of weights, half of them on each of two ranks, and few layers, whose calls take long.
SIZES = {
    **COMMON,
    "hidden_size": 768,
    "intermediate_size": 2048,
    "num_hidden_layers": 3,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "vocab_size": 4096,
    "max_position_embeddings": 2 * STEPS,
}
MOST = 1.02


@pytest.fixture(scope="module")
def llama(tmp_path_factory: Any) -> Path:
    return saved_model(transformers.LlamaConfig(**SIZES), tmp_path_factory)


def resident_after(path: Path, steps: int) -> int:
    """Load the model, generate, and return the process's resident bytes while the model lives.

    Memory that the allocator merely keeps, such as that of loading, is given back first.
    """
    model = shared(path)
    prompt = torch.arange(2, 7)[None]
    tokens = model.generate(prompt, max_new_tokens=steps, do_sample=False, eos_token_id=None)
    agree(tokens.shape[1] == prompt.shape[1] + steps, f"{list(tokens.shape)} tokens")
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text(encoding="ascii")
    found = dict(line.split(":", 1) for line in status.splitlines())
    return int(found["VmRSS"].split()[0]) * 1024


def test_a_hundred_steps_take_at_most_a_fiftieth_more(llama: Path) -> None:
    """The plain model is transformers' own tensor parallelism, in the same processes just before.

    So both have the same share of the weights, the same messages of torch.distributed, and all that
    imports and first calls leave behind: new processes would spend most of the test on imports. The
    order can't help plait, because what the plain model leaves counts for plait too. The bound is
    less than a fifth of the weights on two ranks; a packed copy of all exceeds it.
    """
    plain = resident_after(llama, STEPS)
    with plait.transformers.enabled():
        served = resident_after(llama, STEPS)
    agree(served <= MOST * plain, f"{served} bytes, and {plain} without plait")
    with plait.transformers.enabled(fixed_weights=True):
        packed = resident_after(llama, 2)
    agree(packed > MOST * plain, f"{packed} bytes with packed copies, and {plain} without plait")
