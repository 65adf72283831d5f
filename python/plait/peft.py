"""Adapters of peft (LoRA) for plait's column- and row-parallel layers.

    import plait.peft
    from peft import LoraConfig, get_peft_model

    plait.torch.parallelize(model, {"layers.*.up": "colwise", "layers.*.down": "rowwise"})
    config = LoraConfig(target_modules=["up", "down"])
    model = get_peft_model(model, plait.peft.register(config))

An adapter is two small factors, A and B. The ranks share one of them as they share the layer's
weight: B's outputs of a column layer, A's inputs of a row layer. The other is the same on every
rank. Adapters are saved whole, in peft's own files, which fit any number of ranks and one process.

Models of transformers that are loaded with a tensor-parallel plan need none of this: their layers
stay nn.Linear, which peft knows.
"""

from typing import Any

import torch
import torch.distributed as dist
from torch import nn

from plait import _native, _package
from plait.errors import refuse
from plait.torch.context import group_place
from plait.torch.layers import ColumnParallelLinear, RowParallelLinear, share

with _package.needs_extra("peft"):
    from peft import LoraConfig
    from peft.tuners import lora

__all__ = ["register"]

_Layer = ColumnParallelLinear | RowParallelLinear


def register(config: LoraConfig) -> LoraConfig:
    """Let a configuration of LoRA adapt plait's layers too, and return it.

    Every rank makes the same calls of peft with it, those that save adapters too. The first values
    of an adapter are those of the group's rank 0. A file is loaded in this way:

        config = plait.peft.register(LoraConfig.from_pretrained(folder))
        model = PeftModel.from_pretrained(model, folder, config=config)
    """
    if not isinstance(config, LoraConfig):
        refuse("register", f"config is of type {type(config).__name__}; it can be a LoraConfig")
    config._register_custom_module({ColumnParallelLinear: _Linear, RowParallelLinear: _Linear})
    return config


class _Linear(lora.Linear):
    """A layer of plait's with its adapters."""

    def _get_in_out_features(self, module: _Layer) -> tuple[int, int]:
        """Return the sizes of the whole layer, which peft then makes a whole adapter for."""
        _, world = group_place(module.group, "LoRA")
        is_row = isinstance(module, RowParallelLinear)
        own = module.in_features if is_row else module.out_features
        counts = [own] * world
        if world > 1:
            dist.all_gather_object(counts, own, group=module.group)
        whole = sum(counts)
        balanced = [_native.balanced_shard(whole, rank, world).count for rank in range(world)]
        if counts != balanced:
            refuse("LoRA", f"ranks have shares of {counts}; they can be {balanced}")
        return (whole, module.out_features) if is_row else (module.in_features, whole)

    @property
    def group(self) -> dist.ProcessGroup | None:
        """The group of the layer, for what parallelize() puts around some layers."""
        group: dist.ProcessGroup | None = self.get_base_layer().group
        return group

    @property
    def lora_variants(self) -> dict[tuple[str, ...], Any]:
        """Know no variant, such as DoRA: they need the whole weight. peft refuses them then."""
        return {(): None}

    def update_layer(
        self, adapter_name: str, r: int, lora_alpha: int, config: LoraConfig, **kwargs: Any
    ) -> None:
        """Make an adapter: peft makes all of it on every rank, and the rank keeps its share."""
        base: _Layer = self.get_base_layer()
        if (refusal := _refusal(base, config)) is not None:
            refuse("LoRA", f"{kwargs.get('target_name') or 'the layer'} {refusal}")
        super().update_layer(adapter_name, r, lora_alpha=lora_alpha, config=config, **kwargs)
        _, world = group_place(base.group, "LoRA")
        if world == 1:
            return
        for factor in (self.lora_A[adapter_name], self.lora_B[adapter_name]):
            for parameter in factor.parameters():
                if not parameter.is_meta:
                    dist.broadcast(parameter.data, group=base.group, group_src=0)
        is_row = isinstance(base, RowParallelLinear)
        factors = self.lora_A if is_row else self.lora_B
        factors[adapter_name] = _shared(factors[adapter_name], base)
        if config.lora_dropout > 0 and not is_row:
            self.lora_dropout[adapter_name] = _Dropout(config.lora_dropout, base)

    def merge(self, *args: Any, **kwargs: Any) -> None:
        """Add adapters to this rank's share of the weight."""
        if self.get_base_layer().weight is None:
            refuse("LoRA", "a quantised layer has no weight that an adapter can be merged into")
        super().merge(*args, **kwargs)


def _refusal(base: _Layer, config: LoraConfig) -> str | None:
    """Say why a layer can't have such an adapter; None if it can."""
    if base.weight is None:
        return "is quantised; call quantize() of its base layer after adapters were added"
    if base.sequence_parallel:
        return "has sequence_parallel: a rank would have an adapter's gradient of its own rows only"
    if base.skip_bias_add:
        return "has skip_bias_add: its result is a pair"
    if config.fan_in_fan_out:
        return "has a weight [outputs, inputs]; fan_in_fan_out is True"
    if config.init_lora_weights not in (True, False, "gaussian"):
        return (
            f"can't be read whole, as init_lora_weights={config.init_lora_weights!r} does; "
            "it can be True, False or 'gaussian'"
        )
    return None


def _shared(factor: nn.Linear, base: _Layer) -> _Layer:
    """Return this rank's share of a factor, which is whole in state dicts."""
    layer = base.from_linear(factor, group=base.group, options=base.options)
    layer.register_state_dict_post_hook(_gather)  # type: ignore[no-untyped-call]
    layer.register_load_state_dict_pre_hook(_keep_share)  # type: ignore[no-untyped-call]
    return layer


def _gather(layer: _Layer, state: dict[str, Any], prefix: str, _: Any) -> None:
    for name, _own in layer.named_parameters():
        parts: list[Any] = [None] * dist.get_world_size(layer.group)
        dist.all_gather_object(parts, state[prefix + name].detach(), group=layer.group)
        state[prefix + name] = torch.cat(parts, layer._shared)


def _keep_share(layer: _Layer, state: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, _own in layer.named_parameters():
        if (whole := state.get(prefix + name)) is not None:
            state[prefix + name] = share(whole, layer._shared, layer.group, "LoRA")


class _Dropout(nn.Module):
    """Drops the same values on every rank, so that A, which all ranks have, stays the same."""

    def __init__(self, p: float, base: _Layer) -> None:
        super().__init__()
        self.p = p
        self.base = (base,)  # in a tuple, which makes it no part of this module

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if not self.training:
            return x
        # Drawn as torch's dropout draws, so that a checkpointed block draws the same once more.
        seed = torch.randint(2**62, (1,))
        dist.broadcast(seed, group=self.base[0].group, group_src=0)
        generator = torch.Generator(x.device).manual_seed(int(seed))
        kept = torch.empty_like(x).bernoulli_(1 - self.p, generator=generator)
        return x * kept / (1 - self.p)
