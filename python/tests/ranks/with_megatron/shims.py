"""Replacements for the parts of Megatron-Core that need a GPU."""

import contextlib

import torch


def apply() -> None:
    """Let Megatron allocate on the CPU and fork no generator of CUDA's."""
    torch.cuda.current_device = lambda: "cpu"  # type: ignore[assignment, return-value]
    from megatron.core.tensor_parallel import random

    random.CudaRNGStatesTracker.fork = lambda self, *_, **__: contextlib.nullcontext()
    random._get_cuda_rng_state = lambda *_, **__: torch.get_rng_state()
    random._set_cuda_rng_state = lambda *_, **__: None
