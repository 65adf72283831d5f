"""Vocabulary heads: the largest logits, losses and gradients, against torch's own on one rank."""

from typing import Any

import pytest
import torch
from ranks import UNIT, agree, shard
from torch.nn import functional

import plait
import plait.torch as pt


def _problem(
    rows: int, ids: int, inputs: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(4)
    x = torch.randn(rows, inputs, generator=generator).to(dtype)
    weight = torch.randn(ids, inputs, generator=generator).to(dtype)
    return x, weight, torch.randint(ids, (rows,), generator=generator)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("fixed", [False, True])
def test_top_is_that_of_all_logits(dtype: torch.dtype, fixed: bool) -> None:
    x, weight, _ = _problem(6, 1001, 64, dtype)
    options = pt.Options(fixed_weights=fixed)
    own = weight[shard(1001)]
    values, ids = pt.linear_top(x.reshape(2, 3, 64), own, 5, options=options)
    exact = x.double() @ weight.double().T
    wanted = exact.topk(5)
    off = 2 * 64 * UNIT[torch.float32] * (x.double().abs() @ weight.double().abs().T).max()
    close = (values.reshape(6, 5) - wanted.values).abs().max() <= off
    agree(bool(close) and torch.equal(ids.reshape(6, 5), wanted.indices), "another top")
    # Rounded logits are equal now and then: the lowest id comes first, as in a stable sort.
    rounded, ids = pt.linear_top(x, own, 9, logits=torch.bfloat16, vocab_size=900)
    every, _ = pt.linear_top(x, own, 900, logits=torch.bfloat16, vocab_size=900)
    agree(torch.equal(every[:, :9], rounded), "the values depend on k")
    agree(bool((ids < 900).all()) and torch.equal(rounded, rounded.bfloat16().float()), "padding")
    with torch.inference_mode():  # whose tensors have no versions
        found = pt.linear_top(x.reshape(2, 3, 64), own.clone(), 5, options=options)
    agree(torch.equal(found[0], values), "inference mode")


@pytest.mark.parametrize(
    ("smoothing", "z", "vocab_size"), [(0.0, 0.0, 300), (0.1, 0.01, 300), (0.1, 0.0, 281)]
)
@pytest.mark.parametrize("reduction", ["mean", "none"])
def test_loss_and_gradients_are_torchs(
    smoothing: float, z: float, vocab_size: int, reduction: str
) -> None:
    x, weight, targets = _problem(10, 300, 32, torch.float32)
    targets = targets % vocab_size
    targets[3] = -100
    x = (x / 4).requires_grad_()
    own = weight[shard(300)].clone().requires_grad_()
    how: dict[str, Any] = {"label_smoothing": smoothing, "reduction": reduction}
    loss = pt.linear_cross_entropy(x, own, targets, vocab_size=vocab_size, z_loss=z, **how)
    grad = torch.arange(1.0, 11.0) if reduction == "none" else torch.tensor(2.0)
    loss.backward(grad)
    exact_x, exact_weight = x.detach().double().requires_grad_(), weight.double().requires_grad_()
    logits = (exact_x @ exact_weight.T)[:, :vocab_size]
    wanted = functional.cross_entropy(logits, targets, **how)
    squares = z * logits.logsumexp(1).square() * (targets != -100)
    wanted = wanted + (squares if reduction == "none" else squares.sum() / 9)
    wanted.backward(grad.double())
    assert x.grad is not None
    assert own.grad is not None
    assert exact_x.grad is not None
    assert exact_weight.grad is not None
    for found, exact in (
        (loss, wanted),
        (x.grad, exact_x.grad),
        (own.grad, exact_weight.grad[shard(300)]),
    ):
        # Sums of at most 300 terms in f32; the factors of rows are at most 10.
        off = 10 * 300 * UNIT[torch.float32] * max(1.0, float(exact.detach().abs().max()))
        agree(
            float((found.double() - exact).detach().abs().max()) <= off, f"off by more than {off}"
        )


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16], ids=str)
@pytest.mark.parametrize("reduction", ["mean", "sum"])
@pytest.mark.parametrize("masked", [False, True])
def test_gradients_are_the_same_ahead(dtype: torch.dtype, reduction: Any, masked: bool) -> None:
    x, weight, targets = _problem(12, 320, 32, dtype)
    targets[3] = -100
    own = weight[shard(320)].clone().requires_grad_()
    x.requires_grad_()
    mask = (torch.arange(12) % 4).float() if masked else None
    found = []
    for ahead in (True, False):
        how: dict[str, Any] = {"reduction": reduction, "label_smoothing": 0.1}
        loss = pt.linear_cross_entropy(
            x, own, targets, row_weights=mask, gradient_ahead=ahead, **how
        )
        # Autograd keeps the first gradients; those of the second pass are made then.
        first = torch.autograd.grad(loss, (x, own), retain_graph=True)
        again = torch.autograd.grad(loss, (x, own), torch.tensor(0.5), retain_graph=True)
        other = pt.linear_cross_entropy(
            x, own, targets, row_weights=mask, gradient_ahead=ahead, **how
        )
        half = torch.autograd.grad(other * 0.5, (x, own))
        found.append((loss.detach(), *first, *again, *half))
    agree(all(torch.equal(a, b) for a, b in zip(*found, strict=True)), "other bits ahead")
    every = pt.linear_cross_entropy(x, own, targets, reduction="none", label_smoothing=0.1)
    total = every.sum() if mask is None else (every * mask).sum()
    count = (targets != -100).sum() if mask is None else (mask * (targets != -100)).sum()
    wanted = total if reduction == "sum" else total / count
    agree(torch.equal(found[0][0], wanted.detach()), "another loss")


def test_gradients_ahead_leave_out_what_is_frozen() -> None:
    x, weight, targets = _problem(600, 64, 16, torch.bfloat16)
    own = weight[shard(64)].clone().requires_grad_()
    pt.linear_cross_entropy(x, own, targets).backward()
    assert own.grad is not None
    apart = weight[shard(64)].clone().requires_grad_()
    pt.linear_cross_entropy(x, apart, targets, gradient_ahead=False).backward()
    assert apart.grad is not None
    # Once more rounded, after the first 512 rows.
    off = UNIT[torch.bfloat16] * 4 * float(apart.grad.float().abs().max())
    agree(float((own.grad - apart.grad).abs().max()) <= off, "another gradient of the weight")
    with torch.no_grad():
        agree(not pt.linear_cross_entropy(x, own, targets).requires_grad, "no gradients")


def test_the_bits_are_those_of_one_rank() -> None:
    x, weight, targets = _problem(7, 320, 32, torch.bfloat16)
    alone = plait.Communicator.connect(place=plait.Place(0, 1, "alone"))
    whole = plait.WeightView(weight, plait.WeightLayout.out_in)
    loss = torch.empty(7)
    plait.matmul_cross_entropy(x, whole, targets, loss, alone)
    found = pt.linear_cross_entropy(x, weight[shard(320)], targets, reduction="none")
    agree(torch.equal(found, loss), "another loss")
    agree(torch.equal(pt.linear_log_probs(x, weight[shard(320)], targets), -loss), "another one")
    values, ids = torch.empty(7, 3), torch.empty(7, 3, dtype=torch.int64)
    plait.matmul_top(x, whole, 3, values, ids, alone)
    found, at = pt.linear_top(x, weight[shard(320)], 3)
    agree(torch.equal(found, values) and torch.equal(at, ids), "another top")


@pytest.mark.parametrize("rows", [0, 1, 70])
def test_columns_come_to_their_places(rows: int) -> None:
    x, weight, _ = _problem(rows, 1001, 64, torch.bfloat16)
    own = weight[shard(1001)]
    comm = pt.communicator()
    out_in = plait.WeightLayout.out_in
    alone = plait.Communicator.connect(place=plait.Place(0, 1, "alone"))
    wanted = torch.empty(rows, 1001, dtype=torch.bfloat16)
    plait.matmul(x, plait.WeightView(weight, out_in), wanted, alone)
    out = torch.empty_like(wanted)
    for plan in (None, "serial", "pipelined parts=2"):
        out.fill_(-1)
        plait.matmul_all_gather_columns(x, plait.WeightView(own, out_in), out, comm, plan=plan)
        agree(torch.equal(out, wanted), f"another product by {plan}")
    with pytest.raises(plait.Error, match="plan"):
        plait.matmul_all_gather_columns(x, plait.WeightView(own, out_in), out, comm, plan="odd")
    again = torch.empty_like(out)
    plait.all_gather_columns(wanted[:, shard(1001)], again, comm)
    agree(torch.equal(again, wanted), "other columns")


def test_main_grad_and_frozen_operands() -> None:
    x, weight, targets = _problem(5, 64, 16, torch.float32)
    own = torch.nn.Parameter(weight[shard(64)].clone())
    pt.linear_cross_entropy(x, own, targets).backward()
    assert own.grad is not None
    first = own.grad.clone()
    own.grad = None
    own.main_grad = torch.ones_like(own)  # type: ignore[attr-defined]
    pt.linear_cross_entropy(x, own, targets, accumulate_into_main_grad=True).backward()
    agree(own.grad is None and torch.equal(own.main_grad, first + 1), "added otherwise")  # type: ignore[attr-defined]
    x.requires_grad_()
    pt.linear_cross_entropy(x, own.detach(), targets).backward()
    agree(x.grad is not None and own.grad is None, "a frozen weight")
    with torch.autocast("cpu", torch.bfloat16):
        loss = pt.linear_cross_entropy(x, own, targets)
    same = pt.linear_cross_entropy(x.bfloat16(), own.bfloat16(), targets)
    agree(torch.equal(loss, same), "not in autocast's dtype")


def test_the_report_counts_each_kind_of_call() -> None:
    pt.forget_report()
    x, weight, targets = _problem(5, 64, 16, torch.float32)
    own = weight[shard(64)].clone().requires_grad_()
    pt.linear_top(x, own)
    pt.linear_log_probs(x, own, targets).sum().backward()
    for _ in range(2):
        pt.linear_cross_entropy(x, own, targets, vocab_size=60).backward()
    found = {(row.operator, row.n, row.k, row.plan): row.calls for row in pt.report().rows}
    wanted = {
        ("linear_top", 0, 16, "no plan"): 1,
        ("linear_log_probs", 0, 16, "no plan"): 1,
        ("linear_log_probs", 0, 16, "gradient alone"): 1,
        ("linear_cross_entropy", 60, 16, "with its gradient"): 2,
    }
    agree(found == wanted and "no plan\n" in str(pt.report()), str(pt.report()))


def test_refusals() -> None:
    x, weight, targets = _problem(5, 64, 16, torch.float32)
    own = weight[shard(64)]
    for call, sentence in (
        (lambda: pt.linear_top(x[:, :8], own), "linear_top: x is [5, 8]; its last dimension must"),
        (lambda: pt.linear_top(x, own, 65), "matmul_top: k is 65, but the vocabulary has 64 ids"),
        (
            lambda: pt.linear_cross_entropy(x, own, targets.int()),
            "linear_cross_entropy: targets is torch.int32 [5] on cpu; it must be torch.int64 [5]",
        ),
        (
            lambda: pt.linear_cross_entropy(x, own, targets, row_weights=torch.ones(4)),
            "linear_cross_entropy: row_weights is torch.float32 [4] on cpu; it must be real [5]",
        ),
        (
            lambda: pt.linear_cross_entropy(x, own, targets + 64),
            "matmul_cross_entropy: the target ",
        ),
        (
            lambda: pt.linear_top(x, own, options=pt.Options(engine="c10d")),
            "linear_top: it has the engine native alone, and options have c10d",
        ),
    ):
        with pytest.raises(plait.Error) as caught:
            call()
        agree(str(caught.value).startswith(sentence), str(caught.value))
