"""The state that plait keeps for a process group: plans, layers made, and a record of calls."""

import atexit
import itertools
import os
import threading
from collections import deque
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import Any
from weakref import WeakKeyDictionary, WeakSet, finalize, ref

import torch.distributed as dist

from plait import _native
from plait.errors import refuse
from plait.torch import groups, tensors
from plait.torch.counts import Counts
from plait.torch.options import Options
from plait.torch.recording import recorded
from plait.torch.sampling import Samples
from plait.torch.weights import Owner

Layer = _native.ColumnParallelLinear | _native.RowParallelLinear
Group = Callable[[], dist.ProcessGroup | None]  # a weak reference


@dataclass(eq=False)
class Context:
    """Serves one communicator with one set of options."""

    options: Options
    comm: _native.Communicator
    settings: _native.Settings
    plans: _native.RecordedPlans
    group: Group  # nothing in a program without process groups
    group_name: str  # "" there
    layers: WeakKeyDictionary[Owner, dict[Hashable, Layer]] = field(
        default_factory=WeakKeyDictionary
    )
    direct: WeakKeyDictionary[Owner, Any] = field(default_factory=WeakKeyDictionary)
    experts: dict[Hashable, Any] = field(default_factory=dict)  # layers by their sizes
    samples: Samples = field(default_factory=Samples)
    lock: threading.RLock = field(default_factory=threading.RLock)
    number: int = field(default_factory=itertools.count().__next__)
    world: int = field(init=False)  # after it is left, a communicator can't tell its world

    def __post_init__(self) -> None:
        self.world = self.comm.world
        options = self.options
        # The arguments that stand for the same in torch's operators: group, schedule, parts and
        # wire.
        self.how = self.group_name, options.schedule or "", options.parts or 0, options.wire or ""
        self.operators = self._operators()
        self.itself = ref(self)  # for graphs, which may outlive the context

    def _operators(self) -> dict[str, _native._TorchOperator]:
        """Make what calls each operator by itself, which no options for layers can have."""
        options, settings = self.options, self.settings
        if options.engine != "native" or options.settings is not None:
            return {}
        return {
            op.name: _native._TorchOperator(
                tensors.TORCH,
                op,
                self.comm,
                self.plans,
                self.samples,
                wire=settings.wire,
                threads=settings.threads,
                backend=settings.backend,
            )
            for op in _native.Operator
        }

    def run(self, shape: Hashable, call: Callable[[], None]) -> None:
        """Make a native call, and record now and then where its time goes."""
        if self.samples.is_due(shape):
            self.samples.trace(self.comm, self.plans, call)
        else:
            call()

    def place(self) -> tuple[int, int]:
        """Return this rank and the number of ranks."""
        return self.comm.rank, self.comm.world

    def close(self) -> None:
        """Drop what is native: a graph that the program still has at its end holds the context."""
        self.layers.clear()
        self.direct.clear()
        self.experts.clear()
        self.samples.direct.clear()
        vars(self).update(comm=None, settings=None, plans=None, operators={})

    def linear_options(self, sequence_parallel: bool) -> _native.LinearOptions:
        """Return the options of a layer."""
        options = _native.linear_options(self.settings, self.plans)
        options.sequence_parallel = sequence_parallel
        return options

    def layer(self, owner: Owner, key: Hashable, make: Callable[[], Layer]) -> Layer:
        """Return a layer of an owner, and make it where this is its first call: collectively.

        Ranks may have unequal shares: a key of sizes alone might be known on one rank and new on
        another, which would wait for it.
        """
        found = self.layers.get(owner, {}).get(key)
        if found is None:
            with self.lock:  # two threads may make their first calls at once
                known = self.layers.setdefault(owner, {})
                found = known.get(key)
                if found is None:
                    found = known[key] = make()
        return found


@dataclass
class _Kept:
    """The state of one process group; it goes with the group."""

    comm: _native.Communicator
    contexts: list[Context] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)


_kept: WeakKeyDictionary[dist.ProcessGroup, _Kept] = WeakKeyDictionary()
_alone: _Kept | None = None  # of a program without process groups: one rank
_contexts: WeakSet[Context] = WeakSet()  # the program's graphs hold some whose groups are gone
_past = Counts()  # of groups that have gone
# Guards the four variables above; never held while a rank waits for others.
_lock = threading.RLock()
# Contexts that have gone and are not in _past yet, by their numbers. The garbage collector adds to
# it at any moment, in a thread that may hold the lock.
_gone: deque[tuple[int, Counts]] = deque()
_of_parents: list[_Kept | None] = []  # what _alone was in processes that this was forked from


def group_of(group: dist.ProcessGroup | None, operator: str) -> dist.ProcessGroup | None:
    """Return the group, the default one, or None in a program that has none."""
    if group is not None or dist.is_initialized():
        return groups.member(group, operator)
    if groups.were_used():
        refuse(
            operator,
            "the default process group was destroyed; call "
            "torch.distributed.init_process_group() again",
        )
    return None


def _kept_alone() -> _Kept:
    global _alone
    with _lock:
        if _alone is None:
            place = _native.Place(0, 1, "alone")
            _alone = _Kept(recorded(_native.Communicator.connect(place=place)))
        return _alone


def _begin_child() -> None:
    """Leave to the parent what serves it alone, since a thread of the parent may be using it."""
    global _alone, _lock
    _lock = threading.RLock()
    _of_parents.append(_alone)
    _alone = None


os.register_at_fork(after_in_child=_begin_child)


def _kept_for(group: dist.ProcessGroup | None, operator: str) -> _Kept:
    member = group_of(group, operator)
    if member is None:
        return _kept_alone()
    found = _kept.get(member)
    if found is not None:
        return found
    comm = groups.communicator_of_member(member)
    destroyed = []
    with _lock:
        found = _kept.get(member)
        if found is None:
            for gone in [one for one in _kept if not groups.is_alive(one)]:
                destroyed.append(_kept.pop(gone))  # a module may still hold the group itself
                _found.clear()
            found = _kept[member] = _Kept(comm)
            # The entry is dropped with the group; the counts of its contexts stay.
            finalize(member, _let_go, found.contexts).atexit = False
    for kept in destroyed:
        _let_go(kept.contexts)
    return found


def _let_go(contexts: list[Context]) -> None:
    for context in contexts:
        counts = Counts()
        counts.add(context.plans, context.samples)
        _gone.append((context.number, counts))
    contexts.clear()


def communicator_of(group: dist.ProcessGroup | None, operator: str) -> _native.Communicator:
    """Return the communicator of a group, or of this process alone where there are no groups."""
    return _kept_for(group, operator).comm


# The results of context_of(), by the identities of group and options: looking them up takes longer
# than all else in a small call.
_Found = tuple[ref[dist.ProcessGroup], Options, Context]
_found: dict[tuple[int, int], _Found] = {}
_MOST_FOUND = 256  # a program may make its options anew for each call


def known_context(group: object, options: Options) -> Context | None:
    """Return what context_of() has found before."""
    if group is None:
        group = dist.GroupMember.WORLD
    found = _found.get((id(group), id(options)))
    # An identity may be that of another group, which was made after the first one had gone.
    if found is not None and group is not None and found[0]() is group and found[1] is options:
        if groups.is_alive(group):
            return found[2]
    return None


def context_of(group: dist.ProcessGroup | None, options: Options, operator: str) -> Context:
    """Return what is kept for a group, and make it where this is its first call: collectively."""
    if group is None:
        group = dist.GroupMember.WORLD
    known = known_context(group, options)
    if known is not None:
        return known
    context = _look_for(group, options, operator)
    if group is not None:
        key = (id(group), id(options))
        if len(_found) >= _MOST_FOUND:
            _found.clear()
        _found[key] = (ref(group, lambda _: _found.pop(key, None)), options, context)
    return context


def _no_group() -> None:
    """Stand in for a reference to the group of a program that has none."""


def _look_for(group: dist.ProcessGroup | None, options: Options, operator: str) -> Context:
    return _context_in(_kept_for(group, operator), group, options)


def context_alone(options: Options) -> Context:
    """Return what is kept for calls of this process by itself, in a program with groups too."""
    return _context_in(_kept_alone(), None, options)


def _context_in(kept: _Kept, group: dist.ProcessGroup | None, options: Options) -> Context:
    for context in kept.contexts:
        if context.options is options or context.options == options:
            return context
    with kept.lock:
        for context in kept.contexts:
            if context.options == options:
                return context
        settings = options.resolved()
        # Between hosts, the report compares a plan that is set with what is known of serial.
        needs_none = settings.plan is not None and kept.comm.hosts == 1
        automatic = None if needs_none else _native.automatic_plans(kept.comm)
        plans = _native.RecordedPlans(settings, automatic)
        name = "" if group is None else str(group.group_name)
        member: Group = _no_group if group is None else ref(group)
        made = Context(options, kept.comm, settings, plans, member, name)
        kept.contexts.append(made)
        with _lock:
            _contexts.add(made)
        return made


def counted() -> Counts:
    """Add up all calls, those of groups that have gone too."""
    found = Counts()
    with _lock:
        listed = _listed()
        gone = set()  # some may be in `listed` too, if they went after it was made
        while _gone:
            number, counts = _gone.popleft()
            gone.add(number)
            _past.add_all(counts)
        found.add_all(_past)
        for context in listed:
            if context.number not in gone:
                found.add(context.plans, context.samples)
    return found


def forget_counts() -> None:
    """Start counting anew."""
    with _lock:
        _past.clear()
        _gone.clear()
        for context in _listed():
            context.plans.forget()
            context.samples.forget()
            for operator in context.operators.values():
                operator.forget_calls()


def _listed() -> list[Context]:
    kept = [*_kept.values(), *([] if _alone is None else [_alone])]
    return sorted((one for each in kept for one in each.contexts), key=lambda one: one.number)


def group_place(group: dist.ProcessGroup | None, operator: str) -> tuple[int, int]:
    """Return this rank and the number of ranks; a program without process groups is one rank."""
    member = group_of(group, operator)
    return (0, 1) if member is None else (member.rank(), member.size())


def _forget_all() -> None:
    """Drop layers and plans before plait leaves its communicators at the program's end."""
    global _alone
    with _lock:
        for kept in _kept.values():
            kept.contexts.clear()  # otherwise their counts would be read when the group goes
        for context in list(_contexts):
            context.close()
        _kept.clear()
        _found.clear()
        _alone = None
    groups.forget_all()


# plait's own was registered before and runs after this.
atexit.register(_forget_all)
