#!/usr/bin/env python3
"""Predicts the training steps that bench/predict/run.sh has measured, for a machine with this machine's figures.

    bench/predict/steps.py build/release/src/cli/plait build/predict

Products are as fast as those measured without communication; copies and sums are as fast as in the measured operators.
For each model_NAME.json it writes a step_NAME.json with the measured and predicted times of plans.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path


def flops(layers: list[dict], tokens: int, ranks: int) -> float:
    """Of one rank: forward, and the gradients of input and weight."""
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


def main(plait: str, results: Path) -> None:
    operators = json.loads((results / "predicted.json").read_text(encoding="utf-8"))
    memory = statistics.median(one["memory_bytes_per_second"] for one in operators)
    for file in sorted(results.glob("model_*.json")):
        measured = json.loads(file.read_text(encoding="utf-8"))

        def predict(rate: float, words: list) -> dict:
            command = [plait, "predict", measured["model"], "--scale", measured["scale"], "--rate", rate, *words,
                       "--json", "-"]
            return json.loads(subprocess.run(list(map(str, command)), stdout=subprocess.PIPE, text=True,
                                             check=True).stdout)

        rows = compare(measured, predict, memory)
        (results / file.name.replace("model_", "step_")).write_text(json.dumps(rows, indent=2) + "\n",
                                                                    encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
