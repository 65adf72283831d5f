"""Shared by tests of settings: an environment without any, a file for some, and what plait info says."""

import json
import re
import tempfile
from pathlib import Path

from command import CommandTest


class SettingsCase(CommandTest):
    def setUp(self):
        super().setUp()
        ours = re.compile("PLAIT_|COC_|USE_COC_")
        mark = self.mark.split("=")[0]
        self.environment = {name: value for name, value in self.environment.items()
                            if name == mark or not ours.match(name)}
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.file = Path(folder.name, "plait.toml")

    def write(self, text):
        self.file.write_text(text)
        self.environment["PLAIT_CONFIG"] = str(self.file)

    def json(self, *words):
        result = self.plait("info", "--json", *words)
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        return json.loads(result.stdout)

    def remarks(self):
        """The remarks on settings, without the one on the variable that marks a test's processes."""
        remarks = self.json("--settings")["remarks"]
        return [one for one in remarks if not one.startswith("PLAIT_TEST_MARK: ")]

    def found(self):
        """The settings by name: value and origin."""
        settings = self.json("--settings")["settings"]
        return {one["name"]: (one["value"], one["from"]) for one in settings}
