"""Flat buffers that the backend "plait" reads and writes: the elements of tensors, side by side."""

import torch

from plait.torch import tensors


class Flat:
    """A tensor's elements side by side: the tensor itself, or a copy that is put back.

    Whether a tensor is contiguous may differ from rank to rank, so it decides nothing else.
    """

    def __init__(
        self, tensor: torch.Tensor, operator: str, name: str = "tensor", *, read: bool = True
    ) -> None:
        if tensor.device.type != "cpu":
            tensors.check(tensor, operator, name)
        self.whole = tensor
        if tensor.is_contiguous() and not tensor.is_neg() and not tensor.is_conj():
            self.flat = tensor
        elif read:
            self.flat = tensor.detach().resolve_conj().resolve_neg().contiguous()
        else:
            self.flat = torch.empty(tensor.shape, dtype=tensor.dtype)
        self.n, self.dtype = tensors.movable(self.flat)

    @property
    def at(self) -> int:
        """The address of the first element."""
        return self.flat.data_ptr()

    def put_back(self) -> None:
        """Write a copy's elements into the tensor."""
        if self.flat is not self.whole:
            self.whole.detach().copy_(self.flat)
