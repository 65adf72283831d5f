"""plait bench layer and plait bench model: every plan runs, and its figures are consistent."""

import json
import re
import tempfile
import unittest
from pathlib import Path

from command import CommandTest

USUAL = {"batch": 1, "grad": "f32", "wire": "f32", "sequence_parallel": True, "keep_gathered": False,
         "column_backward": False, "stand_in": 0, "stand_in_ms": 0, "transport": "shm"}
KEYS = ["model", "layers", "scale", "tp", "seq", "batch", "dtype", "grad", "wire", "sequence_parallel",
        "keep_gathered", "column_backward", "stand_in", "stand_in_ms", "transport", "threads", "link", "comm_share",
        "amdahl_gain_percent", "schedules", "machine"]
NO_LINK = "plait bench: no link was found that makes communication a share of"
SCHEDULE_KEYS = ["name", "step_ms", "gain_percent", "exposed_comm_ms", "tokens_per_s", "peak_bytes", "bits_equal"]


class StepTest(CommandTest):
    SMALL = ("--scale", 0.01, "--seq", 50, "--repeat", 2)

    def bench(self, *words):
        result = self.plait("bench", *words)
        # Next to other tests, steps of microseconds may be too noisy to find the requested link.
        said = [line for line in result.stderr.splitlines() if NO_LINK not in line]
        self.assertEqual((result.returncode, said), (0, []), words)
        return result.stdout

    def json(self, *words):
        found = json.loads(self.bench(*words, "--json", "-"))
        self.assertEqual(list(found), KEYS)
        serial = found["schedules"][0]["step_ms"]
        products = serial * (1 - found["comm_share"])
        self.assertAlmostEqual(found["amdahl_gain_percent"], 100 * (serial / products - 1))
        for one in found["schedules"]:
            self.assertEqual(list(one), SCHEDULE_KEYS)
            self.assertTrue(one["bits_equal"], one)
            self.assertAlmostEqual(one["gain_percent"], 100 * (serial / one["step_ms"] - 1))
            self.assertAlmostEqual(one["exposed_comm_ms"], one["step_ms"] - products)
            self.assertAlmostEqual(one["tokens_per_s"] * one["step_ms"], found["seq"] * found["batch"] * 1000)
            self.assertGreater(one["peak_bytes"], 0)
        return found

    def test_every_model(self):
        for model in "llama2-70b", "llama2-7b", "bloom-7b", "bloom-176b":
            with self.subTest(model):
                found = self.json("model", model, *self.SMALL, "--transport", "threads", "--tp", 3)
                self.assertEqual((found["model"], found["tp"], found["seq"], found["link"]), (model, 3, 50, None))
                self.assertEqual([one["name"] for one in found["schedules"]],
                                 ["serial", "pipelined parts=4", "pipelined parts=8", "fused"])

    def test_ways_of_a_step(self):
        for words, said in (([], {}),
                            (["--no-sequence-parallel"], {"sequence_parallel": False}),
                            (["--keep-gathered"], {"keep_gathered": True}),
                            (["--column-backward"], {"column_backward": True}),
                            (["--grad", "bf16", "--wire", "f16"], {"grad": "bf16", "wire": "f16"}),
                            (["--batch", 3, "--transport", "threads"], {"batch": 3, "transport": "threads"})):
            with self.subTest(words):
                found = self.json("model", "bloom-7b", *self.SMALL, *words, "--threads", 2, "--link", "1gbit,20us",
                                  "--plan", "fused")
                self.assertEqual({key: found[key] for key in ("threads", *USUAL)}, {"threads": 2, **USUAL, **said})
        found = self.json("model", "bloom-7b", *self.SMALL, "--layers", 2, "--stand-in", 0.5, "--plan", "fused")
        self.assertEqual((found["layers"], found["stand_in"]), (2, 0.5))
        # The pauses are part of the time of the products alone.
        products = found["schedules"][0]["step_ms"] * (1 - found["comm_share"])
        self.assertTrue(0 < found["stand_in_ms"] < products, found)

    def test_a_link_by_its_share(self):
        def rate(share):
            found = self.json("model", "bloom-7b", *self.SMALL, "--link", f"share={share}", "--plan", "fused")
            number, unit = re.fullmatch(r"([\d.]+)(g|m|)bit,5us", found["link"]).groups()
            return float(number) * {"g": 1e9, "m": 1e6, "": 1}[unit]

        # One takes 81 times as long relative to the products as the other: more than any noise.
        self.assertGreater(rate(0.1), rate(0.9))

    def test_layers(self):
        for kind in "column", "row":
            with self.subTest(kind):
                found = self.json("layer", kind, "--m", 33, "--n", 200, "--k", 96, "--repeat", 2)
                self.assertEqual((found["model"], found["layers"], found["scale"]), (f"{kind} 96x200", 1, 1))
        text = self.bench("layer", "row", "--m", 20, "--n", 64, "--k", 96, "--repeat", 2, "--plan", "fused")
        self.assertIn("row layer, 96 inputs, 64 outputs, 20 tokens, bf16", text)
        self.assertNotIn("DIFFER", text)

    def test_ranks_that_share_cores_measure_turns(self):
        cores = json.loads(self.plait("info", "--json").stdout)["processor"]["cores"]
        text = self.bench("layer", "row", "--m", 20, "--n", 64, "--k", 96, "--repeat", 2, "--threads", cores)
        self.assertRegex(text, rf"\n2 ranks of {cores} threads? share {cores} cores?: the ranks are oversubscribed")
        self.assertIn("plait predict", text)

    def test_timelines(self):
        with tempfile.TemporaryDirectory() as folder:
            page, picture, trace = (Path(folder) / name for name in ("page.html", "picture.svg", "trace.json"))
            self.bench("model", "llama2-7b", *self.SMALL, "--html", page, "--svg", picture, "--trace", trace,
                       "--plan", "fused")
            self.assertIn("llama2-7b, 1 of 32 layers, widths x 0.03125, 50 tokens, bf16", page.read_text())
            self.assertTrue("product: weight gradient" in page.read_text())
            self.bench("model", "llama2-7b", *self.SMALL, "--html", page, "--plan", "fused", "--batch", 2,
                       "--wire", "bf16", "--no-sequence-parallel", "--stand-in", 0.5)
            self.assertIn("100 tokens in 2 sequences, bf16, wire bf16, not sequence parallel, stand-in 0.5",
                          page.read_text())
            self.assertIn("<svg", picture.read_text())
            names = {event.get("name") for event in json.loads(trace.read_text())["traceEvents"]}
            self.assertLessEqual({"serial", "fused", "weight gradient"}, names)

    def test_all_ranks_fail_where_the_figures_cannot_be_written(self):
        for figures in ([], ["--json", "-"]):
            self.assert_all_ranks_fail_where_rank_0_cannot_write(
                "bench", "layer", "row", "--m", 8, "--n", 64, "--k", 64, "--repeat", 1, "--plan", "fused", *figures)

    def test_refusals(self):
        for words, sentence in (
                (["model"], "the model is missing: bloom-7b, bloom-176b, llama2-7b, llama2-70b"),
                (["model", "llama2-7"], "plait bench: there is no model llama2-7; did you mean llama2-7b?\n"),
                (["model", "gpt"], "there is no model gpt; there are bloom-7b, bloom-176b, llama2-7b, llama2-70b"),
                (["model", "bloom-7b", "--scale", "0"], "--scale 0 is not above 0"),
                (["model", "bloom-7b", "--scale", "2"], "--scale 2 is not between 0 and 1"),
                (["model", "bloom-7b", "--link", "share=1"],
                 "--link share=1: the share must be a number between 0 and 1"),
                (["model", "bloom-7b", "--link", "ratio=1"],
                 "--link ratio=1: ratio= applies to operators; training steps take share=, as in share=0.12"),
                # The error must be found before memory is filled.
                (["model", "bloom-176b", "--scale", "1", "--layers", "70", "--seq", 1 << 20, "--tp", 1, "--transport",
                  "threads", "--link", "share=0.5"], "--link share=0.5: one rank has nothing to communicate"),
                (["layer"], "the kind of layer is missing: column or row"),
                (["layer", "column"], "--n and --k, the layer's outputs and inputs, are required"),
                (["layer", "row", "--n", "8", "--k", "8", "--keep-gathered"],
                 "--keep-gathered applies to column layers, and this is a row layer"),
                (["layer", "row", "--n", "8", "--k", "8", "--column-backward"],
                 "--column-backward applies to column layers, and this is a row layer"),
                (["layer", "column", "--n", "8", "--k", "8", "--keep-gathered", "--no-sequence-parallel"],
                 "--keep-gathered cannot be combined with --no-sequence-parallel, which gathers nothing"),
                (["model", "bloom-7b", "--keep-gathered", "--no-sequence-parallel"],
                 "--keep-gathered cannot be combined with --no-sequence-parallel, which gathers nothing"),
                (["layer", "row", "--n", "8", "--k", "8", "--json", "a", "--html", "a"],
                 "--json and --html both name a")):
            with self.subTest(words):
                result = self.plait("bench", *words)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(sentence, result.stderr)


if __name__ == "__main__":
    unittest.main()
