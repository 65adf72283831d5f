"""The documents as pages, in a browser: headings, pictures, search, and links that stay within the site."""

import functools
import http.server
import os
import re
import tempfile
import threading
import time
import unittest
from pathlib import Path

from browser import PATIENCE, Browser

SITE = Path(os.environ["PLAIT_SITE"])
HEADINGS = {
    "index.html": ["plait", "From PyTorch", "From C++", "Read on"],
    "docs/start.html": ["The first ten minutes", "Build", "Run", "See an error"],
    "docs/guides/from-mindspeed-coc.html": ["Coming from MindSpeed CoC"],
}


class Quiet(http.server.SimpleHTTPRequestHandler):
    def log_message(self, *words):
        pass


class SiteTest(unittest.TestCase):
    def test_pages_show_their_headings_and_pictures_and_are_found(self):
        with http.server.ThreadingHTTPServer(
            ("127.0.0.1", 0), functools.partial(Quiet, directory=str(SITE))
        ) as server, tempfile.TemporaryDirectory() as folder:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            self.address = f"http://127.0.0.1:{server.server_port}"
            self.browser = Browser(folder)
            try:
                for path, wanted in HEADINGS.items():
                    with self.subTest(path):
                        self.check_page(path, wanted)
                self.check_search()
                self.assertEqual(self.browser.complaints(), [])
            finally:
                self.browser.close()
                server.shutdown()

    def check_page(self, path, wanted):
        self.browser.open(f"{self.address}/{path}")
        shown = self.browser.run('[...document.querySelectorAll("h1, h2")].map(h => h.firstChild.textContent.trim())')
        for heading in wanted:
            self.assertIn(heading, shown)
        self.assertEqual(self.browser.run("[...document.images].filter(i => !i.naturalWidth).map(i => i.src)"), [])
        loaded = self.browser.run('performance.getEntriesByType("resource").map(r => r.name)')
        self.assertEqual([name for name in loaded if not name.startswith(self.address)], [])
        self.assertTrue(any(name.endswith(".css") for name in loaded), loaded)

    def check_search(self):
        self.browser.open(f"{self.address}/index.html")
        self.browser.run("""(() => {
            const query = document.querySelector('[data-md-component="search-query"]');
            query.focus(); query.value = "mailbox"; query.dispatchEvent(new Event("keyup")); return 0; })()""")
        deadline = time.monotonic() + PATIENCE
        while not (found := self.browser.run(
                '[...document.querySelectorAll(".md-search-result__link")].map(a => a.href)')):
            self.assertLess(time.monotonic(), deadline, "the search finds nothing")
            time.sleep(0.1)
        self.assertTrue(any("mailbox" in link for link in found), found)

    def test_no_page_loads_anything_from_elsewhere(self):
        loads = re.compile(r'<(?:script|img|iframe)[^>]*src="https?:[^"]*"|<link[^>]*href="https?:[^"]*"')
        pages = list(SITE.glob("**/*.html"))
        self.assertGreater(len(pages), 80)
        for page in pages:
            self.assertEqual(loads.findall(page.read_text(encoding="utf-8")), [], page)


if __name__ == "__main__":
    unittest.main()
