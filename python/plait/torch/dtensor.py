"""Styles for torch's parallelize_module: a program that uses DTensor changes an import.

    # from torch.distributed.tensor.parallel import ...
    from plait.torch.dtensor import ColwiseParallel, RowwiseParallel, parallelize_module

    parallelize_module(mlp, mesh, {"up": ColwiseParallel(), "down": RowwiseParallel()})

Parameters are shared as torch shares them and stay DTensors; state dicts and optimizers see no
difference. A call of nn.Linear multiplies local parts by plait's operators. Inputs and outputs that
are shared by rows, Shard(0) or Shard(1) with a batch of one, take the operators that gather and
scatter rows. A call that plait does not serve is made by torch's own style, and one sentence for
each reason is logged.

All other names of torch.distributed.tensor.parallel are here as torch has them.
"""

import logging
from typing import Any, cast

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.tensor import DTensor, Replicate, Shard, distribute_module
from torch.distributed.tensor.parallel import (
    ParallelStyle,
    PrepareModuleInput,
    PrepareModuleInputOutput,
    PrepareModuleOutput,
    SequenceParallel,
    loss_parallel,
    parallelize_module,
)
from torch.distributed.tensor.parallel import style as styles
from torch.distributed.tensor.placement_types import Placement

import plait.torch
from plait.torch.options import Options
from plait.torch.weights import Owner

__all__ = [
    "ColwiseParallel",
    "ParallelStyle",
    "PrepareModuleInput",
    "PrepareModuleInputOutput",
    "PrepareModuleOutput",
    "RowwiseParallel",
    "SequenceParallel",
    "loss_parallel",
    "parallelize_module",
]

_log = logging.getLogger("plait.torch")
_logged: set[tuple[str, str]] = set()
_DEFAULTS = Options()
_DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def _rows_before(placement: Placement, shape: torch.Size) -> int | None:
    """Return by which dimension rows are shared, if each rank's lie together; None if not."""
    if not isinstance(placement, Shard):
        return None
    dim = placement.dim + len(shape) if placement.dim < 0 else placement.dim
    if dim >= len(shape) - 1 or any(size != 1 for size in shape[:dim]):
        return None
    return dim


def _is_by_columns(placement: Placement, dims: int) -> bool:
    return isinstance(placement, Shard) and placement.dim in (-1, dims - 1)


class _Served(nn.Linear):
    """An nn.Linear whose parameters are DTensors, multiplied by plait. Not made: become()."""

    _style: "ColwiseParallel | RowwiseParallel"
    _mesh: DeviceMesh
    _owner: Owner

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Do what torch's style does with the input, nn.Linear and the output."""
        style = self._style
        placement = x.placements[0] if isinstance(x, DTensor) else style.input_layouts[0]
        reason = _refusal(self, x) or style.refusal(self, x, placement)
        if reason is None:
            self._owner.see_changes(self.weight)
            return style.served(self, x, placement)
        _log_once(type(style).__name__, reason, self._mesh)
        x = style._prepare_input_fn(  # type: ignore[no-untyped-call]
            style.input_layouts, style.desired_input_layouts, self, (x,), self._mesh
        )
        out: torch.Tensor = style._prepare_output_fn(  # type: ignore[no-untyped-call]
            style.output_layouts, style.use_local_output, self, super().forward(x), self._mesh
        )
        return out


def _become_served(
    module: nn.Linear, style: "ColwiseParallel | RowwiseParallel", mesh: DeviceMesh
) -> None:
    # A class, not an attribute `forward`: a copy of the module must call itself.
    module.__class__ = _Served
    served = cast(_Served, module)
    served._style, served._mesh, served._owner = style, mesh, Owner()


def _log_once(style: str, reason: str, mesh: DeviceMesh) -> None:
    if (style, reason) not in _logged:
        _logged.add((style, reason))
        if mesh.get_local_rank() == 0:
            _log.warning("%s leaves a call to torch: %s", style, reason)


def _refusal(module: nn.Linear, x: torch.Tensor) -> str | None:
    """Say why plait serves no call of this module and input; None if it may."""
    weight = cast(DTensor, module.weight)
    if weight.device_mesh.ndim != 1:
        return f"the mesh of the weight has {weight.device_mesh.ndim} dimensions, not 1"
    if isinstance(x, DTensor) and x.device_mesh != weight.device_mesh:
        return "the input is on another mesh than the weight"
    if x.device.type not in ("cpu", "cuda"):
        return f"the input is on {x.device}, and plait computes on cpu and cuda"
    if x.device != weight.device:
        return f"the input is on {x.device}, and the weight on {weight.device}"
    if weight.dtype not in _DTYPES or x.dtype not in _DTYPES:
        return f"the input is {x.dtype}, and the weight {weight.dtype}"
    if x.dtype != weight.dtype and not torch.is_autocast_enabled(x.device.type):
        return f"the input is {x.dtype}, and the weight {weight.dtype}"
    if x.dim() < 2:
        return "the input has fewer than 2 dimensions"
    return None


def _local(x: Any) -> torch.Tensor:
    local: torch.Tensor = x.to_local() if isinstance(x, DTensor) else x
    return local


def _uneven(size: int, what: str, world: int) -> str | None:
    # torch gives the last ranks fewer, and plait the first ones more.
    return f"{world} ranks don't share {size} {what} evenly" if size % world else None


class _Style:
    """The additions of both styles to torch's."""

    def _own(self, module: nn.Module, mesh: DeviceMesh, partition: Any) -> nn.Module | None:
        """Share a plain nn.Linear and serve it; None: this is another module."""
        if type(module) is not nn.Linear:
            if isinstance(module, nn.Linear):
                reason = f"{type(module).__name__} may have a forward of its own"
                _log_once(type(self).__name__, reason, mesh)
            return None
        distribute_module(module, mesh, partition)
        _become_served(module, cast(Any, self), mesh)
        return module

    def _wrapped(self, module: _Served, out: torch.Tensor, placement: Placement) -> torch.Tensor:
        """Return a result that is shared like this as the program wants to have it."""
        style = module._style
        if style.use_local_output and style.output_layouts == (placement,):
            return out
        shared = DTensor.from_local(out, module._mesh, (placement,), run_check=False)
        if shared.placements != style.output_layouts:
            shared = shared.redistribute(placements=style.output_layouts, async_op=True)
        return shared.to_local() if style.use_local_output else shared


class ColwiseParallel(_Style, styles.ColwiseParallel):
    """torch's ColwiseParallel, by plait's operators. It takes the same arguments, and `options`."""

    def __init__(self, *, options: Options = _DEFAULTS, **layouts: Any) -> None:
        styles.ColwiseParallel.__init__(self, **layouts)
        self.options = options

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        own = self._own(module, device_mesh, self._partition_linear_fn)
        return styles.ColwiseParallel._apply(self, module, device_mesh) if own is None else own

    def refusal(self, module: _Served, x: torch.Tensor, placement: Placement) -> str | None:
        """Say why plait leaves a call to torch; None if it serves it."""
        world = module._mesh.size()
        if isinstance(placement, Shard):
            dim = _rows_before(placement, x.shape)
            if dim is None:
                return f"the input is {placement}, where the rows of a rank don't lie together"
            if isinstance(x, DTensor) and (uneven := _uneven(x.shape[dim], "rows", world)):
                return uneven
        elif not isinstance(placement, Replicate):
            return f"the input is {placement}"
        return _uneven(module.weight.shape[0], "outputs", world)

    def served(self, module: _Served, x: torch.Tensor, placement: Placement) -> torch.Tensor:
        """Multiply: the rows of all ranks by this rank's outputs."""
        dim = _rows_before(placement, x.shape)
        local = _local(x)
        bias = None if module.bias is None else _local(module.bias)
        out = plait.torch.column_parallel_linear(
            local if dim is None else local.reshape(local.shape[dim:]),
            _local(module.weight),
            bias,
            group=_group(module),
            sequence_parallel=dim is not None,
            options=self.options,
            layer=module._owner,
        )
        out = out.reshape(*local.shape[: dim or 0], *out.shape)
        last = Shard(-1) if self.output_layouts == (Shard(-1),) else Shard(out.dim() - 1)
        return self._wrapped(module, out, last)


class RowwiseParallel(_Style, styles.RowwiseParallel):
    """torch's RowwiseParallel, by plait's operators. It takes the same arguments, and `options`."""

    def __init__(self, *, options: Options = _DEFAULTS, **layouts: Any) -> None:
        styles.RowwiseParallel.__init__(self, **layouts)
        self.options = options
        self.desired_input_layouts = (Shard(-1),)

    def _apply(self, module: nn.Module, device_mesh: DeviceMesh) -> nn.Module:
        own = self._own(module, device_mesh, self._partition_linear_fn)
        return styles.RowwiseParallel._apply(self, module, device_mesh) if own is None else own

    def refusal(self, module: _Served, x: torch.Tensor, placement: Placement) -> str | None:
        """Say why plait leaves a call to torch; None if it serves it."""
        world = module._mesh.size()
        if not _is_by_columns(placement, x.dim()):
            return f"the input is {placement}, and not shared by its last dimension"
        wanted = self.output_layouts[0]
        if not isinstance(wanted, Replicate):
            dim = _rows_before(wanted, x.shape)
            if dim is None:
                return f"the output is {wanted}, where the rows of a rank don't lie together"
            if uneven := _uneven(x.shape[dim], "rows", world):
                return uneven
        return _uneven(module.weight.shape[1], "inputs", world)

    def served(self, module: _Served, x: torch.Tensor, placement: Placement) -> torch.Tensor:
        """Multiply by this rank's inputs, and add up over the ranks."""
        wanted = self.output_layouts[0]
        dim = _rows_before(wanted, x.shape)
        local = _local(x)
        bias = None if module.bias is None else _local(module.bias)
        out = plait.torch.row_parallel_linear(
            local if dim is None else local.reshape(local.shape[dim:]),
            _local(module.weight),
            bias,
            group=_group(module),
            sequence_parallel=dim is not None,
            options=self.options,
            layer=module._owner,
        )
        out = out.reshape(*local.shape[: dim or 0], *out.shape)
        return self._wrapped(module, out, wanted)


def _group(module: _Served) -> dist.ProcessGroup:
    return module._mesh.get_group()
