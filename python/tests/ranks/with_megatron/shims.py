"""Replacements for the parts of Megatron-Core that need a GPU."""

import contextlib


def apply() -> None:
    """Let Megatron run on the CPU and fork no generator: these tests make none."""
    import plait.megatron

    plait.megatron.stand_in_for_cuda()
    from megatron.core.tensor_parallel import random

    random.CudaRNGStatesTracker.fork = lambda self, *_, **__: contextlib.nullcontext()
