"""plait for programs that use torch.distributed.

    import torch.distributed as dist

    dist.init_process_group("plait")  # in place of "gloo"; nothing else changes

`communicator(group)` is the communicator of a process group of any backend, for plait's own
functions.
"""

from plait import _entry
from plait.torch.groups import communicator

__all__ = ["communicator"]

# Where torch was imported without its entry points (TORCH_DEVICE_BACKEND_AUTOLOAD=0).
_entry.torch_backend()
