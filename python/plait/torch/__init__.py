"""plait for programs that use torch.distributed.

    import torch.distributed as dist

    dist.init_process_group("plait")  # in place of "gloo"; nothing else changes

Operators and layers work with a process group of any backend:

    import plait.torch as pt

    up = pt.ColumnParallelLinear.from_linear(mlp.up)
    down = pt.RowParallelLinear.from_linear(mlp.down)
    y = down(torch.relu(up(x)))
    print(pt.report())

`init()` makes the default process group under torchrun, `plait run`, mpirun or srun, and for one
process alone. `communicator(group)` is the communicator of a process group, for plait's own
functions.
"""

from plait import _entry, _package

with _package.needs_extra("torch"):
    from plait.torch.experts import ExpertParallel, Silu, Swiglu, expert_parallel
    from plait.torch.grouped import grouped_linear
    from plait.torch.groups import communicator
    from plait.torch.layers import ColumnParallelLinear, RowParallelLinear
    from plait.torch.linear import column_parallel_linear, row_parallel_linear
    from plait.torch.operators import (
        all_gather_matmul,
        all_reduce_matmul,
        matmul_all_gather,
        matmul_all_reduce,
        matmul_reduce_scatter,
        reduce_scatter_matmul,
    )
    from plait.torch.options import Options, Schedule
    from plait.torch.parallelize import parallelize
    from plait.torch.profile import Profile, profile
    from plait.torch.quantized import QuantizedWeight, quantize
    from plait.torch.report import Report, forget_report, report
    from plait.torch.start import init
    from plait.torch.ulysses import UlyssesOutput, UlyssesQKV
    from plait.torch.vocabulary import linear_cross_entropy, linear_log_probs, linear_top
    from plait.torch.weights import packed_bytes

__all__ = [
    "ColumnParallelLinear",
    "ExpertParallel",
    "Options",
    "Profile",
    "QuantizedWeight",
    "Report",
    "RowParallelLinear",
    "Schedule",
    "Silu",
    "Swiglu",
    "UlyssesOutput",
    "UlyssesQKV",
    "all_gather_matmul",
    "all_reduce_matmul",
    "column_parallel_linear",
    "communicator",
    "expert_parallel",
    "forget_report",
    "grouped_linear",
    "init",
    "linear_cross_entropy",
    "linear_log_probs",
    "linear_top",
    "matmul_all_gather",
    "matmul_all_reduce",
    "matmul_reduce_scatter",
    "packed_bytes",
    "parallelize",
    "profile",
    "quantize",
    "reduce_scatter_matmul",
    "report",
    "row_parallel_linear",
]

# If torch was imported without its entry points (TORCH_DEVICE_BACKEND_AUTOLOAD=0).
_entry.torch_backend()
