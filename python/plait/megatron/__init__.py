"""Megatron-Core's tensor-parallel linear layers with their communication hidden.

    import plait.megatron

    plait.megatron.enable()
    pretrain(...)                       # Megatron's own program, unchanged
    print(plait.megatron.report())

`enable()` replaces `forward` of `ColumnParallelLinear` and `RowParallelLinear`, on the classes
themselves: layers that were made before are served too, subclasses that call `super().forward()`
are, and so is the output layer. A call that plait does not serve is made by Megatron's own code,
and one sentence a class and a reason is logged.

Two more things of Megatron change. Where APEX is missing, layers can be made with
`gradient_accumulation_fusion` while plait is enabled, and torch stands in for APEX's extension in
those that are left to Megatron, after `disable()` too. And calls of Transformer Engine's layers are
counted: plait leaves them as they are.

Without an edit: `torchrun -m plait.megatron pretrain_gpt.py ARGS...`, which also runs on hosts
without CUDA (`stand_in_for_cuda()`). For programs that write specs there are both layers as
classes, and `SpecProvider`.
"""

from typing import Any

from plait import _package

with _package.needs_extra("megatron"):
    from plait.megatron.arguments import add_arguments, enable_from_arguments
    from plait.megatron.host import stand_in_for_cuda
    from plait.megatron.report import Report, Row
    from plait.megatron.swap import disable, enable, enabled, report

__all__ = [
    "ColumnParallelLinear",
    "Report",
    "Row",
    "RowParallelLinear",
    "SpecProvider",
    "add_arguments",
    "disable",
    "enable",
    "enable_from_arguments",
    "enabled",
    "report",
    "stand_in_for_cuda",
]


def __getattr__(name: str) -> Any:
    """Make the classes on first use, because few programs write specs."""
    if name in ("ColumnParallelLinear", "RowParallelLinear", "SpecProvider"):
        from plait.megatron import specs

        return getattr(specs, name)
    raise AttributeError(f"module 'plait.megatron' has no attribute {name!r}")
