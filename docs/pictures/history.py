#!/usr/bin/env python3
"""Draws how the speed of operators changed from release to release, from what `./do bench compare` has measured.

    docs/pictures/history.py [FOLDER PICTURE]     docs/figures/history and docs/pictures/history.svg

FOLDER has a file for each release, such as 0.1.0.json, in which the old build is the release before. The first release
has the speed 1. The speed of a later one is that of its predecessor divided by the mean of new times by old times.
"""

import json
import math
import statistics
import sys
from collections import defaultdict
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
WIDTH, LEFT, RIGHT, TOP, PLOT, BOTTOM = 900, 60, 230, 62, 240, 34
COLOURS = ["#3b6fb6", "#2f9e77", "#9a84c6", "#d9534f", "#c98a1b", "#5b8a9a", "#8c6d4f"]
STYLE = """<style>
.history { fill: #1b1f24; font-family: sans-serif; font-size: 11px; }
.history .title { font-size: 13px; font-weight: bold; }
.history .mean { stroke: #1b1f24; fill: #1b1f24; }
.history .paper { fill: #ffffff; }
.history .grid { stroke: #1b1f24; stroke-opacity: 0.15; }
.history .line { fill: none; stroke-width: 2; }
@media screen and (prefers-color-scheme: dark) {
.history { fill: #e4e7eb; }
.history .mean { stroke: #e4e7eb; fill: #e4e7eb; }
.history .paper { fill: #14171c; }
.history .grid { stroke: #e4e7eb; }
}
</style>"""


class Release(NamedTuple):
    name: str
    speed: dict[str, float]  # of each band of cases, and of all of them, relative to the first release
    noise: float  # runs of one build differ by this factor in the mean


def version(file: Path) -> tuple[int, ...]:
    try:
        return tuple(map(int, file.stem.split(".")))
    except ValueError:
        sys.exit(f"{file}: the name of a file of figures is a version, such as 0.1.0.json")


def mean(values: list[float]) -> float:
    return math.exp(statistics.fmean(map(math.log, values)))


def read(folder: Path) -> list[Release]:
    found: list[Release] = []
    for file in sorted(folder.glob("*.json"), key=version):
        ratios, noises = defaultdict(list), []
        for row in json.loads(file.read_text(encoding="utf-8"))["rows"]:
            values = row["values"]
            for band in "all cases", row["band"]:
                ratios[band].append(values["new / old"])
            noises.append(statistics.median(values["old"][::2]) / statistics.median(values["old"][1::2]))
        before = found[-1].speed if found else {}
        # A first release is measured beside itself, so its ratios are noise too.
        if not found:
            noises = max(noises, ratios["all cases"], key=lambda some: abs(math.log(mean(some))))
        speed = {band: before.get(band, 1.0) / mean(some) if found else 1.0 for band, some in ratios.items()}
        found.append(Release(file.stem, speed, max(mean(noises), 1 / mean(noises))))
    return found


def picture(releases: list[Release]) -> str:
    bands = list(dict.fromkeys(band for one in releases for band in one.speed))
    speeds = [speed for one in releases for speed in one.speed.values()]
    low, high = math.floor(10 * min(*speeds, 0.95)) / 10, math.ceil(10 * max(*speeds, 1.05)) / 10
    step = (WIDTH - LEFT - RIGHT) / max(len(releases) - 1, 1)

    def y(speed: float) -> float:
        return TOP + PLOT * (high - speed) / (high - low)

    height = TOP + PLOT + BOTTOM
    title = "Speed of operators by release, relative to the first"
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="history" role="img" width="{WIDTH}" height="{height}" '
             f'viewBox="0 0 {WIDTH} {height}">', f"<title>{title}</title>", STYLE,
             f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
             f'<text x="12" y="22" class="title">{title}</text>',
             '<text x="12" y="39">Bars at the mean: runs of one build differ by this much.</text>']
    for tenth in range(round(10 * low), round(10 * high) + 1):
        at = y(tenth / 10)
        parts += [f'<line class="grid" x1="{LEFT}" x2="{WIDTH - RIGHT}" y1="{at:.1f}" y2="{at:.1f}"/>',
                  f'<text x="12" y="{at + 4:.1f}">{tenth / 10:.1f}</text>']
    for number, one in enumerate(releases):
        at = LEFT + step * number
        middle = one.speed["all cases"]
        parts += [f'<text x="{at:.1f}" y="{height - 12}" text-anchor="middle">{one.name}</text>',
                  f'<line class="mean" x1="{at:.1f}" x2="{at:.1f}" y1="{y(middle * one.noise):.1f}" '
                  f'y2="{y(middle / one.noise):.1f}"/>']
    for number, band in enumerate(bands):
        look = 'class="mean"' if number == 0 else f'fill="{COLOURS[(number - 1) % len(COLOURS)]}"'
        points = [(LEFT + step * at, y(one.speed[band])) for at, one in enumerate(releases) if band in one.speed]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
        parts += [f'<polyline class="line" points="{line}" {look.replace("fill", "stroke")}/>' if number else
                  f'<polyline class="line mean" style="fill: none" points="{line}"/>']
        parts += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" {look}/>' for x, y in points]
        at = TOP + 18 * number
        last = [one.speed[band] for one in releases if band in one.speed][-1]
        parts += [f'<circle cx="{WIDTH - RIGHT + 24}" cy="{at}" r="4" {look}/>',
                  f'<text x="{WIDTH - RIGHT + 36}" y="{at + 4}">{last:.2f} {band}</text>']
    return "\n".join([*parts, "</svg>", ""])


def main() -> None:
    folder, out = map(Path, sys.argv[1:] or [HERE.parent / "figures/history", HERE / "history.svg"])
    releases = read(folder)
    if not releases:
        sys.exit(f"{folder} has no figures")
    out.write_text(picture(releases), encoding="utf-8")


if __name__ == "__main__":
    main()
