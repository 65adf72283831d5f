"""plait bench OPERATOR: every operator runs with every schedule, and its figures are consistent."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path
from xml.etree import ElementTree

from command import PLAIT, CommandTest, wait_until

OPERATORS = ["matmul-all-reduce", "matmul-reduce-scatter", "matmul-all-gather", "all-gather-matmul",
             "reduce-scatter-matmul", "all-reduce-matmul"]
FUSED = ["matmul-all-reduce", "matmul-reduce-scatter", "all-gather-matmul"]
KEYS = ["op", "m", "n", "k", "ranks", "dtype", "weight", "transport", "link", "t_gemm_ms",
        "t_comm_ms", "t_comm_cpu_ms", "ideal_ms", "bound_ms", "schedules", "machine"]
SCHEDULE_KEYS = ["name", "plan", "median_ms", "min_ms", "max_ms", "speedup", "overlap_efficiency",
                 "bits_equal"]


class OperatorTest(CommandTest):
    SIZE = ("--m", 40, "--n", 200, "--k", 96, "--repeat", 2)
    # Ranks that are processes wait longer for one another on a busy machine.
    IN_THREADS = (*SIZE, "--transport", "threads")

    def bench(self, op, *words):
        result = self.plait("bench", op, *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""), (op, words))
        return result.stdout

    def json(self, op, *words):
        return json.loads(self.bench(op, *words, "--json", "-"))

    def check(self, found, op):
        self.assertEqual(list(found), KEYS)
        self.assertEqual(found["op"], op.replace("-", "_"))
        self.assertAlmostEqual(found["ideal_ms"], max(found["t_gemm_ms"], found["t_comm_ms"]))
        self.assertAlmostEqual(found["bound_ms"],
                               max(found["t_gemm_ms"] + found["t_comm_cpu_ms"], found["t_comm_ms"]))
        serial = found["schedules"][0]["median_ms"]
        for one in found["schedules"]:
            self.assertEqual(list(one), SCHEDULE_KEYS)
            self.assertTrue(one["bits_equal"], one)
            self.assertLessEqual(one["min_ms"], one["median_ms"])
            self.assertLessEqual(one["median_ms"], one["max_ms"])
            self.assertAlmostEqual(one["speedup"], serial / one["median_ms"])
            if one["overlap_efficiency"] is not None:
                self.assertAlmostEqual(one["overlap_efficiency"],
                                       (serial - one["median_ms"]) / (serial - found["ideal_ms"]))

    def test_every_operator_in_every_schedule(self):
        for op in OPERATORS:
            with self.subTest(op):
                found = self.json(op, *self.SIZE, "--transport", "threads", "--ranks", 3)
                self.check(found, op)
                self.assertEqual((found["ranks"], found["transport"], found["link"]), (3, "threads", None))
                plans = ["serial", *(f"pipelined parts={n}" for n in (2, 4, 8))]
                self.assertEqual([one["plan"] for one in found["schedules"]],
                                 plans + ["fused"] * (op in FUSED))

    def test_ranks_of_their_own_over_a_link(self):
        found = self.json("matmul-all-reduce", *self.SIZE, "--link", "10gbit,20us", "--weight", "s8:channel",
                          "--plan", "fused chunk=64;pipelined parts=3")
        self.check(found, "matmul-all-reduce")
        self.assertEqual((found["ranks"], found["transport"], found["weight"]), (2, "shm", "s8:channel"))
        self.assertEqual(found["link"], "10gbit,20us")
        self.assertEqual([one["plan"] for one in found["schedules"]],
                         ["serial", "fused chunk=64", "pipelined parts=3"])

    def test_the_link_of_the_environment_is_measured_as_one_that_was_asked_for(self):
        self.environment["PLAIT_LINK"] = "1mbit,20us"
        found = self.json("matmul-all-reduce", *self.SIZE[:-2], "--repeat", 1, "--schedule", "serial", "--transport",
                          "threads")
        self.check(found, "matmul-all-reduce")
        self.assertEqual(found["link"], "1mbit,20us")
        # the link has 256 kbit/s, but this time is without it
        self.assertLess(found["t_comm_cpu_ms"], 0.5 * found["t_comm_ms"])
        found = self.json("matmul-all-reduce", *self.SIZE, "--schedule", "serial", "--transport", "threads", "--link",
                          "10gbit,5us")
        self.assertEqual(found["link"], "10gbit,5us")

    def test_the_wire_is_that_of_what_travels(self):
        for op, wire in (("matmul-all-reduce", "f32"), ("all-gather-matmul", "bf16")):
            self.assertIn(f" wire={wire}\n", self.bench(op, *self.IN_THREADS, "--schedule", "serial"))
        coded = self.bench("matmul-reduce-scatter", *self.IN_THREADS, "--wire", "s8", "--schedule", "all")
        self.assertIn(" wire=s8\n", coded)

    def test_under_plait_run(self):
        result = self.plait("run", "-n", 2, "--", PLAIT, "bench", "all-gather-matmul", *self.SIZE,
                            "--json", "-")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.check(json.loads(result.stdout), "all-gather-matmul")

    def test_several_sizes_are_a_list(self):
        found = self.json("matmul-reduce-scatter", "--m", "8,16", "--n", 64, "--k", "32,64", "--repeat", 1,
                          "--schedule", "fused", "--transport", "threads")
        self.assertEqual([(one["m"], one["n"], one["k"]) for one in found], [(8, 64, 32), (16, 64, 64)])
        with tempfile.TemporaryDirectory() as folder:
            shapes = Path(folder) / "shapes.txt"
            shapes.write_text("# m n k\n8 64 32\n\n16 64 64  # twice\n")
            again = self.json("matmul-reduce-scatter", "--shapes", shapes, "--repeat", 1, "--schedule", "serial")
        self.assertEqual([(one["m"], one["n"], one["k"]) for one in again], [(8, 64, 32), (16, 64, 64)])

    def test_what_was_measured_outlives_an_interruption(self):
        with tempfile.TemporaryDirectory() as folder:
            figures = Path(folder) / "figures.json"
            # The second size takes many seconds.
            words = ["matmul-all-reduce", "--m", "1,4096", "--n", "64", "--k", "64", "--repeat", "1", "--schedule",
                     "serial", "--transport", "threads", "--link", "1mbit", "--json", str(figures)]
            bench = subprocess.Popen([PLAIT, "bench", *words], env=self.environment, stdout=subprocess.DEVNULL)
            try:
                wait_until(lambda: figures.exists() or bench.poll() is not None, "the first size is written")
                self.assertIsNone(bench.poll())
            finally:
                bench.kill()
                bench.wait()
            self.assertEqual([one["m"] for one in json.loads(figures.read_text())], [1])

    def test_a_ratio_chooses_a_link(self):
        found = self.json("matmul-all-reduce", "--m", 64, "--n", 256, "--k", 1024, "--link", "ratio=20",
                          "--schedule", "fused", "--repeat", 3)
        self.assertIsNotNone(found["link"])
        # The measurements for the search and for the report come from different moments of a shared machine.
        self.assertGreater(found["t_comm_ms"], 20 / 3 * found["t_gemm_ms"])

    def test_text_says_it(self):
        text = self.bench("matmul-all-reduce", *self.IN_THREADS, "--link", "1gbit")
        self.assertIn("emulated link", text)
        self.assertRegex(text, r"\nplan +median +min +max +speed-up +efficiency +bits\n")
        self.assertEqual(text.count("equal"), 5)

    def test_ranks_that_share_cores_measure_turns(self):
        cores = json.loads(self.plait("info", "--json").stdout)["processor"]["cores"]
        words = ("matmul-all-reduce", *self.IN_THREADS, "--threads", cores)
        text = self.bench(*words)
        self.assertRegex(text, rf"\n2 ranks of {cores} threads? share {cores} cores?: the ranks are oversubscribed")
        self.assertNotRegex(text, "(The|No) plan")
        self.assertRegex(self.bench(*words, "--timed-product"), "\n(The|No) plan")

    def test_timelines(self):
        with tempfile.TemporaryDirectory() as folder:
            for verb in (["bench"], ["trace"]):
                page, perfetto = Path(folder) / "page.html", Path(folder) / "trace.json"
                result = self.plait(*verb, "all-gather-matmul", *self.SIZE, "--html", page, "--trace", perfetto,
                                    "--schedule", "fused")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertTrue(result.stdout.endswith(f"Timeline: {page}\nFor Perfetto: {perfetto}\n"))
                self.assertIn("<h1>all_gather_matmul, m=40 n=200 k=96, bf16 by bf16</h1>", page.read_text())
                labels = {event.get("name") for event in json.loads(perfetto.read_text())["traceEvents"]}
                self.assertTrue({"product", "take", "copy", "serial", "fused"} <= labels, labels)
                page.unlink()
                perfetto.unlink()

    def test_a_picture_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            picture = Path(folder) / "picture.svg"
            words = ("trace", "matmul-reduce-scatter", *self.IN_THREADS, "--schedule", "fused")
            result = self.plait(*words, "--svg", picture, cwd=folder)
            self.assertEqual((result.returncode, result.stderr), (0, ""))
            self.assertTrue(result.stdout.endswith(f"\nPicture: {picture}\n"))
            self.assertEqual(os.listdir(folder), ["picture.svg"])
            texts = [text.text for text in ElementTree.parse(picture).iter("{http://www.w3.org/2000/svg}text")]
            self.assertEqual(texts[0], "matmul_reduce_scatter, m=40 n=200 k=96, bf16 by bf16")
            self.assertTrue(any(text.startswith("fused: ") for text in texts), texts)

            result = self.plait(*words, "--svg", "nowhere/picture.svg", cwd=folder)
            self.assertEqual((result.returncode, result.stdout), (1, ""))
            self.assertIn("cannot write nowhere/picture.svg: No such file or directory\n", result.stderr)

    def test_a_weight_that_lies_in_out(self):
        for weight in ("bf16", "plain"):
            found = self.json("matmul-all-reduce", *self.IN_THREADS, "--layout", "in_out", "--weight", weight)
            self.check(found, "matmul-all-reduce")

    def test_all_ranks_refuse_what_memory_cannot_hold(self):
        problem = ["matmul-all-reduce", "--m", 1 << 24, "--n", 1 << 24, "--k", 8]
        sentence = r"plait bench: m=16777216 n=16777216 k=8 with 3 ranks may take .*; available are .*"
        for words in (["bench", *problem, "--ranks", 3, "--transport", "threads"],
                      ["bench", *problem, "--ranks", 3],
                      ["run", "-n", 3, "--", PLAIT, "bench", *problem]):
            with self.subTest(words):
                result = self.plait(*words)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                lines = [line for line in result.stderr.splitlines() if line.startswith("plait bench: ")]
                self.assertEqual(len(lines), 1, result.stderr)
                self.assertRegex(lines[0], sentence)

    def test_files_that_cannot_be_written_are_refused_before(self):
        for option in ("--json", "--html", "--svg", "--trace"):
            for words in (["--transport", "threads"], []):
                # The measurement would take too long for the test.
                result = self.plait("bench", "matmul-all-reduce", "--m", 512, "--n", 512, "--k", 512, *words,
                                    "--seconds", 3600, option, "/nowhere/file")
                self.assert_says(result, 1, "plait bench: cannot write /nowhere/file: No such file or directory")

    def test_all_ranks_fail_where_the_figures_cannot_be_written(self):
        for figures in ([], ["--json", "-"]):
            self.assert_all_ranks_fail_where_rank_0_cannot_write("bench", "matmul-all-reduce", *self.SIZE, "--schedule",
                                                                 "serial", *figures)

    def test_trace_refuses(self):
        for words, sentence in [
            ([], "an operator is missing, such as matmul-all-reduce (plait trace --help)"),
            (["matmul"], "cannot trace matmul; did you mean matmul-all-reduce? (plait trace --help)"),
            (["matmul-all-reduse"],
             "cannot trace matmul-all-reduse; did you mean matmul-all-reduce? (plait trace --help)"),
            (["matmul-all-reduce", "--m", "8,9", "--n", "8", "--k", "8"], "a timeline needs exactly one size, not 2"),
            (["matmul-all-reduce", *self.SIZE, "--html", "file", "--svg", "file"],
             "--html and --svg both name file"),
        ]:
            result = self.plait("trace", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait trace: {sentence}\n"))

    def test_refusals(self):
        for words, sentence in [
            ([], "--m is missing; give --m, --n and --k, or --shapes FILE"),
            (["--m", "8,9", "--n", "8,9,10", "--k", "8"],
             "--m, --n and --k have 2, 3 and 1 sizes; give each of them the same number, or one"),
            ([*self.SIZE, "--plan", "fused", "--schedule", "serial"],
             "--plan cannot be combined with --schedule serial"),
            ([*self.SIZE, "--plan", "fused", "--parts", 3], "--plan cannot be combined with --parts 3"),
            ([*self.SIZE, "--link", "ratio=1", "--ranks", 1, "-t", "threads"],
             "--link ratio=1: one rank has nothing to communicate"),
            ([*self.SIZE, "--transport", "shn"],
             "there is no transport shn; did you mean shm?"),
            ([*self.SIZE, "--transport", "mpi"],
             "mpirun starts ranks of the transport mpi: mpirun -n 2 plait bench ..."),
            ([*self.SIZE, "--link", "share=0.1"],
             "--link share=0.1: share= applies to training steps; operators take ratio=, as in ratio=1"),
            ([*self.SIZE, "--link", "ratio=0"], "--link ratio=0: the ratio must be a number above 0 and up to 1000"),
            ([*self.SIZE, "--schedule", "fast"],
             "--schedule fast is none of serial, pipelined, fused, all"),
            ([*self.SIZE, "--plan", "fused chunk=x"], "plan: chunk=x is not a whole number of 0 or more"),
            ([*self.SIZE, "--weight", "s9"],
             "--weight s9 is not a weight; give f32, bf16, f16, plain, or a scheme such as s8:channel or "
             "s4:group=64"),
            (["--shapes", "/nowhere/at/all"], "--shapes /nowhere/at/all cannot be read: No such file or directory"),
            (["--shapes", "/dev/zero"], "--shapes /dev/zero is a device, not a file"),
            ([*self.SIZE, "--shapes", "/nowhere/at/all"],
             "--shapes /nowhere/at/all cannot be combined with --m, --n or --k"),
        ]:
            result = self.plait("bench", "matmul-all-reduce", *words)
            self.assertEqual((result.returncode, result.stdout, result.stderr),
                             (2, "", f"plait bench: {sentence}\n"))
        result = self.plait("bench", "all-gather-matmul", *self.SIZE, "--plan", "pipelined axis=columns parts=4")
        self.assert_says(result, 2, "plait bench: all_gather_matmul: axis=columns would cut the k of a product; what "
                                    "comes first here is cut in rows")
        self.assert_says(self.plait("bench", "all-gather-matmul", *self.SIZE, "--wire", "bf16"), 2,
                         "plait bench: --wire bf16 applies to partial sums, and all_gather_matmul has none")
        result = self.plait("run", "-n", 2, "--", PLAIT, "bench", "all-gather-matmul", *self.SIZE, "-t", "threads")
        self.assertEqual(result.returncode, 2)
        self.assertIn("--transport threads: plait run has started 2 processes, but ranks of "
                      "this transport are threads of one process",
                      result.stderr)
        result = self.plait("run", "-n", 2, "--", PLAIT, "bench", "all-gather-matmul", *self.SIZE, "--ranks", 3)
        self.assertEqual(result.returncode, 2)
        self.assertIn("plait bench: --ranks 3: plait run has started 2 ranks\n", result.stderr)
        result = self.plait("bench", "all-reduce-matmul", *self.SIZE, "--backend", "abacus")
        self.assertEqual(result.returncode, 2)
        self.assertRegex(result.stderr, r"^plait bench: there is no backend abacus; there are .*vector, .*reference\n$")
        if "amx_tile" not in Path("/proc/cpuinfo").read_text():
            result = self.plait("bench", "all-reduce-matmul", *self.SIZE, "--backend", "amx")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"^plait bench: matmul: backend amx can't do .*: .*AMX.*\n$")
        found = self.json("all-reduce-matmul", *self.SIZE, "--backend", "reference", "--schedule", "serial")
        self.assertEqual(found["schedules"][0]["bits_equal"], True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            file.write("8 8 8  # so far so good\n8 x 8\n")
            file.flush()
            self.assert_says(self.plait("bench", "matmul-all-reduce", "--shapes", file.name), 2,
                             f"plait bench: --shapes {file.name}, line 2: x is not a whole number from 1 to 16777216")
        result = self.plait("bench", "all-reduce-matmul", *self.SIZE, "--schedule", "fused")
        self.assertEqual((result.returncode, result.stderr),
                         (2, "plait bench: all_reduce_matmul has no fused schedule\n"))


if __name__ == "__main__":
    unittest.main()
