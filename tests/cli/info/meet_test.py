"""plait info --meet: ranks say which others they have found, and how they reach them."""

import json
import platform
import socket
import tempfile
import unittest
from pathlib import Path

from command import PLAIT
from info_case import InfoCase


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
            self.assertIsNone(one["link"])
            self.assertEqual({(peer["host"], peer["route"]) for peer in one["peers"]},
                             {(name, "shm: memory of this host that both ranks map")})

    def test_one_machine_that_simulates_two_hosts(self):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        with tempfile.TemporaryDirectory() as cache:
            run = self.plait("run", "-n", "2", "-p", "--", "sh", "-c",
                             f"PLAIT_HOST=node$PLAIT_RANK PLAIT_RENDEZVOUS=127.0.0.1:{port} exec {PLAIT} info --meet",
                             env={**self.environment, "PLAIT_PLAN_CACHE": f"{cache}/plans"})
            kept = Path(cache, "plans.links").read_text()
        self.assertEqual((run.returncode, run.stderr), (0, ""))
        self.assertIn("\n2 ranks on 2 hosts, tcp: 127.0.0.1 (lo) to 127.0.0.1 | ", kept)
        said = [line[4:] for line in run.stdout.splitlines() if line.startswith("[0] ")]
        link = next(at for at, line in enumerate(said) if line.startswith("Link "))
        self.assertRegex(" ".join(line.strip() for line in said[link:]),
                         r"^Link +[0-9.]+ Gbit/s in both directions at once, latency .*s; each GB takes "
                         r"[0-9.]+ s of a processor that multiplies$")
        self.assertEqual(said[:link], ["This is     rank 0 of 2 on 2 hosts, by the variables of plait run, over tcp",
                                "Secret      PLAIT_SECRET is not set: the network is trusted",
                                "Hosts       node0: rank 0",
                                "            node1: rank 1",
                                "Peers       rank 1 on node1: tcp: 127.0.0.1 (lo) to 127.0.0.1; no shared memory, "
                                "because its",
                                "            PLAIT_HOST is another"])

    def test_there_is_no_other_rank(self):
        self.assert_says(self.plait("info", "--meet"), 2, "plait info: --meet: no launcher has started ranks; try "
                                                          "plait run -n 2 -p plait info --meet")


if __name__ == "__main__":
    unittest.main()
