"""plait bench: wrong usage gets one sentence."""

import json
import unittest

from command import CommandTest, plait


class BenchTest(CommandTest):
    def test_help_of_one_measurement(self):
        page = plait("help", "bench", "matmul")
        self.assertEqual((page.returncode, page.stderr), (0, ""))
        self.assertEqual(page.stdout, plait("bench", "matmul", "--help").stdout)
        self.assertIn("Usage: plait bench matmul ", page.stdout)
        self.assertLessEqual(max(map(len, page.stdout.splitlines())), 100)

    def test_bench_refuses(self):
        product = ["-m", "1", "-n", "2", "-k", "3"]
        cases = [
            ((), "WHAT is missing, such as matmul (plait bench --help)"),
            (("mamul",), "cannot measure mamul; did you mean matmul? (plait bench --help)"),
            (("matmul",), "--m is missing (plait bench matmul --help)"),
            (("matmul", "--m", "1"),
             "--n is missing (plait bench matmul --help)"),
            (("matmul", "--m", "1,,2", "-n", "1", "-k", "1"),
             "--m 1,,2 has an empty item between commas"),
            (("matmul", "--m", "0", "-n", "1", "-k", "1"),
             "--m 0 is not a whole number from 1 to 16777216"),
            (("matmul", *product, "--dtype", "s8"), "--dtype s8 is none of f32, bf16, f16"),
            (("matmul", *product, "--layout", "on"), "--layout on is neither out_in nor in_out"),
            (("matmul", *product, "--columns", "3"),
             "--columns 3 is not a whole number from 1 to 2"),
            (("matmul", *product, "--threads", "0"),
             "--threads 0 is not a whole number from 1 to 1024"),
            (("matmul", *product, "--seconds", "0"),
             "--seconds 0 is not a number above 0 and up to 3600"),
            (("matmul", *product, "--backend", "foo"),
             "matmul: there is no backend foo; there are amx, vector, reference"),
            (("matmul-all-reduce", "--m", "1,,2", "-n", "1", "-k", "1"),
             "--m 1,,2 has an empty item between commas"),
            (("matmul-all-reduce", *product, "--layout", "on"), "--layout on is neither out_in nor in_out"),
            (("matmul", *product, "extra"), "unexpected word extra (plait bench matmul --help)"),
            (("matmul", *product, "--m", "1"), "--m is given more than once"),
            (("matmul", *product, "--colums", "3"),
             "unknown option --colums; did you mean --columns?"),
        ]
        for words, sentence in cases:
            with self.subTest(words):
                self.assertEqual(self.refuses("bench", *words), "plait bench: " + sentence)

    def test_bench_says_why_a_backend_cannot(self):
        product = "m=1 n=2 k=3 x=f32 w=f32 out=f32"
        walk = json.loads(plait("info", "--json", "--why", product).stdout)["walk"]
        self.assertFalse(walk[0]["can"])
        self.assertEqual(
            self.refuses("bench", "matmul", *"-m 1 -n 2 -k 3 -d f32 -b amx".split()),
            f"plait bench: matmul: backend amx can't do {product}: {walk[0]['answer']}",
        )

    def test_bench_refuses_what_does_not_fit_into_memory(self):
        self.assertRegex(
            self.refuses("bench", "matmul", "-m1", "-n", 1 << 24, "-k", 1 << 24),
            r"m=1 n=16777216 k=16777216 may take 1536 TiB; available are [\d.]+ \w+$",
        )


if __name__ == "__main__":
    unittest.main()
