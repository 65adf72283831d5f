"""plait bench heads: its options, its text and its JSON."""

import json
import unittest

from command import CommandTest


class HeadsTest(CommandTest):
    SMALL = ("--m", "1,5", "--n", 301, "--k", 64, "--repeat", 2, "--transport", "threads")

    def bench(self, *words):
        result = self.plait("bench", "heads", *self.SMALL, *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def test_json_has_every_key(self):
        found = json.loads(self.bench("--ranks", 3, "--top", 4, "--json", "-"))
        self.assertEqual(list(found), ["dtype", "top", "ranks", "transport", "link", "machine", "results"])
        self.assertEqual((found["ranks"], found["top"], found["link"]), (3, 4, None))
        self.assertEqual([(one["head"], one["m"]) for one in found["results"]],
                         [(head, m) for m in (1, 5)
                          for head in ("top", "logits", "columns", "loss", "loss-alone", "log-probs")])
        for one in found["results"]:
            self.assertGreater(one["time_ns"], 0)
            self.assertEqual(one["gathered_ns"] is None, one["head"] in ("loss", "loss-alone", "log-probs"))
            for key in ("products_ns", "reading_ns"):
                self.assertEqual(one[key] is None, one["head"] == "columns")

    def test_people_get_a_table(self):
        page = self.bench("--head", "columns,top", "--link", "10gbit,20us", "--dtype", "f32")
        head, _, table = page.partition("\n\n")
        self.assertTrue(head.startswith("heads of f32  top=1\n"))
        self.assertIn("2 ranks over threads, ", head)
        self.assertEqual(table.splitlines()[0].split(),
                         "head m n k time gathered speed-up products reading".split())
        self.assertEqual([line.split()[:4] for line in table.splitlines()[1:3]],
                         [["columns", "1", "301", "64"], ["top", "1", "301", "64"]])

    def test_refusals(self):
        for words, sentence in [
            (["--head", "odd"], "--head odd is none of top, logits, columns, loss, loss-alone, log-probs"),
            (["--top", "302"], "--top 302: there are 301 ids"),
            (["--link", "ratio=1"], 'the link "ratio=1" is not like "25gbit,5us": a bandwidth, a latency, or both'),
        ]:
            result = self.plait("bench", "heads", *self.SMALL, *words)
            self.assertEqual((result.returncode, result.stdout), (2, ""), words)
            self.assertIn(sentence, result.stderr)
        self.assert_says(self.plait("bench", "heads", *self.SMALL, "--json", "/nowhere/file"), 1,
                         "plait bench: cannot write /nowhere/file: No such file or directory")


if __name__ == "__main__":
    unittest.main()
