"""The arguments of torch's operators beside the operands, and the contexts kept for them."""

import functools
from collections.abc import Hashable
from typing import Any, NamedTuple
from weakref import ref

import torch.distributed as dist
from torch.distributed import distributed_c10d

from plait._native import Code
from plait.errors import Error
from plait.torch.context import Context, context_of, group_place
from plait.torch.groups import is_alive
from plait.torch.options import Options

_resolve: Any = vars(distributed_c10d)["_resolve_process_group"]
C10D = "c10d"  # in the place of a schedule: by torch's products and collectives, in `parts`


class How(NamedTuple):
    """The arguments of an operator beside its operands. torch leaves out the defaults."""

    group: str
    schedule: str = ""
    parts: int = 0
    wire: str = ""
    turned: bool = False
    rows: int = -1  # of all ranks together, of operators that gather rows


def turned_and_rows(how: tuple[Any, ...]) -> tuple[bool, int]:
    """Return these two of what an operator takes."""
    return len(how) > 4 and how[4], how[5] if len(how) > 5 else -1


def never_turned(*how: Any) -> tuple[How, bool]:
    """Return what an operator takes of a quantised weight, and whether its values are fixed."""
    found = How(*how)
    return found._replace(turned=False), found.turned  # which stands in the other's place


def group_called(name: str, operator: str) -> dist.ProcessGroup | None:
    """Return the process group of this name; the empty one is the default group's."""
    if not name:
        return None
    try:
        group: dist.ProcessGroup = _resolve(name)
    except RuntimeError:
        raise Error(
            Code.invalid_argument,
            f"{operator}: there is no process group {name!r}; it was destroyed, or this process, "
            f"global rank {dist.get_rank() if dist.is_initialized() else 0}, is not a member of it",
            operator=operator,
        ) from None
    return group


def size_of_group(name: str, operator: str) -> tuple[int, int]:
    """Return rank and size of a group, while tracing too."""
    return group_place(group_called(name, operator), operator)


@functools.lru_cache(maxsize=64)
def options_of(schedule: str, parts: int, wire: str) -> Options:
    """Return the options that an operator takes as plain arguments."""
    if schedule == C10D:
        if parts > 1:
            return Options(engine="c10d", schedule="pipelined", parts=parts)
        return Options(engine="c10d", schedule="serial" if parts == 1 else None)
    return Options(
        schedule=schedule or None,  # type: ignore[arg-type]
        parts=parts or None,
        wire=wire or None,
    )


# The results of context_for(), by all but `turned` and `rows`. It goes with its group.
_Found = tuple[ref[dist.ProcessGroup], ref[Context]]
_found: dict[Hashable, _Found] = {}
_MOST_FOUND = 256


def known_context_for(how: tuple[Any, ...]) -> Context | None:
    """Return what context_for() has found before. `how` has what an operator takes of How."""
    known = _found.get(how[:4])
    if known is not None:
        group, context = known[0](), known[1]()
        # A name may be that of another group, which was made after the first one had gone.
        if group is not None and context is not None and is_alive(group):
            if context.plans is not None and (how[0] or group is dist.GroupMember.WORLD):
                return context
    return None


def context_for(how: How, operator: str, given: tuple[Any, ...] | None = None) -> Context:
    """Return what is kept for a call. `given` is what torch has passed on of `how`."""
    key = (how if given is None else given)[:4]
    known = known_context_for(key)
    if known is not None:
        return known
    group = group_called(how.group, operator)
    context = context_of(group, options_of(*how[1:4]), operator)
    member = dist.GroupMember.WORLD if group is None else group
    if member is not None:
        if len(_found) >= _MOST_FOUND:
            _found.clear()
        _found[key] = ref(member), ref(context)
    return context


def is_c10d(how: tuple[Any, ...]) -> bool:
    """Say whether a call is to be made by torch's products and collectives."""
    return len(how) > 1 and how[1] == C10D
