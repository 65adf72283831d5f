"""plait tune: plans are measured, stored and shown, and are refused on other machines."""

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import unittest
from pathlib import Path

from command import PATIENCE, PLAIT, wait_until
from run_terminal_test import Terminal
from tune_case import HEAD, SMALL, TuneCase


class TuneTest(TuneCase):
    def test_what_is_measured_is_kept_and_followed(self):
        machine = self.give_profile()
        page = self.tune("--op", "matmul-all-reduce,all-gather-matmul", *SMALL, "--link", "10gbit,20us")
        self.assertRegex(page, r"^problem +plan +time +serial +speed-up\n")
        self.assertTrue(page.endswith(f"Stored in {self.cache}\n"))
        self.assertTrue(self.cache.read_text().startswith(f"{HEAD}machine {machine}\nop="))
        found = self.entries()
        self.assertEqual([key.split()[0] for key, *_ in found], ["op=all_gather_matmul", "op=matmul_all_reduce"])
        for key, plan, taken, serial in found:
            self.assertIn(" ranks=2 ", key)
            self.assertTrue(key.endswith(" transport=shm link=10gbit,20us"), key)
            self.assertRegex(plan, r"^(serial|fused|pipelined)")
            self.assertGreater(int(taken), 0)
            self.assertGreater(int(serial), 0)

        shown = self.plait("tune", "--show")
        self.assertIn(found[0][0], shown.stdout)
        self.assertIn(machine, shown.stdout)
        asked = "op=matmul-all-reduce m=32 n=128 k=64 ranks=2 link=10gbit,20us"
        why = json.loads(self.plait("info", "--json", "--why", asked).stdout)
        self.assertEqual((why["source"], why["chosen"]), ("cache", found[1][1]))

    def test_exchanges_have_plans_too(self):
        self.give_profile()
        self.tune("--op", "matmul-all-to-all,all-to-all-matmul", *SMALL, "--heads", "2,1", "--link", "10gbit,20us")
        ends = "x=bf16 w=bf16 out=bf16 wire=bf16 ranks=2 threads=1 transport=shm link=10gbit,20us"
        self.assertEqual([key.replace("threads=2", "threads=1") for key, *_ in self.entries()],
                         [f"op={op} m=32 n=128 k=64 {ends} columns={columns}"
                          for op, columns in (("all_to_all_matmul", 32), ("matmul_all_to_all", 96))])
        self.assertIn("op=matmul_all_to_all", self.plait("tune", "--show").stdout)

    def test_columns_have_plans_too(self):
        self.give_profile()
        self.tune("--op", "matmul-all-gather-columns,all-gather-columns-matmul", *SMALL)
        self.explain_stored([("all_gather_columns_matmul", 32), ("matmul_all_gather_columns", 64)])

    def test_experts_have_plans_too(self):
        self.give_profile()
        words = ("--experts", "gpt-oss-quarter", "--m", 2, "--seconds", 0.01)
        self.tune(*words)
        self.tune(*words, "--replicated")
        self.explain_stored([("experts", 32), ("replicated_experts", 32)])

    def explain_stored(self, wanted):
        """The stored plan is the one that a call finds, and settings come before it."""
        entries = self.entries()
        self.assertEqual([re.search(r"^op=(\w+) .* columns=(\d+)$", key).groups() for key, *_ in entries],
                         [(op, str(columns)) for op, columns in wanted])
        for key, plan, *_ in entries:
            why = json.loads(self.plait("info", "--json", "--why", key).stdout)
            self.assertEqual((why["problem"], why["source"], why["chosen"]), (key, "cache", plan))
            self.assertIn(f'It is "{plan}", measured: ', self.plait("info", "--why", key).stdout)
            self.environment["PLAIT_PLAN"] = "fused poll=7"
            said = self.plait("info", "--why", key).stdout
            del self.environment["PLAIT_PLAN"]
            self.assertIn(f'set by plan (PLAIT_PLAN).\nThe measured plan, "{plan}", is not used', said)
            other = self.plait("info", "--why", key.replace(" k=", " k=9")).stdout
            self.assertIn('It is "fused", the default: the cost model knows nothing of such calls.', other)
            self.assertIn(f"It has no measured plan in {self.cache}.\n", other)

    def test_plans_of_several_hosts_belong_to_their_network(self):
        self.give_profile()
        words = shlex.join(map(str, [PLAIT, "tune", "--op", "matmul-all-reduce", *SMALL]))
        with socket.socket() as kept:  # from other processes, though rank 0 may listen there
            kept.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            kept.bind(("127.0.0.1", 0))
            place = f"127.0.0.1:{kept.getsockname()[1]}"
            run = self.plait("run", "-n", "2", "--", "sh", "-c",
                             f"PLAIT_HOST=node$PLAIT_RANK PLAIT_RENDEZVOUS={place} exec {words}")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        [(key, *_)] = self.entries()
        self.assertRegex(key, r" hosts=2 threads=\d+ transport=tcp link=\S+bit,\S+s$")

    def test_why_shows_the_fastest_plans_and_the_usual_ones(self):
        asked = "op=matmul-all-reduce m=512 n=4096 k=4096 ranks=2 link=10gbit,20us"
        plans = json.loads(self.plait("info", "--json", "--why", asked).stdout)["plans"]
        page = self.plait("info", "--why", asked).stdout
        table, _, rest = page.split("\n\n", 1)[1].partition("\n\n")
        shown = [row.split("  ")[0].removesuffix(" *") for row in table.splitlines()[1:-1]]
        self.assertEqual(shown[:10], [plan["plan"] for plan in plans[:10]])
        self.assertLessEqual({"serial", "fused"}, set(shown))
        self.assertLessEqual(len(shown), 13)
        self.assertEqual(table.splitlines()[-1],
                         f"{len(plans) - len(shown)} more plans are not shown; --json lists all.")
        self.assertTrue(rest.startswith("It is "))

    def test_weights_that_every_call_packs_are_problems_of_their_own(self):
        self.give_profile()
        for weight in ("plain", "bf16"):
            self.tune(*SMALL, "--transport", "threads", "--weight", weight)
        self.assertEqual([key.split()[5] for key, *_ in self.entries()], ["w=bf16", "w=bf16:plain"])
        asked = "op=matmul-all-reduce m=32 n=128 k=64 transport=threads w={}"
        for weight in ("plain", "bf16:plain"):
            why = json.loads(self.plait("info", "--json", "--why", asked.format(weight)).stdout)
            self.assertEqual((why["problem"], why["source"]), (self.entries()[1][0], "cache"))

    def test_only_what_is_missing(self):
        self.give_profile()
        self.tune(*SMALL, "--transport", "threads")
        before = self.cache.read_text()
        self.assertTrue(self.tune(*SMALL, "--transport", "threads", "--missing").startswith("All plans are in "))
        self.assertEqual(self.cache.read_text(), before)
        self.tune("--m", "32,48", *SMALL[2:], "--transport", "threads", "--missing")
        self.assertEqual(len(self.entries()), 2)
        self.assertIn(before.splitlines()[2], self.cache.read_text())

    def test_as_programs_find_their_settings(self):
        self.environment.update(PLAIT_WIRE="bf16", PLAIT_THREADS="2")
        self.give_profile()
        self.tune("--op", "matmul-all-reduce", *SMALL)
        (key, plan, *_), = self.entries()
        self.assertIn(" wire=bf16 ranks=2 threads=2 ", key)
        why = json.loads(self.plait("info", "--json", "--why", "op=matmul-all-reduce m=32 n=128 k=64").stdout)
        self.assertEqual((why["source"], why["chosen"]), ("cache", plan))

    def test_a_cache_that_nobody_writes(self):
        self.cache.parent.mkdir(exist_ok=True)
        os.mkfifo(self.cache)
        self.assert_says(self.plait("tune", "--show"), 2,
                         f"plait tune: cannot read {self.cache}: it is not a regular file")

    def test_over_the_link_that_programs_would_find(self):
        self.environment["PLAIT_LINK"] = "1gbit,5us"
        self.give_profile()
        self.tune("--op", "matmul-all-reduce", *SMALL)
        self.assertEqual([key.split()[-1] for key, *_ in self.entries()], ["link=1gbit,5us"])

    def test_plans_are_of_the_backend_that_multiplies(self):
        self.give_profile()
        self.tune("--op", "matmul-all-reduce", *SMALL, "--backend", "reference")
        self.environment["PLAIT_BACKEND"] = "vector"
        self.tune("--op", "matmul-all-reduce", *SMALL[:6], "--seconds", 0.05, "--plans", 1, "--dtype", "f32")
        self.tune("--op", "matmul-all-reduce", *SMALL, "--backend", "auto")
        backends = [re.findall(r" backend=(\w+) ", key) for key, *_ in self.entries()]
        self.assertEqual(sorted(backends), [[], ["reference"], ["vector"]])
        self.environment["PLAIT_BACKEND"] = "abacus"
        for words in (["--op", "matmul-all-reduce", *SMALL], ["--profile"]):
            result = self.plait("tune", *words, "--transport", "threads")
            self.assertEqual(result.returncode, 2)
            self.assertRegex(result.stderr, r"^plait tune: there is no backend abacus; there are .*\n$")

    def test_progress_is_told_by_one_rank(self):
        self.give_profile()
        signal.alarm(120)  # a terminal's read() has no deadline
        self.addCleanup(signal.alarm, 0)
        terminal = Terminal([PLAIT, "tune", "--m", "8,16,24", "--n", "64", "--k", "64", "--link", "1gbit,20ms"],
                            self.environment)
        self.assertEqual(terminal.finish(), 0, terminal.seen)
        told = re.findall(r"\r\x1b\[K([^\r\n]*?, \d+ s left)", terminal.seen)
        self.assertGreater(len(told), 3)
        for line in told:
            self.assertRegex(line, r"^tuning, percent: \d+ of 100, \d+ s left$")
        self.assertRegex(terminal.seen, r"\r\x1b\[Kproblem +plan ")

    def test_under_plait_run(self):
        self.give_profile()
        result = self.plait("run", "-n", 2, "--", PLAIT, "tune", *SMALL)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertEqual(len(self.entries()), 1)

    def test_all_ranks_fail_where_the_plans_cannot_be_written(self):
        self.give_profile()
        for figures in ([], ["--json", "-"]):
            self.assert_all_ranks_fail_where_rank_0_cannot_write("tune", *SMALL, *figures)

    def test_what_a_source_says_itself(self):
        for words, sentence in [
            (("--from", "x", "--m", 8), "--from cannot be combined with --m 8"),
            (("--from", "x", "--ranks", 8), "--from cannot be combined with --ranks 8"),
            (("--from", "x", "--dtype", "bf16"), "--from cannot be combined with --dtype bf16"),
            (("--model", "llama2-7b", "--op", "matmul-all-gather"),
             "--model cannot be combined with --op matmul-all-gather"),
            (("--from", "x", "--heads", 8), "--from cannot be combined with --heads 8"),
            (("--model", "llama2-7b", "--heads", 8), "--model cannot be combined with --heads 8"),
            (("--experts", "gpt-oss-quarter", "--heads", 8), "--experts cannot be combined with --heads 8"),
            (("--experts", "gpt-oss-quarter", "--m", "8,9"), "--experts: a layer has one plan for all batches, so --m "
                                                             "takes one number of tokens"),
            ((*SMALL, "--replicated"), "--replicated requires --experts"),
            ((*SMALL, "--heads", 8), "--heads 8 applies to matmul-all-to-all and all-to-all-matmul, and neither is in "
             "--op matmul-all-reduce"),
            (("--no-sequence-parallel", *SMALL), "--no-sequence-parallel requires --model"),
        ]:
            self.assert_says(self.plait("tune", *words), 2, f"plait tune: {sentence}")

    def test_a_wire_is_of_those_that_have_partial_sums(self):
        self.give_profile()
        self.tune("--op", "matmul-all-reduce,all-gather-matmul", *SMALL, "--transport", "threads", "--wire", "f16")
        self.assertEqual([re.search(r" wire=(\w+)", key)[1] for key, *_ in self.entries()], ["bf16", "f16"])

    def test_settings_say_where_plans_are_kept(self):
        self.environment["PLAIT_PLAN_CACHE"] = ""
        config = self.folder / "plait.toml"
        config.write_text(f"plan_cache = '{self.cache}'\n")
        self.environment["PLAIT_CONFIG"] = str(config)
        self.assertEqual(self.tune("--show"), f"There are no plans in {self.cache} yet.\n")
        config.write_text("plan_cache = 'none'\n")
        self.assert_says(self.plait("tune", "--show"), 2,
                         "plait tune: there is no file for plans; give one with --cache FILE")

    def test_a_plan_that_is_set_comes_before_what_was_measured(self):
        self.give_profile()
        problem = "op=matmul-all-reduce m=32 n=128 k=64"
        self.environment["PLAIT_PLAN"] = "pipelined parts=3"
        page = self.plait("info", "--why", problem).stdout
        self.assertIn('\nIt is "pipelined parts=3", set by plan (PLAIT_PLAN).\n', page)
        self.environment["PLAIT_CUSTOMIZED"] = "[32,32,128]=serial"
        why = json.loads(self.plait("info", "--json", "--why", problem).stdout)
        self.assertEqual((why["source"], why["setting"], why["chosen"]),
                         ("settings", "customized (PLAIT_CUSTOMIZED)", "serial"))

    def test_a_profile_that_cannot_be_read_is_measured_once_more_and_said(self):
        self.give_profile()
        Path(f"{self.cache}.profile").write_text("profile\n")
        process = self.start("tune", *SMALL, "--transport", "threads")
        said = process.stderr.readline()
        process.kill()
        process.communicate()
        self.assertIn("plait tune: measuring the profile again: ", said)

    def test_an_interrupted_run_keeps_what_it_has(self):
        self.give_profile()
        process = self.start("tune", "--m", ",".join(map(str, range(8, 1008))), *SMALL[2:])
        wait_until(lambda: self.cache.exists() and len(self.entries()) > 2, "three problems")
        process.send_signal(signal.SIGINT)
        _, said = process.communicate()
        self.assertEqual(process.returncode, 130)
        self.assertTrue(said.startswith("plait tune: SIGINT: waiting up to 5 s for "), said)
        self.assertIn(f"\nplait tune: plans measured so far are kept in {self.cache}; --missing measures the others\n",
                      said)
        self.assert_nothing_left()
        self.assertGreater(len(self.entries()), 2)
        self.assertIn("op=matmul_all_reduce m=8 ", self.plait("tune", "--show").stdout)

    def test_what_cannot_be_trusted_is_refused_and_left_alone(self):
        machine = self.give_profile()
        for text, reason in [
            (HEAD + "machine nowhere\n", f'it was measured on "nowhere", and this is "{machine}"'),
            ("plans\n", 'plans: the first line must be "plait plans 2", not "plans"'),
            (f"{HEAD}machine {machine}\nop=matmul | serial\n", "plans, line 3: it does not have 4 columns"),
            (f"{HEAD}machine {machine}\nop=all_gather_matmul m=8 n=8 k=8 x=bf16 w=bf16 out=bf16 wire=bf16 ranks=2"
             " | pipelined axis=columns parts=7 | 1 | 2\n",
             "plans, line 3: all_gather_matmul cannot run the plan \"pipelined axis=columns parts=7\""),
        ]:
            self.cache.write_text(text)
            self.assert_says(self.plait("tune", "--show"), 2, f"plait tune: {self.cache}: {reason}")
            self.assert_says(self.plait("tune", *SMALL, "--transport", "threads"), 2,
                             f"plait tune: {self.cache}: {reason}; delete it, or choose another file with --cache FILE")
            self.assertEqual(self.cache.read_text(), text)
            page = self.plait("info", "--why", "op=matmul-all-reduce m=32 n=2048 k=64").stdout
            # A cache that the user has named is refused in programs too.
            self.assertIn(f"automatic_plans() refuses: {self.cache}: {reason}.\n"
                          'Without automatic plans it is "fused".\n', page)
            self.assertIn("no particular machine; this machine's is not read either.\n", page)

    def test_a_refused_profile_is_refused_with_its_cache(self):
        self.give_profile()
        profile = Path(f"{self.cache}.profile")
        profile.write_text("profile\n")
        found = json.loads(self.plait("info", "--json", "--why", "op=matmul-all-reduce m=32 n=128 k=64").stdout)
        self.assertEqual((found["source"], found["chosen"], found["profile"]), ("default", "fused", "built in"))
        self.assertIn(str(profile), found["refusal"])

    def test_a_foreign_cache_that_nobody_has_named_is_left_alone_with_its_profile(self):
        self.environment["PLAIT_PLAN_CACHE"] = ""
        self.environment["XDG_CACHE_HOME"] = str(self.folder)
        self.cache = self.folder / "plait/plans"
        self.give_profile()
        asked = ("info", "--why", "op=matmul-all-reduce m=32 n=128 k=64")
        self.assertEqual(json.loads(self.plait(*asked, "--json").stdout)["profile"], "measured")
        self.cache.write_text(HEAD + "machine nowhere\n")
        page = self.plait(*asked).stdout
        self.assertIn(
            f'Plans are neither read nor stored: {self.cache}: it was measured on "nowhere", and this is ', page)
        self.assertIn("by the cost model", page)
        self.assertNotIn("refuses", page)
        found = json.loads(self.plait(*asked, "--json").stdout)
        self.assertEqual((found["source"], found["profile"], found["refusal"]), ("model", "built in", None))

    def test_refusals(self):
        for words, sentence in [
            ([], "--m is missing; give --m, --n and --k, or --shapes FILE"),
            (["--op", "matmul-all-to-all", *SMALL, "--heads", 5],
             "matmul_all_to_all: 128 columns are not those of 15 heads of q, k and v"),
            (["--op", "experts", *SMALL], "--op experts is a layer of a model, which --experts names"),
            (["--op", "matmul", *SMALL], "--op matmul has no plans; operators such as matmul-all-reduce have"),
            (["--model", "gpt"], "there is no model gpt; there are bloom-7b, bloom-176b, llama2-7b, llama2-70b"),
            (["--model", "llama2-7"], "there is no model llama2-7; did you mean llama2-7b?"),
            (["--model", "llama2-7b", "--n", 8], "--model llama2-7b cannot be combined with --n, --k or --shapes"),
            (["--from", "/nowhere"], "--from /nowhere cannot be read: No such file or directory"),
            (["--model", "llama2-7b", "--scale", "2"], "--scale 2 is not above 0 and up to 1"),
            (["--scale", "0.5", *SMALL], "--scale requires --model"),
            (["--show", "--scale", "0.5"], "--show concerns no problem, so it cannot be combined with --scale 0.5"),
            (["--show", "--profile"], "--show and --profile cannot be combined"),
            (["--profile", "--m", 64], "--profile concerns no problem, so it cannot be combined with --m 64"),
            (["--show", "--model", "llama2-7b"],
             "--show concerns no problem, so it cannot be combined with --model llama2-7b"),
            (["--profile", "--link", "25gbit"],
             "--profile concerns no problem, so it cannot be combined with --link 25gbit"),
            (["--profile", "--plans", 3], "--profile concerns no problem, so it cannot be combined with --plans 3"),
            (["--show", "--seconds", 5], "--show measures nothing, so it cannot be combined with --seconds 5"),
            (["--show", "--missing"], "--show concerns no problem, so it cannot be combined with --missing"),
            (["--profile", "--no-sequence-parallel"],
             "--profile concerns no problem, so it cannot be combined with --no-sequence-parallel"),
            (["--profile", "--backend", "reference"],
             "--profile measures the best backend, so it cannot be combined with --backend reference"),
            (["--op", "matmul-all-gather,all-gather-matmul", *SMALL, "--wire", "bf16"],
             "--wire bf16 applies to partial sums, and there are none in --op matmul-all-gather,all-gather-matmul"),
            (["--show", "--ranks", "5"], "--show measures nothing, so it cannot be combined with --ranks 5"),
            (["--ranks", 2, "--tp", 2, *SMALL], "--ranks and --tp mean the same; give only one of them"),
            (["--model", "llama2-7b", "--tp", 2, "--link", "fast"],
             'the link "fast" is not like "25gbit,5us": a bandwidth, a latency, or both'),
            (["all"], "unexpected word all (plait tune --help)"),
        ]:
            with self.subTest(words):
                self.assert_says(self.plait("tune", *words), 2, f"plait tune: {sentence}")
        empty = self.folder / "empty.json"
        empty.write_text('{"traceEvents": []}')
        self.assert_says(self.plait("tune", "--from", empty), 2,
                         f"plait tune: --from {empty} has no call of an operator")
        empty.write_text('{"traceEvents": [{"name": "call op=experts m=4 n=8 k=8 columns=2", "pid": 0}]}')
        self.assert_says(self.plait("tune", "--from", empty), 2,
                         f"plait tune: --from {empty}: plait records no calls of experts")
        empty.write_text("[")
        self.assert_says(self.plait("tune", "--from", empty), 2,
                         f"plait tune: --from {empty} is not a timeline written by plait")

    def test_nothing_is_written_over_what_is_read_or_kept(self):
        self.give_profile()
        self.tune(*SMALL, "--transport", "threads")
        plans = self.cache.read_text()
        profile = Path(f"{self.cache}.profile")
        figures = profile.read_text()
        shapes = self.folder / "shapes"
        shapes.write_text("8 64 64\n")
        timeline = self.folder / "timeline"
        timeline.write_text('{"traceEvents": []}')
        for words, what in [
            (["--show", "--json", self.cache], "the plan cache"),
            ([*SMALL, "--json", f"{self.cache.parent}/./{self.cache.name}"], "the plan cache"),
            ([*SMALL, "--json", profile], "the machine's profile"),
            (["--shapes", shapes, "--json", shapes], "the shapes"),
            (["--from", timeline, "--json", timeline], "the timeline"),
        ]:
            with self.subTest(words):
                self.assert_says(self.plait("tune", *words), 2,
                                 f"plait tune: --json {words[-1]} would be written over {what}")
        self.assertEqual((self.cache.read_text(), profile.read_text()), (plans, figures))
        self.assertEqual(shapes.read_text(), "8 64 64\n")

    def test_a_limit_on_files_is_an_error(self):
        self.give_profile()
        self.cache.parent.mkdir(exist_ok=True)
        limited = ["bash", "-c", 'ulimit -f 0; exec "$@"', "-", PLAIT, "tune", *map(str, SMALL), "-t", "threads"]
        result = subprocess.run(limited, env=self.environment, capture_output=True, text=True, timeout=PATIENCE)
        self.assertEqual(result.returncode, 1)
        self.assertIn("File too large", result.stderr)
        self.assertEqual([path.name for path in self.cache.parent.glob("*.tmp")], [])

    def test_folders_are_no_files(self):
        for option in ["--from", "--shapes"]:
            self.assert_says(self.plait("tune", option, self.folder), 2,
                             f"plait tune: {option} {self.folder} is a folder, not a file")

    def test_why_names_a_plan_that_nobody_proposes(self):
        asked = "op=reduce-scatter-matmul m=512 n=512 k=512"
        self.environment["PLAIT_PLAN"] = "pipelined parts=13"
        page = self.plait("info", "--why", asked).stdout
        self.assertRegex(page, r"(?m)^pipelined parts=13 \*  ")
        found = json.loads(self.plait("info", "--json", "--why", asked).stdout)
        self.assertIn(found["chosen"], [plan["plan"] for plan in found["plans"]])

    def test_why_refuses_what_there_is_not(self):
        asked = "op=matmul-all-reduce m=8 n=8 k=8"
        self.assertIn("there is no backend banana", self.plait("info", "--why", asked, "backend=banana").stderr)
        self.assertIn("there is no transport banana", self.plait("info", "--why", asked, "transport=banana").stderr)

    def test_what_is_refused_leaves_nothing_behind(self):
        whole = ("--m", 1 << 20, "--n", 1 << 20, "--k", 1 << 20)
        result = self.plait("tune", *whole, "--transport", "threads")
        self.assertEqual(result.returncode, 2)
        self.assertIn("m=1048576 n=1048576 k=1048576 with ", result.stderr)
        self.assertEqual(list(self.folder.iterdir()), [])
        for words in ([*SMALL], ["--profile"]):
            self.assert_says(self.plait("tune", *words, "--transport", "threads", "--cache", "/dev/null/sub/plans"), 1,
                             "plait tune: cannot create the folder /dev/null/sub: Not a directory")


if __name__ == "__main__":
    unittest.main()
