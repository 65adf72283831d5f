"""plait info --json: every key is there, and reasons are where something is absent."""

import os
import unittest

from info_case import InfoCase


class JsonTest(InfoCase):
    def test_json_has_every_key(self):
        found = self.json()
        self.assertEqual(list(found), ["plait", "host", "processor", "memory", "usable", "place", "network",
                                       "settings", "unknown_settings", "refused_settings", "transports", "backends",
                                       "gpus"])
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

    def test_its_place(self):
        self.assertIsNone(self.json()["place"]["launcher"])
        result = self.plait("run", "-n", 2, "-p", os.environ["PLAIT_COMMAND"], "info")
        self.assertIn("[1] Place       rank 1 of 2 on 1 host, by the variables of plait run", result.stdout)
        self.environment |= {"RANK": "5", "WORLD_SIZE": "2"}
        problem = self.json()["place"]["problem"]
        self.assertEqual(problem, "RANK=5 is not a whole number from 0 to 1")


if __name__ == "__main__":
    unittest.main()
