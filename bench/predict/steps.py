#!/usr/bin/env python3
"""Predicts the training steps that bench/predict/run.sh has measured, for a machine with this machine's figures.

    bench/predict/steps.py build/release/app/cli/plait build/predict

Products are as fast as those measured without communication; copies and sums are as fast as in the measured operators.
The errors of these predictions and of those in predicted.json, of operators, go to errors.json, for bench/report.py.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import report  # noqa: E402, likewise

BAR = 0.10  # the largest acceptable error of a prediction


def flops(layers: list[dict], tokens: int, ranks: int) -> float:
    """Operations of one rank: forward, and the gradients of input and weight."""
    return sum(3 * 2 * tokens * layer["in"] * layer["out"] for layer in layers) / ranks


# Values that older files do not record; there were no other values then.
USUAL = {"layers": 1, "batch": 1, "dtype": "bf16", "wire": "f32", "sequence_parallel": True, "keep_gathered": False,
         "column_backward": False, "stand_in_ms": 0}


def products_ms(measured: dict) -> float:
    return measured["schedules"][0]["step_ms"] * (1 - measured["comm_share"]) - measured["stand_in_ms"]


def ways(measured: dict) -> list[str]:
    """The options of plait predict for the measured options."""
    return [*["--no-sequence-parallel"] * (not measured["sequence_parallel"]),
            *["--keep-gathered"] * measured["keep_gathered"], *["--column-backward"] * measured["column_backward"]]


def compare(measured: dict, predict, memory: float) -> list[dict]:
    """Calls `predict` with a rate and the machine's other options; it returns the JSON of plait predict."""
    measured = {**USUAL, **measured}
    if measured["dtype"] != "bf16":
        sys.exit(f"steps.py: {measured['model']} was measured in {measured['dtype']}, "
                 "but plait predict supports bf16 only")
    tokens = measured["seq"] * measured["batch"]
    words = ["--tp", measured["tp"], "--tokens", tokens, "--wire", measured["wire"], *ways(measured),
             "--device", "cpu", "--wiring", "pairs", "--memory", memory * 1e-9, "--link", measured["link"],
             "--plan", ";".join(plan["name"] for plan in measured["schedules"][1:])]
    layers = predict(1, words)["plans"][0]["layers"]
    rate = measured["layers"] * flops(layers, tokens, measured["tp"]) / (products_ms(measured) * 1e-3)
    plans = {plan["plan"]: plan["layers"] for plan in predict(rate * 1e-12, words)["plans"]}
    rows = []
    for plan in measured["schedules"]:
        block = sum(layer["forward_ms"] + layer["backward_ms"] for layer in plans[plan["name"]])
        predicted = measured["layers"] * block + measured["stand_in_ms"]
        rows.append({"model": measured["model"], "scale": measured["scale"], "tokens": tokens,
                     "comm_share": measured["comm_share"], "rate_flops": rate, "plan": plan["name"],
                     "measured_ms": plan["step_ms"], "predicted_ms": predicted,
                     "error": predicted / plan["step_ms"] - 1})
    return rows


def row_of(table: str, what: dict, one: dict) -> dict:
    """A row from a prediction; `size` is the error without its sign."""
    values = {"measured, ms": one["measured_ms"], "predicted, ms": one["predicted_ms"], "off": one["error"],
              "size": abs(one["error"])}
    return {"table": table, "what": what, "values": values, "unit": {"off": "%", "size": "%"}}


def document(operators: list[dict], steps: list[dict]) -> dict:
    rows = [row_of("operators' times",
                   {"operator": one["op"], "plan": one["plan"], "m x n x k": f"{one['m']} x {one['n']} x {one['k']}",
                    "link": f"{one['link_bytes_per_second'] * 8e-9:.3g} Gbit/s"}, one) for one in operators]
    rows += [row_of("training steps' times",
                    {"step": f"{one['model']}, widths x {one['scale']:g}, {one['tokens']} tokens", "plan": one["plan"],
                     "communication in serial": f"{100 * one['comm_share']:.0f} %"}, one) for one in steps]
    bars = [{"what": f"{table}, error of the prediction", "table": table, "value": "size", "take": take, "unit": "%",
             **bar} for table in ("operators' times", "training steps' times")
            for take, bar in (("highest", {"at most": BAR}), ("median", {}))]
    return {"conditions": {**conditions.now(), "command": "./do bench predict"}, "rows": rows, "bars": bars}


def main(plait: str, results: Path) -> None:
    operators = json.loads((results / "predicted.json").read_text(encoding="utf-8"))
    memory = statistics.median(one["memory_bytes_per_second"] for one in operators)
    steps = []
    for file in sorted(results.glob("model_*.json")):
        measured = json.loads(file.read_text(encoding="utf-8"))

        def predict(rate: float, words: list) -> dict:
            command = [plait, "predict", measured["model"], "--scale", measured["scale"], "--rate", rate, *words,
                       "--json", "-"]
            return json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True,
                                             check=True).stdout)

        steps += compare(measured, predict, memory)
    report.write(results / "errors.json", document(operators, steps))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
