"""Tensor-parallel communication hidden behind the matrix product that needs it.

Ranks of this host or of several find each other under `plait run`, `torchrun`, `mpirun` and `srun`:

    import numpy as np
    import plait

    comm = plait.Communicator.connect()
    x = np.full(4, comm.rank + 1.0, dtype=np.float32)
    plait.all_reduce(x, comm)

Arrays of NumPy and tensors of any framework that speaks DLPack are taken as they are, without a
copy. `plait.torch` is for programs that use torch.distributed.
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
    Communicator,
    Dtype,
    Lane,
    Link,
    Operator,
    PackedWeight,
    Pending,
    Place,
    Plan,
    QuantizedWeight,
    QuantPer,
    QuantScheme,
    Schedule,
    Settings,
    Span,
    ThreadGroup,
    Trace,
    WeightLayout,
    _leave_all,
    all_gather,
    all_reduce,
    all_to_all,
    barrier,
    broadcast,
    default_plan,
    followed_by,
    load_settings,
    parse_link,
    parse_settings,
    place_from_environment,
    quantize,
    reduce_scatter,
    size_of,
    start_all_gather,
    start_all_reduce,
    start_reduce_scatter,
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
    "Communicator",
    "Dtype",
    "Error",
    "Lane",
    "Link",
    "Operator",
    "PackedWeight",
    "Pending",
    "Place",
    "Plan",
    "QuantPer",
    "QuantScheme",
    "QuantizedWeight",
    "Schedule",
    "Settings",
    "Span",
    "ThreadGroup",
    "Trace",
    "WeightLayout",
    "__version__",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "barrier",
    "broadcast",
    "default_plan",
    "followed_by",
    "load_settings",
    "parse_link",
    "parse_settings",
    "place_from_environment",
    "quantize",
    "reduce_scatter",
    "run_in_threads",
    "size_of",
    "start_all_gather",
    "start_all_reduce",
    "start_reduce_scatter",
    "unit_roundoff",
    "write_json",
    "write_timeline",
]

# A rank that leaves in good order is told apart from one that was lost.
atexit.register(_leave_all)
