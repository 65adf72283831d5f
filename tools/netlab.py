#!/usr/bin/env python3
"""Several hosts on one machine: network namespaces, joined by a cable or a switch whose rate can be limited.

    tools/netlab.py -- build/release/tests/comm/rank_program          a rank on each of two hosts
    tools/netlab.py --hosts 3 --rate 5gbit --pin -- build/release/app/cli/plait bench matmul-all-reduce \\
      --m 1024 --n 4096 --k 1024
    tools/netlab.py --check                                           may this user make namespaces here?

Each COMMAND gets the variables that torchrun would set, so a program that uses plait runs as it is. Hosts have the
addresses 10.77.0.1, 10.77.0.2, ... on an interface v0, and names of their own; file systems and processes are shared.
Everything is removed when the commands have ended, and when this program is interrupted; what a killed run has left
is removed by the next one. It needs root.

Exit status: 0 all commands succeeded; otherwise the first failed command's; 77 namespaces are not allowed here; 2
wrong usage.
"""

from __future__ import annotations

import argparse
import os
import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import TracebackType

NOT_ALLOWED = 77
ENDING = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM)
MASTER_PORT = "29500"
LAUNCHERS = re.compile("^(PLAIT_|OMPI_|PMIX_|PMI_|SLURM_|RANK$|WORLD_SIZE$|LOCAL_|MASTER_|TORCHELASTIC_)")

# Small enough that a queue that is full delays nothing for longer than a network would.
QUEUE = ("burst", "256kb", "latency", "200ms")


def bare_environment() -> dict[str, str]:
    """The variables of this process without those that would tell a program its place among ranks."""
    return {name: value for name, value in os.environ.items() if not LAUNCHERS.match(name)}


def _call(*words: str) -> str:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        said = done.stderr.strip().splitlines() or [f"exit status {done.returncode}"]
        raise OSError(f"{shlex.join(words)}: {said[0]}")
    return done.stdout


def _start_time(pid: str) -> str:
    """When a process started, in the kernel's ticks; empty: it has ended. Process ids are reused."""
    try:
        stat = Path("/proc", pid, "stat").read_text(encoding="utf-8")
    except OSError:
        return ""
    return stat.rpartition(")")[2].split()[19]


def _remove(namespace: str) -> None:
    # A namespace lives as long as a process in it.
    pids = subprocess.run(["ip", "netns", "pids", namespace], capture_output=True, text=True, check=False)
    for pid in pids.stdout.split():
        try:
            os.kill(int(pid), signal.SIGKILL)
        except ProcessLookupError:
            pass
    subprocess.run(["ip", "netns", "del", namespace], capture_output=True, check=False)


def remove_stale() -> None:
    """Remove the namespaces of labs whose processes are dead."""
    for line in _call("ip", "netns", "list").splitlines():
        found = re.match(r"netlab-(\d+)-(\d+)-\w+", line)
        if found and _start_time(found[1]) != found[2]:
            _remove(found[0])


def refusal() -> str:
    """Why there can be no lab here, as a sentence; empty: there can."""
    try:
        with Lab() as lab:
            _call(*lab.command(1, "true"))
    except OSError as error:
        return f"the system allows no network namespaces: {error}"
    return ""


class Lab:
    """Hosts while the `with` block lasts. The first one is host 0."""

    def __init__(self, hosts: int = 2, rate: str | None = None) -> None:
        mine = f"netlab-{os.getpid()}-{_start_time(str(os.getpid()))}"
        self.names = [f"{mine}-{host}" for host in range(hosts)]
        self.switch = f"{mine}-switch" if hosts != 2 else None
        self.rate = rate

    def __enter__(self) -> "Lab":
        try:
            remove_stale()
            for name in self._namespaces():
                _call("ip", "netns", "add", name)
            for host in range(len(self.names)):
                self.ip(host, "link", "set", "lo", "up")
            self.connect("v0", "10.77.0")
            if self.rate is not None:
                self.limit(self.rate)
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, kind: type | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()

    def close(self) -> None:
        """Kill what runs on the hosts, and remove them."""
        before = signal.pthread_sigmask(signal.SIG_BLOCK, ENDING)  # a signal must not end it half-way
        try:
            for name in self._namespaces():
                _remove(name)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)

    def _namespaces(self) -> list[str]:
        return [*self.names, *([self.switch] if self.switch else [])]

    def ip(self, host: int, *words: str) -> str:
        """Call `ip` on a host."""
        return _call("ip", "-n", self.names[host], *words)

    def connect(self, interface: str, network: str) -> None:
        """Give each host an interface: the ends of a cable between two, ports of a switch for others."""
        if self.switch is None:
            first, second = self.names
            ends = ("type", "veth", "peer", "name", interface, "netns", second)
            _call("ip", "link", "add", interface, "netns", first, *ends)
        else:
            bridge = f"b{interface}"
            _call("ip", "-n", self.switch, "link", "add", bridge, "type", "bridge")
            _call("ip", "-n", self.switch, "link", "set", bridge, "up")
            for host, name in enumerate(self.names):
                port = f"{interface}p{host}"
                ends = ("type", "veth", "peer", "name", port, "netns", self.switch)
                _call("ip", "link", "add", interface, "netns", name, *ends)
                _call("ip", "-n", self.switch, "link", "set", port, "master", bridge, "up")
        for host in range(len(self.names)):
            self.ip(host, "addr", "add", f"{network}.{host + 1}/24", "dev", interface)
            self.ip(host, "link", "set", interface, "up")
        for host in range(len(self.names)):
            self._wait_up(host, interface)

    def limit(self, rate: str | None, interface: str = "v0") -> None:
        """Limit what each host sends and receives, to such as "5gbit"; None: no limit."""
        ends = [(name, interface) for name in self.names]
        if self.switch is not None:
            ends += [(self.switch, f"{interface}p{host}") for host in range(len(self.names))]
        for name, device in ends:
            if rate is None:
                subprocess.run(["tc", "-n", name, "qdisc", "del", "dev", device, "root"], capture_output=True,
                               check=False)  # it fails where there was no limit
            else:
                _call("tc", "-n", name, "qdisc", "replace", "dev", device, "root", "tbf", "rate", rate, *QUEUE)

    def _wait_up(self, host: int, interface: str) -> None:
        # The kernel notices the other end a moment later, and what is sent before is lost.
        deadline = time.monotonic() + 5
        while "state UP" not in self.ip(host, "-o", "link", "show", "dev", interface):
            if time.monotonic() > deadline:
                raise OSError(f"the interface {interface} of host {host} doesn't come up")
            time.sleep(0.01)

    def cut(self, host: int, interface: str = "v0") -> None:
        """Take a host off the network."""
        self.ip(host, "link", "set", interface, "down")

    def mend(self, host: int, interface: str = "v0") -> None:
        """Connect a host again."""
        self.ip(host, "link", "set", interface, "up")
        self._wait_up(host, interface)

    def address(self, host: int) -> str:
        """The address of a host on v0."""
        return f"10.77.0.{host + 1}"

    def command(self, host: int, *words: str, cpu: int | None = None, clock_ahead: int = 0) -> list[str]:
        """The words with which a command runs on a host, perhaps on one processor, or with another clock."""
        made = ["ip", "netns", "exec", self.names[host]]
        made += ["unshare", "--uts", "sh", "-c", 'hostname "$0" && exec "$@"', f"host{host}"]
        if cpu is not None:
            made += ["taskset", "-c", str(cpu)]
        if clock_ahead != 0:
            # Some kernels let only a child enter the new time namespace.
            made += ["unshare", "--time", "--fork", "--kill-child", "--monotonic", str(clock_ahead)]
        return [*made, *words]

    def place(self, rank: int, world: int, host: int, local_rank: int, local_world: int) -> dict[str, str]:
        """The environment of a rank, as torchrun would set it."""
        return {**bare_environment(), "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": str(local_rank),
                "LOCAL_WORLD_SIZE": str(local_world), "GROUP_RANK": str(host), "MASTER_ADDR": self.address(0),
                "MASTER_PORT": MASTER_PORT, "GLOO_SOCKET_IFNAME": "v0"}

    def start_ranks(self, words: list[str], per_host: int = 1, pin: bool = False, clock_ahead: int = 0,
                    **options: object) -> list[subprocess.Popen]:
        """Start a command as ranks, equally many on each host. The clocks of all hosts but the first are ahead."""
        world = len(self.names) * per_host
        variables = options.pop("variables", {})
        assert isinstance(variables, dict)
        ranks = []
        for rank in range(world):
            host, local_rank = divmod(rank, per_host)
            command = self.command(host, *words, cpu=rank % (os.cpu_count() or 1) if pin else None,
                                   clock_ahead=clock_ahead if host > 0 else 0)
            place = self.place(rank, world, host, local_rank, per_host)
            ranks.append(subprocess.Popen(command, env={**place, **variables}, stdin=subprocess.DEVNULL, **options))
        return ranks

    def write_agent(self, file: Path, input_of_line: str = "") -> Path:
        """Write a stand-in for ssh: it is called with a host, by the last number of its address, and a line."""
        cases = "".join(f"  *{host + 1}) host={name} name=host{host} ;;\n" for host, name in enumerate(self.names))
        # The command that it starts is in another session, as with ssh.
        file.write_text('#!/bin/sh\nwhile case $1 in -*) true ;; *) false ;; esac; do shift; done\ncase $1 in\n'
                        f'{cases}esac\nshift\n'
                        'exec setsid --fork --wait ip netns exec "$host" unshare --uts '
                        f'sh -c \'hostname "$0"; eval "$*"\' "$name" "$@" {input_of_line}\n', encoding="utf-8")
        file.chmod(0o755)
        return file


def run_ranks(lab: Lab, options: argparse.Namespace) -> int:
    ranks = lab.start_ranks(options.command, per_host=options.per_host, pin=options.pin,
                            clock_ahead=options.clock_ahead)
    statuses = [rank.wait() for rank in ranks]
    failed = next((status for status in statuses if status != 0), 0)
    return 128 - failed if failed < 0 else failed


def end(number: int, _frame: object) -> None:
    sys.exit(128 + number)


def main() -> int:
    parser = argparse.ArgumentParser(prog="tools/netlab.py", description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=2, metavar="N", help="number of hosts (default 2)")
    parser.add_argument("--per-host", type=int, default=1, metavar="N", help="ranks of each host (default 1)")
    parser.add_argument("--rate", help="what each host may send and receive, such as 2gbit (default: no limit)")
    parser.add_argument("--pin", action="store_true", help="give each rank one processor")
    parser.add_argument("--clock-ahead", type=int, default=0, metavar="SECONDS",
                        help="set the monotonic clocks of all hosts but the first ahead")
    parser.add_argument("--check", action="store_true", help="only say whether hosts can be made here")
    parser.add_argument("command", nargs="*", metavar="COMMAND", help="what each rank runs; write -- before it")
    options = parser.parse_args()
    if options.check == bool(options.command):
        parser.error("give either a COMMAND or --check")
    if not 1 <= options.hosts <= 250 or not 1 <= options.per_host <= 250:
        parser.error("--hosts and --per-host are numbers from 1 to 250")
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, end)
    if why := refusal():
        print(f"netlab: {why}", file=sys.stderr)
        return NOT_ALLOWED
    if options.check:
        return 0
    try:
        with Lab(options.hosts, options.rate) as lab:
            return run_ranks(lab, options)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except OSError as error:
        print(f"netlab: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
