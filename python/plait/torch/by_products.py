"""Operators and layers made of products, for calls that don't go to plait's kernels of the CPU."""

import torch
import torch.distributed as dist

from plait.errors import refuse
from plait.torch import gpu, tensors
from plait.torch.c10d import Products
from plait.torch.how import How, group_called, options_of
from plait.torch.options import Options, check_options
from plait.torch.ranks import Ranks
from plait.torch.rows import check_floats


def products_for(how: How, operator: str, x: torch.Tensor) -> Products:
    """Return what serves an operator on a GPU, or of the engine "c10d"."""
    group, options = group_called(how.group, operator), options_of(*how[1:4])
    if x.is_cuda:
        return gpu.products_of(group, options, operator, x.device, x.dtype)
    return _of_torch(group, options, operator)


def _of_torch(group: dist.ProcessGroup | None, options: Options, operator: str) -> Products:
    ranks = Ranks(group, operator)
    return Products(ranks, options._c10d_parts(ranks.world))


def products_of_layer(
    name: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    group: dist.ProcessGroup | None,
    options: Options,
) -> Products | None:
    """Return what serves a layer on a GPU, or of the engine "c10d"; None: plait's on the CPU."""
    check_options(options, name)
    if tensors.is_on_gpu(x, weight, bias):
        gpu.check(name, x=x, weight=weight, bias=bias)
        autocast = torch.is_autocast_enabled("cuda")
        dtype = torch.get_autocast_dtype("cuda") if autocast else x.dtype
        return gpu.products_of(group, options, name, x.device, dtype)
    return _of_torch(group, options, name) if options.engine == "c10d" else None


def check_for_products(
    operator: str,
    x: torch.Tensor,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    *,
    turned: bool,
) -> torch.Tensor:
    """Refuse operands that don't fit, and return the weight as [k, n]."""
    gpu.check(operator, x=x, weight=weight, bias=bias)
    for name, one in (("x", x), ("weight", weight)):
        check_floats(one, operator, name)
    by = weight.detach() if turned else weight.detach().t()
    if x.dtype != weight.dtype:
        refuse(operator, f"x is {x.dtype}, and weight {weight.dtype}")
    if x.shape[1] != by.shape[0]:
        refuse(operator, f"x is {list(x.shape)}, and the weight has {by.shape[0]} inputs")
    if bias is not None and list(bias.shape) != [by.shape[1]]:
        refuse(operator, f"bias is {list(bias.shape)}, not [{by.shape[1]}]")
    return by
