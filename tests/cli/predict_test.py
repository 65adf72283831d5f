"""plait predict: every operator and schedule is predicted, marked as a prediction, or refused."""

import unittest

from predict_case import PredictCase

OPERATORS = ["matmul-all-reduce", "matmul-reduce-scatter", "matmul-all-gather", "all-gather-matmul",
             "reduce-scatter-matmul", "all-reduce-matmul"]
FUSED = ["matmul-all-reduce", "matmul-reduce-scatter", "all-gather-matmul"]
KEYS = ["prediction", "op", "m", "n", "k", "ranks", "dtype", "weight", "out", "wire", "device", "t_gemm_ms",
        "t_comm_ms", "ideal_ms", "schedules", "assumptions"]


class PredictTest(PredictCase):
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

    def test_exchanges(self):
        """On one processor serial takes the product and the exchange, and fused hides most of the shorter one."""
        for op, wire in (("matmul-all-to-all", "f32"), ("all-to-all-matmul", "bf16")):
            words = (op, "--m", 8192, "--n", 6144, "--k", 4096, "--heads", "32,8", "--out", "f32",
                     "--device", "cpu", "--ranks", 2, "--link")
            found = self.json(*words, "2gbit,5us")
            self.assertEqual([one["plan"] for one in found["schedules"]],
                             ["serial", *(f"pipelined parts={n}" for n in (2, 4, 8)), "fused"])
            self.assertEqual((found["op"], found["wire"]), (op.replace("-", "_"), wire))
            serial, fused = (found["schedules"][i]["predicted_ms"] for i in (0, -1))
            self.assertAlmostEqual(serial, found["t_gemm_ms"] + found["t_comm_ms"], delta=0.02 * serial)
            self.assertLess(fused, 0.9 * serial)
            self.assertGreater(fused, max(found["t_gemm_ms"], found["t_comm_ms"]))
            self.assertGreater(self.json(*words, "1gbit,5us")["schedules"][0]["predicted_ms"], serial)

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

    def test_a_long_thin_problem_is_no_large_one(self):
        found = self.json("matmul-all-reduce", "--m", 1 << 24, "--n", 64, "--k", 64, "--schedule", "serial")
        self.assertGreater(found["t_gemm_ms"], 0)
        self.assertIn("is too large to be simulated",
                      self.refusal("matmul-all-reduce", "--m", 1 << 24, "--n", 1 << 24, "--k", 64))

    def test_a_network_between_hosts_takes_processor_time(self):
        # Each rank sends half of its partial sums in f32 and half of the result in bf16, and receives as much.
        words = ("matmul-all-reduce", "--m", 1024, "--n", 4096, "--k", 4096, "--ranks", 2, "--device", "cpu", "--rate",
                 0.1, "--memory", 20, "--link", "25gbit,8us")
        found = [self.json(*words, "--processor-per-gb", seconds) for seconds in (0, 0.2, 0.4)]
        self.assertEqual(found[0], self.json(*words))
        moved = 2 * 512 * 4096 * (4 + 2) * 1e-9  # GB, sent and received
        for one, seconds in zip(found, (0, 0.2, 0.4)):
            self.assertEqual(one["assumptions"]["processor_s_per_gb"], seconds)
            self.assertEqual(one["t_gemm_ms"], found[0]["t_gemm_ms"])
            fused = [of["schedules"][-1]["predicted_ms"] for of in (one, found[0])]
            self.assertAlmostEqual(fused[0] - fused[1], 1e3 * moved * seconds, delta=0.3)
        text = self.predict(*words, "--processor-per-gb", 0.4)
        self.assertIn("; 0.4 s of a rank's processor time for each GB that it sends or receives\n", text)
        self.assertNotIn("processor time", self.predict(*words))
        self.json("llama2-7b", "--tp", 2, "--tokens", 512, "--device", "cpu", "--link", "2gbit,8us",
                  "--processor-per-gb", 0.4, "--schedule", "serial")

    def test_several_sizes_are_a_list(self):
        found = self.json("all-gather-matmul", "--m", "512,1024", "--n", 4096, "--k", 4096, "--plan", "fused chunk=64")
        self.assertEqual([(one["m"], one["schedules"][1]["plan"]) for one in found],
                         [(512, "fused chunk=64"), (1024, "fused chunk=64")])

    def test_experts(self):
        words = ("experts", "--model", "gpt-oss-quarter", "--tokens", "4,64", "--ranks", 2, "--device", "cpu",
                 "--link", "2gbit,5us")
        found = self.json(*words, "--skew", "balanced,4:1")
        self.assertEqual([(one["tokens"], one["skew"]) for one in found["results"]],
                         [(4, "balanced"), (4, "4:1"), (64, "balanced"), (64, "4:1")])
        for one in found["results"]:
            self.assertGreater(one["serial_ms"], max(one["products_ms"], one["exchange_ms"]))
        self.assertGreater(found["results"][3]["products_ms"], found["results"][2]["products_ms"])
        self.assertLess(found["results"][2]["fused_ms"], found["results"][2]["serial_ms"])
        replicated = self.json(*words, "--replicated", "--skew", "balanced")
        self.assertLess(replicated["results"][1]["exchange_ms"], found["results"][2]["exchange_ms"])
        text = self.predict(*words, "--skew", "balanced")
        self.assertTrue(text.startswith("Predicted, not measured"))
        self.assertIn("gpt-oss-quarter       4  balanced", text)

    def test_experts_whose_rows_are_few_on_a_rank_get_their_results_early(self):
        """A rank that has most rows doesn't multiply its own ones first."""
        found = self.json("experts", "--model", "gpt-oss-quarter", "--tokens", 512, "--ranks", 2, "--device", "cpu",
                          "--rate", 0.12, "--memory", 25, "--link", "400mbit,5us", "--skew", "balanced,4:1")
        for one in found["results"]:
            self.assertGreater(one["overlap_efficiency"], 0.93)

    def test_heads(self):
        words = ("heads", "--m", "1,64", "--n", 100003, "--k", 256, "--ranks", 2, "--device", "cpu", "--link",
                 "2gbit,5us")
        found = self.json(*words)
        heads = ["top", "loss", "loss-alone", "log-probs"]
        self.assertEqual([(one["m"], one["head"]) for one in found["results"]],
                         [(m, head) for m in (1, 64) for head in heads])
        for one in found["results"]:
            self.assertGreaterEqual(one["predicted_ms"], max(one["products_ms"], one["exchange_ms"]))
            self.assertEqual(one["gathered_ms"] is None, one["head"] != "top")
        top, loss, alone, _ = found["results"][4:]
        self.assertAlmostEqual(loss["products_ms"], 3 * alone["products_ms"], delta=0.1 * loss["products_ms"])
        # 64 rows of half of the logits are 6.4 MB.
        self.assertGreater(top["gathered_ms"], top["predicted_ms"] + 6.4 * 8 / 2)
        more = self.json(*words, "--head", "top", "--top", 50)
        self.assertGreater(more["results"][1]["exchange_ms"], top["exchange_ms"])
        self.assertIn("heads of bf16  top=1", self.predict(*words, "--head", "log-probs"))

    def test_help_of_measured_needs_no_file(self):
        for flag in ("-h", "--help"):
            self.assertIn("Usage: plait predict --measured FILE", self.predict("--measured", flag))

    def test_a_plain_weight_has_the_dtype_of_x(self):
        page = self.predict("matmul-all-reduce", "--help")
        self.assertRegex(page, r"--weight KIND .*\bplain: x's dtype \(default\)")
        plain = self.json("matmul-all-reduce", *self.SIZE, "--weight", "plain")
        self.assertEqual(plain["schedules"], self.json("matmul-all-reduce", *self.SIZE)["schedules"])

    def test_refusals(self):
        op = ("matmul-all-reduce", *self.SIZE)
        for words, sentence in (
                ((), "an operator or a model is missing, such as matmul-all-reduce"),
                (("matmul-all-reduse",), "did you mean matmul-all-reduce"),
                (("matmul",), "cannot predict matmul"),
                (("all-to-all-matmul",), "--m is missing"),
                (("matmul-all-to-all", *self.SIZE, "--heads", "7,3"),
                 "4096 columns are not those of 13 heads of q, k and v"),
                (("matmul-all-reduce", "--m", 8), "--n is missing"),
                (("lama2-70b",), "did you mean llama2-70b"),
                (("llama2-70b", "--tp", 300), "at most 256 ranks can be predicted"),
                (("llama2-70b", "--tokens", "many"), "--tokens"),
                (("llama2-70b", "--scale", "1.5"), "--scale 1.5 is not above 0 and up to 1"),
                (("llama2-70b", "--tokens", 8, "--sequence", 16), "--seq 16 is longer than --tokens 8"),
                ((*op, "--dtype", "f32"),
                 "--dtype f32: only the rate of bf16 and f16 is known for h100; give the rate of f32 with --rate"),
                (("experts", "--dtype", "f32"), "--dtype f32: only the rate of bf16 and f16 is known for h100"),
                (("experts", "--ranks", 65), "--ranks 65: a layer of experts is predicted for at most 64"),
                (("experts", "--skew", "steep"), "--skew steep"),
                (("experts", "--tokens", 16777216), "a prediction with --tokens 16777216 may take"),
                (("expert",), "did you mean experts"),
                (("head",), "did you mean heads"),
                (("heads", *self.SIZE, "--head", "bottom"), "--head bottom"),
                (("heads", *self.SIZE, "--ranks", 65), "--ranks 65: heads are predicted for at most 64"),
                (("heads", "--m", 1, "--n", 8, "--k", 1, "--top", 9), "--top 9: there are 8 ids"),
                (("heads", "--m", 1, "--n", 1 << 23, "--k", 1), "a vocabulary has at most 4194304 ids"),
                (("heads", "--m", 1 << 24, "--n", 4096, "--k", 1, "--top", 1024), "and m=16777216 k=1 may take"),
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
                ((*op, "--processor-per-gb", "-1"), "--processor-per-gb -1 is not a number from 0 to 100"),
                ((*op, "--processor-per-gb", "some"), "--processor-per-gb some is not a number from 0 to 100"),
                ((*op, "--processor-per-gb", "0.45"), "--processor-per-gb 0.45: only --device cpu multiplies on the "
                 "processor that works for the network, not h100"),
                (("llama2-70b", "--processor-per-gb", "0.45"), "only --device cpu multiplies on the processor"),
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
