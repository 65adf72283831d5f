"""The page of plait trace in a browser: it renders, it zooms, and nothing complains."""

import json
import os
import re
import shutil
import socket
import subprocess
import tempfile
import time
import unittest
import urllib.request
from pathlib import Path

PLAIT = os.environ["PLAIT_COMMAND"]
PATIENCE = 60
SWITCHES = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--window-size=1280,900"]


class Browser:
    """Chromium, by the WebDriver protocol."""

    def __init__(self, folder):
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self.port = probe.getsockname()[1]
        self.driver = subprocess.Popen(["chromedriver", f"--port={self.port}"], stdout=subprocess.DEVNULL,
                                       stderr=subprocess.DEVNULL, env={**os.environ, "HOME": folder})
        self.session = ""
        self.wait_for_driver()
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"args": SWITCHES}}
        made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{made['sessionId']}"

    def wait_for_driver(self):
        deadline = time.monotonic() + PATIENCE
        while True:
            try:
                self.ask("GET", "/status")
                return
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{self.session}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]

    def open(self, file):
        self.ask("POST", "/url", {"url": file.as_uri()})

    def run(self, script):
        return self.ask("POST", "/execute/sync", {"script": f"return {script}", "args": []})

    def show_as(self, media, scheme):
        """As a screen or as paper, for a reader who prefers light or dark."""
        self.ask("POST", "/goog/cdp/execute", {"cmd": "Emulation.setEmulatedMedia", "params": {
            "media": media, "features": [{"name": "prefers-color-scheme", "value": scheme}]}})

    def color(self, selector, key):
        """As red, green and blue."""
        found = self.run(f'getComputedStyle(document.querySelector("{selector}"))["{key}"]')
        return [int(number) for number in re.findall(r"\d+", found)[:3]]

    def complaints(self):
        return self.ask("POST", "/se/log", {"type": "browser"})

    def close(self):
        if self.session:
            self.ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait()


def brightness(color):
    """The relative luminance by which WCAG defines contrast."""
    linear = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4
              for part in (value / 255 for value in color)]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one, other):
    darker, brighter = sorted([brightness(one), brightness(other)])
    return (brighter + 0.05) / (darker + 0.05)


class PageTest(unittest.TestCase):
    def test_in_a_browser(self):
        self.assertIsNotNone(shutil.which("chromedriver"), "chromium-driver is not installed")
        with tempfile.TemporaryDirectory() as folder:
            page = Path(folder) / "page.html"
            perfetto = Path(folder) / "trace.json"
            subprocess.run([PLAIT, "trace", "matmul-all-reduce", "--m", "64", "--n", "512", "--k", "128",
                            "--repeat", "2", "--link", "1gbit,20us", "--html", page, "--trace", perfetto],
                           check=True, timeout=PATIENCE, stdout=subprocess.DEVNULL)
            written = len(re.findall(r'<rect class="bar ', page.read_text()))
            self.assertGreater(written, 2 * 3 * 2, "each of two ranks multiplies and sends in each of three plans")
            self.assertIn("traceEvents", json.loads(perfetto.read_text()))
            browser = Browser(folder)
            try:
                self.look_at(browser, page, written)
                self.read(browser)
            finally:
                browser.close()

    def look_at(self, browser, page, written):
        browser.open(page)
        self.assertEqual(browser.run('document.querySelectorAll("rect.bar").length'), written)
        self.assertEqual(browser.run('document.querySelectorAll("rect.bar.product").length > 5'), True)
        width = browser.run('document.querySelector("rect.bar.product").getBoundingClientRect().width')
        self.assertGreater(width, 0)
        titles = browser.run('[...document.querySelectorAll("svg text")].map(t => t.textContent)')
        for plan in ["serial: ", "pipelined parts=4: ", "fused: "]:
            self.assertTrue(any(title.startswith(plan) for title in titles), plan)
        self.assertTrue(any("the thin line is the ideal" in title for title in titles))

        browser.run('document.getElementById("in").click()')
        zoomed = browser.run('document.querySelector("rect.bar.product").getBoundingClientRect().width')
        self.assertAlmostEqual(zoomed / width, 2, delta=0.01)
        browser.run('document.querySelector("svg").dispatchEvent(new WheelEvent("wheel", '
                    '{deltaY: -1, clientX: 600, clientY: 300, cancelable: true}))')
        closer = browser.run('document.querySelector("rect.bar.product").getBoundingClientRect().width')
        self.assertAlmostEqual(closer / width, 2.5, delta=0.01)
        browser.run('document.getElementById("all").click()')
        again = browser.run('document.querySelector("rect.bar.product").getBoundingClientRect().width')
        self.assertAlmostEqual(again, width, delta=0.01)
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
