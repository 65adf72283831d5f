"""Writes false statements into a small tree's documents, and checks that tools/check_docs.py reports them."""

import tempfile
import unittest
from pathlib import Path

import check_docs

EXAMPLE = "int main() {}\n"


class CheckDocsTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        self.write("do", "verb_test() {\n}\nverb_plait() {\n}\n")
        self.write("src/comm/mailbox.h", "")
        self.write("include/plait/error.h", "")
        self.write("examples/one.cc", EXAMPLE)
        self.write("docs/tour.md", "# The tour\n\n## Eight files, in order\n")

    def write(self, path, text):
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)

    def expect(self, text, *errors):
        self.write("README.md", text)
        self.assertEqual(
            check_docs.Checker(self.root, {"info", "run"}).check(),
            [f"README.md:{e}" for e in errors],
        )

    def test_true_document(self):
        self.expect(
            "# plait\n"
            "See [the tour](docs/tour.md#eight-files-in-order), [below](#plait), [there](https://example.org/x).\n"
            "`src/comm/mailbox.h:3`, `comm/mailbox.h`, `src/{comm,base}/*`, `plait/error.h`, `a/b`, `build/log/x.log`\n"
            "```sh\n$ CI=true ./do test && ./do plait info\nplait run -n 2 -- plait info  # all\nplait --help\n```\n"
            "<!-- file: examples/one.cc -->\n```cpp\n" + EXAMPLE + "```\n"
            "```text\n[no link](gone.md) `src/gone.h`\n```\n",
            "3: `src/base/*` does not exist",
        )

    def test_links(self):
        self.expect("[a](gone.md)\n", "1: the link to gone.md leads nowhere")
        self.expect("![a](/docs/tour.md)\n", "1: the link to /docs/tour.md leads nowhere")
        self.expect("[a](docs/tour.md#nine)\n", "1: docs/tour.md#nine: no such heading")
        self.expect("x\n\n[a]: gone.md\n", "3: the link to gone.md leads nowhere")

    def test_link_is_relative_to_its_document(self):
        self.write("docs/concepts/overlap.md", "[tour](../tour.md) [wrong](docs/tour.md)\n")
        errors = check_docs.Checker(self.root, None).check()
        self.assertEqual(
            errors, ["docs/concepts/overlap.md:1: the link to docs/tour.md leads nowhere"]
        )

    def test_paths_in_backticks(self):
        self.expect("`src/comm/gone.h`\n", "1: `src/comm/gone.h` does not exist")
        self.expect("`plait/gone.h`\n", "1: `plait/gone.h` does not exist")
        self.expect("`comm/gone.h`\n", "1: `comm/gone.h` does not exist")

    def test_capitals_stand_for_any_name(self):
        self.expect("`src/MODULE/mailbox.h` `src/NAME/`\n")
        self.expect("`src/MODULE/gone.h`\n", "1: `src/*/gone.h` does not exist")

    def test_commands(self):
        self.expect("```sh\n./do fly\n```\n", "2: ./do has no verb fly")
        self.expect("```sh\ntrue\n./do test && ./do plait fly\n```\n", "3: plait has no verb fly")
        self.expect("```sh\nplait run -n 2 -- plait fly\n```\n", "2: plait has no verb fly")

    def test_verbs_of_plait_are_unknown_until_it_is_built(self):
        self.write("README.md", "```sh\nplait fly\n```\n")
        self.assertEqual(check_docs.Checker(self.root, None).check(), [])

    def test_example_that_differs_from_its_file(self):
        self.expect(
            "<!-- file: examples/one.cc -->\n```cpp\nint x;\n```\n",
            "2: differs from examples/one.cc",
        )
        self.expect(
            "<!-- file: examples/two.cc -->\n```cpp\nint x;\n```\n",
            "2: examples/two.cc does not exist",
        )

    def test_machine_paths_and_trailing_blanks(self):
        self.expect(
            "in " + "/home/" + "somebody/plait\n",
            "1: /home/" + "somebody is a folder of somebody's machine",
        )
        self.expect("blank \n", "1: trailing blanks")


if __name__ == "__main__":
    unittest.main()
