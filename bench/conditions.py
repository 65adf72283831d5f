"""The conditions of a measurement, for the document that it writes."""

import datetime
import os
import subprocess
from pathlib import Path


def processor() -> str:
    """The name with family and model, because the name of a virtual machine's processor is not specific."""
    found = {}
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        key, _, value = line.partition(":")
        found.setdefault(key.strip(), value.strip())
    return f"{found.get('model name', 'unknown')} (family {found.get('cpu family')}, model {found.get('model')})"


def commit() -> dict:
    """The commit of the sources; nothing for sources without git."""
    words = ["git", "-C", Path(__file__).parent, "describe", "--always", "--dirty"]
    try:
        return {"commit": subprocess.run(words, capture_output=True, text=True, check=True).stdout.strip()}
    except (OSError, subprocess.CalledProcessError):
        return {}


def now() -> dict:
    # A run under `chrt -r 1` keeps other programs off the processors.
    is_real_time = os.sched_getscheduler(0) in (os.SCHED_FIFO, os.SCHED_RR)
    return {"date": str(datetime.date.today()), "processor": processor(), **commit(),
            "load": round(os.getloadavg()[0], 1), **({"priority": "real-time"} if is_real_time else {})}
