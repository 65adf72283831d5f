"""Profiles of a decode: the parts of one token's time."""

import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from transformers.generation.streamers import BaseStreamer

import plait
from plait import _native
from plait.torch import recording
from plait.torch.deferred import DeferredLogits
from plait.torch.report import counted
from plait.transformers import experts, sequence
from plait.transformers.shared import JoinedColumns

_WARM = 6  # tokens before those that are counted: first calls prepare, and first records allocate
_RECORDS = (1 << 18) - 1  # of each thread: some hundred tokens of most models


@dataclass(frozen=True)
class Part:
    """A part of a token's time, in seconds."""

    what: str
    seconds: float
    note: str = ""


@dataclass(frozen=True)
class TokenProfile:
    """The parts of a token's time on this rank: print it, or read them.

    They add up, but for sums that another thread hides behind a product.
    """

    rank: int
    world: int
    tokens: int  # that were generated and timed
    products: int  # by plait, of a token, beside those of experts
    experts: int  # calls of plait's layers of experts, of a token
    seconds: float  # of a token: the mean of the middle half of all
    parts: tuple[Part, ...]

    def __str__(self) -> str:
        calls = counted(self.products, "product")
        if self.experts:
            calls += f" and {counted(self.experts, 'call')} of experts"
        head = (
            f"a token takes {self.seconds * 1e3:.2f} ms on rank {self.rank} of {self.world}: "
            f"the middle half of {self.tokens} tokens, {calls} each"
        )
        lines = [f"{'':<24} {'ms':>8}  share"]
        for part in self.parts:
            share = part.seconds / self.seconds
            note = f"  {part.note}" if part.note else ""
            lines.append(f"{part.what:<24} {part.seconds * 1e3:>8.3f} {share:>6.1%}{note}")
        return "\n".join([head, *lines])


def profile(model: Any, tokens: torch.Tensor, *, new_tokens: int = 32) -> TokenProfile:
    """Generate some tokens after a prompt, and say where the time of one goes.

        prompt = tokenizer("Once upon a time", return_tensors="pt").input_ids
        print(plait.transformers.profile(model, prompt))

    `tokens` is [batch, length], alike on all ranks, which make the call together; each gets its own
    times. The tokens are those of model.generate(), chosen greedily and without an end. Product,
    copies and waits are what plait.torch.profile() records, which takes 1 or 2 % of the time.
    """
    served = [one for one in model.modules() if "plait_site" in vars(one)]
    groups = [vars(one)["plait_site"].group for one in served] + [
        layer.group
        for one in model.modules()
        if (layer := vars(one).get("plait_experts")) and not isinstance(layer.activation, str)
    ]
    if not groups:
        _refuse("no layer of the model is served by plait: call enable() before it is loaded")
    if recording.is_on():
        _refuse("plait.torch.profile() records already")
    if new_tokens < 4:
        _refuse(f"new_tokens is {new_tokens}; it takes at least 4")
    prompt = tokens[None] if tokens.dim() == 1 else tokens
    if prompt.shape[0] >= sequence.FEWEST_ROWS:
        most = sequence.FEWEST_ROWS - 1
        _refuse(f"tokens has {prompt.shape[0]} rows, and at most {most} can be profiled")
    group = groups[0]
    clock = _Clock(served, _native.Trace(group.rank(), _RECORDS))
    with clock.opened:
        model.generate(
            prompt,
            attention_mask=torch.ones_like(prompt),
            max_new_tokens=_WARM + new_tokens,
            do_sample=False,
            num_beams=1,
            use_cache=True,
            eos_token_id=None,
            pad_token_id=0,
            streamer=clock,
        )
    return _analysed(clock, group.rank(), group.size())


def _refuse(sentence: str) -> None:
    raise plait.Error(
        plait.Code.invalid_argument, f"plait.transformers.profile: {sentence}", operator="profile"
    )


Interval = tuple[int, int]  # nanoseconds of time.monotonic_ns(), as traces have them


@dataclass
class _Clock(BaseStreamer):  # type: ignore[misc]
    """Notes when each token was chosen, and when calls of plait began and ended."""

    served: list[nn.Module]
    trace: _native.Trace
    chosen: list[int] = field(default_factory=list)
    calls: list[Interval] = field(default_factory=list)
    heads: list[Interval] = field(default_factory=list)  # finding the largest logits
    opened: contextlib.ExitStack = field(default_factory=contextlib.ExitStack)

    def put(self, value: torch.Tensor) -> None:
        """Take a token; the first value is the prompt."""
        self.chosen.append(time.monotonic_ns())
        if len(self.chosen) == _WARM - 1:
            self.opened.enter_context(self._recorded())

    def end(self) -> None:
        """Take the end."""

    @contextlib.contextmanager
    def _recorded(self) -> Iterator[None]:
        """Record and time calls, of which nothing is left behind."""
        calls: list[tuple[Any, str]] = [(one, "forward") for one in self.served]
        calls += [(one, "multiply") for one in (JoinedColumns, experts.PlaitEP)]
        calls.append((experts, "multiply_alone"))
        timed = [(*place, self.calls) for place in calls]
        timed.append((DeferredLogits, "top", self.heads))
        before = [vars(where)[name] for where, name, _ in timed]
        for (where, name, noted), call in zip(timed, before, strict=True):
            setattr(where, name, self._timed(call, noted))
        recording.record(self.trace)
        try:
            yield
        finally:
            recording.record(None)
            for (where, name, _), call in zip(timed, before, strict=True):
                setattr(where, name, call)

    def _timed(self, call: Callable[..., Any], noted: list[Interval]) -> Callable[..., Any]:
        now, note = time.monotonic_ns, noted.append

        @functools.wraps(call)
        def timed(*args: Any, **kwargs: Any) -> Any:
            begin = now()
            try:
                return call(*args, **kwargs)
            finally:
                note((begin, now()))

        return timed


def _analysed(clock: _Clock, rank: int, world: int) -> TokenProfile:
    if clock.trace.dropped:
        _refuse("records were lost; ask for fewer new_tokens")
    times = clock.chosen[_WARM:]  # the first one ends what warms up
    tokens = sorted(itertools.pairwise(times), key=lambda one: one[1] - one[0])
    quarter = len(tokens) // 4
    middle = sorted(tokens[quarter : len(tokens) - quarter])
    calls, heads = _within(clock.calls, middle), _within(clock.heads, middle)
    pack = clock.trace.pack()
    ours = _native.calls_in_pack(pack, within=calls)
    others = sum(one.time for one in _native.calls_in_pack(pack, within=middle))
    others -= sum(one.time for one in _native.calls_in_pack(pack, within=heads))
    total, called, largest = _length(middle), _length(calls), _length(heads)
    native = sum(one.time for one in ours)
    product = sum(one.multiplying for one in ours)
    copies = sum(one.communicating for one in ours)
    waits = sum(one.waiting for one in ours)
    others -= native
    products = sum(one.count for one in ours if one.problem.startswith("op="))
    layers = sum(one.count for one in ours if one.problem.startswith("experts "))
    each = (called - native) / max(products + layers, 1) * 1e-3
    parts = [
        ("transformers and torch", total - called - others - largest, "outside of plait's calls"),
        ("plait in Python", called - native, f"{each:.1f} us a {'call' if layers else 'product'}"),
        ("product", product, ""),
        ("copies and sums", copies, "sending, too"),
        ("waiting for other ranks", waits, ""),
        ("rest of native calls", max(native - product - copies - waits, 0), ""),
    ]
    if heads:
        parts.append(("largest logits", largest, "product, messages and waits"))
    if others:
        parts.append(("other messages", others, "over plait: the embedding's, and transformers'"))
    seconds = 1e-9 / len(middle)
    return TokenProfile(
        rank,
        world,
        len(tokens),
        round((products + len(heads)) / len(middle)),
        round(layers / len(middle)),
        total * seconds,
        tuple(Part(what, spent * seconds, note) for what, spent, note in parts),
    )


def _within(intervals: list[Interval], others: list[Interval]) -> list[Interval]:
    return [one for one in intervals if any(a <= one[0] and one[1] <= b for a, b in others)]


def _length(intervals: list[Interval]) -> int:
    return sum(end - begin for begin, end in intervals)
