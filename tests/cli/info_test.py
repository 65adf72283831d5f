"""plait info: its output is true for this machine, as text and as JSON."""

import json
import os
import platform
import re
import subprocess
import unittest
from pathlib import Path

from command import PATIENCE, PLAIT, CommandTest


HAS_UCX = os.environ.get("PLAIT_HAS_UCX")
SETS = ["sse2", "avx2", "avx512", "avx512-bf16", "amx"]  # instruction sets; each includes those before it


class InfoCase(CommandTest):
    def setUp(self):
        super().setUp()
        # The test itself may run under a launcher.
        for name in ("PLAIT_RANK PLAIT_WORLD_SIZE RANK WORLD_SIZE LOCAL_WORLD_SIZE SLURM_PROCID "
                     "OMPI_COMM_WORLD_RANK OMPI_COMM_WORLD_SIZE PLAIT_TRANSPORT").split():
            self.environment.pop(name, None)

    def json(self, *words, status=0):
        result = self.plait("info", "--json", *words)
        self.assertEqual(result.stderr, "")
        if status is not None:
            self.assertEqual(result.returncode, status)
        return json.loads(result.stdout)


class MeetTest(InfoCase):
    def test_ranks_of_one_host(self):
        run = self.plait("run", "-n", "3", "--", PLAIT, "info", "--meet", "--json")
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        found = json.JSONDecoder()
        rest, ranks = run.stdout.strip(), []
        while rest:
            one, end = found.raw_decode(rest)
            rest = rest[end:].lstrip()
            ranks.append(one)
        name = platform.node()
        for rank, one in enumerate(sorted(ranks, key=lambda one: one["rank"])):
            self.assertEqual((one["rank"], one["world"], one["transport"], one["has_secret"]), (rank, 3, "shm", False))
            self.assertEqual(one["hosts"], [{"name": name, "ranks": [0, 1, 2]}])
            self.assertEqual([peer["rank"] for peer in one["peers"]], [peer for peer in range(3) if peer != rank])
            self.assertEqual({(peer["host"], peer["route"]) for peer in one["peers"]},
                             {(name, "shm: memory of this host that both ranks map")})

    def test_there_is_no_other_rank(self):
        self.assert_says(self.plait("info", "--meet"), 2, "plait info: --meet: no launcher has started ranks; try "
                                                          "plait run -n 2 -p plait info --meet")


class InfoTest(InfoCase):
    def test_json_has_every_key(self):
        found = self.json()
        self.assertEqual(list(found), ["plait", "host", "processor", "memory", "usable", "place", "network",
                                       "settings", "unknown_settings", "refused_settings", "transports", "backends"])
        self.assertEqual(list(found["host"]), ["name", "system", "kernel", "machine"])
        self.assertEqual(list(found["processor"]),
                         ["model", "packages", "cores", "cpus", "features", "instruction_set", "caches"])
        self.assertEqual(list(found["memory"]),
                         ["bytes", "available_bytes", "page_bytes", "huge_pages",
                          "transparent_huge_pages", "shared_memory_huge_pages", "numa_nodes"])
        self.assertEqual(list(found["usable"]),
                         ["cores", "cpus", "cgroup_cpus", "cgroup_memory_bytes"])
        self.assertEqual(list(found["place"]), ["launcher", "rank", "world", "hosts", "problem"])
        self.assertEqual(list(found["network"]), ["interface", "addresses", "rendezvous", "has_secret", "problem"])

    def test_it_is_this_machine(self):
        found = self.json()
        self.assertEqual(found["host"]["kernel"], platform.release())
        self.assertEqual(found["host"]["machine"], platform.machine())
        self.assertEqual(found["memory"]["page_bytes"], os.sysconf("SC_PAGESIZE"))
        self.assertEqual(found["usable"]["cpus"], sorted(os.sched_getaffinity(0)))
        self.assertGreaterEqual(found["processor"]["cpus"], found["usable"]["cores"])
        total = os.sysconf("SC_PAGESIZE") * os.sysconf("SC_PHYS_PAGES")
        self.assertAlmostEqual(found["memory"]["bytes"] / total, 1, delta=0.1)
        with open("/proc/cpuinfo") as cpuinfo:
            flags = set(cpuinfo.read().split())
        for feature, there in found["processor"]["features"].items():
            self.assertEqual(there, feature in flags, feature)

    def test_the_affinity_mask_is_what_it_may_use(self):
        last = max(os.sched_getaffinity(0))
        result = self.plait("info", "--json", preexec_fn=lambda: os.sched_setaffinity(0, {last}))
        self.assertEqual(json.loads(result.stdout)["usable"]["cpus"], [last])

    def test_transports_have_reasons_where_they_are_absent(self):
        transports = {one["name"]: one for one in self.json()["transports"]}
        self.assertEqual(list(transports), ["threads", "shm", "tcp", "mpi", "ucx"])
        for one in transports.values():
            self.assertEqual(one["refusal"] is None, one["available"])
        self.environment["PLAIT_PLUGIN_PATH"] = "/nowhere"
        for plugin in self.json()["transports"][3:]:
            self.assertFalse(plugin["available"])
            self.assertIn("is not in PLAIT_PLUGIN_PATH, /nowhere", plugin["refusal"])
            self.assertIn(plugin["refusal"], " ".join(self.plait("info").stdout.split()))

    @unittest.skipUnless(HAS_UCX, "the ucx transport is not built")
    def test_ucx_is_there(self):
        self.assertIsNone(self.json()["transports"][4]["refusal"])

    def test_it_says_whether_the_network_is_trusted_and_shows_no_secret(self):
        def summary():
            return " ".join(self.plait("info").stdout.split())
        self.environment.pop("PLAIT_SECRET", None)
        self.assertIn("the network is trusted, because PLAIT_SECRET is not set", summary())
        self.environment["PLAIT_SECRET"] = "0123456789abcdef"
        self.assertIn("each rank proves that it knows PLAIT_SECRET", summary())
        self.assertNotIn("0123456789abcdef", self.plait("info").stdout + self.plait("info", "--json").stdout)
        self.environment["PLAIT_SECRET"] = "short"
        self.assertIn("refused: PLAIT_SECRET has 5 characters, which can be guessed; 16 are the least", summary())

    def test_the_plugin_is_found_however_the_command_is_started(self):
        command = Path(os.environ["PLAIT_COMMAND"]).resolve()
        by_path = self.json()["transports"]
        self.environment["PATH"] = f"{command.parent}:{os.environ['PATH']}"
        by_name = subprocess.run([command.name, "info", "--json"], env=self.environment, cwd="/",
                                 capture_output=True, text=True, timeout=PATIENCE, check=True)
        self.assertEqual(json.loads(by_name.stdout)["transports"], by_path)

    def test_its_place(self):
        self.assertIsNone(self.json()["place"]["launcher"])
        result = self.plait("run", "-n", 2, "-p", os.environ["PLAIT_COMMAND"], "info")
        self.assertIn("[1] Place       rank 1 of 2 on 1 host, started by plait run", result.stdout)
        self.environment |= {"RANK": "5", "WORLD_SIZE": "2"}
        problem = self.json()["place"]["problem"]
        self.assertEqual(problem, "RANK=5 is not a whole number from 0 to 1")

    def test_which_of_its_variables_are_set(self):
        for name in [name for name in self.environment if name.startswith("PLAIT_")]:
            del self.environment[name]
        self.assertEqual(self.json()["settings"], {})
        self.assertIn("\nSettings    no variable PLAIT_... is set\n", self.plait("info").stdout)
        for name, value, sentence in [
            ("PLAIT_PLAN", "fuzed", "PLAIT_PLAN=fuzed: fuzed is neither a schedule"),
            ("PLAIT_TRANSPORT", "foo", "there is no transport foo; there are threads, shm, tcp, mpi, ucx"),
            ("PLAIT_LINK", "rope", 'PLAIT_LINK: the link "rope" is not like "25gbit,5us"'),
            ("PLAIT_TIMEOUT", "abc", "PLAIT_TIMEOUT=abc is not a duration"),
            ("PLAIT_ISA", "avx", "PLAIT_ISA=avx is none of sse2, avx2, avx512, avx512-bf16, amx"),
        ]:
            self.environment[name] = value
            self.assertIn(f"{name}={value}\n              refused: {sentence}", self.plait("info").stdout)
            self.assertIn(sentence, self.json()["refused_settings"])
            del self.environment[name]
        self.assertEqual(self.json()["refused_settings"], "")
        self.environment |= {"PLAIT_TIMEOUT": "5s", "PLAIT_LINK": "1gbit,5us", "PLAITED": "no"}
        self.assertEqual(self.json()["settings"], {"PLAIT_LINK": "1gbit,5us", "PLAIT_TIMEOUT": "5s"})
        self.assertIn("\nSettings    PLAIT_LINK=1gbit,5us\n            PLAIT_TIMEOUT=5s\n",
                      self.plait("info").stdout)

    @unittest.skipUnless(platform.machine() == "x86_64", "this processor has no x86 instructions")
    def test_kernels_use_no_more_than_they_may(self):
        self.environment.pop("PLAIT_ISA", None)
        usual = self.json()
        best = SETS.index(usual["processor"]["instruction_set"])
        self.assertNotIn("PLAIT_ISA", usual["processor"]["model"])
        for i, name in enumerate(SETS):
            with self.subTest(name):
                self.environment["PLAIT_ISA"] = name
                found = self.json()
                self.assertEqual(found["processor"]["instruction_set"], SETS[min(i, best)])
                model = usual["processor"]["model"] + (f", PLAIT_ISA={name}" if i < best else "")
                self.assertEqual(found["processor"]["model"], model)
                self.assertIn(f"\n  uses      {SETS[min(i, best)]}\n", self.plait("info").stdout)
                left_out = [reason for one in found["backends"] for reason in one["refusals"].values()
                            if reason.startswith("PLAIT_ISA leaves out ")]
                self.assertEqual(bool(left_out), i < min(best, SETS.index("avx512-bf16")) or i < best == 4)
                if i < SETS.index("avx512-bf16"):
                    able = {operand for one in found["backends"] for operand in one["operands"]}
                    self.assertEqual(able, {"f32"})

    def test_an_unknown_limit_of_kernels_stops_what_multiplies(self):
        self.environment["PLAIT_ISA"] = "avx"
        self.assertIsNone(self.json()["processor"]["instruction_set"])
        result = self.plait("bench", "matmul", "--m", 1, "--n", 64, "--k", 64, "--repeat", 1)
        sentence = "PLAIT_ISA=avx is none of sse2, avx2, avx512, avx512-bf16, amx"
        self.assert_says(result, 2, f"plait bench: {sentence}")

    def test_people_get_lines_that_fit_and_no_colours(self):
        page = self.plait("info").stdout
        self.assertLessEqual(max(map(len, page.splitlines())), 100)
        self.assertNotIn("\x1b", page)
        labels = re.findall(r"^(\S.*?)  ", page, re.MULTILINE)
        self.assertEqual(labels, ["Host", "Processor", "Caches", "NUMA", "Memory", "Huge pages",
                                  "Usable", "Place", "Network", "Settings", "Transports", "Backends"])
        self.assertRegex(page, r"\n {12}reference  yes  f32\n$")

    def test_backends_have_reasons_where_they_are_absent(self):
        backends = self.json()["backends"]
        kernels = {"amx": ["bf16"], "vector": ["bf16", "f32"], "xsmm": ["bf16", "f32"],
                   "reference": ["f32"]}
        self.assertEqual([one["name"] for one in backends], list(kernels))
        page = " ".join(self.plait("info").stdout.split())
        for one in backends:
            self.assertEqual(one["available"], bool(one["operands"]))
            self.assertEqual(sorted([*one["operands"], *one["refusals"]]), kernels[one["name"]])
            for reason in one["refusals"].values():
                self.assertIn(reason, page)


class WhyTest(InfoCase):
    def test_the_walk(self):
        found = self.json("--why", "ranks=4")
        self.assertEqual(found["problem"],
                         {"ranks": 4, "hosts": 1, "launcher": "plait run", "transport": None})
        self.assertEqual(found["chosen"], "shm")
        walk = {step["name"]: step for step in found["walk"]}
        self.assertEqual(list(walk), ["threads", "shm", "tcp", "mpi", "ucx"])
        self.assertFalse(walk["threads"]["can"])
        self.assertIn("not processes", walk["threads"]["answer"])
        self.assertTrue(walk["shm"]["can"])

    def test_a_rank_alone_and_the_environment(self):
        self.assertEqual(self.json("--why")["chosen"], "threads")
        self.environment |= {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2", "MASTER_ADDR": "host"}
        found = self.json("--why")
        self.assertEqual((found["chosen"], found["problem"]["launcher"]), ("shm", "torch.distributed"))
        self.environment["PLAIT_TRANSPORT"] = "threads"
        self.assertIsNone(self.json("--why", status=1)["chosen"])

    def test_no_transport_can(self):
        self.environment["PLAIT_PLUGIN_PATH"] = "/nowhere"
        found = self.json("--why", "ranks=4", "hosts=2", "launcher=mpirun", status=1)
        self.assertIsNone(found["chosen"])
        self.assertFalse(any(step["can"] for step in found["walk"]))
        page = self.plait("info", "--why", "ranks=4,hosts=2").stdout
        # plait run starts ranks on one host only, so it is not assumed.
        self.assertIn("The transport for 4 ranks on 2 hosts, started by Open MPI", page)
        self.assertIn("  shm      no   shares the memory of one host; these ranks are on 2\n", page)
        self.assertTrue(page.endswith("None can be used, so connect() will fail.\n"))

    def test_people_get_the_same_walk(self):
        page = self.plait("info", "--why", "transport=shm", "ranks=2").stdout
        self.assertIn("The transport for 2 ranks on 1 host, started by plait run, requested: shm", page)
        self.assertIn("\n  shm      yes  chosen: requested\n", page)
        self.assertTrue(page.endswith("\nIt is shm.\n"))

    def test_by_what_ranks_over_tcp_reach_each_other(self):
        self.environment["PLAIT_RENDEZVOUS"] = "node1:29600"
        mixed = "Ranks of one host reach each other through shared memory if they can map it, others over TCP."
        for words, ways in ((["ranks=4", "hosts=2"], mixed),
                            (["ranks=2", "hosts=2"], "Each rank is on a host of its own."),
                            (["ranks=2", "transport=tcp"],
                             "All ranks are on one host, and reach each other over TCP all the same.")):
            page = self.plait("info", "--why", *words).stdout
            self.assertTrue(page.endswith(f"\nIt is tcp.\n{ways}\n"), page)
            self.assertEqual(self.json("--why", *words)["ways"], ways)
        self.assertIsNone(self.json("--why", "ranks=2")["ways"])

    def test_the_backends_of_a_product(self):
        found = self.json("--why", "m=8 n=4096 k=4096 x=f32 w=f32 out=bf16")
        self.assertEqual(found["problem"],
                         {"product": "m=8 n=4096 k=4096 x=f32 w=f32 out=bf16", "backend": None})
        walk = found["walk"]
        self.assertEqual([(step["name"], step["operand"]) for step in walk],
                         [("amx", "bf16"), ("vector", "bf16"), ("xsmm", "bf16"), ("vector", "f32"),
                          ("xsmm", "f32"), ("reference", "f32")])
        self.assertFalse(walk[0]["can"])
        able = [step for step in walk if step["can"]]
        self.assertEqual((able[0]["name"], found["chosen"]), ("vector", "vector"))
        self.assertEqual(able[0]["answer"], "chosen: the first usable one")
        self.assertEqual({step["answer"] for step in able[1:]},
                         {"usable, but vector (f32) comes first"})

    def test_a_backend_that_was_asked_for(self):
        product = ["m=8,n=4", "k=4", "x=f32"]
        page = self.plait("info", "--why", *product, "backend=vector").stdout
        self.assertTrue(page.startswith("The backend for m=8 n=4 k=4 x=f32 w=bf16 out=bf16, requested: "
                                        "vector\n\n  amx (bf16)       no   "))
        self.assertIn("\n  reference (f32)  yes  usable, but vector was requested\n", page)
        self.assertTrue(page.endswith("\nIt is vector.\n"))
        self.assertIsNone(self.json("--why", *product, "backend=amx", status=1)["chosen"])

    def test_a_quantised_weight(self):
        found = self.json("--why", "m=1 n=4 k=256 w=s8:group=128")
        self.assertEqual(found["problem"]["product"],
                         "m=1 n=4 k=256 x=bf16 w=s8:group=128 out=bf16")
        self.assertIsNotNone(found["chosen"])

    def test_a_backend_that_has_two_kernels(self):
        found = self.json("--why", "m=8 n=4 k=4 x=f32 backend=xsmm", status=None)
        mine = [step for step in found["walk"] if step["name"] == "xsmm"]
        self.assertEqual([step["operand"] for step in mine], ["bf16", "f32"])
        self.assertFalse(mine[0]["can"])
        self.assertEqual(found["chosen"], "xsmm" if mine[1]["can"] else None)

    def test_what_it_cannot_explain(self):
        cases = {
            "m=4096": 'matmul: "m=4096" lacks one of m=, n= and k=',
            "m=8 n=4 k=": "matmul: k= is not a size",
            "m=8 n=4 k=4 x=f64": "matmul: x=f64 is no dtype; there are f32, bf16 and f16",
            "m=8 n=4 k=4 w=f64": "matmul: w=f64 is no weight; there are f32, bf16, f16, and schemes "
                                 "such as s8:channel or s4:group=64:offsets",
            "m=8 ranks=4": "--why ranks=4: a product consists of m=, n=, k=, x=, w= and out=, and "
                           "optionally backend=NAME",
            "m=8 n=4 k=4 backend=xsm": "there is no backend xsm; did you mean xsmm?",
            "m=8 backend=": "--why backend= has no value; write backend=...",
            "schedule=fused":
                "--why schedule=fused: to ask for the plan of an operator, write op=NAME m=M n=N k=K, such as "
                "op=matmul-all-reduce",
            "rnks=3": "--why rnks=3: a problem consists of ranks=N, hosts=N, launcher=NAME and "
                      "transport=NAME, or of a product's m=, n= and k=; did you mean ranks?",
            "ranks=0": "--why ranks=0 is not a whole number from 1 to 65536",
            "ranks": "--why ranks has no value; write ranks=...",
            "hosts=3": "--why: 1 rank cannot run on 3 hosts",
            "transport=shn": "there is no transport shn; did you mean shm?",
            "launcher=foo": "--why launcher=foo is none of run, torchrun, "
                            "mpirun, srun, hydra",
        }
        for word, sentence in cases.items():
            with self.subTest(word):
                self.assert_says(self.plait("info", "--why", word), 2, "plait info: " + sentence)
        self.assert_says(self.plait("info", "ranks=2"), 2,
                         "plait info: unexpected word ranks=2 (plait info --help)")


if __name__ == "__main__":
    unittest.main()
