#!/usr/bin/env python3
"""Turns a step that plait bench model has just measured into a document for bench/report.py.

    bench/model/rows.py step.json 0.08 build/bench/model_bloom-7b-bf16_0.08.json      0.08: the wanted share
"""

import json
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import conditions  # noqa: E402, beside this folder
import report  # noqa: E402, likewise

TABLE = "Training steps over emulated links: gain over the serial step, and the part of what Amdahl's law allows"
BAR = 0.80  # share of what Amdahl's law allows
FAR_OFF = 0.1  # as a share of the wanted value: no link was found for it
NOISE = 0.02  # as a share of the products' time: the error of two medians, as in app/measure/race.h


def document(one: dict, wanted: float) -> dict:
    share = one["comm_share"]
    found = f"{100 * share:.1f} %"
    serial, *plans = one["schedules"]
    what = {"model": one["model"], "widths x": f"{one['scale']:g}", "sums in": one["wire"],
            "wanted share": f"{wanted:g}"}
    values = {"link": one["link"], "share": found if abs(share - wanted) <= FAR_OFF * wanted else f"**{found}**",
              "serial step, ms": serial["step_ms"], "allowed": one["amdahl_gain_percent"] / 100}
    products = serial["step_ms"] * (1 - share)
    for plan in plans:
        if plan["step_ms"] < (1 - NOISE) * products:  # faster than is possible
            values[plan["name"]] = "**disturbed, repeat**"
            continue
        values[plan["name"]] = plan["gain_percent"] / 100
        values[f"{plan['name']}, of allowed"] = plan["gain_percent"] / one["amdahl_gain_percent"]
    unit = {name: "%" for name in ("allowed", *(plan["name"] for plan in plans))}
    bars = [{"what": f"{plan['name']}, sums in {one['wire']}: of what Amdahl allows", "table": TABLE,
             "value": f"{plan['name']}, of allowed", "where": {"sums in": one["wire"]}, "take": "lowest",
             "at least": BAR} for plan in plans]
    return {"what": what["model"],
            "conditions": {**conditions.now(), "ranks": one["tp"], "blocks": one["layers"],
                           "tokens": one["seq"] * one.get("batch", 1), "dtype": one["dtype"],
                           "command": "./do bench model"},
            "rows": [{"table": TABLE, "what": what, "values": values, "unit": unit}], "bars": bars}


if __name__ == "__main__":
    step = json.loads(Path(sys.argv[1]).read_text(encoding="utf-8"))
    report.write(Path(sys.argv[3]), document(step, float(sys.argv[2])))
