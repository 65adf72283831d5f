"""Megatron's command-line options on a host without CUDA: turned off, or refused with a reason.

An option that Megatron sets by default and that is only an optimisation is turned off. An option
that asks for what only a GPU has is refused.
"""

import argparse
import importlib
import importlib.util
import logging
import os
import sys
from collections.abc import Callable
from typing import Any

from megatron.core.tensor_parallel import layers

import plait

_log = logging.getLogger("plait.megatron")

# Argument, its value on a CPU, and the option that says the same.
OFF: tuple[tuple[str, Any, str], ...] = (
    ("transformer_impl", "local", "--transformer-impl local"),
    ("masked_softmax_fusion", False, "--no-masked-softmax-fusion"),
    ("bias_gelu_fusion", False, "--no-bias-gelu-fusion"),
    ("bias_swiglu_fusion", False, "--no-bias-swiglu-fusion"),
    ("bias_dropout_fusion", False, "--no-bias-dropout-fusion"),
    ("apply_rope_fusion", False, "--no-rope-fusion"),
    ("no_persist_layer_norm", True, "--no-persist-layer-norm"),
)

_ENGINE = "it needs Transformer Engine; leave it out"
_GRAPHS = "it needs CUDA; leave it out"
_NCCL = "it is a setting of NCCL; leave it out"

# Argument, its values that need a GPU (None: every value that counts as true), option and reason.
REFUSED: tuple[tuple[str, tuple[Any, ...] | None, str, str], ...] = (
    ("fp8", None, "--fp8-format", "it needs a GPU; use --bf16"),
    ("fp4", None, "--fp4-format", "it needs a GPU; use --bf16"),
    ("use_flash_attn", None, "--use-flash-attn", "it needs a GPU; leave it out"),
    ("attention_backend", ("flash", "fused"), "--attention-backend", "it needs a GPU; use unfused"),
    ("cuda_graph_impl", ("local", "transformer_engine"), "--cuda-graph-impl", _GRAPHS),
    ("enable_cuda_graph", None, "--enable-cuda-graph", _GRAPHS),
    ("external_cuda_graph", None, "--external-cuda-graph", _GRAPHS),
    ("te_rng_tracker", None, "--te-rng-tracker", _ENGINE),
    ("apply_layernorm_1p", None, "--apply-layernorm-1p", _ENGINE),
    ("use_precision_aware_optimizer", None, "--use-precision-aware-optimizer", _ENGINE),
    ("moe_permute_fusion", None, "--moe-permute-fusion", _ENGINE),
    ("moe_router_fusion", None, "--moe-router-fusion", _ENGINE),
    ("moe_grouped_gemm", None, "--moe-grouped-gemm", _ENGINE),
    ("cross_entropy_fusion_impl", ("te",), "--cross-entropy-fusion-impl te", _ENGINE),
    ("use_megatron_fsdp", None, "--use-megatron-fsdp", "it needs CUDA; leave it out"),
    ("moe_token_dispatcher_type", ("flex",), "--moe-token-dispatcher-type flex", "use alltoall"),
    ("nccl_ub", None, "--nccl-ub", _NCCL),
    ("use_sharp", None, "--use-sharp", _NCCL),
    ("nccl_communicator_config_path", None, "--nccl-communicator-config-path", _NCCL),
    ("high_priority_stream_groups", None, "--high-priority-stream-groups", _NCCL),
    ("optimizer_cpu_offload", None, "--optimizer-cpu-offload", "all is on the CPU; leave it out"),
    ("batch_invariant_mode", None, "--batch-invariant-mode", "it needs Triton; leave it out"),
    ("record_memory_history", None, "--record-memory-history", _GRAPHS),
)


class Refused(plait.Error):
    """An option needs a GPU."""


def adjust(args: argparse.Namespace, given: list[str]) -> list[str]:
    """Turn off what needs a GPU, and return the options that say so; raise Refused for the rest.

    `given` is the command line, since Transformer Engine is Megatron's default.
    """
    _refuse(args, given)
    turned = []
    for name, value, option in OFF:
        if getattr(args, name, value) != value:
            setattr(args, name, value)
            turned.append(option)
    if getattr(args, "gradient_accumulation_fusion", False) and not vars(layers).get(
        "_grad_accum_fusion_available"
    ):
        args.gradient_accumulation_fusion = False
        turned.append("--no-gradient-accumulation-fusion")
    return turned


def _refuse(args: argparse.Namespace, given: list[str]) -> None:
    asked = any(one.split("=")[0] == "--transformer-impl" for one in given)
    if asked and args.transformer_impl == "transformer_engine":
        raise _refused("--transformer-impl transformer_engine", "it needs a GPU; use local")
    if getattr(args, "context_parallel_size", 1) > 1:
        raise _refused("--context-parallel-size", _ENGINE)
    if getattr(args, "profile", False) and not getattr(args, "use_pytorch_profiler", False):
        raise _refused("--profile", "it needs a GPU; add --use-pytorch-profiler")
    saves = getattr(args, "save", None) and getattr(args, "ckpt_format", "") == "torch_dist"
    if saves and importlib.util.find_spec("triton") is None:
        # It saves from a process that starts anew and imports the script, without stand-ins.
        raise _refused("--ckpt-format torch_dist", "its writers import Triton; use torch")
    ranks = getattr(args, "tensor_model_parallel_size", 1)
    tokens = getattr(args, "seq_length", None) or 0
    if getattr(args, "sequence_parallel", False) and tokens % ranks != 0:
        why = f"{tokens} tokens can't be shared equally by {ranks} tensor-parallel ranks"
        raise Refused(plait.Code.invalid_argument, f"plait.megatron: --sequence-parallel: {why}")
    for name, values, option, reason in REFUSED:
        value = getattr(args, name, None)
        value = getattr(value, "name", value)  # of an enumeration
        if value in values if values is not None else value:
            raise _refused(option, reason)


def _refused(option: str, reason: str) -> Refused:
    return Refused(
        plait.Code.invalid_argument,
        f"plait.megatron: no CUDA device is here, and {option} is on: {reason}",
    )


def stand_in() -> bool:
    """Adjust the options that Megatron's training scripts parse; false: there are no scripts."""
    try:
        arguments = importlib.import_module("megatron.training.arguments")
        initialize = importlib.import_module("megatron.training.initialize")
    except ImportError:  # a program that needs them will say the same
        return False
    validate: Callable[..., Any] = arguments.validate_args

    def validate_args(args: argparse.Namespace, *rest: Any, **kwargs: Any) -> Any:
        if (turned := adjust(args, sys.argv)) and os.environ.get("RANK", "0") == "0":
            _log.warning(
                "no CUDA device is here: plait turns off what needs one, as these options do: %s",
                " ".join(turned),
            )
        return validate(args, *rest, **kwargs)

    for module in (arguments, initialize):
        vars(module)["validate_args"] = validate_args
    # Its kernels are compiled by nvcc. Without the fusions above, none is called.
    if hasattr(initialize, "fused_kernels"):  # the newest Megatron has none
        vars(initialize.fused_kernels)["load"] = lambda args: None
    # Warming up its compiled functions draws random numbers, as many as TP leaves to a rank. There
    # is one generator, so that the same seed would give each TP weights of its own.
    vars(initialize)["_warmup_jit_function"] = lambda: None
    _leave_out_compiling()
    return True


def _leave_out_compiling() -> None:
    """Use the dataset helpers that the package brings, which it has no Makefile to compile."""
    if importlib.util.find_spec("megatron.core.datasets.helpers_cpp") is not None:
        utils = importlib.import_module("megatron.core.datasets.utils")
        vars(utils)["compile_helpers"] = lambda: None
