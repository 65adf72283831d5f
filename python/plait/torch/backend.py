"""The backend "plait" of torch.distributed.

Sums of float32, bfloat16 and float16 (SUM and AVG), and what only moves data, of any dtype, go over
plait: all_reduce, reduce_scatter, all_gather, broadcast, all_to_all and barrier in all their forms.
Everything else goes to an inner gloo group: other operations and dtypes of sums, gather, scatter,
reduce, send and recv. int8 is summed by gloo, because plait's sums of int8 saturate where torch's
wrap around. What goes where depends on what all ranks of a call have in common. Where gloo loses a
rank, plait's communicator of the same ranks says which, and Error names it.

A call that plait serves is done when it returns, also with async_op=True: its Work is complete.
With async_op=True gloo works on after the call; wait() and barrier() return when it is done.
"""

import os
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import (
    AllgatherOptions,
    AllreduceOptions,
    BroadcastOptions,
    PrefixStore,
    ReduceScatterOptions,
    Store,
)
from torch.distributed import ProcessGroup, ReduceOp
from torch.torch_version import TorchVersion

from plait import _native
from plait._native import Code, Communicator
from plait.errors import Error
from plait.torch import gloo, groups, tensors
from plait.torch.flat import Flat
from plait.torch.works import Done

SUMMED = (torch.float32, torch.bfloat16, torch.float16)


def _is_moved(sent: Sequence[torch.Tensor]) -> bool:
    """Say whether plait moves these; gloo refuses an empty list."""
    return len(sent) > 0 and all(each.layout == torch.strided for each in sent)


def _is_one(sent: Any) -> bool:
    """Say whether a call is given one tensor; gloo adds up, copies or gathers several as one."""
    return isinstance(sent, (list, tuple)) and len(sent) == 1


def _is_mean(opts: Any) -> bool:
    return opts is not None and opts.reduceOp == ReduceOp.AVG


class PlaitProcessGroup(ProcessGroup):
    """A process group of which plait serves what it can; see the module."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        # The one constructor that lets Python override; it takes no store.
        super().__init__(rank, size)  # type: ignore[call-arg]
        default = dist.group.WORLD
        if isinstance(default, PlaitProcessGroup):
            default._check_process("new_group")
        self._store = store = groups.fresh(PrefixStore("plait/", store), size)
        self._process = os.getpid()
        self._communicator: Communicator | None = None
        self._has_gloos_works = False  # since the last barrier: on all ranks, or on none
        groups.meet(PrefixStore("meet/", store), rank, size, timeout)  # gloo waits blindly
        inner = dist.ProcessGroupGloo(PrefixStore("gloo/", store), rank, size, timeout=timeout)
        # One that destroys the group at once would close what a slower rank still connects to.
        groups.meet(PrefixStore("met/", store), rank, size, timeout)
        if TorchVersion(torch.__version__) < "2.14":  # where it does something, and no warning
            inner._set_sequence_number_for_group()
        self._inner: Any = ProcessGroup(store, rank, size)
        # Methods that are not overridden here find gloo through their base class.
        for group in (self, self._inner):
            group._register_backend(torch.device("cpu"), ProcessGroup.BackendType.GLOO, inner)
            group._set_default_backend(ProcessGroup.BackendType.GLOO)

    @property
    def communicator(self) -> Communicator:
        """Made by the first call that plait serves, which all ranks make."""
        if self._communicator is None:
            self._check_process("connect")
            self._communicator = groups.connect(
                PrefixStore("ranks/", self._store),
                self.rank(),
                self.size(),
                groups.timeout_of(self),  # torch may have changed it since
            )
        return self._communicator

    # The calls that go over plait: the same answer on all ranks of a call.

    def _is_summed(self, sent: Sequence[torch.Tensor], opts: Any) -> bool:
        return (
            (opts is None or opts.reduceOp == ReduceOp.SUM or _is_mean(opts))
            and all(each.dtype in SUMMED for each in sent)
            and _is_moved(sent)
        )

    def _by_gloo(self, name: str, *given: Any, **named: Any) -> dist.Work:
        """Let gloo make a collective, which all ranks call."""
        work: dist.Work = gloo.call(self._inner, self.communicator, name, given, named)
        self._has_gloos_works = True
        return work

    def _with_peer(self, name: str, peer: int | None, *given: Any) -> dist.Work:
        """Let gloo make a call that only two ranks make."""
        self._check_process(name)
        whose = -1 if peer is None else peer
        work: dist.Work = gloo.call(self._inner, self._communicator, name, given, {}, whose)
        return work

    def _check_process(self, operator: str) -> None:
        """Refuse a forked process: gloo would wait there for threads that only its parent has."""
        if os.getpid() != self._process:
            raise _wrong(
                operator,
                f"this process was forked from rank {self.rank()}, whose process group it cannot "
                "use",
            )

    def get_group_store(self) -> Store:
        """For what others keep there."""
        return self._store

    def getBackendName(self) -> str:
        """For torch's messages."""
        return "plait"

    @property
    def options(self) -> Any:
        """The inner group's, with the timeout of both."""
        return self._inner._get_backend(torch.device("cpu")).options

    def abort(self) -> None:
        """End the group: every rank's current or next call raises."""
        if self._communicator is not None:
            self._communicator.abort("torch.distributed aborted the group")

    def shutdown(self) -> None:
        """Leave the group."""
        if self._communicator is not None:
            self._communicator.leave()

    # Sums.

    def _sum(self, sent: torch.Tensor, received: torch.Tensor, opts: Any) -> None:
        if sent is received:
            to = Flat(sent, "all_reduce")
            _native._all_reduce_at(to.at, to.at, to.n, to.dtype, self.communicator)
        else:
            from_ = Flat(sent, "reduce_scatter", "input")
            to = Flat(received, "reduce_scatter", "output", read=False)
            self._check_parts("reduce_scatter", to, from_)
            _native._reduce_scatter_at(
                from_.at, from_.n, to.at, to.n, from_.dtype, self.communicator
            )
        if _is_mean(opts):
            to.flat.detach().div_(self.size())
        to.put_back()

    def allreduce(self, sent: Any, opts: Any = None, *rest: Any, **named: Any) -> dist.Work:
        """Sum in place."""
        if isinstance(opts, AllreduceOptions) and self._is_summed(sent, opts):
            if _is_one(sent):
                self._sum(sent[0], sent[0], opts)
                return Done(sent)
            if _is_mean(opts):  # of several, gloo divides only one by the number of ranks
                raise _wrong("all_reduce", f"AVG takes one tensor, not {len(sent)}")
        return self._by_gloo("allreduce", sent, *_given(opts), *rest, **named)

    def allreduce_coalesced(self, sent: Any, opts: Any = None) -> dist.Work:
        """Sum several in place."""
        if not self._is_summed(sent, opts):
            return self._by_gloo("allreduce_coalesced", sent, *_given(opts))
        for tensor in sent:
            self._sum(tensor, tensor, opts)
        return Done(sent)

    def reduce_scatter_single(
        self, received: torch.Tensor, sent: torch.Tensor, opts: Any = None
    ) -> dist.Work:
        """Sum `sent`, and keep this rank's part."""
        return self.reduce_scatter_single_coalesced([received], [sent], opts)

    def reduce_scatter_single_coalesced(
        self, received: Any, sent: Any, opts: Any = None
    ) -> dist.Work:
        """Sum several, and keep this rank's part of each."""
        if not self._is_summed(sent, opts):
            name = "reduce_scatter_single_coalesced"
            return self._by_gloo(name, received, sent, *_given(opts))
        for to, from_ in zip(received, sent, strict=True):
            self._sum(from_, to, opts)
        return Done(received)

    def reduce_scatter(
        self, received: Any, sent: Any, opts: Any = None, *rest: Any, **named: Any
    ) -> dist.Work:
        """Sum one tensor a rank, and keep this rank's."""
        if (
            not isinstance(opts, ReduceScatterOptions)
            or not _is_one(sent)
            or not _is_one(received)
            or not self._is_summed(sent[0], opts)
        ):
            return self._by_gloo("reduce_scatter", received, sent, *_given(opts), *rest, **named)
        (to,), (parts,) = received, sent
        self._check_same("reduce_scatter", to, parts)
        self._sum(torch.cat([part.detach().reshape(-1) for part in parts]), to, opts)
        return Done(received)

    # Collectives that only move data.

    def broadcast(self, sent: Any, opts: Any = None, *rest: Any, **named: Any) -> dist.Work:
        """Copy root's elements to all ranks."""
        if (
            not isinstance(opts, BroadcastOptions)
            or opts.rootTensor != 0
            or not _is_one(sent)
            or not _is_moved(sent)
        ):
            return self._by_gloo("broadcast", sent, *_given(opts), *rest, **named)
        data = Flat(sent[0], "broadcast")
        _native._broadcast_at(data.at, data.n, data.dtype, opts.rootRank, self.communicator)
        data.put_back()
        return Done(sent)

    def all_gather_single(
        self, received: torch.Tensor, sent: torch.Tensor, opts: Any = None
    ) -> dist.Work:
        """Gather the elements of all ranks, in their order."""
        return self.all_gather_single_coalesced([received], [sent], opts)

    def all_gather_single_coalesced(self, received: Any, sent: Any, opts: Any = None) -> dist.Work:
        """Gather several."""
        if not _is_moved(sent):
            return self._by_gloo("all_gather_single_coalesced", received, sent, *_given(opts))
        for to, from_ in zip(received, sent, strict=True):
            self._gather(from_, to)
        return Done(received)

    def _gather(self, sent: torch.Tensor, received: torch.Tensor) -> None:
        from_ = Flat(sent, "all_gather", "input")
        to = Flat(received, "all_gather", "output", read=False)
        self._check_parts("all_gather", from_, to)
        _native._all_gather_at(from_.at, from_.n, to.at, to.n, from_.dtype, self.communicator)
        to.put_back()

    def allgather(
        self, received: Any, sent: Any, opts: Any = None, *rest: Any, **named: Any
    ) -> dist.Work:
        """Gather one tensor a rank."""
        if not isinstance(opts, AllgatherOptions) or not _is_one(sent) or not _is_moved(sent):
            return self._by_gloo("allgather", received, sent, *_given(opts), *rest, **named)
        return self.allgather_coalesced(list(zip(*received, strict=True)), sent, opts)

    def allgather_coalesced(self, received: Any, sent: Any, opts: Any = None) -> dist.Work:
        """Gather one tensor a rank of several: `received[i][j]` is rank i's tensor j."""
        if not _is_moved(sent):
            return self._by_gloo("allgather_coalesced", received, sent, *_given(opts))
        for parts, from_ in zip(zip(*received, strict=True), sent, strict=True):
            self._check_same("all_gather", from_, parts)
            whole = torch.empty((self.size(), *from_.shape), dtype=from_.dtype)
            self._gather(from_, whole)
            for part, each in zip(parts, whole, strict=True):
                part.detach().copy_(each.view(part.shape))
        return Done(received)

    def all_to_all_single(
        self,
        received: torch.Tensor,
        sent: torch.Tensor,
        received_splits: Sequence[int],
        sent_splits: Sequence[int],
        *rest: Any,
        **named: Any,
    ) -> dist.Work:
        """Send rows of `sent` to each rank: equally many, or as the splits say."""
        if not _is_moved([sent]):
            return self._by_gloo(
                "all_to_all_single", received, sent, received_splits, sent_splits, *rest, **named
            )
        from_ = Flat(sent, "all_to_all", "input")
        to = Flat(received, "all_to_all", "output", read=False)
        self._exchange(
            from_, to, self._counts(from_, sent_splits), self._counts(to, received_splits)
        )
        return Done([received])

    def alltoall(self, received: Any, sent: Any, *rest: Any, **named: Any) -> dist.Work:
        """Send tensor i of `sent` to rank i."""
        if not _is_moved(sent):
            return self._by_gloo("alltoall", received, sent, *rest, **named)
        for name, given in (("input", sent), ("output", received)):
            if len(given) != self.size():
                sentence = f"{name}_tensor_list has {len(given)} tensors for {self.size()} ranks"
                raise _wrong("all_to_all", sentence)
            for place, each in enumerate(given):
                tensors.check(each, "all_to_all", f"{name}_tensor_list[{place}]")
        from_ = Flat(torch.cat([each.detach().reshape(-1) for each in sent]), "all_to_all")
        whole = torch.empty(sum(each.numel() for each in received), dtype=from_.flat.dtype)
        to = Flat(whole, "all_to_all")
        scale = tensors.movable(whole.new_empty(1))[0]
        self._exchange(
            from_,
            to,
            [each.numel() * scale for each in sent],
            [each.numel() * scale for each in received],
        )
        for each, part in zip(
            received, torch.split(whole, [e.numel() for e in received]), strict=True
        ):
            each.detach().copy_(part.view(each.shape))
        return Done(received)

    def _exchange(self, from_: Flat, to: Flat, send: Sequence[int], receive: Sequence[int]) -> None:
        _native._all_to_all_at(from_.at, send, to.at, receive, from_.dtype, self.communicator)
        to.put_back()

    def _counts(self, data: Flat, splits: Sequence[int]) -> list[int]:
        rows = data.flat.shape[0] if data.flat.dim() else 1
        if not splits:
            if rows % self.size() != 0:
                raise _wrong("all_to_all", f"{rows} rows cannot be split among {self.size()} ranks")
            splits = [rows // self.size()] * self.size()
        if len(splits) != self.size() or sum(splits) != rows or min(splits) < 0:
            raise _wrong("all_to_all", f"the splits {list(splits)} are not {rows} rows")
        return [data.n // rows * split if rows else 0 for split in splits]

    def barrier(self, *rest: Any, **named: Any) -> dist.Work:
        """Return when all ranks have called it, and this rank's collectives are done."""
        _native.barrier(self.communicator)  # which names a rank that does not come
        if self._has_gloos_works:
            self._has_gloos_works = False
            gloo.call(self._inner, self.communicator, "barrier", (), {}).wait()
        return Done(None)

    # Collectives that gloo alone serves.

    def reduce(self, *given: Any, **named: Any) -> dist.Work:
        """Sum on one rank."""
        return self._by_gloo("reduce", *given, **named)

    def gather(self, *given: Any, **named: Any) -> dist.Work:
        """Gather on one rank."""
        return self._by_gloo("gather", *given, **named)

    def scatter(self, *given: Any, **named: Any) -> dist.Work:
        """Send a tensor of one rank to each."""
        return self._by_gloo("scatter", *given, **named)

    def send(self, sent: Any, peer: int, tag: int) -> dist.Work:
        """Send to a rank."""
        return self._with_peer("send", peer, sent, peer, tag)

    def recv(self, received: Any, peer: int, tag: int) -> dist.Work:
        """Receive from a rank."""
        return self._with_peer("recv", peer, received, peer, tag)

    def recv_anysource(self, received: Any, tag: int) -> dist.Work:
        """Receive from any rank."""
        return self._with_peer("recv_anysource", None, received, tag)

    # The names of torch before 2.13.
    _allgather_base = all_gather_single
    allgather_into_tensor_coalesced = all_gather_single_coalesced
    _reduce_scatter_base = reduce_scatter_single
    reduce_scatter_tensor_coalesced = reduce_scatter_single_coalesced
    alltoall_base = all_to_all_single

    def _check_parts(self, operator: str, part: Flat, whole: Flat) -> None:
        if part.n * self.size() != whole.n or part.flat.dtype != whole.flat.dtype:
            raise _wrong(
                operator,
                f"{part.n} elements of {part.flat.dtype} on each of {self.size()} ranks are not "
                f"{whole.n} of {whole.flat.dtype}",
            )

    def _check_same(self, operator: str, one: torch.Tensor, parts: Sequence[torch.Tensor]) -> None:
        if len(parts) != self.size():
            raise _wrong(operator, f"{len(parts)} tensors are not one for each of {self.size()}")
        for part in parts:
            if part.numel() != one.numel() or part.dtype != one.dtype:
                raise _wrong(
                    operator,
                    f"a tensor of {part.numel()} elements of {part.dtype} is among those of "
                    f"{one.numel()} of {one.dtype}",
                )


def _wrong(operator: str, sentence: str) -> Error:
    return Error(Code.invalid_argument, f"{operator}: {sentence}", operator=operator)


def _given(opts: object) -> tuple[object, ...]:
    return () if opts is None else (opts,)
