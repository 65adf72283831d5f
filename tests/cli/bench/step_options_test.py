"""plait bench layer and plait bench model: what their options describe, and refusals."""

import unittest

from step_case import StepCase

USUAL = {"batch": 1, "grad": "f32", "wire": "f32", "sequence_parallel": True, "keep_gathered": False,
         "column_backward": False, "stand_in": 0, "stand_in_ms": 0, "transport": "shm"}


class StepOptionsTest(StepCase):
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
        found = self.json("model", "bloom-7b", *self.SMALL, "--blocks", 2, "--stand-in", 0.5, "--plan", "fused")
        self.assertEqual((found["layers"], found["stand_in"]), (2, 0.5))
        # The pauses are part of the time of the products alone.
        products = found["schedules"][0]["step_ms"] * (1 - found["comm_share"])
        self.assertTrue(0 < found["stand_in_ms"] < products, found)

    def test_refusals(self):
        for words, sentence in (
                (["model"], "the model is missing: bloom-7b, bloom-176b, llama2-7b, llama2-70b"),
                (["model", "llama2-7"], "plait bench: there is no model llama2-7; did you mean llama2-7b?\n"),
                (["model", "gpt"], "there is no model gpt; there are bloom-7b, bloom-176b, llama2-7b, llama2-70b"),
                (["model", "bloom-7b", "--scale", "0"], "--scale 0 is not above 0"),
                (["model", "bloom-7b", "--scale", "2"], "--scale 2 is not between 0 and 1"),
                (["model", "bloom-7b", "--decode", "1", "--seq", "8"],
                 "--decode cannot be combined with --seq 8"),
                (["model", "bloom-7b", "--decode", "1", "--column-backward"],
                 "--decode cannot be combined with --column-backward"),
                (["model", "bloom-7b", "--decode", "0"], "--decode 0 is not a whole number from 1 to 4096"),
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
