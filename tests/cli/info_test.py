"""plait info: transports have reasons where they are absent, however the command is started."""

import json
import os
import subprocess
import unittest
from pathlib import Path

from command import PATIENCE
from info_case import InfoCase

HAS_UCX = os.environ.get("PLAIT_HAS_UCX")
HAS_CUDA = os.environ.get("PLAIT_HAS_CUDA")


class InfoTest(InfoCase):
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

    def test_gpus_have_a_reason_where_there_is_no_plugin(self):
        self.environment["PLAIT_PLUGIN_PATH"] = "/nowhere"
        self.assertEqual(self.json()["gpus"], {
            "refusal": "its plugin libplait_cuda.so is not in PLAIT_PLUGIN_PATH, /nowhere", "devices": []})
        self.assertIn("GPUs cuda no its plugin libplait_cuda.so is not in", " ".join(self.plait("info").stdout.split()))

    @unittest.skipUnless(HAS_CUDA, "the plugin for GPUs is not built")
    def test_gpus_are_listed_or_there_is_a_reason(self):
        gpus = self.json()["gpus"]
        if Path("/dev/nvidia0").exists():
            self.assertIsNone(gpus["refusal"])
            self.assertEqual(gpus["devices"][0]["device"], "cuda:0")
            self.assertGreater(gpus["devices"][0]["multiprocessors"], 0)
        else:
            self.assertEqual(gpus["devices"], [])
            self.assertRegex(gpus["refusal"], "there is no driver for NVIDIA GPUs here|the driver finds no GPU here")

    def test_the_plugin_is_found_however_the_command_is_started(self):
        command = Path(os.environ["PLAIT_COMMAND"]).resolve()
        by_path = self.json()["transports"]
        self.environment["PATH"] = f"{command.parent}:{os.environ['PATH']}"
        by_name = subprocess.run([command.name, "info", "--json"], env=self.environment, cwd="/",
                                 capture_output=True, text=True, timeout=PATIENCE, check=True)
        self.assertEqual(json.loads(by_name.stdout)["transports"], by_path)


if __name__ == "__main__":
    unittest.main()
