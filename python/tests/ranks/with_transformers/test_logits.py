"""Logits that are put off: tokens of generate() and losses without rows of the whole vocabulary."""

from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from models import COMMON, TOKENS, distance, gradients, shared, train, whole
from models import saved_model as saved
from ranks import agree
from torch.nn import functional
from transformers import LlamaConfig
from transformers.generation import GenerationMixin, LogitsProcessor

import plait.torch
import plait.transformers
from plait import _native
from plait.torch.deferred import DeferredLogits

SIZES = {**COMMON, "vocab_size": 131}  # no multiple of any number of ranks
IDS = TOKENS.flatten()
LOSS = "matmul_cross_entropy_with_gradient"
GREEDY: dict[str, Any] = {"do_sample": False, "max_new_tokens": 6}


@pytest.fixture(scope="module", params=["float32", "bfloat16"])
def model(request: Any, tmp_path_factory: Any) -> tuple[Path, torch.dtype]:
    dtype = getattr(torch, request.param)
    return saved(LlamaConfig(**SIZES), tmp_path_factory), dtype


@pytest.fixture
def calls(monkeypatch: Any) -> dict[str, int]:
    """Count native calls that find the largest logits, losses, and whole rows of logits."""
    counts = {}

    def counted(name: str) -> Any:
        theirs, counts[name] = getattr(_native, name), 0

        def call(*args: Any, **kwargs: Any) -> Any:
            counts[name] += 1
            return theirs(*args, **kwargs)

        return call

    for name in ("matmul_top", LOSS, "all_gather_columns"):
        monkeypatch.setattr(_native, name, counted(name))
    return counts


def generated(model: Any, **how: Any) -> Any:
    torch.manual_seed(8)  # samples are drawn alike on all ranks
    return model.generate(TOKENS, attention_mask=torch.ones_like(TOKENS), **how)


class Halved(LogitsProcessor):  # type: ignore[misc]
    """A processor of a program."""

    def __repr__(self) -> str:
        return "halved"  # the same name of the test on all ranks

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        scores[:, ::2] = -1.0  # in place
        return scores


class Seen(LogitsProcessor):  # type: ignore[misc]
    """Looks at scores on one rank alone."""

    def __repr__(self) -> str:
        return "seen"

    def __call__(self, input_ids: torch.Tensor, scores: torch.Tensor) -> torch.Tensor:
        assert dist.get_rank() > 0 or float(scores.max()) > float(scores.min())
        return scores


@pytest.mark.parametrize(
    ("how", "tops", "gathered"),
    [
        ({}, 6, 0),
        ({"do_sample": True, "top_k": 5, "temperature": 0.7}, 6, 0),
        ({"do_sample": True, "top_k": 9, "top_p": 0.8}, 6, 0),
        ({"do_sample": True, "top_k": 131}, 0, 6),
        ({"do_sample": True, "top_k": 0}, 0, 6),
        ({"repetition_penalty": 1.3}, 0, 6),
        ({"logits_processor": [Halved()]}, 0, 6),
        ({"logits_processor": [Seen()]}, 0, 6),
        ({"output_scores": True, "return_dict_in_generate": True}, 0, 6),
        ({"output_scores": True, "return_dict_in_generate": True, "defer_logits": True}, 0, 6),
        ({"num_beams": 2}, 0, 6),
        ({"weight": "s8"}, 6, 0),
        ({"fixed_weights": True}, 6, 0),
    ],
    ids=str,
)
def test_tokens_are_those_of_whole_logits(
    how: Any, tops: int, gathered: int, model: Any, calls: Any
) -> None:
    path, dtype = model
    names = ("weight", "fixed_weights", "defer_logits")
    options = {name: how[name] for name in names if name in how}
    how = GREEDY | {name: value for name, value in how.items() if name not in options}
    with plait.transformers.enabled(**options):
        served = shared(path, dtype=dtype)
        found = generated(served, **how)
        counts = dict(calls)
    expected = generated(served, **how)  # of the same layers, now without what was replaced
    if not isinstance(found, torch.Tensor):
        same = all(map(torch.equal, found.scores, expected.scores))
        agree(same and type(found.scores[0]) is torch.Tensor, "scores")
        found, expected = found.sequences, expected.sequences
    agree(torch.equal(found, expected), f"{found[:, 12:]} for {expected[:, 12:]}")
    agree(counts["matmul_top"] == tops, f"{counts}")
    # Some rounded logits are equal.
    equal = 1 if dtype is torch.bfloat16 and "top_k" in how else 0
    agree(0 <= counts["all_gather_columns"] - gathered <= equal, f"{counts}")


def test_equal_logits_keep_more_than_k(model: Any, calls: Any) -> None:
    """Transformers keeps all that equal the k-th, so that their number is not known."""
    path, dtype = model
    with plait.transformers.enabled():
        served = shared(path, dtype=dtype)
        with torch.no_grad():
            served.lm_head.weight.fill_(0.5)
        found = generated(served, **GREEDY | {"do_sample": True, "top_k": 4})
        first = generated(served, **GREEDY)[:, 12:]
    expected = generated(served, **GREEDY | {"do_sample": True, "top_k": 4})
    agree(torch.equal(found, expected) and bool((found >= 4).any()), f"{found}")
    agree(bool((first == 0).all()), f"{first}")
    agree(calls["all_gather_columns"] > 0, f"{calls}")


def test_losses_and_gradients_are_those_of_whole_logits(model: Any, calls: Any) -> None:
    path, dtype = model
    unit = 2.0**-20 if dtype is torch.float32 else 2.0**-6
    exact, wanted = gradients(whole(path, torch.float64), TOKENS)
    with plait.transformers.enabled(defer_logits=True):
        served = shared(path, dtype=dtype)
        for how in ({}, {"num_items_in_batch": 7}):
            served.zero_grad()
            loss, found = gradients(served, TOKENS, **how)
            far = distance(found, wanted)
            scale = 22 / 7 if how else 1.0
            agree(abs(loss / scale - exact) <= unit * exact, f"{loss} for {exact}")
            agree(bool(how) or max(far.values()) <= 64 * unit, f"{far}")
    agree(list(calls.values()) == [0, 2, 0], f"{calls}")


def test_training_goes_the_same_way(model: Any, calls: Any) -> None:
    path, dtype = model
    with plait.transformers.enabled(defer_logits=True):
        deferred = train(shared(path, dtype=dtype))
    with plait.transformers.enabled():
        kept = train(shared(path, dtype=dtype))
    near = max(abs(a - b) for a, b in zip(deferred, kept, strict=True))
    agree(near <= (2e-6 if dtype is torch.float32 else 2e-2), f"{deferred} for {kept}")
    agree(calls[LOSS] == 4, f"{calls}")


def test_autocast(model: Any, calls: Any) -> None:
    path, _ = model
    losses = []
    for deferred in (True, False):
        with plait.transformers.enabled(defer_logits=deferred):
            served = shared(path)
            with torch.autocast("cpu", dtype=torch.bfloat16):
                out = served(TOKENS, labels=TOKENS)
            out.loss.backward()
            losses.append((out.loss.item(), out.logits[:, -1].float().sum(-1)))
            agree(out.logits.dtype is torch.bfloat16, f"{out.logits.dtype}")
    (loss, last), (other, wanted) = losses
    agree(abs(loss - other) <= 1e-5 * other, f"{losses}")
    agree(torch.equal(last, wanted), f"{losses}")
    agree(calls[LOSS] == 1, f"{calls}")


@pytest.fixture(scope="module")
def both(tmp_path_factory: Any) -> Any:
    """One forward's logits, put off and whole."""
    path = saved(LlamaConfig(**SIZES), tmp_path_factory)
    with plait.transformers.enabled():
        wanted = shared(path)(TOKENS).logits
    with plait.transformers.enabled(defer_logits=True):
        served = shared(path)
    return lambda: (served(TOKENS).logits, wanted)


@pytest.mark.parametrize(
    ("use", "put_off"),
    [
        (lambda x: x[0], True),
        (lambda x: x[:, -1], True),
        (lambda x: x[..., :-1, :], True),
        (lambda x: x[1:, 2:5, :], True),
        (lambda x: x.float().view(-1, x.shape[-1]), True),
        (lambda x: x.reshape(4, 6, 131), True),
        (lambda x: x.contiguous().clone().to(torch.float32, copy=True), True),
        (lambda x: x[:, :, 3], False),
        (lambda x: x[x[..., 0] > 0], False),
        (lambda x: x[:, None], False),
        (lambda x: x.view(-1, 262), False),
        (lambda x: x.to(torch.bfloat16), False),
        (lambda x: x.argmax(), False),
        (lambda x: x.argmax(-1), False),
        (lambda x: torch.argmax(x, dim=2, keepdim=True), False),
        (lambda x: x.argmax(0), False),
        (lambda x: torch.argmax(dim=-1, input=x), False),
        (lambda x: x.argmax(axis=-1), False),
        (lambda x: x.log_softmax(-1), False),
        (lambda x: torch.cat([x, x]), False),
        (lambda x: 2 - x, False),
        (lambda x: functional.cross_entropy(x.view(-1, 131), IDS, x[0, 0].detach()), False),
        (lambda x: functional.cross_entropy(x.view(-1, 131), IDS, reduction="sum") < 200, False),
        (lambda x: functional.cross_entropy(x.mT, TOKENS, reduction="none"), False),
        (lambda x: x[:, -1].mul_(2) + x[:, -1], False),
        (lambda x: (x.view(-1, 131).zero_(), x)[1].argmax(-1), False),
    ],
    ids=range(26),
)
def test_operations_give_what_they_give_of_whole_logits(use: Any, put_off: bool, both: Any) -> None:
    deferred, wanted = both()
    agree(type(deferred) is DeferredLogits and deferred.shape == wanted.shape, f"{type(deferred)}")
    found, expected = use(deferred), use(wanted.detach().clone())
    agree((type(found) is DeferredLogits) == put_off, f"{type(found)}")
    agree(found.shape == expected.shape and found.dtype == expected.dtype, f"{found.shape}")
    plain = found.add(0)
    agree(torch.equal(plain, expected), f"{plain} for {expected}")


def test_conversions_keep_a_dtype_that_is_not_asked_for(model: Any) -> None:
    path, dtype = model
    with plait.transformers.enabled(defer_logits=True):
        logits = shared(path, dtype=dtype)(TOKENS).logits
    conversions: list[Any] = [("cpu",), (dtype,), (logits,), (logits[0],)]
    for how in conversions:
        found = [logits.to(*how), logits.to(*how, copy=True)]
        agree(all(one.dtype is (one + 0).dtype is dtype for one in found), f"{how}: {found}")
    agree(logits.to("cpu", torch.float32).dtype is torch.float32, "f32")


def test_gradients_of_operations_reach_the_rows(both: Any) -> None:
    deferred, _ = both()
    x = deferred.x
    found = torch.autograd.grad(deferred[:, 2:].square().mean(), x)[0]
    agree(bool(found[:, 2:].any()) and not bool(found[:, :2].any()), f"{found}")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_a_look_without_gradients_leaves_them_to_the_loss(mode: Any, both: Any) -> None:
    deferred, wanted = both()
    rows = deferred.view(-1, 131)
    with mode():
        agree(not functional.cross_entropy(rows, IDS).requires_grad, "a loss has gradients")
        agree(torch.equal(rows.exp(), wanted.view(-1, 131).exp()), "values differ")
    loss = functional.cross_entropy(rows, IDS)
    found = torch.autograd.grad(loss, deferred.x)[0]
    agree(bool(found.any()), f"{found}")


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_logits_of_an_evaluation_need_no_gradients(mode: Any, both: Any) -> None:
    with mode():
        deferred, wanted = both()
    loss = functional.cross_entropy(deferred.view(-1, 131), IDS)
    copied = deferred.clone().numpy()
    agree(not any(one.requires_grad for one in (loss, deferred[0], deferred.clone())), f"{loss}")
    agree(torch.equal(torch.from_numpy(copied), wanted), f"{copied}")
    agree(torch.equal(deferred + 0, wanted) and not (deferred + 0).requires_grad, "gradients")


class _Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, logits: Any) -> Any:
        return logits * 2

    @staticmethod
    def backward(ctx: Any, grad: Any) -> Any:
        return grad * 2


def test_gradients_of_a_function_are_refused_and_not_lost(both: Any) -> None:
    deferred, _ = both()
    with pytest.raises(plait.Error, match=r"defer_logits: a torch\.autograd\.Function"):
        _Doubled.apply(deferred).sum().backward()  # type: ignore[no-untyped-call]


def test_gradients_of_the_weight_alone_are_refused_too(model: Any) -> None:
    path, dtype = model
    with plait.transformers.enabled(defer_logits=True):
        served = shared(path, dtype=dtype)
    served.requires_grad_(False).lm_head.requires_grad_(True)
    logits = served(TOKENS).logits
    agree(logits.requires_grad and logits[0].requires_grad, "they have no gradients")
    with pytest.raises(plait.Error, match=r"defer_logits: a torch\.autograd\.Function"):
        _Doubled.apply(logits).sum().backward()  # type: ignore[no-untyped-call]
    logits.float().logsumexp(-1).sum().backward()
    grad = served.lm_head.weight.grad
    agree(bool(grad.to_local().any()), f"{grad}")


class _Passed(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, loss: Any, logits: Any) -> Any:
        ctx.set_materialize_grads(False)
        return loss.clone(), logits.clone()

    @staticmethod
    def backward(ctx: Any, *grads: Any) -> Any:
        return grads


def test_a_function_may_pass_logits_without_gradients(both: Any) -> None:
    """A module of torch's DistributedDataParallel passes all outputs of a model."""
    deferred, _ = both()
    loss = functional.cross_entropy(deferred.view(-1, 131), IDS)
    passed, _ = _Passed.apply(loss, deferred)  # type: ignore[no-untyped-call]
    found, expected = (
        torch.autograd.grad(one, deferred.x, retain_graph=True)[0] for one in (passed, loss)
    )
    agree(torch.equal(found, expected) and bool(found.any()), f"{found}")


def test_logits_of_a_weight_that_has_changed_are_refused(model: Any) -> None:
    path, dtype = model
    with plait.transformers.enabled(defer_logits=True):
        served = shared(path, dtype=dtype)
    used, unused = served(TOKENS).logits, served(TOKENS).logits
    loss = functional.cross_entropy(unused.float().view(-1, 131), IDS)
    before = used + 0
    optimizer = torch.optim.SGD(served.parameters(), lr=0.05, foreach=False)
    loss.backward()
    optimizer.step()
    agree(torch.equal(used + 0, before), "logits that were there differ")
    looks: list[Any] = [torch.exp, lambda x: x.argmax(-1), lambda x: x[:, -1].exp()]
    for look in looks:
        with pytest.raises(plait.Error, match=r"defer_logits: the weight of these logits was"):
            look(unused)


def test_disable_puts_theirs_back() -> None:
    before = vars(GenerationMixin)["_sample"]
    plait.transformers.enable()
    replaced = vars(GenerationMixin)["_sample"] is not before
    plait.transformers.disable()
    agree(replaced and vars(GenerationMixin)["_sample"] is before, "generate()")
