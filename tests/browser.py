"""Chromium for tests of pages, controlled by the WebDriver protocol."""

import json
import os
import re
import subprocess
import time
import urllib.request
from pathlib import Path

PATIENCE = 180
SWITCHES = ["--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage",
            "--window-size=1280,900"]


class Browser:
    """One window. The folder gets the driver's log and the home of the browser."""

    def __init__(self, folder):
        # The driver chooses the port: one chosen here might be another process's by then.
        said = Path(folder, "driver.log")
        with said.open("w") as log:
            self.driver = subprocess.Popen(["chromedriver", "--port=0"], stdout=log, stderr=subprocess.DEVNULL,
                                           env={**os.environ, "HOME": folder})
        self.session = ""
        self.port = self.wait_for_port(said)
        wanted = {"browserName": "chrome", "goog:loggingPrefs": {"browser": "ALL"},
                  "goog:chromeOptions": {"args": SWITCHES}}
        made = self.ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self.session = f"/session/{made['sessionId']}"

    def wait_for_port(self, said):
        deadline = time.monotonic() + PATIENCE
        while not (found := re.search(r"successfully on port (\d+)", said.read_text())):
            if time.monotonic() > deadline:
                raise AssertionError(f"chromedriver does not start: {said.read_text()}")
            time.sleep(0.05)
        return int(found[1])

    def ask(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{self.session}{path}", data, method=method)
        with urllib.request.urlopen(request, timeout=PATIENCE) as answer:
            return json.load(answer)["value"]

    def open(self, address):
        self.ask("POST", "/url", {"url": address})

    def run(self, script):
        return self.ask("POST", "/execute/sync", {"script": f"return {script}", "args": []})

    def complaints(self):
        return self.ask("POST", "/se/log", {"type": "browser"})

    def close(self):
        if self.session:
            self.ask("DELETE", "")
        self.driver.terminate()
        self.driver.wait()
