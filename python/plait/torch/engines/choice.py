"""The choice of the engine that makes a call. It is the same on all ranks of the call.

options.engine   operands on     engine
"native"         the CPU         native
"native"         NVIDIA's GPUs   gpu, where plait has a kernel that all ranks can use; else c10d
"c10d"           any device      c10d
"""

import functools
import logging
from typing import Any

import torch
import torch.distributed as dist

from plait.errors import refuse
from plait.torch import tensors
from plait.torch.context import context_of
from plait.torch.engines import c10d, gpu, native
from plait.torch.engines.c10d import C10d
from plait.torch.engines.engine import Engine, Operands
from plait.torch.how import C10D, How, context_for, group_called, options_of
from plait.torch.options import Options, check_options
from plait.torch.ranks import Ranks
from plait.torch.rows import check_same_device

_log = logging.getLogger("plait.torch")


def choose(
    operator: str,
    operands: Operands,
    group: dist.ProcessGroup | None,
    options: Options,
) -> Engine:
    """Return what serves a layer of x, weight and bias, or refuse them in words.

    A group's first call of an engine of plait's is collective.
    """
    check_options(options, operator)
    x, weight, bias = operands
    if tensors.is_on_gpu(*operands):
        check_same_device(operator, x=x, weight=weight, bias=bias)
        c10d.check_operands(operator, *operands)
        autocast = torch.is_autocast_enabled("cuda")
        dtype = torch.get_autocast_dtype("cuda") if autocast else x.dtype
        return choose_on_gpu(operator, x.device, dtype, group, options)
    if options.engine == "c10d":
        c10d.check_operands(operator, *operands)
        return _by_torch(operator, group, options)
    native.check_operands(operator, x, weight)
    return native.Native(context_of(group, options, operator))


def _by_torch(operator: str, group: dist.ProcessGroup | None, options: Options) -> C10d:
    ranks = Ranks(group, operator)
    return C10d(ranks, options._c10d_parts(ranks.world))


def choose_on_gpu(
    operator: str,
    device: torch.device,
    dtype: torch.dtype,
    group: dist.ProcessGroup | None,
    options: Options,
) -> C10d:
    """Return what serves operands on a GPU."""
    ranks = Ranks(group, operator)
    why = "the options say so"
    if options.engine != "c10d":
        why = gpu.refusal(ranks.group, operator, device, dtype)
        if not why:
            return gpu.OnGpu(ranks, context_of(group, options, operator), device)
        if options.wire not in (None, "auto", tensors.DTYPES[dtype].name):
            refuse(
                operator,
                f"wire is {options.wire!r}, and without plait's kernels partial sums travel as "
                f"{dtype}: {why}",
            )
    if ranks.group is not None and not gpu.has_collectives(ranks.group):
        if ranks.world > 1:
            refuse(
                operator,
                f"x is on {device}, where plait's kernels do not serve the call ({why}), and the "
                f"process group has no collectives for GPUs; make it with the backend 'nccl'",
            )
        ranks.group = None  # one rank has nothing to exchange
    if options.engine != "c10d" and ranks.rank == 0:
        _warn(f"plait's kernels do not serve calls on {device}: {why}; torch's products do")
    return C10d(ranks, options._c10d_parts(ranks.world))


@functools.lru_cache(maxsize=256)
def _warn(sentence: str) -> None:
    _log.warning("%s", sentence)


def choose_for(
    how: How, operator: str, x: torch.Tensor, given: tuple[Any, ...] | None = None
) -> Engine:
    """Return what serves a call of torch.ops; `given`: the part of `how` that torch has passed."""
    if how.schedule != C10D and not x.is_cuda:
        return native.Native(context_for(how, operator, given))
    group, options = group_called(how.group, operator), options_of(*how[1:4])
    if x.is_cuda:
        return choose_on_gpu(operator, x.device, x.dtype, group, options)
    return _by_torch(operator, group, options)


def refuse_quantized(operator: str, engine: str) -> None:
    """Raise Error where an engine has no products of quantised weights."""
    if engine == "c10d":
        refuse(operator, "engine='c10d' has no products of quantised weights")
