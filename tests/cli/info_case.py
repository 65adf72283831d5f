"""Shared by tests of plait info: no launcher is there, and its output as JSON."""

import json

from command import CommandTest


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
