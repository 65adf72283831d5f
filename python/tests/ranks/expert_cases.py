"""Layers of experts, and the rows that ranks give them."""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.distributed as dist

import plait.torch as pt

WIDTH, INNER = 48, 20
OSS = pt.Swiglu(interleaved=True, alpha=1.702, limit=1.5, added=1.0)


@dataclass
class Case:
    """A layer, and the rows of each rank: `rows[rank % 3]`."""

    experts: int = 5  # which neither two nor three ranks can share evenly
    slots: int = 3
    rows: tuple[int, int, int] = (7, 4, 9)
    dtype: torch.dtype = torch.float32
    is_oss: bool = False
    activation: pt.Swiglu | pt.Silu = field(default_factory=pt.Swiglu)  # unless it is gpt-oss's
    parts: int = 1
    inner: int = INNER
    placement: tuple[int, ...] | None = None
    whole: list[torch.Tensor | None] = field(init=False)  # the stacks of all experts
    hidden: torch.Tensor = field(init=False)  # of all ranks
    ids: torch.Tensor = field(init=False)
    weights: torch.Tensor = field(init=False)

    def __post_init__(self) -> None:
        make = torch.Generator().manual_seed(5)

        def random(*shape: int) -> torch.Tensor:
            return torch.randn(shape, generator=make)

        total = sum(self.counts)
        self.hidden = random(total, WIDTH).to(self.dtype)
        self.ids = torch.randint(-1, self.experts, (total, self.slots), generator=make)
        self.weights = random(total, self.slots).softmax(-1)
        inner, widths = self.inner, self.activation.widths
        up, down = random(self.experts, widths * inner, WIDTH), random(self.experts, WIDTH, inner)
        biases = [random(self.experts, 2 * inner), random(self.experts, WIDTH)]
        if self.is_oss:
            up, down = up.transpose(1, 2).contiguous(), down.transpose(1, 2).contiguous()
        stacks = [up / 4, down / 4, *biases] if self.is_oss else [up / 4, down / 4]
        self.whole = [one.to(self.dtype) for one in stacks]

    @property
    def counts(self) -> list[int]:
        return [self.rows[rank % 3] for rank in range(dist.get_world_size())]

    @property
    def own(self) -> slice:
        first = sum(self.counts[: dist.get_rank()])
        return slice(first, first + self.counts[dist.get_rank()])

    def layer(self, group: dist.ProcessGroup | None, **how: Any) -> pt.ExpertParallel:
        stacks = [one.clone().requires_grad_() for one in self.whole if one is not None]
        names = ["gate_up", "down", "gate_up_bias", "down_bias"]
        given: Any = dict(zip(names, stacks, strict=False))
        how.update(activation=self.activation)
        if self.is_oss:
            how.update(activation=OSS, transposed=True)
        if group is None:
            how["placement"] = self.placement
        return pt.ExpertParallel.share(**given, group=group, parts=self.parts, **how)

    def own_experts(self) -> list[int]:
        world = dist.get_world_size()
        ranks = self.placement
        if ranks is None and self.parts > 1:
            assert world % self.parts == 0
            shares = self.experts * self.parts // world  # of each rank, where it is even
            run, at = divmod(dist.get_rank(), self.parts)
            return [(run * shares + one) * self.parts + at for one in range(shares)]
        if ranks is None:
            most = -(-self.experts // world)
            extra = self.experts % world or world
            sizes = [most if rank < extra else most - 1 for rank in range(world)]
            ranks = tuple(rank for rank, size in enumerate(sizes) for _ in range(size))
        return [expert for expert, rank in enumerate(ranks) if rank == dist.get_rank()]


def last() -> tuple[int, ...]:
    return (dist.get_world_size() - 1,) * 5


def spread() -> tuple[int, ...]:
    return tuple((7 * expert + 1) % dist.get_world_size() for expert in range(5))


CASES: dict[str, Callable[[], Case]] = {
    "f32": Case,
    "bf16": lambda: Case(dtype=torch.bfloat16),
    "f16, gpt-oss": lambda: Case(dtype=torch.float16, is_oss=True),
    "f32, gpt-oss": lambda: Case(is_oss=True),
    "f32, SiLU": lambda: Case(activation=pt.Silu()),
    "bf16, weights at the activation": lambda: Case(
        dtype=torch.bfloat16, activation=pt.Swiglu(weighted=True)
    ),
    "SiLU in two parts": lambda: Case(
        parts=2,
        activation=pt.Silu(weighted=True),
        placement=tuple(at // 3 % dist.get_world_size() for at in range(10)),
    ),
    "a map": lambda: Case(placement=spread()),
    "one rank has all experts": lambda: Case(placement=last()),
    "ranks without rows": lambda: Case(rows=(0, 6, 0)),
    "no rows at all": lambda: Case(rows=(0, 0, 0)),
    "three parts, a map": lambda: Case(
        parts=3, inner=30, placement=tuple((5 * at + 1) % dist.get_world_size() for at in range(15))
    ),
    "two parts, gpt-oss": lambda: Case(
        parts=2, is_oss=True, placement=tuple(at // 3 % dist.get_world_size() for at in range(10))
    ),
    "many rows": lambda: Case(rows=(300, 40, 500)),
    "one expert a row": lambda: Case(slots=1, experts=2),
}


def run(
    layer: pt.ExpertParallel, case: Case, rows: slice, grad: torch.Tensor
) -> dict[str, torch.Tensor]:
    """Call a layer with these rows, and return all that it makes."""
    hidden = case.hidden[rows].clone().requires_grad_()
    weights = case.weights[rows].clone().requires_grad_()
    out = layer(hidden, case.ids[rows], weights)
    out.backward(grad[rows])
    assert hidden.grad is not None
    assert weights.grad is not None
    found = {"out": out.detach(), "hidden": hidden.grad, "weights": weights.grad}
    for name, parameter in layer.named_parameters():
        assert parameter.grad is not None
        found[f"of {name}"] = parameter.grad
    return found
