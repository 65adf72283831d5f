"""Tensor-parallel communication hidden behind the matrix product that needs it.

Ranks of this host or of several find each other under `plait run`, `torchrun`, `mpirun` and `srun`:

    import numpy as np
    import plait

    comm = plait.Communicator.connect()
    x, w = np.ones((64, 500), np.float32), np.ones((256, 500), np.float32)
    y = np.empty((64, 256), np.float32)
    weight = plait.WeightView(w, "out_in")
    plait.matmul_all_reduce(x, weight, y, comm)  # the sum over ranks, made while they multiply

Names and arguments are those of the headers in C++: operators, prepared or blocking, the two linear
layers, collectives, weights, plans, settings and traces. Arrays of NumPy and tensors of any
framework that speaks DLPack are taken as they are, without a copy. Dtypes, layouts, schemes, plans
and operators can be given by their names. `plait.torch` is for programs that use torch.distributed.

`matmul`, `matmul_all_reduce`, `matmul_reduce_scatter` and `all_gather_matmul` also take tensors of
bf16 or f16 on an NVIDIA GPU. They queue their work in `stream`, by default in torch's current
stream, and return before it is done.

These headers have no names here:

- mailbox.h, tag.h: a schedule of one's own posts a chunk every few microseconds, between the tiles
  of a product, and a call of Python takes as long as that.
- panel_cache.h, packed_input.h, and of gemm.h windows and their hook: they serve such schedules.
- buffer.h: arrays and tensors own their memory.
- mpi.h: it takes an MPI communicator of C. `Communicator.from_mpi()` takes one of mpi4py.
- export.h, plait.h: the first is for linkers, and the second includes the others.

A plan source of one's own (plan.h) is also left out: it would be asked in every call.
"""

import atexit

from plait import _package

_package.warn_of_foreign_files()
try:
    import plait._native  # noqa: F401
except ImportError as _error:
    if "libgomp" not in str(_error):
        raise
    _package.load_openmp()

from plait._native import (  # noqa: E402
    Axis,
    Code,
    ColumnParallelLinear,
    Communicator,
    Dtype,
    Gemm,
    Lane,
    LinearDesc,
    LinearMemory,
    LinearOptions,
    LinearState,
    Link,
    Op,
    OpDesc,
    Operator,
    OperatorTraits,
    PackedWeight,
    Pending,
    Place,
    Plan,
    PlanRow,
    PlanSource,
    QuantizedWeight,
    QuantPer,
    QuantScheme,
    ReceivedRows,
    RecordedPlans,
    RowParallelLinear,
    Schedule,
    Settings,
    ShapePlans,
    Shard,
    Span,
    SumTree,
    Survivors,
    TensorView,
    ThreadGroup,
    Trace,
    UlyssesOutput,
    UlyssesQKV,
    UlyssesState,
    WeightKind,
    WeightLayout,
    WeightView,
    _leave_at_the_end,
    align_clock,
    all_gather,
    all_gather_columns,
    all_gather_columns_matmul,
    all_gather_matmul,
    all_reduce,
    all_reduce_matmul,
    all_to_all,
    all_to_all_rows,
    automatic_plans,
    balanced_shard,
    barrier,
    broadcast,
    check_environment,
    default_plan,
    equal_columns,
    followed_by,
    grouped_matmul,
    head_columns,
    leave_all,
    linear_memory,
    linear_options,
    load_settings,
    matmul,
    matmul_all_gather,
    matmul_all_gather_columns,
    matmul_all_reduce,
    matmul_cross_entropy,
    matmul_cross_entropy_gradient,
    matmul_cross_entropy_with_gradient,
    matmul_log_probs,
    matmul_reduce_scatter,
    matmul_top,
    parse_link,
    parse_settings,
    place_from_environment,
    prepare,
    qkv_columns,
    quantize,
    reduce_scatter,
    reduce_scatter_matmul,
    size_of,
    start_all_gather,
    start_all_reduce,
    start_all_to_all,
    start_barrier,
    start_broadcast,
    start_reduce_scatter,
    sum_tree,
    traits_of,
    unit_roundoff,
    write_json,
    write_timeline,
)
from plait._native import version as __version__  # noqa: E402
from plait.errors import Error  # noqa: E402
from plait.threads import run_in_threads  # noqa: E402

__all__ = [
    "Axis",
    "Code",
    "ColumnParallelLinear",
    "Communicator",
    "Dtype",
    "Error",
    "Gemm",
    "Lane",
    "LinearDesc",
    "LinearMemory",
    "LinearOptions",
    "LinearState",
    "Link",
    "Op",
    "OpDesc",
    "Operator",
    "OperatorTraits",
    "PackedWeight",
    "Pending",
    "Place",
    "Plan",
    "PlanRow",
    "PlanSource",
    "QuantPer",
    "QuantScheme",
    "QuantizedWeight",
    "ReceivedRows",
    "RecordedPlans",
    "RowParallelLinear",
    "Schedule",
    "Settings",
    "ShapePlans",
    "Shard",
    "Span",
    "SumTree",
    "Survivors",
    "TensorView",
    "ThreadGroup",
    "Trace",
    "UlyssesOutput",
    "UlyssesQKV",
    "UlyssesState",
    "WeightKind",
    "WeightLayout",
    "WeightView",
    "__version__",
    "align_clock",
    "all_gather",
    "all_gather_columns",
    "all_gather_columns_matmul",
    "all_gather_matmul",
    "all_reduce",
    "all_reduce_matmul",
    "all_to_all",
    "all_to_all_rows",
    "automatic_plans",
    "balanced_shard",
    "barrier",
    "broadcast",
    "check_environment",
    "default_plan",
    "equal_columns",
    "followed_by",
    "grouped_matmul",
    "head_columns",
    "leave_all",
    "linear_memory",
    "linear_options",
    "load_settings",
    "matmul",
    "matmul_all_gather",
    "matmul_all_gather_columns",
    "matmul_all_reduce",
    "matmul_cross_entropy",
    "matmul_cross_entropy_gradient",
    "matmul_cross_entropy_with_gradient",
    "matmul_log_probs",
    "matmul_reduce_scatter",
    "matmul_top",
    "parse_link",
    "parse_settings",
    "place_from_environment",
    "prepare",
    "qkv_columns",
    "quantize",
    "reduce_scatter",
    "reduce_scatter_matmul",
    "run_in_threads",
    "size_of",
    "start_all_gather",
    "start_all_reduce",
    "start_all_to_all",
    "start_barrier",
    "start_broadcast",
    "start_reduce_scatter",
    "sum_tree",
    "traits_of",
    "unit_roundoff",
    "write_json",
    "write_timeline",
]

# A rank that leaves in good order is told apart from one that was lost.
atexit.register(_leave_at_the_end)
