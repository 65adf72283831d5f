# Written by tools/make_stub.py.

from plait._typing import Array
"""libplait for Python. Import its names from plait."""

from collections.abc import Callable, Iterator, Sequence
import enum
from typing import Any, overload


def _warn_of_leaks(on: bool) -> None:
    """Say at the end of the program which objects were not destroyed."""

version: str = '0.1.0'

class Code(enum.Enum):
    """The kind of thing that went wrong."""

    invalid_argument = 0
    """The caller's mistake; nothing was written."""

    mismatch = 1
    """Ranks disagree about the call they are in."""

    peer_lost = 2
    """A rank died, left, or was told to abort."""

    timeout = 3
    """A rank is there but did not do its part before the deadline."""

    system = 4
    """The operating system refused something."""

class Dtype(enum.Enum):
    """The element types that plait computes with."""

    f32 = 0

    bf16 = 1

    f16 = 2

    s8 = 3

def size_of(dtype: Dtype | str) -> int:
    """Bytes of one element."""

def unit_roundoff(dtype: Dtype | str) -> float:
    """
    u, such that rounding x to the dtype moves it by at most u*|x|; 0 for s8.
    """

class Lane(enum.Enum):
    """Each thread of a rank has one track per lane."""

    compute = 0

    comm = 1

    wait = 2

class Span:
    """The block that `with trace.span(...)` records."""

    def __enter__(self) -> None: ...

    def __exit__(self, *exception: object) -> None: ...

class Trace:
    """
    The records of one rank: what it did, and when, written as a timeline that
    Perfetto (ui.perfetto.dev) opens.
    """

    def __init__(self, rank: int, capacity_per_thread: int = 32767) -> None: ...

    @property
    def rank(self) -> int: ...

    def span(self, lane: Lane, label: str, *, bytes: int = -1, flops: int = -1) -> Span:
        """Record a `with` block, from its beginning to its end."""

    def mark(self, lane: Lane, label: str) -> None:
        """Record a moment."""

    def count(self, label: str, value: int) -> None:
        """Record a value from now on."""

    @property
    def dropped(self) -> int:
        """How many records were lost so far."""

    def pack(self) -> bytes:
        """All records as bytes, for the rank that writes the timeline."""

    def write_json(self, path: str) -> None:
        """Write this rank's timeline alone."""

class TraceCalls:
    """All calls of one problem on one rank; times in nanoseconds."""

    @property
    def problem(self) -> str: ...

    @property
    def count(self) -> int: ...

    @property
    def time(self) -> int: ...

    @property
    def multiplying(self) -> int: ...

    @property
    def communicating(self) -> int: ...

    @property
    def waiting(self) -> int: ...

    @property
    def communication(self) -> int:
        """Chunks travel, or the rank copies, sums or waits."""

    @property
    def hidden(self) -> int:
        """The part of it in which the rank multiplies as well."""

def timeline_page(title: str, subtitle: str, packs: Sequence[bytes]) -> str:
    """
    The packs of any number of ranks as a page of HTML that needs nothing else.
    """

def calls_in_pack(pack: bytes, within: Sequence[tuple[int, int]] | None = None) -> list[TraceCalls]:
    """
    The calls of operators, and their use of time. `within`: only calls in one of these
    intervals, in nanoseconds of time.monotonic_ns(), which are disjoint and sorted.
    """

def write_json(path: str, packs: Sequence[bytes]) -> None:
    """Write the packs of any number of ranks as one timeline."""

class Place:
    """The place of a rank among the others."""

    def __init__(self, rank: int, world: int, job: str = '', launcher: str = '', hosts: int = 1, local_rank: int = 0, host: str = '') -> None:
        """`host` names the rank's host if one machine simulates several."""

    @property
    def rank(self) -> int: ...

    @property
    def world(self) -> int: ...

    @property
    def job(self) -> str: ...

    @property
    def launcher(self) -> str: ...

    @property
    def hosts(self) -> int: ...

    @property
    def local_rank(self) -> int: ...

    @property
    def host(self) -> str: ...

def place_from_environment() -> Place:
    """
    The place that plait run, torchrun, Open MPI or Slurm left in the environment; one rank alone where there is none.
    """

class Link:
    """A link that does not exist: chunks arrive when they would have."""

    @property
    def bytes_per_second(self) -> float: ...

    @property
    def latency_ns(self) -> int: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

    def __eq__(self, other: object, /) -> bool: ...

def parse_link(text: str) -> Link:
    """Read a link: "25gbit,5us", "3GB/s"."""

class Survivors:
    """The outcome of Communicator.survivors()."""

    @property
    def comm(self) -> Communicator:
        """The survivors, in their old order."""

    @property
    def lost(self) -> list[int]:
        """The other ranks, as the old group has numbered them."""

    @property
    def completed_calls(self) -> int:
        """
        Calls of the old group that have ended on every survivor: repeat those after them.
        """

class Communicator:
    """
    A group of ranks, seen from one of them.

    All its ranks make the same calls in the same order. When a rank dies, leaves, disagrees or
    lets the deadline pass, every other rank gets the same Error, and the communicator is of no
    use after that. With `with`, the rank leaves at the end of the block.
    """

    @staticmethod
    def connect(*, transport: str = '', place: Place | None = None, all_gather: Callable[[bytes], Sequence[bytes]] | None = None, link: Link | str | None = None, timeout: float | None = None, trace: Trace | None = None) -> Communicator:
        """
        Collective: returns when all ranks of the place's world have called it.

        Without a place it is the one that plait run, torchrun, mpirun or srun left in
        the environment. `all_gather` lends a framework's store to the rendezvous: it
        takes this rank's bytes and returns those of all ranks. `timeout` is in seconds.
        """

    @staticmethod
    def from_mpi(comm: object | None = None, *, transport: str = '', link: Link | str | None = None, timeout: float | None = None, trace: Trace | None = None) -> Communicator:
        """
        Collective over a communicator of mpi4py, whose ranks keep their numbers.

        Without one it is MPI.COMM_WORLD. The ranks exchange their addresses through MPI, and
        then use shared memory and TCP without it; with the transport "mpi", chunks go
        through MPI too, until the program calls MPI.Finalize(). It needs mpi4py 4, which is
        imported by the call. If a rank doesn't come before the deadline, the others get an
        Error and must use `comm` for no other collective.
        """

    @property
    def has_left(self) -> bool: ...

    @property
    def rank(self) -> int: ...

    @property
    def world(self) -> int: ...

    @property
    def hosts(self) -> int: ...

    @property
    def transport(self) -> str: ...

    @property
    def link(self) -> Link | None: ...

    @property
    def mailbox_bytes(self) -> int:
        """Bytes of this rank's memory that its mailboxes hold."""

    def split(self, color: int, key: int) -> Communicator | None:
        """
        Collective. Ranks with the same color form a group, ordered by key, then by rank here.
        A negative color joins none.
        """

    def with_link(self, link: Link | str | None) -> Communicator:
        """
        Collective. The same ranks as a group of their own, over this emulated link.
        """

    def check_ranks(self) -> None:
        """
        Not collective: raise Error where a rank of the group has died, or the group has ended.
        """

    def survivors(self) -> Survivors:
        """
        Go on without lost ranks, after an error has ended the group.

        Every rank that is left calls it, and all get the same answer: a new communicator,
        the lost ranks, and how many calls have ended on every survivor. A rank that has not
        called it by the deadline counts as lost. Over TCP, ranks that may be alive beyond a
        broken cable must be fewer than those that go on; most MPI launchers end all.
        """

    @property
    def completed_calls(self) -> int:
        """
        How many calls of collectives and operators have ended here. All ranks make the same
        calls, so it means the same on all of them.
        """

    def abort(self, reason: str) -> None:
        """
        End the group, and all that were split off it. Any thread may call it at any time.
        """

    def set_trace(self, trace: Trace | None) -> None:
        """
        Record into this trace from the next call on, or into none. Not collective.
        """

    @property
    def trace(self) -> Trace | None:
        """The trace that set_trace() was given last."""

    def leave(self) -> None:
        """
        Leave the group. Calling it again does nothing; using the communicator is an error.
        """

    def __enter__(self) -> Communicator: ...

    def __exit__(self, *exception: object) -> None: ...

    def __repr__(self) -> str: ...

class ThreadGroup:
    """
    Ranks that are threads of this process: each thread joins with its rank.
    """

    def __init__(self, world: int) -> None: ...

    def join(self, rank: int, *, timeout: float | None = None, trace: Trace | None = None) -> Communicator:
        """Returns when all threads have joined."""

def leave_all() -> None:
    """
    Leave the groups of all communicators, which are of no use afterwards: for processes that
    end by os._exit(), which runs nothing. Other ends of a program do it by themselves.
    """

def _leave_at_the_end() -> None:
    """Leave every group, and keep other threads out of Python from now on."""

class Shard:
    """A rank's part of elements that ranks share evenly."""

    @property
    def offset(self) -> int: ...

    @property
    def count(self) -> int: ...

def balanced_shard(elements: int, rank: int, world: int) -> Shard:
    """The part of a rank: the first (elements mod world) ranks own one more."""

def barrier(comm: Communicator) -> None:
    """Returns when all ranks have called it."""

def broadcast(data: Array, root: int, comm: Communicator) -> None:
    """Copy root's elements to all ranks."""

def all_gather(mine: Array, all: Array, comm: Communicator, counts: Sequence[int] | None = None) -> None:
    """
    Write the elements of all ranks, in rank order, to `all` of every rank. `counts` says how
    many each rank has; without it they are balanced.
    """

def reduce_scatter(all: Array, mine: Array, comm: Communicator, counts: Sequence[int] | None = None) -> None:
    """Sum `all` over ranks and write this rank's part of it to `mine`."""

def all_reduce(data: Array, comm: Communicator, out: Array | None = None) -> None:
    """
    Sum over ranks, in place or into `out`, which may be of another dtype. Every rank gets the
    same bits.
    """

def all_to_all(send: Array, receive: Array, comm: Communicator, send_counts: Sequence[int] | None = None, receive_counts: Sequence[int] | None = None) -> None:
    """Send part i of `send` to rank i."""

class Pending:
    """
    A collective under way. Those of one communicator finish in the order in
    which they were started. It keeps its arrays alive; don't touch them until
    it is done.
    """

    def progress(self) -> None:
        """Move what can be moved now."""

    def done(self) -> bool:
        """Make progress, and say whether it has finished."""

    def wait(self) -> None:
        """Return when it has finished."""

def start_barrier(comm: Communicator) -> Pending:
    """barrier(), started."""

def start_broadcast(data: Array, root: int, comm: Communicator) -> Pending:
    """broadcast(), started."""

def start_all_reduce(data: Array, comm: Communicator, out: Array | None = None) -> Pending:
    """all_reduce(), started."""

def start_all_gather(mine: Array, all: Array, comm: Communicator, counts: Sequence[int] | None = None) -> Pending:
    """all_gather(), started."""

def start_reduce_scatter(all: Array, mine: Array, comm: Communicator, counts: Sequence[int] | None = None) -> Pending:
    """reduce_scatter(), started."""

def start_all_to_all(send: Array, receive: Array, comm: Communicator, send_counts: Sequence[int] | None = None, receive_counts: Sequence[int] | None = None) -> Pending:
    """all_to_all(), started."""

def _broadcast_at(data: int, n: int, dtype: Dtype, root: int, comm: Communicator) -> None: ...

def _all_reduce_at(data: int, out: int, n: int, dtype: Dtype, comm: Communicator) -> None: ...

def _all_gather_at(mine: int, n: int, all: int, total: int, dtype: Dtype, comm: Communicator, counts: Sequence[int] | None = None) -> None: ...

def _reduce_scatter_at(all: int, total: int, mine: int, n: int, dtype: Dtype, comm: Communicator, counts: Sequence[int] | None = None) -> None: ...

def _all_to_all_at(send: int, send_counts: Sequence[int], receive: int, receive_counts: Sequence[int], dtype: Dtype, comm: Communicator) -> None: ...

class ReceivedRows:
    """The rows that all_to_all_rows() has received."""

    @property
    def rows(self) -> Array:
        """The rows, for from_dlpack() or a product; no copy."""

    @property
    def groups(self) -> int: ...

    @property
    def counts(self) -> list[int]:
        """How many rows have come from each rank for each group, rank by rank."""

    def rows_of_groups(self) -> list[int]:
        """How many rows each group has."""

def all_to_all_rows(x: Array | TensorView, counts: Sequence[int], comm: Communicator, *, groups: int = 1, back: bool = False, most_rows: int | None = None) -> ReceivedRows:
    """
    Send rows to groups of other ranks, which need not know how many come.

    `counts[rank * groups + group]` of x's rows are for a group of a rank, in this order.
    They are received group by group, each group's by their sources. With `back`, x is in the
    order in which rows were received, and what comes back in that of the first x. More than
    `most_rows` for this rank are refused on all ranks.
    """

def collect_packs(trace: Trace, comm: Communicator) -> list[bytes]:
    """
    Collective. Align the clocks; rank 0 gets every rank's pack, the others none.
    """

def write_timeline(path: str, trace: Trace, comm: Communicator) -> None:
    """Collective. Align the clocks; rank 0 writes what all ranks recorded."""

def align_clock(trace: Trace, comm: Communicator) -> None:
    """
    Collective. Measure the offset of rank 0's clock. Before long work on several hosts: their
    clocks drift apart.
    """

class Operator(enum.Enum):
    """A product with the collective that needs it or makes it."""

    matmul = 0

    matmul_all_reduce = 1

    matmul_reduce_scatter = 2

    matmul_all_gather = 3

    all_gather_matmul = 4

    reduce_scatter_matmul = 5

    all_reduce_matmul = 6

class Schedule(enum.Enum):
    """How a product and its communication interleave."""

    serial = 0

    pipelined = 1

    fused = 2

class Axis(enum.Enum):
    """Along what a product is cut."""

    natural = 0

    rows = 1

    columns = 2

class OperatorTraits:
    """The properties of an operator: what it moves, adds up and shares."""

    @property
    def name(self) -> str: ...

    @property
    def compute_first(self) -> bool:
        """The collective moves the product's result, not its operand."""

    @property
    def reduces(self) -> bool: ...

    @property
    def gathers(self) -> bool: ...

    @property
    def shares_n(self) -> bool:
        """Each rank's weight has a share of n, which may differ."""

    @property
    def shares_k(self) -> bool:
        """
        Each rank's weight has a share of k, which may differ; products are partial
        sums.
        """

    @property
    def is_fused(self) -> bool:
        """There is a fused schedule."""

def traits_of(op: Operator | str) -> OperatorTraits:
    """The properties of an operator."""

class Plan:
    """
    How an operator's product and its communication interleave: Plan("fused"),
    Plan("pipelined parts=8 axis=columns"). It changes the time, never a bit.
    """

    def __init__(self, text: str) -> None: ...

    @property
    def schedule(self) -> Schedule: ...

    @property
    def parts(self) -> int: ...

    @property
    def axis(self) -> Axis: ...

    @property
    def first(self) -> int: ...

    @property
    def last(self) -> int: ...

    @property
    def chunk(self) -> int: ...

    @property
    def poll(self) -> int: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

    def __eq__(self, other: object, /) -> bool: ...

    def __hash__(self) -> int: ...

def default_plan(op: Operator | str) -> Plan:
    """The plan that is taken where no other is named."""

def followed_by(op: Operator | str, plan: Plan | str) -> Plan:
    """The plan, or the nearest that the operator can follow."""

class ShapePlans:
    """
    Plans of single shapes, {(m, k, n): plan}: a mapping that is a part of
    its settings. Keys and plans may also be as CoC writes them:
    {"[16384, 5120, 1920]": 8}.
    """

    def __len__(self) -> int: ...

    def __repr__(self) -> str: ...

    def __iter__(self) -> Iterator[tuple[int, int, int]]: ...

    def __contains__(self, arg: object, /) -> bool: ...

    def __getitem__(self, arg: object, /) -> Plan: ...

    def __setitem__(self, arg0: object, arg1: object, /) -> None: ...

    def __delitem__(self, arg: object, /) -> None: ...

    def __eq__(self, other: object, /) -> bool: ...

    def copy(self) -> dict[tuple[int, int, int], Plan]: ...

    def keys(self) -> list[tuple[int, int, int]]: ...

    def values(self) -> list[Plan]: ...

    def items(self) -> list[tuple[tuple[int, int, int], Plan]]: ...

    def update(self, plans: object) -> None: ...

    def clear(self) -> None: ...

class Settings:
    """
    Options of a whole program, set without changing it: in a file, in the
    environment, or as values.
    """

    def __init__(self) -> None: ...

    def copy(self) -> Settings:
        """A copy of the settings, to change."""

    @property
    def plan(self) -> Plan | None: ...

    @plan.setter
    def plan(self, plan: Plan | str | None) -> None: ...

    @property
    def customized(self) -> ShapePlans:
        """Plans of single shapes: {(m, k, n): plan}."""

    @customized.setter
    def customized(self, arg: object, /) -> None: ...

    @property
    def column_backward(self) -> bool: ...

    @column_backward.setter
    def column_backward(self, arg: bool, /) -> None: ...

    @property
    def recompute_all_gather(self) -> bool: ...

    @recompute_all_gather.setter
    def recompute_all_gather(self, arg: bool, /) -> None: ...

    @property
    def aligned_packing(self) -> bool: ...

    @aligned_packing.setter
    def aligned_packing(self, arg: bool, /) -> None: ...

    @property
    def wire(self) -> Dtype | None: ...

    @wire.setter
    def wire(self, wire: Dtype | str | None) -> None: ...

    @property
    def threads(self) -> int: ...

    @threads.setter
    def threads(self, arg: int, /) -> None: ...

    @property
    def backend(self) -> str: ...

    @backend.setter
    def backend(self, arg: str, /) -> None: ...

    @property
    def plan_cache(self) -> str: ...

    @plan_cache.setter
    def plan_cache(self, arg: str, /) -> None: ...

    @property
    def tune_online(self) -> bool | None: ...

    @tune_online.setter
    def tune_online(self, arg: bool | None, /) -> None: ...

    def __eq__(self, other: object, /) -> bool: ...

@overload
def load_settings() -> Settings:
    """
    Read the file that PLAIT_CONFIG names, and the environment, which goes before it.
    """

@overload
def load_settings(toml: str, file: str = 'settings') -> Settings:
    """
    Read the text of a file, in place of the one that PLAIT_CONFIG names, and the
    environment.
    """

def check_environment() -> list[str]:
    """
    Read every variable that plait reads, and refuse a bad value before ranks connect.

    Returns a sentence for each variable PLAIT_..., COC_... or USE_COC_... that plait does
    not read.
    """

def parse_settings(toml: str, file: str = 'settings') -> Settings:
    """Read settings from the text of a file. Refusals call it `file`."""

class WeightLayout(enum.Enum):
    """How the elements of a weight lie."""

    out_in = 0
    """[n, k]: a row per output, as in torch.nn.Linear."""

    in_out = 1
    """[k, n]: a row per input."""

class QuantPer(enum.Enum):
    """The elements that share a scale."""

    tensor = 0

    channel = 1

    group = 2

class QuantScheme:
    """
    How a weight is quantised: QuantScheme("s8"), QuantScheme("s4:group=64:offsets").
    """

    def __init__(self, text: str) -> None: ...

    @property
    def bits(self) -> int: ...

    @property
    def per(self) -> QuantPer: ...

    @property
    def group(self) -> int: ...

    @property
    def offsets(self) -> bool: ...

    def __str__(self) -> str: ...

    def __repr__(self) -> str: ...

    def __eq__(self, other: object, /) -> bool: ...

class QuantizedWeight:
    """A weight of 8 or 4 bits, with its scales: (value + offset) * scale."""

    @staticmethod
    def from_parts(scheme: QuantScheme | str, n: int, k: int, *, values: Array, layout: WeightLayout | str, scales: Array, offsets: Array | None = None, threads: int = 0) -> QuantizedWeight:
        """
        Copy a weight that was quantised elsewhere: values of int8 (4 bits: two a
        byte, the first in the low half), scales and offsets of shape [1, 1], [1, n]
        or [groups, n].
        """

    @property
    def scheme(self) -> QuantScheme: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def groups(self) -> int: ...

    def values(self) -> Array:
        """
        int8 [n, k], or with 4 bits [n, ceil(k / 2)], for from_dlpack(); no copy.
        """

    def scales(self) -> Array:
        """float32 [groups, n], for from_dlpack(); no copy."""

    def offsets(self) -> Array | None:
        """
        int8 [groups, n], where the scheme has any, for from_dlpack(); no copy.
        """

    def dequantize(self, out: Array, *, layout: WeightLayout | str, threads: int = 0) -> None:
        """Write every weight's value to `out`, of float32, bfloat16 or float16."""

def quantize(weight: Array, *, layout: WeightLayout | str, scheme: QuantScheme | str, threads: int = 0) -> QuantizedWeight:
    """Round every weight to its nearest value, ties to even."""

class PackedWeight:
    """
    A weight made ready for many products: a copy in panels. Any product
    takes it.
    """

    @overload
    def __init__(self, weight: QuantizedWeight, *, threads: int = 0) -> None: ...

    @overload
    def __init__(self, weight: WeightView, *, threads: int = 0) -> None: ...

    @overload
    def __init__(self, weight: Array, *, layout: WeightLayout | str, threads: int = 0) -> None: ...

    def repack(self, weight: WeightView, *, threads: int = 0) -> None:
        """Pack a weight of the same sizes and dtype into the same memory."""

    @property
    def dtype(self) -> Dtype:
        """s8 where it is quantised, with 4 bits too."""

    @property
    def scheme(self) -> QuantScheme | None: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def bytes(self) -> int:
        """The bytes of memory that a product reads."""

def _fingerprint(weight: WeightView) -> int:
    """
    A number that changes with the elements of a weight, and with their places.
    """

class TensorView:
    """
    Rows in memory by their address. The caller keeps the memory alive.
    `device` is "cpu", or a GPU such as "cuda:0".
    """

    def __init__(self, data: int, dtype: Dtype | str, rows: int, cols: int, row_stride: int, *, device: str = 'cpu') -> None: ...

    @property
    def rows(self) -> int: ...

    @property
    def cols(self) -> int: ...

    @property
    def row_stride(self) -> int: ...

    @property
    def device(self) -> str: ...

class WeightView:
    """
    A plain weight, and how it lies: WeightView(w, "out_in").
    Nothing is copied, and nothing is guessed from shapes.
    """

    def __init__(self, view: Array | TensorView, layout: WeightLayout | str) -> None: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def layout(self) -> WeightLayout: ...

    def turned(self) -> WeightView:
        """A view of these elements with inputs and outputs exchanged."""

class WeightKind:
    """The properties of a weight besides its sizes."""

    def __init__(self, dtype: Dtype | str, scheme: QuantScheme | str | None = None, is_packed: bool = False) -> None: ...

    @staticmethod
    def of(weight: PackedWeight | WeightView) -> WeightKind:
        """The kind of a weight."""

    def __str__(self) -> str: ...

class PlanSource:
    """Gives the plan of a problem, the same on every rank."""

def automatic_plans(comm: Communicator, *, cache: str | None = None, online: bool | None = None) -> PlanSource:
    """
    Plans that were measured on this machine, or else chosen by the cost model. Collective.
    """

class PlanReason:
    """The reason for the plan of a problem."""

    @property
    def sentence(self) -> str: ...

    @property
    def serial_ns(self) -> float:
        """The time of a serial call, measured or predicted; 0: unknown."""

    @property
    def transfer_ns(self) -> float:
        """How long the link is busy, as predicted."""

class PlanRow:
    """Calls of one problem in one plan."""

    @property
    def op(self) -> Operator: ...

    @property
    def m(self) -> int: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def dtype(self) -> Dtype: ...

    @property
    def wire(self) -> Dtype: ...

    @property
    def problem(self) -> str: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def calls(self) -> int: ...

    @property
    def hosts(self) -> int: ...

    @property
    def nanoseconds(self) -> int: ...

    @property
    def first(self) -> int:
        """Nanoseconds of the first call."""

    @property
    def reason(self) -> PlanReason | None:
        """Why these calls have this plan."""

    @property
    def is_in_use(self) -> bool:
        """The next call has this plan too, as far as is known."""

class RecordedPlans(PlanSource):
    """
    The plans that settings name, then those of `further`; counts the calls that ask.
    """

    def __init__(self, settings: Settings, further: PlanSource | None = None) -> None: ...

    def rows(self) -> list[PlanRow]: ...

    def forget(self) -> None: ...

def matmul(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '', stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
    """
    out = x·weight, without communication: what the others are compared with.
    """

def matmul_all_reduce(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '', stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
    """
    out = the sum over ranks of x·weight, on every rank.

    x is [m, k_r], weight [k_r, n], out [m, n]. All ranks make the call, with the same
    m, dtypes, wire and plan; every plan gives the same bits. With `plans`, ranks exchange
    their k_r in each call, unless all give their sum as `whole_size`. Other operators of
    shares take it too.
    """

def matmul_reduce_scatter(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '', stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
    """
    out = this rank's rows of the sum over ranks of x·weight.

    x is [m, k_r], weight [k_r, n]; balanced_shard() says which rows are a rank's.
    """

def matmul_all_gather(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '', stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
    """
    out = all ranks' rows of x·weight, of which each rank has its own x.

    x is this rank's rows [m_r, k], weight [k, n], out [m, n].
    """

def all_gather_matmul(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '', stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
    """
    out = all ranks' rows of x by this rank's weight; `gathered` takes all of x.

    x is this rank's rows [m_r, k], weight [k, n_r], out [m, n_r], gathered [m, k].
    """

def reduce_scatter_matmul(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '', stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
    """
    out = this rank's rows of (the sum over ranks of x)·weight.

    x is [m, k], weight [k, n].
    """

def all_reduce_matmul(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '', stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
    """
    out = (the sum over ranks of x)·weight, on every rank.

    x is [m, k], weight [k, n], out [m, n].
    """

class OpDesc:
    """
    The description of an operator without its operands: m rows of all ranks
    together; n and k of this rank's weight.
    """

    def __init__(self, op: Operator | str, *, m: int, n: int, k: int, x: Dtype | str, weight: WeightKind | None = None, out: Dtype | str | None = None, gathered: bool = False, device: str = 'cpu') -> None:
        """
        Weight and out are of the dtype of x unless they are named. All operands of a call are
        on `device`: "cpu", or a GPU such as "cuda:0".
        """

    @property
    def op(self) -> Operator: ...

    @property
    def m(self) -> int: ...

    @property
    def n(self) -> int: ...

    @property
    def k(self) -> int: ...

    @property
    def x(self) -> Dtype: ...

    @property
    def weight(self) -> WeightKind: ...

    @property
    def out(self) -> Dtype: ...

    @property
    def gathered(self) -> bool: ...

    @property
    def device(self) -> str: ...

class SumTree:
    """
    True if sums have the bits of one rank that has all k. Where they have not,
    `refusal` says why, and they are the same in every plan, transport and run,
    but differ between worlds.
    """

    @property
    def refusal(self) -> str | None: ...

    def __bool__(self) -> bool: ...

    def __repr__(self) -> str: ...

def sum_tree(desc: OpDesc, world: int, wire: Dtype | str = Dtype.f32) -> SumTree:
    """
    Not collective. Say whether an operator's sums have the bits of one rank that has all k, if
    each of `world` ranks has a share of k like this rank's.
    """

class Op:
    """
    An operator ready to run many times, with its memory, its mailbox and its
    plan, so that a call negotiates nothing. Each run brings its weight. See
    prepare().
    """

    @property
    def desc(self) -> OpDesc: ...

    @property
    def plan(self) -> Plan: ...

    @property
    def held_bytes(self) -> int:
        """Bytes that it keeps from call to call, without the mailbox."""

    def sum_tree(self) -> SumTree:
        """
        Collective. Say whether its sums have the bits of one rank that has all k.
        """

    def run(self, x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, *, bias: Array | TensorView | None = None, gathered: Array | TensorView | None = None, stream: object | None = None, poll: Callable[[], object] | None = None) -> None:
        """Collective. Takes any number of rows up to the description's."""

def prepare(desc: OpDesc, comm: Communicator, *, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, whole_size: int = -1, threads: int = 0, backend: str = '') -> Op:
    """Collective. Make an operator ready to run many times."""

class Gemm:
    """
    A matrix product of this rank alone, for one thread at a time: rows of k
    elements by a weight.
    """

    def __init__(self, m: int, n: int, k: int, *, x: Dtype | str, weight: Dtype | str, out: Dtype | str, threads: int = 0, backend: str = '') -> None: ...

    @property
    def backend(self) -> str: ...

    def run(self, x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, *, transposed: bool = False, bias: Array | TensorView | None = None, accumulate: bool = False) -> None:
        """Multiply. `transposed`: x is [k, m], as a weight's gradient has it."""

def grouped_matmul(x: Array | TensorView, weights: Sequence[PackedWeight | WeightView], rows: Sequence[int], out: Array | TensorView, *, biases: Sequence[Array | TensorView] | None = None, threads: int = 0, backend: str = '') -> None:
    """
    Multiply groups of rows, each by its own weight, on this rank alone.

    `rows` says how many rows of x are each group's, in their order; 0 is allowed. x is
    [all rows, k], out [all rows, n]. Weights have the same sizes and kind. The bits are
    those of a product for each group.
    """

def _grouped_matmul_of_stack(x: TensorView, weights: TensorView, groups: int, layout: WeightLayout | str, rows: Sequence[int], out: TensorView, biases: TensorView | None = None) -> None: ...

def _grouped_weight_gradients(grad: TensorView, x: TensorView, rows: Sequence[int], out: TensorView) -> None: ...

class _Experts:
    def __init__(self, comm: Communicator, *, hidden: int, inner: int, experts: int, top: int, parts: int, dtype: Dtype | str, wire: Dtype | str, is_packed: bool, layout: WeightLayout | str, activation: str, alpha: float, limit: float | None, added: float, weighted: bool, ranks: Sequence[int], plans: PlanSource | None, replicated: bool, threads: int, backend: str) -> None: ...

    @property
    def schedule(self) -> Schedule: ...

    def forward(self, x: object, ids: int, weights: int, stacks: tuple[object, ...], out: object, gradients: bool, beside: object | None = None) -> tuple[int, list[int]]: ...

    def backward(self, x: object, ids: int, weights: int, stacks: tuple[object, ...], grad_out: object, grad_x: object | None, grad_weights: int, grads: tuple[object, ...]) -> None: ...

class _ExpertsByStacks:
    def __init__(self, layer: _Experts, stacks: tuple[object, ...]) -> None: ...

    def multiply(self, tensors: _TorchTensors, x: object, ids: object, weights: object) -> Any: ...

def all_gather_columns(mine: Array | TensorView, all: Array | TensorView, comm: Communicator, *, counts: Sequence[int] = ()) -> None:
    """
    Bring the columns of all ranks to their places in a matrix that every rank gets.

    `mine` is [m, n_r], and `all` [m, the sum of all n_r]. `counts` is every rank's n_r; without
    it the columns are balanced.
    """

def matmul_all_gather_columns(x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, comm: Communicator, *, counts: Sequence[int] = (), bias: Array | TensorView | None = None, threads: int = 0, backend: str = '', plan: Plan | str | None = None, plans: PlanSource | None = None) -> None:
    """
    out = all ranks' columns of x·weight, of which each rank has a weight for its own.

    x is [m, k], the same on all ranks, weight [k, n_r], out [m, the sum of all n_r]. Columns
    travel to their places while the next ones are multiplied. `counts` is every rank's n_r;
    without it the columns are balanced. `bias` is of this rank's columns. Without `plan` the
    call follows that of `plans`, and without both it is fused.
    """

def all_gather_columns_matmul(x: Array | TensorView, weight: PackedWeight | WeightView, gathered: Array | TensorView, out: Array | TensorView, comm: Communicator, *, counts: Sequence[int] = (), bias: Array | TensorView | None = None, threads: int = 0, backend: str = '', plan: Plan | str | None = None, plans: PlanSource | None = None) -> None:
    """
    out = x·weight, where each rank has some columns of x.

    x is [m, k_r], `gathered` [m, the sum of all k_r], weight [k, n] and out [m, n], which may
    differ from rank to rank. `gathered` receives all columns. Rows arrive while those before
    them are multiplied. `counts` is every rank's k_r; without it the columns are balanced.
    `bias` is of this rank's output. Without `plan` the call follows that of `plans`, and without
    both it is fused.
    """

def matmul_top(x: Array | TensorView, weight: PackedWeight | WeightView, k: int, values: Array, ids: Array, comm: Communicator, *, vocab_size: int = -1, first_id: int = -1, logits: Dtype | str = 'f32', threads: int = 0, backend: str = '') -> None:
    """
    Find the k largest logits of each row and their ids: the lowest of equal ones first.

    All ranks have the same x; `weight` is this rank's rows of the vocabulary. `values` takes
    [m, k] f32, and `ids` [m, k] int64. Ids from `vocab_size` on are padding. Beside it,
    `first_id`, the id of the first row, saves an exchange if all ranks give it. Logits are
    rounded to the dtype `logits` before they are compared.
    """

def matmul_cross_entropy(x: Array | TensorView, weight: PackedWeight | WeightView, targets: Array, out: Array, comm: Communicator, *, log_sum_exp: Array | None = None, label_smoothing: float = 0.0, z_loss: float = 0.0, ignored_target: int = -100, vocab_size: int = -1, first_id: int = -1, logits: Dtype | str = 'f32', threads: int = 0, backend: str = '') -> None:
    """
    Compute the losses of rows whose logits are x·weight, without keeping logits.

    All ranks have the same x and `targets` [m] int64; `weight` is this rank's rows of
    the vocabulary. `out` and `log_sum_exp` take [m] f32, the same on all ranks. A row
    with `ignored_target` has a loss of 0. Ids from `vocab_size` on are padding.
    Logits are rounded to the dtype `logits` before they are used.
    """

def matmul_log_probs(x: Array | TensorView, weight: PackedWeight | WeightView, targets: Array, out: Array, comm: Communicator, *, log_sum_exp: Array | None = None, label_smoothing: float = 0.0, z_loss: float = 0.0, ignored_target: int = -100, vocab_size: int = -1, first_id: int = -1, logits: Dtype | str = 'f32', threads: int = 0, backend: str = '') -> None:
    """
    Compute the logarithms of the targets' probabilities, as matmul_cross_entropy()
    computes losses. label_smoothing and z_loss must be 0.
    """

def matmul_cross_entropy_gradient(x: Array | TensorView, weight: WeightView, targets: Array, log_sum_exp: Array, grad_loss: Array, comm: Communicator, *, grad_log_sum_exp: Array | None = None, dx: Array | TensorView | None = None, dw: Array | TensorView | None = None, accumulate_dw: bool = False, label_smoothing: float = 0.0, z_loss: float = 0.0, ignored_target: int = -100, vocab_size: int = -1, first_id: int = -1, logits: Dtype | str = 'f32', threads: int = 0, backend: str = '') -> None:
    """
    Compute the gradients of matmul_cross_entropy(): of x, summed over ranks, and of the
    weight.

    `log_sum_exp` is what the loss has returned, `grad_loss` [m] the gradient of the result.
    `dx` is [m, k] and `dw` as the weight [ids, k]; None: not wanted, for dx by all ranks.
    `accumulate_dw` adds to dw.
    """

def matmul_cross_entropy_with_gradient(x: Array | TensorView, weight: WeightView, targets: Array, grad_loss: Array, comm: Communicator, *, losses: Array, log_sum_exp: Array, dx: Array | TensorView | None = None, dw: Array | TensorView | None = None, label_smoothing: float = 0.0, z_loss: float = 0.0, ignored_target: int = -100, vocab_size: int = -1, first_id: int = -1, logits: Dtype | str = 'f32', threads: int = 0, backend: str = '') -> None:
    """
    Compute losses and their gradients at once, by three products in place of four.

    `grad_loss` [m] is the gradient of the result. `losses` and `log_sum_exp` take what
    matmul_cross_entropy() computes, and `dx` and `dw` what matmul_cross_entropy_gradient()
    does. dw is rounded after each 512 rows.
    """

class LinearDesc:
    """The description of a layer: this rank's sizes."""

    def __init__(self, *, inputs: int, outputs: int, layout: WeightLayout | str, weight: WeightKind, turned: WeightKind | None = None) -> None: ...

class LinearOptions:
    """How a layer works: the same on all ranks."""

    def __init__(self, *, sequence_parallel: bool = True, recompute_all_gather: bool = True, column_backward: bool = False, aligned_packing: bool = True, wire: Dtype | str | None = Dtype.f32, plan: Plan | str | None = None, plans: PlanSource | None = None, threads: int = 0, backend: str = '') -> None: ...

    @property
    def sequence_parallel(self) -> bool: ...

    @sequence_parallel.setter
    def sequence_parallel(self, arg: bool, /) -> None: ...

    @property
    def recompute_all_gather(self) -> bool: ...

    @recompute_all_gather.setter
    def recompute_all_gather(self, arg: bool, /) -> None: ...

    @property
    def column_backward(self) -> bool: ...

    @column_backward.setter
    def column_backward(self, arg: bool, /) -> None: ...

    @property
    def aligned_packing(self) -> bool: ...

    @aligned_packing.setter
    def aligned_packing(self, arg: bool, /) -> None: ...

class LinearState:
    """Values that a backward takes over from its forward."""

    def __init__(self) -> None: ...

    @property
    def held_bytes(self) -> int: ...

def linear_options(settings: Settings, plans: PlanSource) -> LinearOptions:
    """Options of layers, as the settings say."""

class LinearMemory:
    """The memory that the layers of a communicator hold together, in bytes."""

    @property
    def mailboxes(self) -> int: ...

    @property
    def operators(self) -> int: ...

    @property
    def workspace(self) -> int: ...

def linear_memory(comm: Communicator) -> LinearMemory:
    """The memory that the layers of a communicator hold together."""

class _Linear:
    """Either of the two layers."""

class ColumnParallelLinear(_Linear):
    """
    A linear layer whose outputs the ranks share. It keeps sizes and
    settings: each call brings its operands.
    """

    def __init__(self, desc: LinearDesc, comm: Communicator, options: LinearOptions | None = None) -> None:
        """Collective: ranks tell one another their shares."""

    def forward(self, x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, *, bias: Array | TensorView | None = None, state: LinearState | None = None) -> None:
        """
        Collective. `bias` is [1, outputs]: this rank's of a column layer, all of a row layer.
        """

    def backward(self, grad_out: Array | TensorView, *, x: Array | TensorView | None = None, weight: PackedWeight | WeightView | None = None, turned: PackedWeight | WeightView | None = None, grad_x: Array | TensorView | None = None, grad_weight: Array | TensorView | None = None, grad_bias: Array | TensorView | None = None, accumulate: bool = False, rows: int = -1, state: LinearState | None = None) -> None:
        """
        Collective. A gradient that is left out is not asked for. `x` is needed for
        grad_weight, `weight` or `turned` for grad_x.
        """

class RowParallelLinear(_Linear):
    """
    A linear layer whose inputs the ranks share. It keeps sizes and
    settings: each call brings its operands.
    """

    def __init__(self, desc: LinearDesc, comm: Communicator, options: LinearOptions | None = None) -> None:
        """Collective: ranks tell one another their shares."""

    def forward(self, x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, *, bias: Array | TensorView | None = None, state: LinearState | None = None) -> None:
        """
        Collective. `bias` is [1, outputs]: this rank's of a column layer, all of a row layer.
        """

    def backward(self, grad_out: Array | TensorView, *, x: Array | TensorView | None = None, weight: PackedWeight | WeightView | None = None, turned: PackedWeight | WeightView | None = None, grad_x: Array | TensorView | None = None, grad_weight: Array | TensorView | None = None, grad_bias: Array | TensorView | None = None, accumulate: bool = False, rows: int = -1, state: LinearState | None = None) -> None:
        """
        Collective. A gradient that is left out is not asked for. `x` is needed for
        grad_weight, `weight` or `turned` for grad_x.
        """

class _TorchTensors:
    """Reads tensors of torch by the functions of their type."""

    def __init__(self, tensor: object, parameter: object, is_grad_enabled: object, empty_strided: object | None = None) -> None: ...

    @property
    def has_table(self) -> bool:
        """True if torch's type has the functions; otherwise nothing is read."""

class _TorchOperator:
    """One operator's calls of tensors of torch."""

    def __init__(self, tensors: _TorchTensors, op: Operator, comm: Communicator, plans: PlanSource, samples: object, *, wire: Dtype | str | None, threads: int, backend: str) -> None:
        """
        `samples` has trace(comm, plans, call), which makes a call and keeps its trace.
        """

    def run(self, x: object, weight: object, bias: object | None, turned: bool, rows: int) -> Any:
        """
        Multiply, and return a new tensor; None where the operands are not what it takes: plain
        matrices of one dtype on the CPU, with rows whose elements lie side by side.
        """

    def call(self, x: object, weight: object, bias: object | None, turned: bool, rows: int) -> Any:
        """
        Do the same, or return NotImplemented where autograd has to see the result.
        """

    def run_packed(self, x: object, weight: PackedWeight, bias: object | None, whole_size: int) -> Any:
        """
        Multiply by a packed weight, and return a new tensor; dimensions of x before the last
        one are rows. None where x or the bias can't be viewed as they are.
        """

    def forget_calls(self) -> None:
        """Start counting anew which to trace."""

class _TorchModes:
    """Tells if something has to see each call of torch in this thread."""

    def __init__(self, questions: Sequence[Callable[[], object]], forward_ad: object) -> None: ...

    def are_on(self) -> bool:
        """True if a question has an answer, or there is a level."""

class _Tally:
    """Counts calls of layers, and says which of them are traced."""

    def __init__(self) -> None: ...

    def clear(self) -> None: ...

class _DirectLayer:
    """A layer's calls with all rows and without gradients."""

    def __init__(self, tensors: _TorchTensors, modes: _TorchModes, layer: _Linear, tally: _Tally, *, kind: str, group: object, groups: object, options: object, comm: object, plans: object, samples: object) -> None:
        """
        `group` is a weak reference, `groups` a dictionary of those that are not destroyed.
        `samples` has trace(comm, plans, call), which makes a call and keeps its trace.
        """

    @property
    def kind(self) -> str:
        """The layer's: "column" or "row"."""

    @property
    def packs(self) -> bool:
        """True if its weight is a PackedWeight."""

    def multiply(self, x: object, weight: object, bias: object | None, group: object, options: object) -> Any:
        """
        Do what forward() does of tensors of torch, and return a new one. It returns None
        where the call is not as the layer's first one was: of the same group and options, by
        plain tensors of the layer's sizes and dtype on the CPU, whose rows lie one behind
        another, that need no gradient, and with nothing of torch that has to see the call.
        """

    def multiply_shares(self, x: object, parameters: dict[str, Any], dtensor: type, group: object, options: object) -> Any:
        """
        Do the same by this rank's share of a module's weight and bias, which are DTensors.
        """

def qkv_columns(heads: int, kv_heads: int, size: int, world: int, *, interleaved: bool = False) -> list[list[tuple[int, int]]]:
    """
    The columns of each rank's heads in a weight of q, k and v: [all q | all k | all v],
    or with `interleaved` for each kv head [its q | k | v]. Pairs of a first column and
    a number of columns.
    """

def head_columns(heads: int, kv_heads: int, size: int, world: int, *, interleaved: bool = False) -> list[list[tuple[int, int]]]:
    """
    The columns of each rank's heads alone, which the product after an attention reads.
    """

def equal_columns(columns: int, world: int) -> list[list[tuple[int, int]]]:
    """
    Equal shares of columns; the first ranks have one more where it is uneven.
    """

class UlyssesState:
    """The rows that UlyssesOutput.forward() keeps for backward()."""

    def __init__(self) -> None: ...

    @property
    def held_bytes(self) -> int: ...

class UlyssesQKV:
    """
    Own rows by a whole weight; each rank gets all rows of its own columns. With all ranks'
    rows in one rank it has the same bits.
    """

    def __init__(self, inputs: int, outputs: int, columns: Sequence[Sequence[tuple[int, int]]], comm: Communicator, *, layout: WeightLayout | str = WeightLayout.out_in, plan: Plan | str | None = None, plans: PlanSource | None = None, threads: int = 0, backend: str = '') -> None:
        """
        Sizes of the whole weight, and for each rank pairs of a first column and a number of
        columns.
        """

    def forward(self, x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, *, bias: Array | TensorView | None = None, state: UlyssesState | None = None) -> None:
        """
        Collective. `bias` is [1, outputs], all of them. UlyssesQKV uses no state.
        """

    def backward(self, grad_out: Array | TensorView, *, x: Array | TensorView | None = None, weight: WeightView | None = None, grad_x: Array | TensorView | None = None, grad_weight: Array | TensorView | None = None, grad_bias: Array | TensorView | None = None, accumulate: bool = False, state: UlyssesState | None = None) -> None:
        """
        Collective. A gradient that is left out is not asked for. Those of weight and bias are
        sums over this rank's rows. `x` is needed for grad_weight, `weight` for grad_x.
        """

class UlyssesOutput:
    """
    All rows of own columns go to their owners, which multiply their rows by a whole weight.
    With all columns in one rank it has the same bits.
    """

    def __init__(self, inputs: int, outputs: int, columns: Sequence[Sequence[tuple[int, int]]], comm: Communicator, *, layout: WeightLayout | str = WeightLayout.out_in, plan: Plan | str | None = None, plans: PlanSource | None = None, threads: int = 0, backend: str = '') -> None:
        """
        Sizes of the whole weight, and for each rank pairs of a first column and a number of
        columns.
        """

    def forward(self, x: Array | TensorView, weight: PackedWeight | WeightView, out: Array | TensorView, *, bias: Array | TensorView | None = None, state: UlyssesState | None = None) -> None:
        """
        Collective. `bias` is [1, outputs], all of them. UlyssesQKV uses no state.
        """

    def backward(self, grad_out: Array | TensorView, *, x: Array | TensorView | None = None, weight: WeightView | None = None, grad_x: Array | TensorView | None = None, grad_weight: Array | TensorView | None = None, grad_bias: Array | TensorView | None = None, accumulate: bool = False, state: UlyssesState | None = None) -> None:
        """
        Collective. A gradient that is left out is not asked for. Those of weight and bias are
        sums over this rank's rows. `x` is needed for grad_weight, `weight` for grad_x.
        """
