"""How operators and layers are to work: the same on all ranks of a group."""

import functools
from dataclasses import dataclass, fields
from typing import Literal, NoReturn, get_args

import plait
from plait import _native
from plait.errors import refuse

Schedule = Literal["auto", "serial", "pipelined", "fused"]
Wire = Literal["auto", "f32", "bf16", "f16", "s8"]
Engine = Literal["native", "c10d"]

MOST_PARTS = 64  # as plait.Plan has it, which compilers can't look into


@dataclass(frozen=True)
class Options:
    """Fields that are left out follow the settings: PLAIT_CONFIG's file and the environment.

    >>> Options(schedule="pipelined", parts=8).plan()
    'pipelined parts=8'
    """

    schedule: Schedule | None = None
    parts: int | None = None  # of "pipelined"
    # In what partial sums travel: "f32", "bf16", "f16" or "s8". "auto": f32 on one host, and the
    # dtype of x between hosts.
    wire: str | None = None
    settings: plait.Settings | None = None  # None: load_settings()
    engine: Engine = "native"  # "c10d": torch's own products and collectives

    # A promise, for inference: nothing writes to a weight, plain or quantised, but what autograd
    # counts. So neither `weight.data` is written to, nor the memory behind it, as loaders,
    # optimizers and collectives do. Then layers pack a weight once, which takes its memory once
    # more, and a quantised weight is not read again to see whether it has changed.
    fixed_weights: bool = False

    def __post_init__(self) -> None:
        self._check_engine()
        if self.settings is not None and not isinstance(self.settings, plait.Settings):
            kind = type(self.settings).__name__
            _refuse(f"settings is of type {kind}; it can be plait.Settings, as of load_settings()")
        if self.schedule is not None and self.schedule not in get_args(Schedule):
            known = ", ".join(get_args(Schedule))
            _refuse(f"schedule is {self.schedule!r}; it can be {known}")
        if self.parts is not None:
            self._check_parts(self.parts)
        if self.wire is not None and self.wire not in get_args(Wire):
            _refuse(f"wire is {self.wire!r}; it can be {', '.join(get_args(Wire))}")
        if not isinstance(self.fixed_weights, bool):
            _refuse(f"fixed_weights is {self.fixed_weights!r}; it can be True or False")

    def _check_parts(self, parts: object) -> None:
        if self.schedule != "pipelined":
            _refuse(f"parts is {parts!r}, and only schedule='pipelined' has parts")
        if not isinstance(parts, int) or isinstance(parts, bool):
            _refuse(f"parts is {parts!r}, not a whole number")
        if not 1 <= parts <= MOST_PARTS:
            _refuse(f"parts={parts} is not between 1 and {MOST_PARTS}")

    def _check_engine(self) -> None:
        if self.engine not in get_args(Engine):
            _refuse(f"engine is {self.engine!r}; it can be {', '.join(get_args(Engine))}")
        if self.engine == "c10d" and self.schedule == "fused":
            _refuse("engine='c10d' has the schedules serial and pipelined, not fused")
        if self.engine == "c10d" and self.wire is not None:
            _refuse("torch's product returns partial sums in the dtype of x; leave wire out")

    def __str__(self) -> str:
        """Say what is set, for a log: settings are a page, and have no words.

        >>> print(Options(schedule="pipelined", parts=8, wire="bf16"))
        pipelined in 8 parts, wire bf16
        """
        parts = "" if self.parts is None else f" in {self.parts} parts"
        said = {
            f"{self.schedule}{parts}": self.schedule is not None,
            f"wire {self.wire}": self.wire is not None,
            "own settings": self.settings is not None,
            f"engine {self.engine}": self.engine != "native",
            "fixed weights": self.fixed_weights,
        }
        return ", ".join(words for words, is_set in said.items() if is_set) or "by the settings"

    def __copy__(self) -> "Options":
        return self

    def __deepcopy__(self, memo: object) -> "Options":
        return self

    def __reduce__(self) -> tuple[object, ...]:
        if self.settings is not None:
            _refuse("options with settings can't be pickled; make them again after loading")
        return Options, tuple(getattr(self, one.name) for one in fields(self))

    def plan(self) -> str | None:
        """Return the plan of all operators as text; None: it is not set here, or automatic."""
        if self.schedule in (None, "auto"):
            return None
        if self.schedule == "pipelined" and self.parts is not None:
            return f"pipelined parts={self.parts}"
        return self.schedule

    def resolved(self) -> plait.Settings:
        """Return the settings with what is said here in their place."""
        settings = _native.load_settings() if self.settings is None else self.settings.copy()
        plan = self.plan()
        if self.schedule is not None:
            settings.plan = None if plan is None else _native.Plan(plan)
        if self.wire is not None:
            settings.wire = self.wire
        return settings

    def _c10d_parts(self, world: int) -> int:
        """Return in how many parts the engine "c10d" multiplies: the same on all ranks."""
        plan = self._c10d_plan
        if plan is None or plan.schedule == plait.Schedule.fused:
            return 4 if world > 1 else 1  # one rank has nothing to hide
        return 1 if plan.schedule == plait.Schedule.serial else plan.parts

    @functools.cached_property
    def _c10d_plan(self) -> plait.Plan | None:
        return self.resolved().plan


def check_options(options: object, operator: str) -> None:
    """Raise Error where a call was given something else as its options."""
    if not isinstance(options, Options):
        refuse(operator, f"options is of type {type(options).__name__}, not plait.torch.Options")


def _refuse(sentence: str) -> NoReturn:
    raise plait.Error(plait.Code.invalid_argument, f"plait.torch.Options: {sentence}")
