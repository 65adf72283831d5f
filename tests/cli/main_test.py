"""Wrong usage gets one sentence and status 2; help and version get status 0."""

import re
import unittest

from command import CommandTest, plait


class UsageTest(CommandTest):
    def test_version(self):
        result = plait("--version")
        self.assertEqual(result.returncode, 0)
        self.assertRegex(result.stdout, r"^plait \d+\.\d+\.\d+\n$")

    def test_help_names_every_verb_and_shows_examples(self):
        pages = {words: plait(*words) for words in [("--help",), ("help",), ("-h",)]}
        for page in pages.values():
            self.assertEqual(page.returncode, 0)
            self.assertIn("Examples:\n  plait ", page.stdout)
        verbs = re.findall(r"^  (\w+)  ", pages["--help",].stdout, re.MULTILINE)
        self.assertEqual(verbs, ["run", "bench", "tune", "trace", "predict", "verify", "info"])
        for verb in verbs:
            with self.subTest(verb):
                page = plait(verb, "--help")
                self.assertEqual(page.returncode, 0)
                self.assertEqual(page.stdout, plait("help", verb).stdout)
                self.assertIn(f"Usage: plait {verb} ", page.stdout)
                self.assertIn(f"Examples:\n  plait {verb}", page.stdout)
                self.assertLessEqual(max(map(len, page.stdout.splitlines())), 100)

    def test_a_letter_means_one_option_in_every_verb(self):
        meanings = {}
        for words in ("run", "bench matmul", "bench matmul-all-reduce", "bench layer", "bench model", "tune",
                      "trace matmul-all-reduce", "predict matmul-all-reduce", "predict llama2-7b",
                      "predict --measured FILE", "verify", "info"):
            page = plait(*words.split(), "--help")
            self.assertEqual(page.returncode, 0, words)
            for letter, name in re.findall(r"^  (-\w), (--[\w-]+)", page.stdout, re.MULTILINE):
                self.assertEqual(meanings.setdefault(letter, name), name, words)
        self.assertEqual((meanings["-n"], meanings["-t"]), ("--ranks", "--transport"))

    def test_a_mistyped_verb(self):
        self.assertEqual(
            self.refuses("rnu"),
            "plait: unknown verb rnu; did you mean run? (plait --help lists them)",
        )
        self.assertNotIn("did you mean", self.refuses("xylophone"))

    def test_no_verb(self):
        self.assertIn("a verb is missing", self.refuses())

    def test_run_refuses(self):
        cases = [
            (("ls",), "the number of ranks is missing: -n N (plait run --help)"),
            (("-n", "0", "ls"), "-n 0: the number of ranks is a whole number from 1 to 1024"),
            (("-np", "2", "ls"), "unknown option -np; did you mean -n?"),
            (("-v", "-np", "2", "ls"), "unknown option -np; did you mean -n?"),
            (("-n", "1025", "ls"), "-n 1025: the number of ranks is a whole number from 1 to 1024"),
            (("-n", "two", "ls"), "-n two: the number of ranks is a whole number from 1 to 1024"),
            (("-n",), "-n needs a value"),
            (("-n", "2"), "the command is missing, as in plait run -n 2 -- ./my_program"),
            (("-n", "2", "--"), "the command is missing, as in plait run -n 2 -- ./my_program"),
            (("-n2", "--bnd", "core", "ls"), "unknown option --bnd; did you mean --bind?"),
            (("-n2", "-p=3", "ls"), "-p takes no value"),
            (("-n2", "--bind", "foo", "ls"), "--bind foo is none of core, numa, none"),
            (("-n2", "--grace", "5x", "ls"),
             "--grace 5x is not a duration such as 500ms, 90s, 30min or 2h"),
            (("-n2", "--timeout", "0", "ls"), "--timeout 0 is not above 0"),
            (("-n", "2", "-n", "3", "ls"), "--ranks is given more than once"),
            (("-n2", "--ranks=2", "--bind", "foo", "ls"), "--ranks is given more than once"),
        ]
        for words, sentence in cases:
            with self.subTest(words):
                self.assertEqual(self.refuses("run", *words), "plait run: " + sentence)

    def test_run_wants_a_core_for_each_rank_where_it_is_told_to_bind(self):
        self.assertRegex(
            self.refuses("run", "-n", "1024", "--bind", "core", "ls"),
            r"--bind core: 1024 ranks, but only \d+ cores? are available; --bind none lets ranks share cores",
        )


if __name__ == "__main__":
    unittest.main()
