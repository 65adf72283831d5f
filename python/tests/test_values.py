"""Plans, settings, traces, weights: values that need no second rank."""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import plait

OUT_IN = plait.WeightLayout.out_in


def test_plans_are_text() -> None:
    plan = plait.Plan("pipelined parts=8 axis=columns")
    assert (plan.schedule, plan.parts, plan.axis) == (
        plait.Schedule.pipelined,
        8,
        plait.Axis.columns,
    )
    assert plait.Plan(str(plan)) == plan
    assert repr(plan) == 'Plan("pipelined axis=columns parts=8")'
    assert {plan: 1}[plait.Plan(str(plan))] == 1
    assert plan != "pipelined parts=8 axis=columns"
    with pytest.raises(plait.Error, match="partz"):
        plait.Plan("pipelined partz=8")


def test_names_stand_for_what_they_name() -> None:
    w = np.arange(12, dtype=np.float32).reshape(4, 3)
    assert plait.WeightView(w, "in_out").layout == plait.WeightLayout.in_out
    assert plait.PackedWeight(w, layout="out_in").n == 4
    assert str(plait.quantize(w, layout="out_in", scheme="s4:tensor").scheme) == "s4:tensor"
    assert str(plait.WeightKind("bf16", "s8")) == str(
        plait.WeightKind(plait.Dtype.bf16, plait.QuantScheme("s8"))
    )
    desc = plait.OpDesc("matmul_all_reduce", m=2, n=4, k=3, x="bf16", out="f32")
    assert (desc.op, desc.x) == (plait.Operator.matmul_all_reduce, plait.Dtype.bf16)
    assert (str(desc.weight), desc.out) == ("bf16:plain", plait.Dtype.f32)
    assert plait.default_plan("matmul") == plait.Plan("serial")
    comm, y = plait.Communicator.connect(), np.zeros((2, 4), np.float32)
    x = np.ones((2, 3), np.float32)
    plait.matmul(x, plait.WeightView(w, "out_in"), y, comm, wire="bf16", plan="serial")
    assert y.tolist() == (x @ w.T).tolist()
    settings = plait.Settings()
    settings.plan, settings.wire = "fused", "s8"
    assert (settings.plan, settings.wire) == (plait.Plan("fused"), plait.Dtype.s8)
    settings.plan, settings.wire = None, "auto"
    assert (settings.plan, settings.wire) == (None, None)
    plait.matmul(x, plait.WeightView(w, "out_in"), y, comm, wire="auto")
    assert plait.LinearOptions(wire="auto") is not None
    with pytest.raises(plait.Error, match="'auto' is no dtype"):
        plait.size_of("auto")


@pytest.mark.parametrize(
    ("call", "sentence"),
    [
        (
            lambda: plait.WeightView(np.ones((1, 1), np.int8), "inout"),
            "'inout' is no layout; there are",
        ),
        (lambda: plait.size_of("f64"), "'f64' is no dtype; there are f32, bf16, f16 and s8"),
        (lambda: plait.traits_of("mul"), "'mul' is no operator; there are matmul, matmul_all_red"),
        (lambda: plait.WeightKind("f32", "s9"), "'s9' is no scheme; there are s8 and s4"),
        (lambda: plait.followed_by("matmul", "fast"), "plan: fast is neither a schedule"),
    ],
)
def test_a_name_that_there_is_none_of_is_refused(call: Callable[[], object], sentence: str) -> None:
    with pytest.raises(plait.Error, match=sentence):
        call()


def test_what_an_operator_moves_and_shares() -> None:
    traits = plait.traits_of(plait.Operator.matmul_reduce_scatter)
    assert traits.name == "matmul_reduce_scatter"
    assert (traits.compute_first, traits.reduces, traits.gathers) == (True, True, False)
    assert (traits.shares_n, traits.shares_k, traits.is_fused) == (False, True, True)
    assert [plait.traits_of(op).name for op in plait.Operator] == [op.name for op in plait.Operator]


def test_a_place_names_a_simulated_host() -> None:
    assert plait.Place(1, 4, host="b").host == "b"
    assert plait.Place(1, 4).host == ""


def test_what_an_operator_follows() -> None:
    fused = plait.Plan("fused")
    assert plait.default_plan(plait.Operator.matmul_all_reduce) == fused
    assert str(plait.followed_by(plait.Operator.matmul, fused)) == "serial"


def test_settings() -> None:
    settings = plait.parse_settings('plan = "serial"\nwire = "bf16"\n')
    assert settings.plan == plait.Plan("serial")
    assert settings.wire is plait.Dtype.bf16
    settings.plan = None
    assert settings != plait.parse_settings('plan = "serial"\nwire = "bf16"\n')
    with pytest.raises(plait.Error, match=r"my\.toml:2"):
        plait.parse_settings('plan = "serial"\nspeed = 2\n', "my.toml")


def test_what_is_written_to_customized_is_set() -> None:
    settings = plait.Settings()
    rows = settings.customized
    settings.customized[(16384, 5120, 1920)] = plait.Plan("pipelined parts=8")
    rows["[16384,1920,5120]"] = 1
    rows[4, 5, 6] = -1
    rows[7, 8, 9] = "fused chunk=64"
    assert settings.customized == {
        (4, 5, 6): plait.Plan("fused"),
        (7, 8, 9): plait.Plan("fused chunk=64"),
        (16384, 1920, 5120): plait.Plan("serial"),
        (16384, 5120, 1920): plait.Plan("pipelined parts=8"),
    }
    assert list(rows) == sorted(rows.keys())
    assert (7, 8, 9) in settings.customized
    assert len(rows) == 4
    del rows[4, 5, 6]
    with pytest.raises(KeyError, match=r"\(4, 5, 6\)"):
        rows[4, 5, 6]
    other = settings.copy()
    rows.clear()
    assert settings == plait.Settings()
    assert len(other.customized) == 3
    settings.customized = {"[16384, 5120, 1920]": 8, "[16384, 1920, 5120]": 1}
    settings.customized.update({(1, 2, 3): 2})
    text = '[customized]\n"[16384,5120,1920]" = 8\n"[16384,1920,5120]" = 1\n"[1,2,3]" = 2\n'
    assert settings == plait.parse_settings(text)
    assert dict(settings.customized.items()) == settings.customized.copy()
    other.customized = settings.customized
    assert other == settings


@pytest.mark.parametrize("key", [(1, 2), (0, 1, 2), (1, 2, 3.5), "[1, 2", "128", 5, (True, 1, 2)])
def test_a_key_that_is_no_shape_is_refused(key: object) -> None:
    settings = plait.Settings()
    with pytest.raises(plait.Error, match=r"is not \(m, k, n\), three sizes of at least 1"):
        settings.customized[key] = "serial"
    assert not settings.customized


@pytest.mark.parametrize("plan", [0, 65, -2, 1.5, None, True, [1]])
def test_a_plan_that_is_none_is_refused(plan: object) -> None:
    settings = plait.Settings()
    settings.customized[1, 2, 3] = "serial"
    with pytest.raises(plait.Error, match="is no plan: it can be a plan or its text"):
        settings.customized = {(4, 5, 6): "fused", (1, 2, 3): plan}
    assert settings.customized == {(1, 2, 3): plait.Plan("serial")}


def test_variables_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COC_PARALEL_NUM", "4")
    sentence = "COC_PARALEL_NUM: plait does not read it; did you mean COC_PARALLEL_NUM?"
    assert sentence in plait.check_environment()
    monkeypatch.setenv("PLAIT_PLAN", "serial")
    settings = plait.load_settings("plan = 'fused'\nwire = 'bf16'")
    assert (settings.plan, settings.wire) == (plait.Plan("serial"), plait.Dtype.bf16)
    monkeypatch.setenv("PLAIT_TIMEOUT", "abc")
    with pytest.raises(plait.Error, match="PLAIT_TIMEOUT=abc is not a duration"):
        plait.check_environment()


def test_a_timeline_has_its_spans(tmp_path: Path) -> None:
    trace = plait.Trace(3)
    with trace.span(plait.Lane.compute, "matmul", flops=7):
        trace.mark(plait.Lane.comm, "posted")
    trace.count("bytes", 5)
    assert trace.dropped == 0
    file = tmp_path / "timeline.json"
    with plait.Communicator.connect(trace=trace) as comm:
        plait.align_clock(trace, comm)
        plait.write_timeline(str(file), trace, comm)
    trace.write_json(str(tmp_path / "alone.json"))
    plait.write_json(str(tmp_path / "packs.json"), [trace.pack(), plait.Trace(4).pack()])
    for name in ("timeline", "alone", "packs"):
        events = json.loads((tmp_path / f"{name}.json").read_text())["traceEvents"]
        assert {"matmul", "posted", "bytes"} <= {event["name"] for event in events}


def weight(n: int, k: int) -> np.ndarray:
    return np.random.default_rng(0).standard_normal((n, k)).astype(np.float32)


@pytest.mark.parametrize("text", ["s8", "s4:group=8", "s8:tensor", "s4:group=16:offsets"])
def test_a_quantised_weight_is_near(text: str) -> None:
    w = weight(12, 32)
    q = plait.quantize(w, layout=OUT_IN, scheme=plait.QuantScheme(text))
    assert (q.n, q.k, q.scheme) == (12, 32, plait.QuantScheme(text))
    back = np.empty_like(w)
    q.dequantize(back, layout=OUT_IN)
    scales = np.from_dlpack(q.scales())
    assert scales.shape == (q.groups, 12)
    assert np.abs(back - w).max() <= scales.max() * (0.5 + 1e-6)
    packed = plait.PackedWeight(q)
    assert (packed.dtype, packed.scheme) == (plait.Dtype.s8, q.scheme)


def test_a_weight_quantised_elsewhere() -> None:
    q = plait.quantize(weight(4, 6), layout=OUT_IN, scheme=plait.QuantScheme("s8:group=4:offsets"))
    values, scales = np.from_dlpack(q.values()), np.from_dlpack(q.scales())
    offsets = q.offsets()
    assert offsets is not None
    same = plait.QuantizedWeight.from_parts(
        q.scheme, 4, 6, values=values, layout=OUT_IN, scales=scales, offsets=offsets
    )
    a, b = np.empty((4, 6), dtype=np.float32), np.empty((4, 6), dtype=np.float32)
    q.dequantize(a, layout=OUT_IN)
    same.dequantize(b, layout=OUT_IN)
    assert np.array_equal(a, b)


def test_views_keep_their_weight() -> None:
    values = np.from_dlpack(
        plait.quantize(weight(4, 6), layout=OUT_IN, scheme=plait.QuantScheme("s8")).values()
    )
    again = plait.quantize(weight(4, 6), layout=OUT_IN, scheme=plait.QuantScheme("s8"))
    assert np.array_equal(values, np.from_dlpack(again.values()))


def test_packing_takes_rows_with_gaps() -> None:
    w = weight(8, 20)[:, :10]
    packed = plait.PackedWeight(w, layout=OUT_IN)
    assert (packed.n, packed.k, packed.dtype) == (8, 10, plait.Dtype.f32)
    turned = plait.PackedWeight(w, layout=plait.WeightLayout.in_out)
    assert (turned.n, turned.k) == (10, 8)
    with pytest.raises(plait.Error, match="weight has rows whose elements are 20 apart"):
        plait.PackedWeight(w.T, layout=OUT_IN)
    with pytest.raises(plait.Error, match="weight has 1 dimensions"):
        plait.PackedWeight(w[0], layout=OUT_IN)
