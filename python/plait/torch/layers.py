"""The two tensor-parallel linear layers as modules."""

import copy
from collections.abc import Mapping
from typing import Any, ClassVar, NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import nn

from plait import _native
from plait._native import Code
from plait.errors import Error, refuse
from plait.torch import tensors
from plait.torch.context import group_place
from plait.torch.engines.engine import Kind
from plait.torch.graphs import outside_of_graphs
from plait.torch.linear import column_parallel_linear, quantized_linear, row_parallel_linear
from plait.torch.options import Options, check_options
from plait.torch.quantized import scheme_of
from plait.torch.rows import float_dtype
from plait.torch.weights import Owner, check_memory

_DEFAULTS = Options()
# Looking for it in torch takes as long as calling it.
_is_grad_enabled = torch.is_grad_enabled
_Self = TypeVar("_Self", bound="_ParallelLinear")


class _ParallelLinear(nn.Module):
    """The base of both layers: this rank's share of a weight, and perhaps a bias."""

    weight: nn.Parameter
    bias: nn.Parameter | None
    _shared: ClassVar[int]  # the dimension of a weight [outputs, inputs] that the ranks share

    def __init__(
        self,
        weight: torch.Tensor,
        bias: torch.Tensor | None,
        *,
        group: dist.ProcessGroup | None,
        sequence_parallel: bool,
        skip_bias_add: bool,
        accumulate_into_main_grad: bool,
        options: Options,
    ) -> None:
        super().__init__()
        check_options(options, type(self).__name__)
        self.weight = nn.Parameter(weight, requires_grad=weight.requires_grad)
        self.bias = None if bias is None else nn.Parameter(bias, requires_grad=bias.requires_grad)
        self.group = group
        self.sequence_parallel = sequence_parallel
        self.skip_bias_add = skip_bias_add
        self.accumulate_into_main_grad = accumulate_into_main_grad
        self.options = options
        # Ranks may have unequal shares: each module has a layer of its own, which all ranks make at
        # the module's first call.
        self._key = Owner()
        self._quantized: _native.PackedWeight | None = None

    @classmethod
    def from_linear(
        cls: type[_Self],
        linear: nn.Linear,
        *,
        group: dist.ProcessGroup | None = None,
        sequence_parallel: bool = False,
        skip_bias_add: bool = False,
        accumulate_into_main_grad: bool = False,
        options: Options = _DEFAULTS,
    ) -> _Self:
        """Copy this rank's share of a whole layer, which every rank has alike."""
        name = f"{cls.__name__}.from_linear"
        check_options(options, name)
        check_linear(linear, options, name, "weight")
        bias: torch.Tensor | None = linear.bias
        if bias is not None:  # of outputs, which the ranks may share
            bias = share(bias, 0, group, name) if cls._shared == 0 else _copied(bias)
        return cls(
            share(linear.weight, cls._shared, group, name),
            bias,
            group=group,
            sequence_parallel=sequence_parallel,
            skip_bias_add=skip_bias_add,
            accumulate_into_main_grad=accumulate_into_main_grad,
            options=options,
        )

    @property
    def in_features(self) -> int:
        """How many inputs this rank's weight has."""
        return self.weight.shape[1] if self._quantized is None else self._quantized.k

    @property
    def out_features(self) -> int:
        """How many outputs this rank's weight has."""
        return self.weight.shape[0] if self._quantized is None else self._quantized.n

    def quantize(self, scheme: str | None) -> None:
        """Round the weight to "s8", "s4:group=64" and so on, and drop it; None leaves it.

        A quantised layer is for inference: it has no gradient, and no state dict. Save the plain
        layer, and quantise after loading.
        """
        if scheme is None:
            return
        how = scheme_of(scheme, "quantize", "scheme")
        if self.sequence_parallel:
            _refuse("a layer with sequence_parallel is for training, and can't be quantised")
        if self._quantized is not None:
            _refuse("the layer is quantised already")
        if self.weight.device.type != "cpu":
            _refuse(f"the weight is on {self.weight.device}, and quantised weights are on the cpu")
        check_memory("linear", self.weight)
        float_dtype(self.weight, "quantize", "weight")
        quantized = _native.quantize(
            self.weight.detach().float().contiguous().numpy(),
            layout=_native.WeightLayout.out_in,
            scheme=how,
        )
        self._quantized = _native.PackedWeight(quantized)
        self.weight = None  # type: ignore[assignment]

    @outside_of_graphs
    def _multiply_at_once(self, x: torch.Tensor) -> torch.Tensor | None:
        """Make a call without gradients as the layer's one before; None: it needs more checks."""
        direct = self._key.direct()
        if direct is None or direct.packs or self.sequence_parallel:
            return None
        weight = self._parameters.get("weight")
        bias = None if self.skip_bias_add else self.bias
        member = dist.GroupMember.WORLD if self.group is None else self.group
        out: torch.Tensor | None = direct.multiply(x, weight, bias, member, self.options)
        return out

    def _multiply_quantized(self, kind: Kind, x: torch.Tensor) -> torch.Tensor:
        assert self._quantized is not None
        return quantized_linear(
            kind,
            x,
            self._quantized,
            None if self.skip_bias_add else self.bias,
            group=self.group,
            options=self.options,
            layer=self._key,
        )

    def __deepcopy__(self: _Self, memo: dict[int, Any]) -> _Self:
        # Objects that can't be copied are shared: groups, and weights that never change.
        for shared in (self.group, self._quantized):
            memo[id(shared)] = shared
        memo[id(self)] = copied = copy.copy(self)
        copied.__dict__.update(copy.deepcopy(self.__dict__, memo))
        return copied

    def __copy__(self: _Self) -> _Self:
        copied = type(self).__new__(type(self))
        copied.__dict__.update(self.__dict__)
        return copied

    def _save_to_state_dict(self, *where: Any) -> None:
        if self._quantized is not None:
            refuse(
                type(self).__name__,
                "a quantised layer has no weight to save; save the plain one, and quantise after "
                "loading",
            )
        super()._save_to_state_dict(*where)

    def _load_from_state_dict(
        self,
        state_dict: Mapping[str, Any],
        prefix: str,
        local_metadata: Any,
        strict: bool,
        missing_keys: list[str],
        *lists: Any,
    ) -> None:
        if self._quantized is not None:
            if any(name.startswith(prefix) for name in state_dict):
                refuse(
                    type(self).__name__,
                    "a quantised layer has no weight to load into; load the plain one, and "
                    "quantise after that",
                )
            missing_keys.append(f"{prefix}weight")  # torch allows this with strict=False
        super()._load_from_state_dict(
            state_dict, prefix, local_metadata, strict, missing_keys, *lists
        )

    def __getstate__(self) -> dict[str, Any]:
        if self._quantized is not None:
            refuse(
                type(self).__name__,
                "a quantised layer can't be pickled; pickle the plain one, and quantise after "
                "loading",
            )
        return self.__dict__

    def extra_repr(self) -> str:
        """Describe the layer as nn.Linear does, with this rank's share."""
        return (
            f"in_features={self.in_features}, out_features={self.out_features}, "
            f"bias={self.bias is not None}, sequence_parallel={self.sequence_parallel}"
        )


def _refuse(sentence: str) -> NoReturn:
    raise Error(Code.invalid_argument, f"quantize: {sentence}")


def check_linear(linear: object, options: Options, operator: str, name: str) -> None:
    """Raise Error where ranks can't share a layer, whose weight the sentence calls `name`."""
    weight = getattr(linear, "weight", None)
    if not isinstance(weight, torch.Tensor) or weight.dim() != 2:
        refuse(
            operator,
            f"linear is of type {type(linear).__name__}, which has no matrix as its weight",
        )
    if not hasattr(linear, "bias"):  # an embedding, whose weight is no factor of a product
        refuse(operator, f"linear is of type {type(linear).__name__}, which is no linear layer")
    if tensors.is_dtensor(weight):
        refuse(operator, f"{name} is a DTensor, which is shared already; give a plain layer")
    if weight.is_cpu and options.engine == "native":  # torch's products take other dtypes
        float_dtype(weight, operator, name)


def _copied(tensor: torch.Tensor, part: torch.Tensor | None = None) -> torch.Tensor:
    """Copy a tensor, or a part of it, that requires a gradient where the tensor does."""
    copied = tensor.detach() if part is None else part
    return copied.clone().requires_grad_(tensor.requires_grad)


def share(
    tensor: torch.Tensor, dim: int, group: dist.ProcessGroup | None, operator: str
) -> torch.Tensor:
    """Copy this rank's share of a dimension; the first ranks have one more where it is uneven."""
    rank, world = group_place(group, operator)
    shard = _native.balanced_shard(tensor.shape[dim], rank, world)
    return _copied(tensor, tensor.detach().narrow(dim, shard.offset, shard.count))


class ColumnParallelLinear(_ParallelLinear):
    """A linear layer whose outputs the ranks share.

    `x` is [..., inputs], or [s, b, h] with `sequence_parallel`, where its first dimension is this
    rank's shard. The result has all rows and this rank's outputs; where `skip_bias_add` is set it
    is a pair, with the bias as its second.
    """

    _shared = 0

    def forward(
        self, x: torch.Tensor, rows: int | None = None
    ) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """Multiply; `rows` is the size of the first dimension where shards are uneven."""
        if self._quantized is not None:
            out = self._multiply_quantized("column", x)
            return (out, self.bias) if self.skip_bias_add else out
        if rows is None and not _is_grad_enabled():
            made = self._multiply_at_once(x)
            if made is not None:
                return (made, self.bias) if self.skip_bias_add else made
        out = column_parallel_linear(
            x,
            self.weight,
            None if self.skip_bias_add else self.bias,
            group=self.group,
            sequence_parallel=self.sequence_parallel,
            rows=rows,
            accumulate_into_main_grad=self.accumulate_into_main_grad,
            options=self.options,
            layer=self._key,
        )
        return (out, self.bias) if self.skip_bias_add else out


class RowParallelLinear(_ParallelLinear):
    """A linear layer whose inputs the ranks share.

    `x` is [..., inputs of this rank]. The result is the sum over ranks: of all rows, or with
    `sequence_parallel` this rank's shard of the first dimension. Where `skip_bias_add` is set it is
    a pair, with the bias as its second.
    """

    _shared = 1

    def forward(self, x: torch.Tensor) -> torch.Tensor | tuple[torch.Tensor, torch.Tensor | None]:
        """Multiply, and add up over the ranks."""
        if self._quantized is not None:
            out = self._multiply_quantized("row", x)
            return (out, self.bias) if self.skip_bias_add else out
        if not _is_grad_enabled():
            made = self._multiply_at_once(x)
            if made is not None:
                return (made, self.bias) if self.skip_bias_add else made
        out = row_parallel_linear(
            x,
            self.weight,
            None if self.skip_bias_add else self.bias,
            group=self.group,
            sequence_parallel=self.sequence_parallel,
            accumulate_into_main_grad=self.accumulate_into_main_grad,
            options=self.options,
            layer=self._key,
        )
        return (out, self.bias) if self.skip_bias_add else out
