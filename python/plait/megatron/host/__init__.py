"""Stand-ins for torch.cuda, with which Megatron's programs run on a host without CUDA.

Megatron refuses to start without a CUDA device, although nearly all of it is plain torch. Where
torch finds no such device, `stand_in_for_cuda()` replaces what Megatron asks of one:

- `cuda`: functions and classes of torch.cuda
- `devices`: tensors that are made on "cuda", or moved there
- `core`: NCCL as a backend, norms with sequence parallelism, and generators, in Megatron-Core
- `options`: options of Megatron's training scripts that need a GPU

The whole process gets them, and they stay until it ends: what a program has made needs them.
"""

import logging
import os

import torch

from plait.megatron.host import core, cuda, devices, options
from plait.megatron.host.options import Refused

__all__ = ["Refused", "stand_in_for_cuda"]

_log = logging.getLogger("plait.megatron")

_done = False
_adjusts_options = False


def stand_in_for_cuda() -> bool:
    """Let this process run Megatron on the CPU; true unless torch finds a CUDA device.

    Call it before the program makes groups and models, and where the program trains by
    Megatron-LM's scripts, after these can be imported. It stands in for torch.cuda, for tensors
    that are made on "cuda", and for NCCL, in the whole process until it ends. A process that has a
    GPU isn't changed.
    """
    global _done, _adjusts_options
    if _done:
        _adjusts_options = _adjusts_options or options.stand_in()
        return True
    if torch.cuda.is_available() or torch.cuda.device_count() > 0:
        return False
    _done = True
    cuda.stand_in()
    core.stand_in()
    devices.stand_in()
    _adjusts_options = options.stand_in()
    if os.environ.get("RANK", "0") == "0":
        _log.warning("torch finds no CUDA device: the CPU stands in for one")
    return True
