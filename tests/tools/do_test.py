"""Output and counts of ./do, without building anything."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
TOOLS = ROOT / "tools/do"
REPORT = """<testsuite>
  <testcase name="good" status="run"/>
  <testcase name="better" status="run"/>
  <testcase name="bad" status="fail" time="1.5"><system-out>expected 1, got 2</system-out></testcase>
  <testcase name="idle" status="notrun"><skipped message="SKIP_REGULAR_EXPRESSION_MATCHED"/><system-out>
[ RUN      ] idle
../../tests/gemm/kernel_test.cc:33: Skipped
this processor has no AMX tiles for bf16
[  SKIPPED ] idle (0 ms)</system-out></testcase>
  <testcase name="cli.some" status="run"><system-out>
test_one (__main__.OneTest.test_one) ... ok
test_two (__main__.OneTest.test_two)
What it is about. ... skipped 'the mpi transport is not built'
test_three (__main__.OneTest.test_three) ... skipped "it's late"
----------------------------------------------------------------------
Ran 3 tests in 0.010s

OK (skipped=3)</system-out></testcase>
</testsuite>"""

# Ends as ninja does after Ctrl-C: with a status of its own, not by the signal.
SLOW = """
import pathlib, sys, time
try:
    pathlib.Path("began").touch()
    time.sleep(100)
except KeyboardInterrupt:
    sys.exit(2)
"""


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, timeout=200)


def copy_of_do(folder):
    """Copies ./do to where nothing is lost if a verb begins its work. Returns a folder that `clean` would delete."""
    shutil.copy(ROOT / "do", folder)
    shutil.copytree(TOOLS, Path(folder) / "tools/do")
    kept = Path(folder) / "build/kept"
    kept.mkdir(parents=True)
    return kept


class DoTest(unittest.TestCase):
    def test_help_lists_every_verb(self):
        verbs = re.findall(r"^verb_(\w+)\(\)", (ROOT / "do").read_text(), re.MULTILINE)
        listed = re.findall(r"^  (\w+)", run(ROOT / "do", "help").stdout, re.MULTILINE)
        self.assertEqual(set(listed) | {"help"}, set(verbs))

    def test_unknown_verb_is_wrong_usage(self):
        refused = run(ROOT / "do", "fly")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("'fly'", refused.stderr)

    def test_verb_that_is_asked_for_help_does_nothing_else(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = copy_of_do(folder)
            for verb in ["build", "clean", "bench", "gpu", "test"]:
                for option in ["-h", "--help"]:
                    asked = run(Path(folder) / "do", verb, option)
                    self.assertEqual(asked.returncode, 0, verb)
                    self.assertTrue(asked.stdout.startswith("usage: ./do VERB"), asked.stdout)
            self.assertEqual([each.name for each in kept.parent.iterdir()], ["kept"])

    def test_arguments_that_a_verb_does_not_take_are_wrong_usage(self):
        with tempfile.TemporaryDirectory() as folder:
            kept = copy_of_do(folder)
            for line in ["clean fly", "demo fly", "lint fly", "build fly", "test fly", "gpu pack -fly", "wheel fly"]:
                words = line.split()
                refused = run(Path(folder) / "do", *words)
                self.assertEqual(refused.returncode, 2, words)
                self.assertIn(f"'{words[-1]}'", refused.stderr)
            self.assertEqual([each.name for each in kept.parent.iterdir()], ["kept"])

    def test_plait_comes_with_its_plugin(self):
        # The verb builds only the command, which loads the plugin when it runs.
        self.assertIn("build_targets release app/cli/plait", (ROOT / "do").read_text())
        rules = Path(os.environ["PLAIT_BUILD"], "build.ninja")
        if not rules.exists() or "libplait_mpi_openmpi.so" not in rules.read_text():
            self.skipTest("not built by ninja, or without MPI")
        command = re.search(r"^build app/cli/plait: .*$", rules.read_text(), re.MULTILINE)
        self.assertIn("lib/plait/libplait_mpi_openmpi.so", command[0])

    def configure(self, script):
        """Lists the configurations of a script: each with the options that `cmake` got."""
        with tempfile.TemporaryDirectory() as folder:
            os.mkdir(Path(folder) / "build")
            sources = f"set -euo pipefail; cd {folder}; source {TOOLS}/build.sh; source {TOOLS}/cuda.sh; CI="
            cmake = "cmake() { echo $*; mkdir -p build/$2; touch build/$2/build.ninja; }; has_nvcc() { false; }"
            ran = run("bash", "-c", f"{sources}; {cmake}; touch CMakePresets.json; sleep 0.01; {script}")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        return ran.stdout.splitlines()

    def test_a_brief_build_lacks_kernels_benchmarks_and_examples_until_all_is_wanted(self):
        brief, whole = self.configure("extent=brief; configure release; configure release; extent=whole; "
                                      "configure release; configure release; extent=brief; configure release")
        for part in ("CUDA", "BUILD_BENCHES", "BUILD_EXAMPLES"):
            self.assertRegex(brief, rf"-DPLAIT_{part}=OFF( |$)")
            self.assertRegex(whole, rf"-DPLAIT_{part}=(ON|auto)( |$)")

    def test_the_sanitizers_builds_have_one_extent(self):
        (once,) = self.configure("configure asan; extent=brief; configure asan")
        self.assertNotIn("BENCHES", once)

    def test_ci_wants_no_mpi_for_arm(self):
        arm, asan = self.configure("CI=true; configure arm; configure asan")
        self.assertEqual(arm, "--preset arm")
        self.assertIn("-DPLAIT_MPI=ON", asan)

    def test_ci_checks_all(self):
        self.assertIn("exec ./do test all\n", (ROOT / ".ci/run").read_text())

    def test_gpu_takes_nothing_or_pack(self):
        refused = run(ROOT / "do", "gpu", "fly")
        self.assertEqual(refused.returncode, 2)
        self.assertIn("'fly'", refused.stderr)

    def test_gpu_pack_leaves_folders_of_others_alone(self):
        with tempfile.TemporaryDirectory() as folder:
            refused = run(ROOT / "do", "gpu", "pack", folder)
        self.assertEqual(refused.returncode, 2)
        self.assertIn(f"{folder} exists", refused.stderr)


@unittest.skipIf(list(Path("/dev").glob("nvidia[0-9]*")), "there is a GPU here")


class WithoutGpuTest(unittest.TestCase):
    def check(self, command):
        gpu = run(*command)
        self.assertEqual(gpu.stdout, "There is no GPU here: nothing was checked.\n")
        self.assertEqual(gpu.returncode, 77)

    def test_gpu_does_not_claim_to_have_checked(self):
        self.check([ROOT / "do", "gpu"])

    def test_packed_checks_do_not_claim_to_have_checked(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copy(TOOLS / "gpu_run.sh", Path(folder) / "run.sh")
            for script in ["step.sh", "gpu.sh"]:
                shutil.copy(TOOLS / script, folder)
            self.check([Path(folder) / "run.sh"])


class GpuChecksTest(unittest.TestCase):
    def run_script(self, folder, script):
        sources = f"set -euo pipefail; cd {folder}; source {TOOLS}/step.sh; source {TOOLS}/gpu.sh"
        return run("bash", "-c", f"{sources}; source {TOOLS}/cuda.sh; {script}")

    def test_check_that_does_not_end_fails(self):
        with tempfile.TemporaryDirectory() as folder:
            ran = self.run_script(folder, "gpu_check 1 one sleep 100; gpu_check 9 two true; summary")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stdout.splitlines()[-1], "1 passed, 1 failed")

    def test_packed_libraries_are_not_those_of_every_system(self):
        command = Path(os.environ["PLAIT_BUILD"]) / "app/cli/plait"
        with tempfile.TemporaryDirectory() as folder:
            ran = self.run_script(folder, f"libraries_to_pack {command}")
        names = [Path(line).name for line in ran.stdout.splitlines()]
        self.assertTrue([name for name in names if name.startswith("libfmt.so")], names)
        self.assertFalse([name for name in names if name.startswith(("libc.", "libstdc++.", "libm."))])


class SummaryTest(unittest.TestCase):
    def run_steps(self, script):
        with tempfile.TemporaryDirectory() as folder:
            source = f"set -euo pipefail; cd {folder}; source {ROOT}/tools/do/step.sh; {script}"
            return run("bash", "-c", source)

    def test_failed_check_does_not_stop_the_others_and_fails_in_the_end(self):
        ran = self.run_steps("check one false || true; check two true; summary")
        self.assertEqual(ran.returncode, 1)
        self.assertEqual(ran.stdout.splitlines()[-1], "1 passed, 1 failed")

    def test_all_passed(self):
        ran = self.run_steps("check one true; summary")
        self.assertEqual(ran.returncode, 0)
        self.assertEqual(ran.stdout.splitlines()[-1], "1 passed, 0 failed")

    def test_what_is_built_meanwhile_yields_to_the_steps_and_ends_with_them(self):
        ran = self.run_steps(f"""source {TOOLS}/build.sh; mkdir -p build/log
                                 build() {{ echo $BASHPID $(nice) >$1; sleep 100; }}; build_meanwhile asan tsan
                                 until [[ -s asan ]]; do sleep 0.01; done; cat asan; [[ ! -e tsan ]]""")
        self.assertEqual((ran.returncode, ran.stderr), (0, ""))
        builder, priority = map(int, ran.stdout.split())
        self.assertEqual(priority, 19)
        deadline = time.monotonic() + 50
        while Path(f"/proc/{builder}").exists():
            self.assertLess(time.monotonic(), deadline)
            time.sleep(0.01)

    def test_a_step_waits_for_an_environment_that_is_made_meanwhile(self):
        ran = self.run_steps(f"""source {TOOLS}/build.sh; source {TOOLS}/python.sh; mkdir -p build/log
                                 build() {{ echo $1; }}
                                 prepare_venv() {{ [[ -e made ]] || {{ sleep 1; touch made; }}; }}
                                 prepare_vllm() {{ echo none; false; }}; build_meanwhile environments asan
                                 sleep 0.5; in_turn test -e made; wait; cat 'build/log/build-meanwhile.log'""")
        self.assertEqual((ran.returncode, ran.stdout.splitlines()[-2:]), (0, ["none", "asan"]), ran.stderr)

    def test_interrupted_step_is_the_last(self):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "slow.py").write_text(SLOW)
            script = f"""set -euo pipefail; cd {folder}; source {TOOLS}/step.sh
                         check one python3 slow.py || true; check two true; summary"""
            steps = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, start_new_session=True,
                                     preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
            deadline = time.monotonic() + 100
            while not (Path(folder) / "began").exists():
                self.assertLess(time.monotonic(), deadline)
                time.sleep(0.01)
            os.killpg(steps.pid, signal.SIGINT)
            self.assertNotIn("two", steps.communicate(timeout=100)[0])
            self.assertEqual(steps.returncode, 130)

    def test_what_was_not_run_is_listed_by_its_reason(self):
        ran = self.run_steps("""skipped=('release: this processor has no AMX (3)' 'asan: no network (1)')
                                check one true; summary""")
        self.assertEqual(ran.stdout.splitlines()[-5:], [
            "not run on this processor:", "  release: this processor has no AMX (3)",
            "not run, for the reason that each gives:", "  asan: no network (1)", "1 passed, 0 failed"])

    def test_what_a_verb_leaves_out_is_said_before_the_counts(self):
        ran = self.run_steps("left_out='not run: sanitizers'; check one true; summary")
        self.assertEqual(ran.stdout.splitlines()[-2:], ["not run: sanitizers", "1 passed, 0 failed"])

    def run_report(self, script):
        """Counts as if ctest had written REPORT."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "report.xml").write_text(REPORT.replace('status="fail"', 'status="run"'))
            source = f"""set -euo pipefail; cd {folder}; mkdir -p tools; ln -s {ROOT}/tools/do tools/do
                         source tools/do/step.sh; source tools/do/test.sh; personality=()
                         ctest_preset() {{ cp report.xml "$2"; }}; {script}"""
            return run("bash", "-c", source)

    def test_an_unexpected_skip_fails_in_ci_alone(self):
        for ci, status, counts in (("", 0, "4 passed, 0 failed"), ("true", 1, "4 passed, 3 failed")):
            ran = self.run_report(f"CI={ci}; run_tests release; summary")
            self.assertEqual((ran.returncode, ran.stdout.splitlines()[-1]), (status, counts), ran.stdout)
        self.assertIn("lacks: cli.some.test_three: it's late", ran.stdout)

    def test_failure_shows_its_log_and_where_it_is(self):
        ran = self.run_steps("step 'break it' bash -c 'echo the reason; exit 3'; echo went on")
        self.assertEqual(ran.returncode, 1)
        self.assertIn("the reason", ran.stdout)
        self.assertIn("build/log/break-it.log", ran.stdout)
        self.assertNotIn("went on", ran.stdout)


class CountTestsTest(unittest.TestCase):
    def count(self, *flags):
        with tempfile.NamedTemporaryFile("w", suffix=".xml") as report:
            report.write(REPORT)
            report.flush()
            return run(ROOT / "tools/do/count_tests.py", *flags, report.name).stdout

    def test_skipped_tests_did_not_pass(self):
        self.assertEqual(self.count(), "3 1\n")
        self.assertEqual(self.count("--skipped").splitlines(), [
            "this processor has no AMX tiles for bf16 (1)", "the mpi transport is not built (1)", "it's late (1)",
            "no reason given (1)"])

    def test_a_reason_is_expected_or_named_with_its_test(self):
        unknown = ["cli.some.test_three: it's late", "cli.some: no reason given"]
        without_mpi = "cli.some.test_two: the mpi transport is not built"
        self.assertEqual(self.count("--unexpected=release").splitlines(), [without_mpi, *unknown])
        self.assertEqual(self.count("--unexpected=tsan").splitlines(), unknown)


# Speaks as a program of GoogleTest.
PROGRAM = """#!/usr/bin/env python3
import os, sys, time
names = sys.argv[1].removeprefix("--gtest_filter=").split(":")
for name in names:
    print(f"[ RUN      ] {name}", flush=True)
    if name == "A.Crashes":
        os.abort()
    if name == "A.Hangs":
        time.sleep(100)
    if name == "A.Skips":
        print("some_test.cc:1: Skipped\\nthe kernel is not here")
    result = {"A.Fails": "  FAILED", "A.Skips": "  SKIPPED"}.get(name, "       OK")
    print(f"[{result} ] {name} (0 ms)", flush=True)
sys.exit("A.Fails" in names)
"""


class GroupTestsTest(unittest.TestCase):
    def run_grouped(self, names):
        """Runs such tests in groups. Returns ctest's output, and what count_tests.py makes of its report."""
        with tempfile.TemporaryDirectory() as folder:
            program, grouped, report = Path(folder, "a_test"), Path(folder, "grouped"), Path(folder, "report.xml")
            program.write_text(PROGRAM)
            program.chmod(0o755)
            tests = [f"add_test({name} {program} --gtest_filter={name} --gtest_also_run_disabled_tests)\n"
                     f"set_tests_properties({name} PROPERTIES TIMEOUT 3 LABELS unit)\n" for name in names]
            Path(folder, "CTestTestfile.cmake").write_text("".join(tests) + "add_test(other true)\n")
            made = run(TOOLS / "group_tests.py", folder, "-E", "A.Left")
            self.assertEqual((made.returncode, made.stderr), (0, ""))
            ran = run("ctest", "--test-dir", grouped, "--output-junit", report)
            return ran.stdout, *(run(TOOLS / "count_tests.py", *flag, report).stdout
                                 for flag in ([], ["--failed"], ["--skipped"]))

    def test_each_test_of_a_group_has_its_result(self):
        names = ["A.Works", "A.Fails", "A.Crashes", "A.Skips", "A.Hangs", "A.Left", "B.WorksAfterThem"]
        said, counts, failed, skipped = self.run_grouped(names)
        self.assertIn("1 tests failed out of 2", said)
        self.assertEqual(counts, "3 3\n")  # with the one that is in no group
        self.assertEqual(re.findall(r"^--- (\S+) failed", failed, re.MULTILINE), ["A.Fails", "A.Crashes", "A.Hangs"])
        self.assertIn("A.Crashes: the program ended with status -6", failed)
        self.assertIn("A.Hangs: the program took longer than 3 s", failed)
        self.assertEqual(skipped, "the kernel is not here (1)\n")

    def test_a_test_that_never_stops_to_print_is_ended(self):
        with tempfile.TemporaryDirectory() as folder:
            program = Path(folder, "floods")
            program.write_text("#!/bin/sh\nexec yes\n")
            program.chmod(0o755)
            ran = run(TOOLS / "group_tests.py", "--run", "0.2", "1", program, "A.Floods")
            self.assertEqual(ran.returncode, 1)
            self.assertIn("A.Floods: the program took longer than 0.2 s", ran.stdout[-200:])

    def test_a_group_has_ten_tests(self):
        said, counts, failed, _ = self.run_grouped([f"A.Works{number}" for number in range(21)])
        self.assertIn("out of 4", said)
        self.assertEqual((counts, failed), ("22 0\n", ""))


if __name__ == "__main__":
    unittest.main()
