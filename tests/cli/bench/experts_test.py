"""plait bench experts: its options, its text and its JSON."""

import json
import unittest

from command import CommandTest


class ExpertsTest(CommandTest):
    SMALL = ("--model", "gpt-oss-quarter", "--tokens", 8, "--repeat", 2, "--threads", 1)

    def bench(self, *words):
        result = self.plait("bench", "experts", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def test_help(self):
        page = self.bench("--help")
        self.assertIn("Usage: plait bench experts [OPTIONS]", page)
        for option in ("--ranks", "--model", "--tokens", "--skew", "--ratio", "--replicated", "--dtype", "--json"):
            self.assertIn(option, page)

    def test_json_has_every_key(self):
        found = json.loads(self.bench(*self.SMALL, "--skew", "balanced,4:1", "--ratio", "0,1", "--json", "-"))
        self.assertEqual(list(found), ["plait", "words", "processor", "ranks", "transport", "replicated", "results"])
        results = found["results"]
        self.assertEqual([(one["skew"], one["link"] is None) for one in results],
                         [("balanced", True), ("balanced", False), ("4:1", True), ("4:1", False)])
        self.assertLess(results[0]["most_by_mean"], 1.3)
        self.assertAlmostEqual(results[2]["most_by_mean"], 1.6, delta=0.2)
        for one in results:
            self.assertTrue(one["bits_equal"])
            self.assertGreater(one["weight_bytes"], 1440 * 720 * 2)
            for key in ("compute_ns", "exchange_ns", "reading_ns", "serial_ns", "fused_ns"):
                self.assertGreater(one[key], 0)
            if one["link"] is None:
                self.assertIsNone(one["efficiency"])

    def test_there_is_no_link_where_no_row_travels(self):
        for words in (["--ranks", 1, "--tokens", 8], ["--replicated", "--tokens", 1]):
            found = json.loads(self.bench(*words, "--model", "gpt-oss-quarter", "--skew", "4:1", "--repeat", 2,
                                          "--threads", 1, "-t", "threads", "--json", "-"))
            self.assertEqual([(one["link"], one["efficiency"]) for one in found["results"]], [(None, None)], words)

    def test_people_get_a_table(self):
        page = self.bench(*self.SMALL, "--replicated", "--skew", "gini=0.3", "-t", "threads")
        head, _, table = page.partition("\n\n")
        self.assertTrue(head.startswith("a layer of experts  x=bf16\n") and head.endswith("2 ranks over threads"), head)
        self.assertEqual(table.splitlines()[0].split(),
                         "model tokens skew most/mean exch/comp compute exchange reading serial fused speed-up "
                         "efficiency".split())
        row = table.splitlines()[1].split()
        self.assertEqual((row[0], row[2], row[4]), ("gpt-oss-quarter", "gini=0.3", "-"))

    def test_refusals(self):
        for words, sentence in [
            (["--skew", "5:1"], "--skew 5:1 is none of balanced, gini=0.15, gini=0.3, 4:1"),
            (["--ratio", "-1"], "--ratio -1 is not between 0 and 1000"),
            (["--replicated", "--ratio", "0,2"],
             "--ratio is of rows that travel, and with --replicated none do; it can be 0"),
        ]:
            result = self.plait("bench", "experts", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait bench: {sentence}\n"))
        result = self.plait("bench", "experts", "--ranks", 1, "--ratio", 1)
        self.assertEqual((result.returncode, result.stdout), (2, ""))
        self.assertIn("plait bench: --ratio: one rank has nothing to communicate; it can be 0\n", result.stderr)


if __name__ == "__main__":
    unittest.main()
