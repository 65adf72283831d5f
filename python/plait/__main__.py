"""`python -m plait` and the script `plait` are the command that lies in this package."""

import os
import sys
from pathlib import Path

from plait import _package


def main() -> None:
    """Become the command: its exit status, its signals and its output are this process's."""
    command = Path(__file__).parent / "bin" / "plait"
    if not command.exists():
        sys.exit(
            f"plait was installed without its command, which would be {command}. Install it with "
            "the packages that the command needs: CLI11, fmt, nlohmann-json and hwloc."
        )
    if _package.own_openmp:  # the system has none, and the command needs it as the package does
        paths = [_package.own_openmp, os.environ.get("LD_LIBRARY_PATH")]
        os.environ["LD_LIBRARY_PATH"] = ":".join(filter(None, paths))
    os.execv(command, [str(command), *sys.argv[1:]])


if __name__ == "__main__":
    main()
