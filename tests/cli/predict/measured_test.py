"""plait predict --measured: predictions beside what plait bench has measured."""

import json
import tempfile
import unittest
from pathlib import Path

from predict_case import PredictCase

FUSED = ["matmul-all-reduce", "matmul-reduce-scatter", "all-gather-matmul"]


class MeasuredTest(PredictCase):
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
                self.assertNotIn("does not record", text)
                found = self.json("--measured", measured)
                bench = json.loads(measured.read_text())
                self.assertEqual([one["plan"] for one in found], ["serial", "pipelined parts=2", "fused"])
                for one, of_bench in zip(found, bench["schedules"]):
                    self.assertEqual(one["measured_ms"], of_bench["median_ms"])
                    self.assertAlmostEqual(one["error"], one["predicted_ms"] / one["measured_ms"] - 1)
            result = self.plait("bench", "matmul-all-reduce", "--m", 8, "--n", 64, "--k", 64, "--transport", "threads",
                                "--repeat", 1, "--json", measured)
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertIn("has no link, and ran over threads; only", self.refusal("--measured", measured))
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

    MEASURED = {"op": "matmul_all_reduce", "m": 1024, "n": 1024, "k": 1024, "dtype": "bf16", "weight": "bf16",
                "ranks": 2, "t_gemm_ms": 100, "schedules": [{"plan": "serial", "median_ms": 125}]}

    def measured(self, **values):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        file = Path(folder.name, "bench.json")
        file.write_text(json.dumps({**self.MEASURED, **values}))
        return file

    def test_a_measurement_between_hosts(self):
        # Each rank sends half of the partial sums in f32 and half of the result in bf16, and receives as much.
        sent = 512 * 1024 * (4 + 2) * 1e-9
        transfer = 1e3 * 8 * sent / 2
        schedules = [{"plan": plan, "median_ms": 125} for plan in ("serial", "fused chunk=64")]
        values = {"link": None, "transport": "tcp", "t_comm_cpu_ms": 2e3 * sent * 0.4 + 5, "schedules": schedules}
        file = self.measured(**values)
        network = ("--link", "2gbit,8us", "--processor-per-gb", "0.4")
        serial, fused = self.json("--measured", file, *network)
        self.assertAlmostEqual(serial["predicted_ms"], 100 + transfer, delta=3)
        self.assertAlmostEqual(fused["predicted_ms"], 100 + values["t_comm_cpu_ms"], delta=2)
        self.assertEqual(fused["processor_s_per_gb"], 0.4)
        # Rates are those of the measurement, unless one is given.
        without = self.json("--measured", file, *network, "--memory", 1e6)[1]
        self.assertAlmostEqual(without["predicted_ms"], 100 + 2e3 * sent * 0.4, delta=1.5)
        text = self.predict("--measured", file, *network, "--memory", 1000)
        for words in ("It copies and sums 1000 GB/s, as given.\n",
                      "0.25 GB/s each way out of and into every rank, 8 us; 0.4 s of a rank's processor time for each "
                      "GB that it sends or receives\n"):
            self.assertIn(words, text)
        little = self.measured(**{**values, "t_comm_cpu_ms": 1})
        self.json("--measured", little, *network, "--memory", 10)
        for file, words, sentence in (
                (file, [], "ran over tcp; give the network between its hosts by --link and --processor-per-gb"),
                (file, network[:2], "ran over tcp; give the network"),
                (file, (*network[:3], "lots"), "--processor-per-gb lots is not a number from 0 to 100"),
                (file, ("--link", "rope", *network[2:]), "and not one of nvlink4"),
                (little, network, "the collective took 1 ms of processor time, which is less than --processor-per-gb "
                 "0.4 makes of its bytes; --memory gives the rate of copies and sums"),
                (self.measured(link="2gbit,8us", t_comm_cpu_ms=5), network,
                 "has the emulated link 2gbit,8us; --link and --processor-per-gb are for measurements between hosts"),
                (self.measured(link=None, transport="shm", t_comm_cpu_ms=5), network,
                 "has no link, and ran over shm; only measurements with a link or between hosts can be predicted")):
            with self.subTest(sentence):
                self.assertIn(sentence, self.refusal("--measured", file, *words))

    def test_results_and_sums_have_the_dtypes_that_were_measured(self):
        for wire, out, bytes_each in ("bf16", "bf16", 4), ("f32", "f32", 8), (None, None, 6):
            dtypes = {"wire": wire, "out": out} if wire else {}
            file = self.measured(link="1gbit,0us", t_comm_cpu_ms=1, **dtypes)
            transfer = 1e3 * 8 * 512 * 1024 * bytes_each * 1e-9
            self.assertAlmostEqual(self.json("--measured", file)[0]["predicted_ms"], 101 + transfer, delta=1, msg=wire)
            text = self.predict("--measured", file)
            self.assertEqual("out in x's dtype, partial sums in f32.\n" in text, wire is None)

    def test_a_measurement_whose_serial_time_can_be_computed(self):
        measured = self.MEASURED
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


if __name__ == "__main__":
    unittest.main()
