"""Putting styles under the names of transformers', and theirs back."""

import atexit
import contextlib
import inspect
import logging
import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from transformers.distributed import tensor_parallel
from transformers.distributed.mixin import DistributedMixin
from transformers.distributed.parallel_utils import ALL_PARALLEL_STYLES
from transformers.generation import GenerationMixin

import plait
import plait.torch
from plait.torch.quantized import scheme_of
from plait.transformers.embedding import Embedding
from plait.transformers.experts import UNASKED, Experts
from plait.transformers.logits import defer_logits_of, with_deferred_logits
from plait.transformers.sequence import share_rows
from plait.transformers.service import Report, Service
from plait.transformers.styles import STYLES, Left

_log = logging.getLogger("plait.transformers")

# Parameters of what is replaced, in the version that the tests run.
_KNOWN = ("module", "mesh")  # of install_forward
_SERVED: dict[str, type] = {**STYLES, "embedding_rowwise": Embedding}
_EXPERTS = "ep_dispatch_experts"
_KNOWN_OF_EXPERTS = ("module", "ep_mesh", "tp_mesh", "ep_implementation")
_DISTRIBUTES = "maybe_distribute_model"  # of all models: it calls install_forward for each module
_KNOWN_OF_MODELS = ("cls", "model", "distributed_config", "mesh_manager")
_SAMPLES = "_sample"  # it chooses tokens, greedily too
_KNOWN_OF_SAMPLES = (
    "self",
    "input_ids",
    "logits_processor",
    "stopping_criteria",
    "generation_config",
    "synced_gpus",
    "streamer",
    "model_kwargs",
)

_service: Service | None = None
_last: Service | None = None
_theirs: dict[str, Any] = {}  # what enable() found, by name
_methods: list[tuple[type, str, Any, Any]] = []  # of their classes: how it found and left them


def enable(
    *,
    weight: str | None = None,
    schedule: plait.torch.Schedule | None = None,
    parts: int | None = None,
    wire: str | None = None,
    settings: plait.Settings | None = None,
    fixed_weights: bool = False,
    sequence_parallel: bool = False,
    defer_logits: bool = False,
) -> None:
    """Serve the linear layers and experts of models that are loaded from now on.

    Every rank makes the call, with the same options. `weight` quantises what is served ("s8",
    "s8:group=128"): for generation. `fixed_weights=True` promises that nothing writes to
    `weight.data` (plait.torch.Options), so that weights are packed once.

    `sequence_parallel=True` shares the rows (tokens) between products over the ranks in decoder
    layers of known classes, so that each all-reduce becomes a reduce-scatter hidden behind the
    product before it, and an all-gather hidden behind the product after it:

        plait.transformers.enable(sequence_parallel=True, schedule="fused")

    `defer_logits=True` is for training: logits of a model's last layer are not multiplied before
    they are used, so that its loss needs neither all of them nor a gradient of them. A program that
    uses `outputs.logits` must do so on all ranks then, before the optimizer's step. In generate()
    logits are put off in any case: greedy tokens, and those among the k largest, need few numbers
    of each rank.

    The same call again does nothing; other options raise, until disable().
    """
    global _service, _last
    asked = plait.torch.Options(
        schedule=schedule,
        parts=parts,
        wire=wire,
        settings=settings,
        fixed_weights=fixed_weights,
    )
    if weight is not None and sequence_parallel:
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.transformers.enable: weight={weight!r} can't be combined with "
            "sequence_parallel=True, whose layers are not quantised",
        )
    # Settings are read now, and what is wrong in them is refused now, on all ranks. Their own wire
    # stays: experts have that.
    options = replace(asked, settings=replace(asked, wire=None).resolved())
    if weight is not None:
        scheme_of(weight, "plait.transformers.enable", "weight")  # refuses what is none
    if _service is not None:
        known = (_service.options, _service.weight, _service.sequence_parallel)
        if (*known, _service.defer_logits) == (options, weight, sequence_parallel, defer_logits):
            return
        raise plait.Error(
            plait.Code.invalid_argument,
            "plait.transformers.enable: it is enabled with other options; call disable() first",
        )
    changes_models = sequence_parallel or defer_logits
    mismatch = _mismatch() or _mismatch_of_method(GenerationMixin, _SAMPLES, _KNOWN_OF_SAMPLES)
    if changes_models and mismatch is None:
        mismatch = _mismatch_of_method(DistributedMixin, _DISTRIBUTES, _KNOWN_OF_MODELS)
    if mismatch is not None:
        raise plait.Error(
            plait.Code.invalid_argument,
            f"plait.transformers.enable: this version of transformers {mismatch}; nothing was "
            "replaced",
        )
    _service = _last = Service(options, weight, sequence_parallel, defer_logits)
    for name in _replaced():
        _theirs[name] = theirs = ALL_PARALLEL_STYLES[name]
        mixin = Experts if name == _EXPERTS else _SERVED.get(name, Left)
        style: Any = type(f"Plait{type(theirs).__name__}", (mixin, type(theirs)), {})
        ours = style.__new__(style)
        ours.__dict__.update(theirs.__dict__)
        ours.service, ours.style = _service, name
        ALL_PARALLEL_STYLES[name] = ours
    _replace(GenerationMixin, _SAMPLES, with_deferred_logits(vars(GenerationMixin)[_SAMPLES]))
    if changes_models:
        _replace(DistributedMixin, _DISTRIBUTES, _distributing(_service))
    if os.environ.get("RANK", "0") == "0":
        _log.info("tensor-parallel layers of transformers are served by plait: %s", asked)


def disable() -> None:
    """Load models with transformers' own styles again. What was loaded stays served."""
    global _service
    if _service is None:
        return
    for name, theirs in _theirs.items():
        if getattr(ALL_PARALLEL_STYLES.get(name), "service", None) is _service:
            del ALL_PARALLEL_STYLES[name]
            if ALL_PARALLEL_STYLES.get(name) is not theirs:  # the program's own
                ALL_PARALLEL_STYLES[name] = theirs
        else:
            _log.warning("the style %s was replaced since, and is left as it is", name)
    _theirs.clear()
    _put_methods_back()
    _service = None


@atexit.register
def _forget() -> None:
    """Drop what is native before the module that made it: models hold what serves them."""
    if _last is not None:
        _last.options = plait.torch.Options()


@contextlib.contextmanager
def enabled(**options: Any) -> Iterator[None]:
    """Enable for a block."""
    enable(**options)
    try:
        yield
    finally:
        disable()


def report() -> Report:
    """Say how many calls were served, and why others were not."""
    last = UNASKED if _last is None else _last
    refusals = tuple((why, calls) for why, calls in last.calls.items() if why is not None)
    return Report(
        served=last.calls[None],
        refusals=refusals,
        modules=tuple(last.modules.items()),
        operators=str(plait.torch.report()),
        forwards=tuple(last.forwards.items()),
        layers=tuple(last.layers.items()),
        experts=tuple(last.experts.items()),
    )


def _mismatch() -> str | None:
    """Compare all styles that plait serves before the first is replaced."""
    known = dict.fromkeys(_SERVED, _KNOWN) | {_EXPERTS: _KNOWN_OF_EXPERTS}
    if missing := [name for name in known if name not in ALL_PARALLEL_STYLES]:
        return f"has no style {', '.join(missing)}"
    for name, parameters in known.items():
        install = getattr(ALL_PARALLEL_STYLES[name], "install_forward", None)
        if install is None:
            return f"is unknown: the style {name} has no install_forward"
        found = tuple(inspect.signature(install).parameters)
        if found != parameters:
            return (
                f"is unknown: install_forward of the style {name} takes ({', '.join(found)}), and "
                f"plait knows ({', '.join(parameters)})"
            )
    return None


def _mismatch_of_method(owner: type, name: str, known: tuple[str, ...]) -> str | None:
    method = vars(owner).get(name)
    method = getattr(method, "__func__", method)
    found = () if method is None else tuple(inspect.signature(method).parameters)
    if found == known:
        return None
    return f"is unknown: {name} takes ({', '.join(found)}), and plait knows ({', '.join(known)})"


def _distributing(service: Service) -> Any:
    """Return a method that changes models once their modules are served."""
    theirs: Any = vars(DistributedMixin)[_DISTRIBUTES]

    def maybe_distribute_model(
        cls: type, model: Any, distributed_config: Any, mesh_manager: Any
    ) -> Any:
        model = theirs.__func__(cls, model, distributed_config, mesh_manager)
        if mesh_manager is not None and distributed_config.tp_size > 1:
            if service.sequence_parallel:
                share_rows(model, distributed_config, mesh_manager.get_mesh("tp"), service)
            if service.defer_logits:
                defer_logits_of(model)
        return model

    return classmethod(maybe_distribute_model)


def _replace(owner: type, name: str, ours: Any) -> None:
    _methods.append((owner, name, vars(owner)[name], ours))
    setattr(owner, name, ours)


def _put_methods_back() -> None:
    for owner, name, theirs, ours in _methods:
        if vars(owner)[name] is ours:
            setattr(owner, name, theirs)
        else:
            _log.warning("%s was replaced since, and is left as it is", name)
    _methods.clear()


def _replaced() -> list[str]:
    """Return the names of all styles that have a forward, those of expert parallelism included."""
    return [
        name
        for name in ALL_PARALLEL_STYLES
        if hasattr(ALL_PARALLEL_STYLES[name], "install_forward")
    ]


assert tensor_parallel is not None  # importing it registers the styles
