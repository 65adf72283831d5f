"""The library of torch's that has plait's operators, and how one is defined in it."""

import functools
from collections.abc import Callable
from typing import Any

import torch

from plait.torch import tensors

LIBRARY = torch.library.Library("plait", "DEF")


def define(
    schema: str,
    kernel: Callable[..., Any],
    fake: Callable[..., Any],
    on_gpu: Callable[..., Any] | None = None,
) -> None:
    """Define an operator of torch, its kernels and what compilers call in their place.

    Torch also calls the latter where some operands are on meta, and others have values.
    """
    name = schema.partition("(")[0]
    LIBRARY.define(schema)
    LIBRARY.impl(name, kernel, "CPU")
    if on_gpu is not None:
        LIBRARY.impl(name, on_gpu, "CUDA")
    parameters = [one.name for one in getattr(torch.ops.plait, name).default._schema.arguments]

    @functools.wraps(fake)
    def checked(*operands: Any) -> Any:
        given = dict(zip(parameters, operands, strict=False))
        found = {key: one for key, one in given.items() if isinstance(one, torch.Tensor)}
        if len({one.is_meta for one in found.values()}) > 1:
            for key, one in found.items():
                if one.is_meta:
                    tensors.check(one, name, key)
        return fake(*operands)

    torch.library.register_fake(f"plait::{name}", checked, lib=LIBRARY)
