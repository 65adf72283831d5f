"""Writes sentences into small files, and checks which of them tools/check_words.py refuses."""

import tempfile
import unittest
from pathlib import Path

import check_words


def faults(name: str, text: str) -> list[tuple[int, str]]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        path.write_text(text, encoding="utf-8")
        return [(found.line, found.why) for found in check_words.faults_of(path)]


class CheckWordsTest(unittest.TestCase):
    def test_an_opening_that_needs_a_second_reading(self):
        for opening in ("Of one rank.", "That it holds.", "So nothing is lost.", "The same for rows.", "As before.",
                        "What is left.", "Whether it waits.", "Where it waits.", "By rank.", "In which calls."):
            self.assertEqual(faults("a.cc", f"int a;\n// {opening}\nint b;\n"),
                             [(2, f'a comment opens with "{opening}"')])
        self.assertEqual(faults("a.py", "x = 1  #\x20Of a rank.\n"), [(1, 'a comment opens with "Of a rank."')])

    def test_a_comment_behind_code_of_cpp(self):
        for opening in ("what the ranks run", "whether it waits", "where they meet", "in which they travel"):
            self.assertEqual(faults("a.h", f"int a;\nint b;  // {opening}\n"),
                             [(2, f'a comment opens with "{opening}"')])
        for label in ("by rank", "of x", "the ranks wait where they meet"):
            self.assertEqual(faults("a.h", f"int a;  // {label}\n"), [])
        # A comment on a line of its own may go on with such a word, and begins with a capital.
        self.assertEqual(faults("a.h", "int a;  // the ranks know\n        // where they meet\n"), [])
        self.assertEqual(faults("a.h", "int a;  // one\n// Two.\n// What is left.\nint b;  // What is left.\n"),
                         [(4, 'a comment opens with "What is left."')])

    def test_docstrings_of_stubs(self):
        text = ('class A:\n    """\n    Whether a rank\n    waits.\n    """\n\n    a = 0\n    """What is left."""\n\n'
                '    b = 1\n    """The rest."""\n')
        self.assertEqual(sorted(faults("a.pyi", text)),
                         [(2, 'a docstring opens with "Whether a rank\nwaits."'),
                          (8, 'a docstring opens with "What is left."')])

    def test_docstrings_open_with_a_subject(self):
        text = 'def f():\n    """What a rank sends."""\n\n\ndef g():\n    """Return the chunk."""\n'
        self.assertEqual(faults("a.py", text), [(2, 'a docstring opens with "What a rank sends."')])

    def test_the_lines_of_one_comment_are_read_together(self):
        self.assertEqual(faults("a.h", "// Ranks meet here, and all of them know the number\n// of chunks.\n"), [])
        self.assertEqual(faults("a.h", "// The rank waits.\n// Of the peers,\n// nobody comes.\n"),
                         [(1, 'a comment says "nobody"')])

    def test_words_for_people(self):
        self.assertEqual(faults("a.sh", "#!/bin/sh\n# Whoever calls it waits.\n"), [(2, 'a comment says "Whoever"')])
        self.assertEqual(faults("a.md", "# Ranks\n\nEverybody waits.\n\n```\nnobody\n```\n`nobody` does.\n"),
                         [(3, '"Everybody"')])

    def test_code_is_not_prose(self):
        self.assertEqual(faults("a.cc", 'auto a = "nobody"; int nobody = 1;\n'), [])
        self.assertEqual(faults("CMakeLists.txt", "set(nobody 1)\n"), [])
        self.assertEqual(faults("picture.svg", "# Of nobody\n"), [])


if __name__ == "__main__":
    unittest.main()
