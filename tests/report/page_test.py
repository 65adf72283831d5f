"""The page of plait trace in a browser: it shows the records, zooms and prints, without errors in the console."""

import base64
import collections
import json
import os
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from browser import PATIENCE, Browser

PLAIT = os.environ["PLAIT_COMMAND"]
PLANS = ["serial", "pipelined parts=4", "fused"]
FASTEST = 20_000  # GFLOP/s that no rank of a test reaches


class Page(Browser):
    """A page of plait trace."""

    def show_as(self, media, scheme):
        """Renders as on a screen or on paper, for a reader who prefers light or dark."""
        self.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {
            "media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}})

    def color(self, selector, key):
        """A colour as red, green and blue."""
        found = self.run(f'getComputedStyle(document.querySelector("{selector}"))["{key}"]')
        return [int(number) for number in re.findall(r"\d+", found)[:3]]

    def widths(self):
        return self.run('[...document.querySelectorAll("rect.bar.product")].map(b => b.getBoundingClientRect().width)')

    def left(self):
        return self.run('document.querySelector("rect.bar.link").getBoundingClientRect().left')

    def send(self, event):
        """Send a key; return whether the browser's default action was not prevented."""
        return self.run(f'document.querySelector(".timeline svg").dispatchEvent(new {event})')

    def sheets(self):
        """The number of A4 sheets of the printed page."""
        pdf = self.ask("POST", "/goog/cdp/execute", {"cmd": "Page.printToPDF", "params": {"preferCSSPageSize": True}})
        return len(re.findall(rb"/Type\s*/Page\b", base64.b64decode(pdf["data"])))


def brightness(color):
    """The relative luminance by which WCAG defines contrast."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
              for part in (value / 255 for value in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    darker, brighter = sorted([brightness(one), brightness(other)])
    return (brighter + 0.05) / (darker + 0.05)


def read_events(perfetto):
    """Spans and flights, in nanoseconds."""
    begun, found = {}, []
    for event in json.loads(perfetto.read_text())["traceEvents"]:
        if event["ph"] not in "Xbe":
            continue
        at = round(event["ts"] * 1000)
        if event["ph"] == "X":
            found.append({**event, "begin": at, "end": at + round(event["dur"] * 1000)})
            continue
        flight = event["pid"], event["id2"]["local"]
        if event["ph"] == "b":
            begun[flight] = {**event, "begin": at}
        else:
            found.append({**begun.pop(flight), "end": at})
    return found


def drawn_run(events, plan):
    """The interval in which all ranks ran, in the run of median length."""
    of_ranks = collections.defaultdict(list)
    for event in events:
        if (event["name"], event["cat"], event["ph"]) == (plan, "compute", "b"):
            of_ranks[event["pid"]].append(event)
    runs = [(min(one["begin"] for one in run), max(one["end"] for one in run)) for run in zip(*of_ranks.values())]
    return sorted(runs, key=lambda run: run[1] - run[0])[len(runs) // 2]


def bars_due(events):
    """The number of bars by rank, row and name; for products a minimum, because copies and sums split them."""
    due = collections.Counter()
    for plan in PLANS:
        begin, end = drawn_run(events, plan)
        for event in events:
            if event["end"] <= begin or event["begin"] >= end:
                continue
            kind = event["ph"], event["cat"]
            if kind == ("b", "comm"):
                due[event["pid"], "link", event["name"]] += 1
            elif kind == ("X", "comm") and event["name"] in ("copy", "sum", "take"):
                due[event["pid"], "communication", event["name"]] += 1
            elif kind == ("X", "compute") and event["name"] in ("product", "pack"):
                due[event["pid"], "product", event["name"]] += 1
    return due


class PageTest(unittest.TestCase):
    SIZE = ["--m", "64", "--n", "512", "--k", "128", "--repeat", "2"]

    def trace(self, *words):
        subprocess.run([PLAIT, "trace", "matmul-all-reduce", *self.SIZE, *words], check=True, timeout=PATIENCE,
                       stdout=subprocess.DEVNULL)

    def test_in_a_browser(self):
        self.assertIsNotNone(shutil.which("chromedriver"), "chromium-driver is not installed")
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            many = Path(folder) / "many.html"
            perfetto = Path(folder) / "trace.json"
            self.trace("--link", "1gbit,20us", "--html", page, "--trace", perfetto)
            self.trace("--link", "1gbit,20us", "--html", many, "--ranks", "8", "--transport", "threads")
            browser = Page(folder)
            try:
                browser.open(page.as_uri())
                self.compare(browser, perfetto)
                self.look_at(browser)
                self.read(browser)
                self.assertEqual(browser.sheets(), 1)
                browser.open(many.as_uri())
                self.assertEqual(browser.complaints(), [])
                # A run of eight ranks fills most of a sheet if its letters are readable, so three runs take three
                # sheets.
                self.assertEqual(browser.sheets(), 3)
            finally:
                browser.close()

    def compare(self, browser, perfetto):
        """Compares it with the records of the same run."""
        titles = browser.run('[...document.querySelectorAll("rect.bar title")].map(t => t.textContent)')
        self.assertEqual(browser.run('document.querySelectorAll("rect.bar").length'), len(titles))
        bars = collections.Counter()
        for title in titles:
            rank, row, name = re.match(r"rank (\d+), (\w+): ([\w ]+), [\d.]+ \w+ from ", title).groups()
            if row != "exposed":
                bars[int(rank), row, name] += 1
        due = bars_due(read_events(perfetto))
        self.assertEqual(set(bars), set(due))
        self.assertTrue({(rank, row) for rank, row, _ in due} >= {(0, "product"), (1, "communication"), (1, "link")})
        for key, count in due.items():
            (self.assertGreaterEqual if key[1] == "product" else self.assertEqual)(bars[key], count, key)
        self.assertTrue(any(re.search(r"^rank 0, link: chunk, .* from .*, rank 1, chunk 0, .*B$", title)
                            for title in titles))
        rates = [int(rate[1]) for title in titles if (rate := re.search(r": product, .*, (\d+) GFLOP/s$", title))]
        self.assertEqual(len(rates), sum(count for key, count in bars.items() if key[2] == "product"))
        self.assertLess(max(rates), FASTEST)

    def look_at(self, browser):
        texts = browser.run('[...document.querySelectorAll("svg text")].map(t => t.textContent)')
        for plan in PLANS:
            self.assertTrue(any(text.startswith(f"{plan}: ") for text in texts), plan)
        self.assertTrue(any("the thin line is the ideal" in text for text in texts))
        self.assertEqual(texts.count("0"), len(PLANS), "each run has its times")

        widths = browser.widths()
        self.assertGreater(min(widths), 0)

        def assert_stretched(by):
            for wide, width in zip(browser.widths(), widths):
                self.assertAlmostEqual(wide / width, by, delta=0.01)

        browser.run('document.getElementById("in").click()')
        assert_stretched(2)
        # A page that is taller than the window must still scroll.
        self.assertTrue(browser.send("WheelEvent('wheel', {deltaY: -1, clientX: 600, bubbles: true, "
                                     "cancelable: true})"))
        assert_stretched(2)
        self.assertEqual(browser.run('getComputedStyle(document.querySelector(".timeline")).touchAction'), "pan-y")
        for key, turn, stretched in (("ctrlKey", "deltaY: -1", 2.5), ("shiftKey", "deltaX: 1", 2)):
            self.assertFalse(browser.send(f"WheelEvent('wheel', {{{key}: true, {turn}, clientX: 600, bubbles: true, "
                                          "cancelable: true})"))
            assert_stretched(stretched)
        left = browser.left()
        for name, x in (("pointerdown", 600), ("pointermove", 570), ("pointerup", 570), ("pointermove", 300)):
            browser.send(f"PointerEvent('{name}', {{clientX: {x}, bubbles: true}})")
        self.assertAlmostEqual(browser.left() - left, -30, delta=0.5)
        browser.run('document.getElementById("all").click()')
        assert_stretched(1)
        self.assertEqual(browser.complaints(), [])
    def read(self, browser):
        for media, scheme, paper in [("screen", "light", [255, 255, 255]), ("screen", "dark", [20, 23, 28]),
                                     ("print", "light", [255, 255, 255]), ("print", "dark", [255, 255, 255])]:
            with self.subTest(media=media, scheme=scheme):
                browser.show_as(media, scheme)
                self.assertEqual(browser.color("body", "background-color"), paper)
                for text in ["h1", "p"]:
                    self.assertGreater(contrast(browser.color(text, "color"), paper), 7)
                self.assertGreater(contrast(browser.color("svg text", "fill"), paper), 7)
                for row in ["product", "communication", "link", "exposed"]:
                    self.assertGreater(contrast(browser.color(f"rect.bar.{row}", "fill"), paper), 3, row)
                hidden = browser.run('getComputedStyle(document.querySelector(".controls")).display')
                self.assertEqual(hidden == "none", media == "print")
                self.assertEqual(browser.run("document.documentElement.scrollWidth <= innerWidth"), True)


if __name__ == "__main__":
    unittest.main()
