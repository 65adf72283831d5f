"""Stand-ins in Megatron-Core, which refuses hosts without CUDA or NVIDIA's packages.

Everything is replaced in the place where it is looked up at a call, whatever the order of imports.
"""

import importlib.util
import logging
import sys
import types
from typing import Any

import torch
import torch.distributed as dist
from megatron.core import utils
from megatron.core.tensor_parallel import random
from megatron.core.transformer import torch_norm
from megatron.core.transformer.moe import moe_utils, token_dispatcher
from torch.distributed import distributed_c10d
from torch.utils.data import dataloader

from plait.megatron.host.cuda import get_state, set_state

BACKEND = "gloo"

_KERNELS = "megatron.core.transformer.custom_layers.batch_invariant_kernels"


def stand_in() -> None:
    """Replace what Megatron-Core refuses, or looks for on a GPU alone."""
    if importlib.util.find_spec("transformer_engine") is None:
        # A missing package has no version, with which Megatron's comparisons raise.
        utils._te_version = utils.PkgVersion("0")
    _leave_out_triton()
    # Megatron-Core's own layers of experts compare it with None, but import it from there.
    vars(moe_utils).setdefault("te_general_gemm", None)
    vars(token_dispatcher)["maybe_move_tensor_to_cpu"] = _to_numpy
    vars(random).update(_get_cuda_rng_state=get_state, _set_cuda_rng_state=set_state)
    # There is one generator, so the CPU's changes too where Megatron draws for CUDA.
    logging.getLogger(random.__name__).addFilter(lambda line: "RNG state changed" not in line.msg)
    torch_norm.WrappedTorchNorm.__new__ = _norm
    _replace_backend()
    _give_loaders_a_generator()
    # Megatron compiles small functions for kernels of a GPU. A CPU gains nothing from them.
    torch.compiler.set_stance("force_eager")


def _leave_out_triton() -> None:
    """Stand in for the module of Triton's kernels, which training imports and does not call.

    Triton takes a gigabyte, and compiles for GPUs.
    """
    if importlib.util.find_spec("triton") is None:
        module: Any = types.ModuleType(_KERNELS)
        module.is_batch_invariant_mode_enabled = lambda: False
        module.enable_batch_invariant_mode = lambda: None  # options.py refuses it
        sys.modules[_KERNELS] = module


def _to_numpy(value: Any, as_numpy: bool = False, record_stream: bool = False) -> Any:
    """Make numbers of tokens what collectives take; Megatron's own does nothing on a CPU."""
    return value.numpy() if as_numpy and torch.is_tensor(value) else value


def _norm(cls: type, config: Any, hidden_size: int, eps: float = 1e-5, **_: object) -> Any:
    """Make torch's norm with sequence parallelism too: the step adds up its gradients by a mark."""
    if config.layernorm_zero_centered_gamma:
        raise AssertionError(
            "--apply-layernorm-1p needs a norm of Transformer Engine; leave it out"
        )
    kind = {
        "LayerNorm": torch.nn.LayerNorm,
        "RMSNorm": torch.nn.RMSNorm,
        "L2Norm": torch_norm.L2Norm,
    }[config.normalization]
    norm = kind(hidden_size, eps=eps).to(config.params_dtype)
    for parameter in norm.parameters():
        parameter.sequence_parallel = config.sequence_parallel
    return norm


def _give_loaders_a_generator() -> None:
    """Let loaders of data draw their seeds from a generator of their own.

    Beside a GPU, dropout doesn't draw from the CPU's: a run that resumes has its states again, and
    makes a loader after that.
    """
    begin = dataloader._BaseDataLoaderIter.__init__
    own: torch.Generator | None = None

    def __init__(self: Any, loader: Any) -> None:
        nonlocal own
        loader.pin_memory = False  # it would warn that nothing can copy from pinned memory
        before = torch.get_rng_state()
        own = own or torch.Generator().manual_seed(torch.initial_seed())
        torch.set_rng_state(own.get_state())
        try:
            begin(self, loader)
            own.set_state(torch.get_rng_state())
        finally:
            torch.set_rng_state(before)

    iterator: Any = dataloader._BaseDataLoaderIter
    iterator.__init__ = __init__


def _replace_backend() -> None:
    """Let groups that are asked for with NCCL be groups of the CPU's backend."""
    init, new = distributed_c10d.init_process_group, distributed_c10d.new_group

    def init_process_group(backend: str | None = None, *args: Any, **kwargs: Any) -> None:
        kwargs.pop("device_id", None)
        init(_backend(backend or BACKEND), *args, **kwargs)

    def new_group(*args: Any, **kwargs: Any) -> Any:
        if "backend" in kwargs:
            kwargs["backend"] = _backend(kwargs["backend"])
        return new(*args[:2], *map(_backend, args[2:3]), *args[3:], **kwargs)

    for module in (distributed_c10d, dist):
        vars(module).update(init_process_group=init_process_group, new_group=new_group)


def _backend(name: Any) -> Any:
    return BACKEND if isinstance(name, str) and "nccl" in name else name
