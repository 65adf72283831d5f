"""plait predict: every operator and schedule is predicted, marked as a prediction, or refused."""

import json
import re
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from command import CommandTest

OPERATORS = ["matmul-all-reduce", "matmul-reduce-scatter", "matmul-all-gather", "all-gather-matmul",
             "reduce-scatter-matmul", "all-reduce-matmul"]
FUSED = ["matmul-all-reduce", "matmul-reduce-scatter", "all-gather-matmul"]
KEYS = ["prediction", "op", "m", "n", "k", "ranks", "dtype", "weight", "out", "wire", "device", "t_gemm_ms",
        "t_comm_ms", "ideal_ms", "schedules", "assumptions"]


class PredictTest(CommandTest):
    SIZE = ("--m", 4096, "--n", 4096, "--k", 4096)

    def predict(self, *words):
        result = self.plait("predict", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), words)
        return result.stdout

    def json(self, *words):
        return json.loads(self.predict(*words, "--json", "-"))

    def refusal(self, *words):
        result = self.plait("predict", *words)
        self.assertEqual((result.returncode, result.stdout), (2, ""), words)
        self.assertEqual(result.stderr.count("\n"), 1)
        return result.stderr

    def test_every_operator_in_every_schedule(self):
        for op in OPERATORS:
            with self.subTest(op):
                found = self.json(op, *self.SIZE)
                self.assertEqual(list(found), KEYS)
                self.assertIs(found["prediction"], True)
                self.assertEqual((found["ranks"], found["device"]), (8, "h100"))
                plans = ["serial", *(f"pipelined parts={n}" for n in (2, 4, 8))]
                self.assertEqual([one["plan"] for one in found["schedules"]], plans + ["fused"] * (op in FUSED))
                serial = found["schedules"][0]["predicted_ms"]
                self.assertGreater(serial, max(found["t_gemm_ms"], found["t_comm_ms"]))
                for one in found["schedules"]:
                    self.assertAlmostEqual(one["speedup"], serial / one["predicted_ms"])
                self.assertEqual(found, self.json(op, *self.SIZE))

    def test_says_what_it_is_and_what_it_assumes(self):
        text = self.predict("matmul-all-reduce", *self.SIZE, "--device", "a100", "--ranks", 4, "--rate", 200,
                            "--memory", 1000, "--lost", 5, "--wiring", "pairs")
        self.assertTrue(text.startswith("Predicted, not measured"))
        for words in ("4 ranks; device a100: 200 TFLOP/s", "memory 1000 GB/s", "loses 5 %", "225 GB/s",
                      "between every two ranks", "speed-up"):
            self.assertIn(words, text)

    def test_what_has_no_partial_sums_travels_as_x_is(self):
        sums = ("matmul-all-reduce", "matmul-reduce-scatter")
        for op in OPERATORS:
            wire = "f32" if op in sums else "f16"
            self.assertIn(f" x=f16 weight=f16 out=f16 wire={wire}\n",
                          self.predict(op, *self.SIZE, "--dtype", "f16", "--schedule", "serial"), op)
            found = self.json(op, *self.SIZE, "--dtype", "f16", "--out", "f32", "--schedule", "serial")
            self.assertEqual((found["out"], found["wire"]), ("f32", wire), op)

    def test_a_slower_network_takes_longer(self):
        times = [self.json("matmul-reduce-scatter", *self.SIZE, "--link", link)["schedules"][0]["predicted_ms"]
                 for link in ("nvlink4", "pcie5", "100gbit", "1gbit,5us")]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[-1], 100 * times[0])

    def test_few_sums_over_a_long_link_are_not_waited_for_one_by_one(self):
        # 16 rows have 256 KiB of sums, which are copied into slots; 17 rows are written there directly.
        for op in FUSED[:2]:
            found = self.json(op, "--m", "16,17", "--n", 4096, "--k", 4096, "--ranks", 2, "--device", "cpu",
                              "--rate", 0.4, "--memory", 20, "--link", "10gbit,200us",
                              "--plan", "fused;fused chunk=256")
            for size in found:
                for one in size["schedules"]:
                    with self.subTest(op=op, m=size["m"], plan=one["plan"]):
                        self.assertGreaterEqual(one["speedup"], 1)

    def test_timelines(self):
        with tempfile.TemporaryDirectory() as folder:
            trace, page, picture = (Path(folder) / name for name in ("trace.json", "page.html", "picture.svg"))
            self.predict("matmul-reduce-scatter", *self.SIZE, "--ranks", 2, "--trace", trace, "--html", page,
                         "--svg", picture)
            events = json.loads(trace.read_text())["traceEvents"]
            names = {event["name"] for event in events}
            self.assertLessEqual({"product", "sum", "chunk", "serial", "fused"}, names)
            self.assertEqual({event["pid"] for event in events}, {0, 1})
            self.assertIn("Predicted: 2 ranks, h100", page.read_text())
            ElementTree.fromstring(picture.read_text())

    def test_a_long_thin_problem_is_no_large_one(self):
        found = self.json("matmul-all-reduce", "--m", 1 << 24, "--n", 64, "--k", 64, "--schedule", "serial")
        self.assertGreater(found["t_gemm_ms"], 0)
        self.assertIn("is too large to be simulated",
                      self.refusal("matmul-all-reduce", "--m", 1 << 24, "--n", 1 << 24, "--k", 64))

    def test_several_sizes_are_a_list(self):
        found = self.json("all-gather-matmul", "--m", "512,1024", "--n", 4096, "--k", 4096, "--plan", "fused chunk=64")
        self.assertEqual([(one["m"], one["schedules"][1]["plan"]) for one in found],
                         [(512, "fused chunk=64"), (1024, "fused chunk=64")])

    def test_beside_what_was_measured(self):
        with tempfile.TemporaryDirectory() as folder:
            measured = Path(folder) / "bench.json"
            for op in FUSED:
                result = self.plait("bench", op, "--m", 256, "--n", 2048, "--k", 512, "--transport", "threads",
                                    "--repeat", 2, "--link", "1gbit,20us", "--parts", 2, "--json", measured)
                self.assertEqual(result.returncode, 0, result.stderr)
                text = self.predict("--measured", measured)
                self.assertTrue(text.startswith("Predicted, not measured"))
                self.assertRegex(text, r"\n[0-3] of 3 within 10 %; median error ")
                self.assertIn("out in x's dtype, partial sums in f32.\n", text)
                found = self.json("--measured", measured)
                bench = json.loads(measured.read_text())
                self.assertEqual([one["plan"] for one in found], ["serial", "pipelined parts=2", "fused"])
                for one, of_bench in zip(found, bench["schedules"]):
                    self.assertEqual(one["measured_ms"], of_bench["median_ms"])
                    self.assertAlmostEqual(one["error"], one["predicted_ms"] / one["measured_ms"] - 1)
            result = self.plait("bench", "matmul-all-reduce", "--m", 8, "--n", 64, "--k", 64, "--transport", "threads",
                                "--repeat", 1, "--json", measured)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("has no link; only", self.refusal("--measured", measured))
            for key, value, sentence in (("link", "", 'the link "" is not like "25gbit,5us"'),
                                         ("ranks", 0, "ranks is 0, which is not "),
                                         ("t_gemm_ms", 0, "t_gemm_ms is 0"), ("m", -1, "m is -1")):
                measured.write_text(json.dumps({**bench, key: value}))
                refusal = self.refusal("--measured", measured)
                self.assertIn(f"--measured {measured}: ", refusal)
                self.assertIn(sentence, refusal)
            measured.write_text("{}")
            self.assertIn("was not written by plait bench OPERATOR --json", self.refusal("--measured", measured))
            self.assertIn("cannot be read", self.refusal("--measured", Path(folder) / "nothing.json"))

    def test_a_measurement_whose_serial_time_can_be_computed(self):
        measured = {"op": "matmul_all_reduce", "m": 1024, "n": 1024, "k": 1024, "dtype": "bf16", "weight": "bf16",
                    "ranks": 2, "t_gemm_ms": 100, "schedules": [{"plan": "serial", "median_ms": 125}]}
        # Each rank sends its only peer half of the partial sums in f32, and its half of the result in bf16.
        transfer = 1e3 * 8 * (512 * 1024 * (4 + 2)) / 1e9
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            for link, alone, comm, off in (("1000000gbit,0us", 50, 50, 0.1),
                                           ("1gbit,0us", 2, transfer + 1, 1)):
                file.write_text(json.dumps({**measured, "link": link, "t_comm_cpu_ms": alone}))
                found = self.json("--measured", file)[0]
                self.assertAlmostEqual(found["predicted_ms"], measured["t_gemm_ms"] + comm, delta=off, msg=link)
                self.assertAlmostEqual(found["error"], found["predicted_ms"] / 125 - 1)

    def test_measurements_whose_overlap_can_be_computed(self):
        # The peer gets half of the partial sums in f32 and half of the result in bf16, or only the sums, or half of X.
        # Over a link on which that takes less time than the product, all but one part, or chunk, is hidden.
        product, transfer = 100, 60
        plans = {"serial": product + transfer, "pipelined parts=4": product + transfer / 4,
                 "pipelined parts=8": product + transfer / 8, "fused chunk=64": product + transfer / 16}
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder) / "bench.json"
            for op, bytes_each in ("matmul_all_reduce", 4 + 2), ("matmul_reduce_scatter", 4), ("all_gather_matmul", 2):
                gbit = 512 * 1024 * bytes_each * 8 / transfer * 1e-6
                measured = {"op": op, "m": 1024, "n": 1024, "k": 1024, "dtype": "bf16", "weight": "bf16", "ranks": 2,
                            "link": f"{gbit:.6f}gbit,0us", "t_gemm_ms": product,
                            "t_comm_cpu_ms": 1}
                for factor, near in (1, 4), (2, 0):
                    file.write_text(json.dumps({**measured, "schedules": [
                        {"plan": plan, "median_ms": factor * taken} for plan, taken in plans.items()]}))
                    self.assertIn(f"\n{near} of 4 within 10 %; ", self.predict("--measured", file), op)
                    found = self.json("--measured", file)
                    self.assertEqual([one["plan"] for one in found], list(plans))
                    for one in found:
                        self.assertLess(abs(factor * (one["error"] + 1) - 1), 0.1, one)

    def test_a_training_step(self):
        words = ("--tp", 4, "--tokens", 2048, "--sequence", 1024, "--parts", 2)
        text = self.predict("llama2-7b", *words)
        self.assertTrue(text.startswith("Predicted, not measured"))
        for part in ("4 ranks; device h100", "qkv (column)", "down (row)", "each layer's best", "attention at 50 %"):
            self.assertIn(part, text)
        self.assertIn("+7.85 %", self.predict("llama2-70b", "--tokens", 1024, "--schedule", "fused"))
        found = self.json("llama2-7b", *words)
        whole = self.json("llama2-7b", *words, "--whole-rows")
        self.assertGreater(whole["rest_ms"], 1.01 * found["rest_ms"])
        short = self.json("llama2-7b", "--tp", 4, "--tokens", 1024, "--schedule", "fused")
        self.assertEqual(short["sequence"], 1024)
        self.assertEqual([one["plan"] for one in found["plans"]], ["serial", "pipelined parts=2", "fused"])
        for one in found["plans"]:
            layers = sum(layer["forward_ms"] + layer["backward_ms"] for layer in one["layers"])
            self.assertAlmostEqual(one["step_ms"], 32 * layers + found["rest_ms"])
            self.assertAlmostEqual(one["gain"], found["plans"][0]["step_ms"] / one["step_ms"] - 1)
            self.assertLessEqual(one["gain"], found["best_gain"])
        small = self.json("llama2-7b", *words, "--scale", 0.25)
        self.assertEqual((small["scale"], [(one["in"], one["out"]) for one in small["plans"][0]["layers"]]),
                         (0.25, [(1024, 3072), (1024, 1024), (1024, 5632), (2816, 1024)]))
        self.assertLess(small["rest_ms"], found["rest_ms"] / 2)
        for option in ("--whole-rows", "--keep-gathered", "--column-backward"):
            self.assertNotEqual(self.json("llama2-7b", *words, option)["plans"], found["plans"], option)

    def test_a_training_step_in_json_has_its_assumptions(self):
        words = ("--tokens", 512, "--schedule", "serial", "--device", "a100", "--link", "25gbit,5us",
                 "--wiring", "pairs")
        found = self.json("bloom-7b", *words)
        of_operator = self.json("matmul-all-reduce", *self.SIZE, *words[2:])["assumptions"]
        self.assertIn("attention at 50 %", found["assumptions"].pop("rest"))
        self.assertEqual(found["assumptions"], of_operator)
        self.assertEqual((of_operator["link_bytes_per_second"], of_operator["wiring"]), (25e9 / 8, "pairs"))
        self.assertEqual(found["published_gain"], 0.032)
        self.assertEqual([found[key] for key in ("wire", "column_backward", "recompute_all_gather")],
                         ["bf16", False, True])
        found = self.json("bloom-7b", *words, "--tp", 4, "--wire", "f32", "--keep-gathered", "--column-backward")
        self.assertEqual([found[key] for key in ("wire", "column_backward", "recompute_all_gather")],
                         ["f32", True, False])
        self.assertIsNone(found["published_gain"])  # published for another number of ranks

    def test_one_rank_gains_nothing(self):
        found = self.json("llama2-7b", "--tp", 1, "--tokens", 1024)
        self.assertEqual({one["gain"] for one in found["plans"]}, {0})

    def test_the_page_has_the_gains_that_are_predicted(self):
        page = (Path(__file__).parents[2] / "docs/lab/prediction.md").read_text()
        rows = re.findall(r"^\| ([a-z]+2?-\d+b) \| .* % \| (.+) \| (.+) \| (.+) \|$", page, re.MULTILINE)
        self.assertEqual(len(rows), 3)
        for model, parts, fused, best in rows:
            found = self.json(model, "--device", "ascend-910b", "--plan", "pipelined parts=2;fused")
            gains = [*(one["gain"] for one in found["plans"][1:]), found["best_gain"]]
            self.assertEqual([parts, fused, best], [f"{100 * gain:+.1f} %" for gain in gains], model)

    def test_a_plain_weight_has_the_dtype_of_x(self):
        page = self.predict("matmul-all-reduce", "--help")
        self.assertRegex(page, r"--weight KIND .*\bplain: x's dtype \(default\)")
        plain = self.json("matmul-all-reduce", *self.SIZE, "--weight", "plain")
        self.assertEqual(plain["schedules"], self.json("matmul-all-reduce", *self.SIZE)["schedules"])

    def test_a_file_that_cannot_be_written(self):
        for words in (["matmul-all-reduce", *self.SIZE], ["llama2-70b"]):
            result = self.plait("predict", *words, "--json", "/nowhere/file")
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("cannot write /nowhere/file", result.stderr)
        for words in ([], ["matmul-all-reduce"], ["llama2-70b"], ["--measured", "file"]):
            with self.subTest(words):
                self.assertIn("1 a file can't be written;", self.predict(*words, "--help"))

    def test_refusals(self):
        op = ("matmul-all-reduce", *self.SIZE)
        for words, sentence in (
                ((), "an operator or a model is missing, such as matmul-all-reduce"),
                (("matmul-all-reduse",), "did you mean matmul-all-reduce"),
                (("matmul",), "cannot predict matmul"),
                (("matmul-all-reduce", "--m", 8), "--n is missing"),
                (("lama2-70b",), "did you mean llama2-70b"),
                (("llama2-70b", "--tp", 300), "at most 256 ranks can be predicted"),
                (("llama2-70b", "--tokens", "many"), "--tokens"),
                (("llama2-70b", "--scale", "1.5"), "--scale 1.5 is not above 0 and up to 1"),
                (("llama2-70b", "--tokens", 8, "--sequence", 16), "--seq 16 is longer than --tokens 8"),
                ((*op, "--dtype", "f32"),
                 "--dtype f32: only the rate of bf16 and f16 is known for h100; give the rate of f32 with --rate"),
                ((*op, "--svg", "-"), "--svg - : only --json can go to standard output"),
                ((*op, "--device", "h900"), "there is no device h900; there are h100"),
                ((*op, "--link", "rope"), "and not one of nvlink4"),
                ((*op, "--device", "cpu"), "the device cpu has no usual network"),
                ((*op, "--wiring", "round"), "none of pairs, ports, shared"),
                ((*op, "--rate", "0"), "--rate 0 is not a number from 0.001 to 1e+06"),
                ((*op, "--memory", "1e-300"), "--memory 1e-300 is not a number from 0.001 to 1e+06"),
                (("matmul-all-reduce", *["--m", 1 << 22, "--n", 1 << 22, "--k", 1 << 22], "--rate", "0.001"),
                 "m=4194304 n=4194304 k=4194304 would take more than three years"),
                ((*op, "--lost", "100"), "--lost"),
                ((*op, "--ranks", "0"), "--ranks"),
                ((*op, "--ranks", "65", "--html", "page.html"), "a timeline shows at most 64 ranks, not 65"),
                (("all-gather-matmul", *self.SIZE, "--wire", "bf16"),
                 "--wire bf16 applies to partial sums, and all_gather_matmul has none"),
                (("llama2-70b", "--whole-rows", "--keep-gathered"),
                 "--keep-gathered cannot be combined with --no-sequence-parallel, which gathers nothing"),
                ((*op, "--weight", "s3"), "--weight s3 is not a weight"),
                ((*op, "--json", "a", "--html", "a"), "--json and --html both name a"),
                (("--measured",), "--measured needs a value")):
            with self.subTest(words):
                self.assertIn(sentence, self.refusal(*words))


if __name__ == "__main__":
    unittest.main()
