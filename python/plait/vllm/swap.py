"""Registers plait's layers as replacements of vLLM's own, and removes them again."""

import inspect
import logging
from typing import Any

import plait

_log = logging.getLogger("plait.vllm")

# The methods that plait replaces or overrides, in the versions that the tests run.
_KNOWN = {
    "RowParallelLinear.forward": ("self", "input_"),
    "UnquantizedLinearMethod.process_weights_after_loading": ("self", "layer"),
    "UnquantizedLinearMethod.apply": ("self", "layer", "x", "bias"),
    "UnquantizedFusedMoEMethod.process_weights_after_loading": ("self", "layer"),
    "UnquantizedFusedMoEMethod.apply": (
        "self",
        "layer",
        "x",
        "topk_weights",
        "topk_ids",
        "shared_experts",
        "shared_experts_input",
    ),
    "CpuCommunicator.all_gatherv": ("self", "input_", "dim", "sizes"),
    "CpuCommunicator.reduce_scatterv": ("self", "input_", "dim", "sizes"),
    "MoERunner._select_forward": ("self",),
    "MoERunner._maybe_dispatch": ("self", "hidden_states", "router_logits"),
    "MoERunner._maybe_combine": ("self", "shared_output", "hidden_states"),
    "topk_topp_sampler.apply_top_k_top_p": ("logits", "k", "p"),
    "LogitsProcessor._gather_logits": ("self", "logits"),
    "LogitsProcessor._get_logits": (
        "self",
        "hidden_states",
        "lm_head",
        "embedding_bias",
        "skip_gather",
    ),
}

# vLLM finds a kept graph by the model's configuration and by all values of
# envs.environment_variables. This entry, which is no variable of plait's, separates graphs with
# plait's layers from graphs with vLLM's own. It also names the weights that are left to vLLM
# because its product is faster: another start may find other ones.
_FACTOR = "PLAIT_LAYERS"

_theirs: dict[tuple[type, str], Any] = {}  # methods that are replaced; None: it had none itself


def _registry() -> dict[str, Any]:
    from vllm.model_executor import custom_op

    registry: dict[str, Any] = custom_op.op_registry_oot
    return registry


def _factors() -> dict[str, Any]:
    from vllm import envs

    factors: dict[str, Any] = getattr(envs, "environment_variables", {})
    return factors


def _mismatch() -> str | None:
    """Compare all seams before the first layer is registered: enabled whole, or not at all."""
    from vllm import envs
    from vllm.distributed.device_communicators import cpu_communicator
    from vllm.model_executor.layers import fused_moe, linear, logits_processor
    from vllm.model_executor.layers.fused_moe.runner import moe_runner
    from vllm.v1.sample import ops
    from vllm.v1.sample.ops import topk_topp_sampler  # noqa: F401, an attribute of ops

    if not _factors() or not hasattr(envs, "compile_factors"):
        return "vllm.envs has no environment_variables or no compile_factors"

    for name, known in _KNOWN.items():
        owner, method = name.split(".")
        modules = (linear, fused_moe, moe_runner, cpu_communicator, logits_processor, ops)
        place = next((one for one in modules if hasattr(one, owner)), None)
        if place is None:
            return f"{owner} is missing"
        found = tuple(inspect.signature(getattr(getattr(place, owner), method)).parameters)
        if found != known:
            return f"{name} takes ({', '.join(found)}), and plait knows ({', '.join(known)})"
    method = fused_moe.UnquantizedFusedMoEMethod
    if not isinstance(inspect.getattr_static(method, "supports_internal_mk", None), property):
        return "UnquantizedFusedMoEMethod has no property supports_internal_mk"
    return None


def _replacements() -> tuple[type, ...]:
    from plait.vllm.experts import UnquantizedFusedMoEMethod
    from plait.vllm.layers import LAYERS

    return (*LAYERS, UnquantizedFusedMoEMethod)


def _methods() -> dict[tuple[type, str], Any]:
    """Return plait's methods for classes of vLLM, by class and name."""
    from vllm.distributed.device_communicators.cpu_communicator import CpuCommunicator
    from vllm.model_executor.layers.fused_moe.runner.moe_runner import MoERunner

    from plait.vllm import communicator, experts

    lacking = {
        (CpuCommunicator, one.__name__): one
        for one in (communicator.all_gatherv, communicator.reduce_scatterv)
        if one.__name__ not in vars(CpuCommunicator)  # as it may be in a later version
    }
    return lacking | {(MoERunner, "_select_forward"): experts.select_forward}


def _layers_of_graphs() -> str:
    from plait.vllm.compare import left

    return ", ".join([plait.__version__, *left()])


def enable() -> None:
    """Let vLLM make plait's layers from now on, in this process.

    vLLM's plugin calls it in each process, with the environment's options. The same call again does
    nothing. Where vLLM computes on another device than the CPU, nothing is replaced.
    """
    from vllm.platforms import current_platform

    if not current_platform.is_cpu():
        _log.info("vLLM computes on %s, and plait on the CPU", current_platform.device_type)
        return
    if (mismatch := _mismatch()) is not None:
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.vllm.enable: this version of vLLM is unknown: {mismatch}; nothing was replaced",
        )
    registry = _registry()
    ours = {layer.__name__: layer for layer in _replacements()}
    if taken := [name for name in ours if registry.get(name, ours[name]) is not ours[name]]:
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.vllm.enable: another plugin replaces {', '.join(taken)}; nothing was replaced",
        )
    plait.load_settings()  # what is wrong in the environment is refused now, on all ranks
    for name, layer in ours.items():
        if name not in registry:
            registry[name] = layer
    if not _theirs:
        for (owner, name), method in _methods().items():
            _theirs[owner, name] = vars(owner).get(name)
            setattr(owner, name, method)
    _factors()[_FACTOR] = _layers_of_graphs
    _log.info("tensor-parallel layers of vLLM are served by plait")


def disable() -> None:
    """Let vLLM make its own layers again. Those that were made stay as they are.

    A model that has such layers and compiles graphs must have run once before this call: otherwise
    vLLM keeps its graphs as if they had vLLM's own layers.
    """
    for (owner, name), method in _theirs.items():
        if method is None:
            delattr(owner, name)
        else:
            setattr(owner, name, method)
    _theirs.clear()
    registry = _registry()
    for layer in _replacements():
        if registry.get(layer.__name__) is layer:
            del registry[layer.__name__]
    _factors().pop(_FACTOR, None)
