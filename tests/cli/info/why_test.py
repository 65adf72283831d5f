"""plait info --why: the transports of a problem, and why one of them is chosen."""

import unittest

from info_case import InfoCase


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
                             "Although all ranks are on one host, they reach each other over TCP.")):
            page = self.plait("info", "--why", *words).stdout
            self.assertTrue(page.endswith(f"\nIt is tcp.\n{ways}\n"), page)
            self.assertEqual(self.json("--why", *words)["ways"], ways)
        self.assertIsNone(self.json("--why", "ranks=2")["ways"])

    def test_what_it_cannot_explain(self):
        cases = {
            "m=4096": 'matmul: "m=4096" lacks one of m=, n= and k=',
            "m=8 n=4 k=": "matmul: k= is not a size",
            "m=8 n=4 k=4 x=f64": "matmul: x=f64 is no dtype; there are f32, bf16 and f16",
            "m=8 n=4 k=4 w=f64": "matmul: w=f64 is no weight; there are f32, bf16, f16, and schemes "
                                 "such as s8:channel or s4:group=64:offsets",
            "m=8 ranks=4": "--why ranks=4: a product consists of m=, n=, k=, x=, w= and out=, and "
                           "optionally backend=NAME",
            "m=8 n=4 k=4 backend=vectr": "there is no backend vectr; did you mean vector?",
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
