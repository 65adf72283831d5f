"""The check of translations finds what differs, and nothing else."""

import contextlib
import io
import shutil
import sys
import tempfile
import unittest
from pathlib import Path
from unittest import mock

import check_translations

ROOT = Path(check_translations.__file__).resolve().parent.parent


class CheckTranslationsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        for name, original in check_translations.PAGES.items():
            for path in (original, f"docs/zh/{name}"):
                (self.root / path).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(ROOT / path, self.root / path)

    def change(self, path, old, new):
        text = (self.root / path).read_text(encoding="utf-8")
        self.assertIn(old, text)
        (self.root / path).write_text(text.replace(old, new, 1), encoding="utf-8")

    def check(self):
        said = io.StringIO()
        with mock.patch.object(sys, "argv", ["check", "--root", str(self.root)]), contextlib.redirect_stdout(said):
            status = check_translations.main()
        return status, said.getvalue().splitlines()

    def test_the_documents_are_in_step(self):
        self.assertEqual(self.check(), (0, ["the translations are in step"]))

    def test_each_difference_is_named(self):
        readme = check_translations.read(ROOT / "README.md")
        headings, rows = len(readme.headings), len(readme.rows)
        for old, new, sentence in [
            ("## From C++\n", "## From C++\n\n## Another\n",
             f"headings differ from 'Read on' on: {headings + 1} in English, {headings} here"),
            ("## From C++\n", "### From C++\n",
             f"headings differ from 'From C++' on: {headings} in English, {headings} here"),
            ("./do build\n", "./do build release\n", "which begins in English with './do build release'"),
            ("| step of the GPT, f32 | 0.73 | 0.60 | 1.23 |\n", "",
             f"the tables differ: {rows - 1} rows in English, {rows} here"),
            ("**1.91 times", "**1.92 times", "1.91 is only in Chinese"),
            ("**1.91 times", "**1.92 times", "1.92 is only in English"),
            ("`plait run` starts", "It starts", "`plait run`: 1 in English, 2 here"),
            ("(docs/guides/from-gloo.md)", "(docs/tour.md)", "a link to from-gloo.md: 0 in English, 1 here"),
        ]:
            with self.subTest(sentence):
                self.change("README.md", old, new)
                status, said = self.check()
                self.assertEqual(status, 1)
                self.assertTrue(any(sentence in line for line in said), said)
                shutil.copy(ROOT / "README.md", self.root / "README.md")

    def test_a_page_without_an_original(self):
        (self.root / "docs/zh/other.md").write_text("# 其他\n")
        self.assertEqual(self.check(), (1, ["docs/zh/other.md: name its English page in PAGES"]))


if __name__ == "__main__":
    unittest.main()
