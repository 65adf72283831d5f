"""plait bench grouped: its options, its text and its JSON."""

import json
import unittest

from command import CommandTest


class GroupedTest(CommandTest):
    SMALL = ("--model", "gpt-oss-quarter", "--repeat", 2, "--threads", 1)

    def bench(self, *words):
        result = self.plait("bench", "grouped", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def test_help(self):
        page = self.bench("--help")
        self.assertIn("Usage: plait bench grouped [OPTIONS]", page)
        for option in ("--model", "--tokens", "--skew", "--dtype", "--weight", "--threads", "--backend", "--json"):
            self.assertIn(option, page)

    def test_json_has_every_key(self):
        found = json.loads(self.bench(*self.SMALL, "--tokens", "1,16", "--json", "-"))
        self.assertEqual(list(found), ["plait", "words", "processor", "threads", "results"])
        self.assertEqual([(one["tokens"], one["skew"]) for one in found["results"]],
                         [(1, "balanced"), (1, "skewed"), (16, "balanced"), (16, "skewed")])
        for one in found["results"]:
            self.assertEqual(one["product"].split()[1:], ["n=1440", "k=720", "x=bf16", "w=bf16", "out=bf16"])
            self.assertEqual((len(one["rows"]), sum(one["rows"])), (32, one["tokens"] * 4))
            self.assertLessEqual(max(one["rows"]), one["tokens"], "a token has no expert twice")
            touched = sum(rows > 0 for rows in one["rows"])
            self.assertGreaterEqual(one["weight_bytes"], touched * 1440 * 720 * 2)
            self.assertLess(one["weight_bytes"], touched * 1440 * 720 * 2 * 1.1, "more than padding")
            self.assertEqual(one["repetitions"], 2)
            for key in ("one_call_ns", "by_group_ns", "reading_ns"):
                self.assertGreater(one[key], 0)

    def test_people_get_a_table(self):
        for weight in ("f32", "f16", "s8:channel", "s4:group=64"):
            with self.subTest(weight):
                page = self.bench(*self.SMALL, "--tokens", 2, "--skew", "skewed", "--weight", weight)
                head, _, table = page.partition("\n\n")
                self.assertTrue(head.startswith(f"y = x·w of each group  x=bf16 w={weight} out=bf16\n"))
                self.assertEqual(table.splitlines()[0].split(),
                                 "model tokens skew groups most rows one call by group speed-up reading % of "
                                 "reading".split())
                self.assertEqual(table.splitlines()[1].split()[:3], ["gpt-oss-quarter", "2", "skewed"])

    def test_refusals(self):
        for words, sentence in [
            (["--model", "gpt"], "--model gpt is none of qwen3-30b-a3b, deepseek-v2-lite, gpt-oss-quarter"),
            (["--skew", "odd"], "--skew odd is none of balanced, skewed"),
            (["--weight", "s9"], "--weight s9 is neither a dtype nor a scheme such as s8:channel"),
            (["--tokens", "0"], "--tokens 0 is not a whole number from 1 to 16777216"),
        ]:
            self.assert_says(self.plait("bench", "grouped", *words), 2, f"plait bench: {sentence}")
        self.assert_says(self.plait("bench", "grouped", "--json", "/nowhere/file"), 1,
                         "plait bench: cannot write /nowhere/file: No such file or directory")


if __name__ == "__main__":
    unittest.main()
