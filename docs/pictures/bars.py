#!/usr/bin/env python3
"""Draws what programs gain between two hosts: a picture for each framework, from the table of docs/lab/hosts.md.

    docs/pictures/bars.py                  both pictures
    docs/pictures/bars.py hosts_llama      one of them
"""

import re
import sys
from pathlib import Path
from typing import NamedTuple

HERE = Path(__file__).resolve().parent
TABLE = HERE.parent / "lab" / "hosts.md"
TITLES = {
    "hosts_megatron": ("Megatron step", "A step of a small GPT of Megatron-Core, two hosts, 1 Gbit/s"),
    "hosts_llama": ("LLaMA, 512 tokens",
                    "A prompt of 512 tokens in a small LLaMA of Hugging Face, two hosts, 1 Gbit/s")}
WIDTH, LEFT, RIGHT, BAR, ROW, TOP = 900, 300, 130, 14, 44, 62
STYLE = """<style>
.bars { fill: #1b1f24; font-family: sans-serif; font-size: 11px; }
.bars .title { font-size: 13px; font-weight: bold; }
.bars .strong { font-weight: bold; text-anchor: end; }
.bars .paper { fill: #ffffff; }
.bars .native { fill: #8a929c; }
.bars .plait { fill: #3b6fb6; }
@media screen and (prefers-color-scheme: dark) {
.bars { fill: #e4e7eb; }
.bars .paper { fill: #14171c; }
.bars .plait { fill: #6ba0e8; }
}
</style>"""


class Row(NamedTuple):
    what: str
    native: float  # seconds
    plait: float
    gain: str


def rows_of(prefix: str) -> list[Row]:
    """Return the rows of the tables whose first column begins with the prefix."""
    found = []
    for line in TABLE.read_text(encoding="utf-8").splitlines():
        match = re.match(rf"\| {re.escape(prefix)}, (.*?) \| ([\d.]+) s \| ([\d.]+) s \| ([\d.]+) ", line)
        if match:
            found.append(Row(match[1].replace("`", ""), float(match[2]), float(match[3]), match[4]))
    return found


def bar(kind: str, y: int, seconds: float, scale: float) -> str:
    return (f'<rect class="{kind}" x="{LEFT}" y="{y}" width="{seconds * scale:.1f}" height="{BAR}"/>\n'
            f'<text x="{LEFT + seconds * scale + 6:.1f}" y="{y + 11}">{seconds:.2f} s</text>')


def draw(name: str) -> None:
    prefix, title = TITLES[name]
    rows = rows_of(prefix)
    if not rows:
        sys.exit(f"{TABLE} has no row that begins with {prefix}")
    height = TOP + ROW * len(rows)
    scale = (WIDTH - LEFT - RIGHT) / max(max(row.native, row.plait) for row in rows)
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" class="bars" role="img" width="{WIDTH}" height="{height}" '
             f'viewBox="0 0 {WIDTH} {height}">', f"<title>{title}</title>", STYLE,
             f'<rect class="paper" width="{WIDTH}" height="{height}"/>',
             f'<text x="12" y="22" class="title">{title}</text>',
             '<rect class="native" x="12" y="33" width="11" height="11"/><text x="28" y="43">native, over gloo</text>',
             '<rect class="plait" x="150" y="33" width="11" height="11"/><text x="166" y="43">plait by default</text>']
    for number, row in enumerate(rows):
        y = TOP + ROW * number
        parts += [f'<text x="12" y="{y + 19}">{row.what}</text>', bar("native", y, row.native, scale),
                  bar("plait", y + BAR + 2, row.plait, scale),
                  f'<text x="{WIDTH - 12}" y="{y + 19}" class="strong">{row.gain} times</text>']
    Path(HERE, f"{name}.svg").write_text("\n".join([*parts, "</svg>", ""]), encoding="utf-8")


for one in sys.argv[1:] or TITLES:
    if one not in TITLES:
        sys.exit(f"there is no picture called {one}")
    draw(one)
