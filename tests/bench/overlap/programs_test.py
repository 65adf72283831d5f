"""bench/overlap: every section is measured, and the results of rivals are checked."""

import json
import os
import subprocess
import tempfile
import unittest
from pathlib import Path

BUILD = Path(os.environ["PLAIT_BUILD"])
BENCH = Path(__file__).resolve().parents[3] / "bench" / "overlap"
RIVAL = BUILD / "bench" / "overlap" / "plait_bench_overlap_mpi"
SECTIONS_OF = "matmul-all-reduce"
OPERATORS = ["all-gather-matmul", "matmul-all-reduce", "matmul-reduce-scatter"]


class ProgramsTest(unittest.TestCase):
    def run_bench(self, folder, *words, **environment):
        return subprocess.run([BENCH / "run.sh", *map(str, words)], capture_output=True, text=True, check=False,
                              env={**os.environ, "BUILD": str(BUILD), "RESULTS": folder, **environment})

    @staticmethod
    def sizes_in(file):
        found = json.loads(file.read_text())
        return found if isinstance(found, list) else [found]

    def test_all_sections_are_summed_up(self):
        with tempfile.TemporaryDirectory() as folder:
            shapes = Path(folder) / "shapes.txt"
            shapes.write_text("# m n k\n512 128 192\n3 64 64\n")
            worlds = Path(folder) / "worlds.txt"
            worlds.write_text("512 128 192\n")
            # Two repetitions each, the least. Rivals differ between operators, but sections do not. The last run sums
            # up both.
            words = ("--shapes", shapes, "--worlds", worlds, "--repeat", "2", "--kinds", "f32")
            for more in (["--only", "rival"], ["--only", "link,alone,row,worlds", "--operators", SECTIONS_OF]):
                result = self.run_bench(folder, *words, *more)
                self.assertEqual((result.returncode, result.stderr), (0, ""))
            found = sorted(path.name for path in Path(folder).glob("*.json"))
            wanted = [*(f"overlap_link_{SECTIONS_OF}_f32_{ratio}.json" for ratio in ("0.5", "1", "2")),
                      f"overlap_alone_{SECTIONS_OF}_f32.json",
                      *(f"overlap_row_{SECTIONS_OF}_f32_{run}.json" for run in (1, 2, 3)),
                      *(f"overlap_worlds_{SECTIONS_OF}_f32_{ranks}.json" for ranks in (3, 4, 8)),
                      *(f"overlap_rival_{op}_f32.json" for op in OPERATORS if RIVAL.exists())]
            self.assertEqual(found, sorted(wanted))
            for bar in ("f32, no link: fused over serial, lowest of 2 of", "fused over oneDNN and MPI, lowest of 6 of",
                        "one row: fused beyond its product, µs, highest of 4"):
                if "oneDNN" not in bar or RIVAL.exists():
                    self.assertIn(bar, result.stdout)
            # An efficiency within the noise is left out; on a busy machine that may be all of them.
            for section, bar in (("link", "fused: efficiency, median of {} of"),
                                 ("worlds", "fused, 3, 4 and 8 ranks: efficiency, lowest of {} of")):
                known = sum(one["plan"] == "fused" and one["overlap_efficiency"] is not None
                            for file in Path(folder).glob(f"overlap_{section}_*.json")
                            for size in self.sizes_in(file) for one in size["schedules"])
                self.assertEqual(bar.format(known) in result.stdout, known > 0, section)
            self.assertIn(f"bench/overlap/keep.py --repeat 2 {folder}/overlap_*.json\n", result.stdout)
            waited = json.loads((Path(folder) / "overlap_worlds_matmul-all-reduce_f32_3.json").read_text())
            self.assertTrue(waited["machine"].endswith(", products waited for"))
            self.assertTrue(all(one["bits_equal"] for one in waited["schedules"]))

    def test_what_is_wrong_is_said_first(self):
        with tempfile.TemporaryDirectory() as folder:
            for words in (["--only", "all"], ["--kinds", ""], ["--operators", "matmul"],
                          ["--ratios", "3"], ["--seconds"], ["--shapes", "nowhere"], ["--fast"]):
                with self.subTest(words):
                    result = self.run_bench(folder, *words)
                    self.assertEqual((result.returncode, result.stdout), (2, ""))
                    self.assertTrue(result.stderr.startswith("usage: bench/overlap/run.sh"))

    @unittest.skipUnless(RIVAL.exists(), "built where MPI and oneDNN are")
    def test_the_rival_refuses_what_it_cannot_do(self):
        size = ["--m", "8", "--n", "64", "--k", "64"]
        for words, sentence in (([], "usage: mpirun"),
                                (["matmul-all-reduce", *size, "--weight", "s8:channel"], "--weight s8:channel"),
                                (["matmul-all-reduce", *size, "--link", "ratio=1"], "--link"),
                                (["matmul-all-gather", *size], "matmul_all_gather has no rival")):
            with self.subTest(words):
                result = subprocess.run([RIVAL, *words], capture_output=True, text=True, check=False)
                self.assertEqual((result.returncode, result.stdout), (2, ""))
                self.assertIn(sentence, result.stderr)


if __name__ == "__main__":
    unittest.main()
