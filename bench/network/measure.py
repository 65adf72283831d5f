#!/usr/bin/env python3
"""Measures two hosts, which are network namespaces of this machine; run.sh says how."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "bench"), str(ROOT / "tools")]
import conditions  # noqa: E402, in another folder
import netlab  # noqa: E402, likewise
import report  # noqa: E402, likewise

SIZE = ["--m", "1024", "--n", "4096", "--k", "1024"]
PATIENCE = 300
TIMEOUT = 2.0  # seconds that a rank waits for a stopped one
SECTIONS = ["transfers", "operators", "losses"]
PAYLOAD = 1448 / 1514  # of a packet
PROCESSOR_TIME = "processor time per GB, in and out"
ROUND_TRIP = "round trip of 64 B"
COPIES = "copies and sums"

# The least speed-up, efficiency and share of the bound's gain of the fused plan, by rate.
FUSED = {"2gbit": (1.50, 0.70, 0.90), "5gbit": (1.20, 0.40, 0.90)}
FUSED_BF16 = {"5gbit": (1.35, None, None)}
NO_BARS = (None, None, None)
OVER_MPI = {"2gbit": 1.6, "5gbit": 1.4}
AUTOMATIC = {"10gbit": 0.97}


class Failed(Exception):
    """A program that measures has failed."""


def on_each_host(lab: netlab.Lab, words, **variables: str) -> str:
    """Run the words as a rank on each host, with a processor each, and return what rank 0 printed."""
    ranks = lab.start_ranks(list(map(str, words)), pin=True, variables={"OMP_NUM_THREADS": "1", **variables},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    try:
        said = [rank.communicate(timeout=PATIENCE) for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, (_, error) in zip(ranks, said):
        if rank.returncode != 0:
            raise Failed(f"{' '.join(map(str, words))}: {error.strip()}")
    return said[0][0]


class Rows:
    """Figures by what they are of; those of several rounds are one row."""

    def __init__(self) -> None:
        self.rows: dict[tuple, dict] = {}

    def add(self, what: str, rate: str, engine: str, values: list, unit: str, *, at_least: float | None = None,
            at_most: float | None = None) -> None:
        bar = {"at least": at_least} if at_least is not None else {"at most": at_most}
        row = self.rows.setdefault((what, rate, engine), {"table": title(rate), "unit": unit, "bar": bar,
                                                          "what": {"what": what, "engine": engine},
                                                          "values": {"median": []}})
        row["values"]["median"] += [value for value in values if value is not None]

    def median(self, what: str, rate: str, engine: str) -> float:
        return statistics.median(self.rows[what, rate, engine]["values"]["median"])


class Bench:
    def __init__(self, options: argparse.Namespace, folder: Path, lab: netlab.Lab) -> None:
        self.build, self.rounds, self.quick = options.build.resolve(), options.rounds, options.quick
        self.folder, self.lab, self.rows = folder, lab, Rows()
        self.predicts = {"transfers", "operators"} <= set(options.only)
        self.measured: list[tuple[str, str, dict]] = []  # the operators to predict: rate, what, what was found
        self.agent = lab.write_agent(folder / "agent")
        self.plait = self.build / "app/cli/plait"
        self.network = self.build / "bench/network/plait_bench_network"
        self.rival = self.build / "bench/overlap/plait_bench_overlap_mpi"
        mpirun = shutil.which("mpirun")
        self.has_mpi = mpirun is not None and "Open MPI" in subprocess.run(
            [mpirun, "--version"], capture_output=True, text=True, check=False).stdout

    def over_tcp(self, *words, **variables: str) -> str:
        """Run the words as a rank on each host, and return what rank 0 printed."""
        return on_each_host(self.lab, words, PLAIT_TRANSPORT="tcp", **variables)

    def over_mpi(self, *words, **variables: str) -> str:
        """Run the words under mpirun, which has its own settings, but for the interface."""
        variables = {"OMP_NUM_THREADS": "1", "PLAIT_RENDEZVOUS": f"{self.lab.address(0)}:29600", **variables}
        options = {"plm_rsh_agent": str(self.agent), "pml": "ob1", "btl": "self,tcp", "btl_tcp_if_include": "v0",
                   "oob_tcp_if_include": "v0"}
        command = ["mpirun", "--allow-run-as-root", "--bind-to", "none", "-np", "2",
                   "--host", f"{self.lab.address(0)}:1,{self.lab.address(1)}:1"]
        for name, value in options.items():
            command += ["--mca", name, value]
        for name, value in variables.items():
            command += ["-x", f"{name}={value}"]
        cpus = os.cpu_count() or 1
        command += ["sh", "-c", f'exec taskset -c $((OMPI_COMM_WORLD_RANK % {cpus})) "$@"', "sh", *map(str, words)]
        done = subprocess.run(self.lab.command(0, *command), env=netlab.bare_environment(), stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=PATIENCE, check=False)
        if done.returncode != 0:
            raise Failed(f"{' '.join(map(str, words))} under mpirun: {done.stderr.strip()}")
        return done.stdout

    def operator_over(self, run, *words, **variables: str) -> dict:
        file = self.folder / "operator.json"
        run(*words, *SIZE, "--repeat", 1 if self.quick else 3, "--json", file, **variables)
        found = json.loads(file.read_text(encoding="utf-8"))
        return found[0] if isinstance(found, list) else found

    # The network.

    def transfer(self, rate: str, engine: str, run, **variables: str) -> None:
        megabytes = 100 if rate == "none" else min(100, int(5 * gigabits(rate)))
        found = json.loads(run(self.network, "transfers", megabytes, 1 if self.quick else 2, **variables))
        counts = rate in FUSED and engine == "tcp"  # the bars are plait's own
        for chunk in ("256 KiB", "1 MiB"):
            what = f"both ways at once, chunks of {chunk}"
            if rate == "none":
                self.rows.add(what, rate, engine, found[chunk], "Gbit/s")
            else:
                share = [value / gigabits(rate) for value in found[chunk]]
                self.rows.add(what, rate, engine, share, "", at_least=0.95 if counts else None)
        self.rows.add(ROUND_TRIP, rate, engine, [one * 1e-9 for one in found["round_trip_ns"]], "s",
                      at_most=30e-6 if engine == "tcp" else None)
        self.rows.add(PROCESSOR_TIME, rate, engine, found["processor_s_per_gb"], "s",
                      at_most=0.5 if engine == "tcp" else None)
        if engine == "tcp":
            self.rows.add("set-up", rate, engine, [found["set_up_ns"] * 1e-9], "s", at_most=0.1)

    def transfers(self, rate: str) -> None:
        without_launcher = {"PLAIT_RENDEZVOUS": f"{self.lab.address(0)}:29600"}
        self.transfer(rate, "tcp", self.over_tcp, **without_launcher)
        if self.has_mpi:
            self.transfer(rate, "mpi", self.over_mpi, PLAIT_TRANSPORT="mpi")

    # The operator.

    def fused(self, rate: str, what: str, engine: str, run, bars: tuple, *words: str, **variables: str) -> None:
        found = self.operator_over(run, self.plait, "bench", "matmul-all-reduce", "--schedule", "fused", *words,
                                   **variables)
        fused = next(one for one in found["schedules"] if one["plan"].startswith("fused"))
        self.rows.add(f"{what}, fused over serial", rate, engine, [fused["speedup"]], "", at_least=bars[0])
        if self.predicts and engine == "tcp":
            self.rows.add(predicted(what), rate, engine, [], "")  # its place; predict() has the figures
            self.measured.append((rate, what, found))
        self.rows.add(f"{what}, efficiency", rate, engine, [fused["overlap_efficiency"]], "", at_least=bars[1])
        serial = next(one for one in found["schedules"] if one["plan"] == "serial")["median_ms"]
        bound = found["bound_ms"]
        self.rows.add(f"{what}, bound over serial", rate, engine, [serial / bound], "")
        share = (serial - fused["median_ms"]) / (serial - bound)
        self.rows.add(f"{what}, share of the bound's gain", rate, engine, [share], "", at_least=bars[2])

    def operators(self, rate: str) -> None:
        self.fused(rate, "all-reduce, f32", "tcp", self.over_tcp, FUSED.get(rate, NO_BARS), "--dtype", "f32")
        self.fused(rate, "all-reduce, f32, wire and out bf16", "tcp", self.over_tcp,
                   FUSED_BF16.get(rate, NO_BARS), "--dtype", "f32", "--wire", "bf16", "--out", "bf16")
        if self.has_mpi:
            self.fused(rate, "all-reduce, f32", "mpi", self.over_mpi, NO_BARS, "--dtype", "f32",
                       PLAIT_TRANSPORT="mpi")
        if self.has_mpi and self.rival.exists():
            found = self.operator_over(self.over_mpi, self.rival, "matmul-all-reduce", "--transport", "tcp",
                                       "--ranks", "2", "--dtype", "f32", "--schedule", "fused")
            fused = next(one for one in found["plans"] if one["plan"].startswith("fused"))
            self.rows.add("all-reduce, f32, fused over oneDNN and MPI's collective", rate, "tcp",
                          [fused["over_rival"]], "", at_least=OVER_MPI.get(rate))
        if rate in AUTOMATIC:
            self.automatic(rate)

    def automatic(self, rate: str) -> None:
        cache = self.folder / f"plans-{rate}"
        if not cache.exists():  # once: the plan is kept for all rounds
            self.over_tcp(self.plait, "tune", "--op", "matmul-all-reduce", *SIZE, "--dtype", "f32", "--seconds",
                          0.3 if self.quick else 1, "--json", self.folder / "tuned.json", PLAIT_PLAN_CACHE=str(cache))
        tuned = json.loads((self.folder / "tuned.json").read_text(encoding="utf-8"))
        plan = tuned["problems"][0]["plan"]
        speedup = 1.0
        if plan != "serial":
            found = self.operator_over(self.over_tcp, self.plait, "bench", "matmul-all-reduce", "--plan", plan,
                                       "--dtype", "f32")
            speedup = found["schedules"][-1]["speedup"]
        self.rows.add(f"all-reduce, f32, automatic ({plan}) over serial", rate, "tcp", [speedup], "",
                      at_least=AUTOMATIC[rate])

    # Predictions of the operator.

    def plait_prints(self, *words) -> str:
        done = subprocess.run(list(map(str, [self.plait, *words])), capture_output=True, text=True, timeout=PATIENCE,
                              env={**netlab.bare_environment(), "OMP_NUM_THREADS": "1"}, check=False)
        if done.returncode != 0:
            raise Failed(f"plait {' '.join(map(str, words))}: {done.stderr.strip()}")
        return done.stdout

    def copies(self) -> None:
        """The rate of copies and sums: of the collective in shared memory."""
        file = self.folder / "copies.json"
        self.plait_prints("bench", "matmul-all-reduce", *SIZE, "--dtype", "f32", "--transport", "shm", "--ranks", 2,
                          "--link", "10gbit,5us", "--schedule", "serial", "--repeat", 1 if self.quick else 3,
                          "--json", file)
        found = json.loads(self.plait_prints("predict", "--measured", file, "--json", "-"))
        self.rows.add(COPIES, "none", "shm", [found[0]["memory_bytes_per_second"] * 1e-9], "GB/s")

    def predict(self) -> None:
        """Predicts each measured operator from its product alone, and from the medians of other figures."""
        file = self.folder / "measured.json"
        for rate, what, measured in self.measured:
            file.write_text(json.dumps(measured), encoding="utf-8")
            latency = self.rows.median(ROUND_TRIP, rate, "tcp") / 2
            processor_time = max(0, self.rows.median(PROCESSOR_TIME, rate, "tcp"))  # in a short run it may be noise
            plans = json.loads(self.plait_prints(
                "predict", "--measured", file, "--link", f"{gigabits(rate) * PAYLOAD:.6f}gbit,{latency * 1e6:.3f}us",
                "--processor-per-gb", f"{processor_time:.6f}", "--memory", self.rows.median(COPIES, "none", "shm"),
                "--json", "-"))
            times = {plan["plan"].split()[0]: plan["predicted_ms"] for plan in plans}
            self.rows.add(predicted(what), rate, "tcp", [times["serial"] / times["fused"]], "")

    # Lost ranks and hosts.

    def lose(self, kind: str, how) -> float:
        """Seconds until rank 0 names rank 1."""
        ranks = self.lab.start_ranks([str(self.network), kind], pin=True, stdout=subprocess.PIPE, text=True,
                                     variables={"PLAIT_TRANSPORT": "tcp", "PLAIT_TIMEOUT": f"{TIMEOUT:g}s"})
        try:
            for rank in ranks:
                if rank.stdout.readline() != "ready\n":
                    raise Failed("the ranks don't meet")
            time.sleep(0.3)
            start = time.monotonic_ns()
            how(ranks[1])
            told = json.loads(ranks[0].communicate(timeout=PATIENCE)[0])
        finally:
            for rank in ranks:
                rank.kill()
                rank.communicate()
        if told["culprit"] != 1:
            raise Failed(f"rank {told['culprit']} is named: {told['sentence']}")
        return (told["at_ns"] - start) * 1e-9

    def losses(self) -> None:
        for kind in ("stream", "idle"):
            while_doing = {"stream": "streaming", "idle": "idle"}[kind]
            killed = self.lose(kind, lambda rank: rank.kill())
            self.rows.add(f"kill -9, {while_doing}", "none", "tcp", [killed], "s", at_most=0.1)
            lost = self.lose(kind, lambda rank: self.lab.cut(1))
            self.lab.mend(1)
            self.rows.add(f"interface down, {while_doing}", "none", "tcp", [lost], "s", at_most=5)
            stopped = self.lose(kind, lambda rank: rank.send_signal(signal.SIGSTOP))
            self.rows.add(f"SIGSTOP, {while_doing}, deadline {TIMEOUT:g} s", "none", "tcp", [stopped], "s",
                          at_most=TIMEOUT + 0.5)


def predicted(what: str) -> str:
    return f"{what}, fused over serial, predicted"


def title(rate: str) -> str:
    return f"{rate.removesuffix('gbit')} Gbit/s" if rate != "none" else "No limit"


def gigabits(rate: str) -> float:
    return float(rate.removesuffix("gbit"))


def part_of(known: list[str]):
    def read(text: str) -> list[str]:
        words = text.split(",")
        for word in words:
            if word not in known:
                raise argparse.ArgumentTypeError(f"{word} is none of {', '.join(known)}")
        return words
    return read


def rates_of(text: str) -> list[str]:
    rates = text.split(",")
    for rate in rates:
        try:
            good = rate == "none" or (rate.endswith("gbit") and gigabits(rate) > 0)
        except ValueError:
            good = False
        if not good:
            raise argparse.ArgumentTypeError(f"{rate} is neither none nor a rate such as 2gbit")
    return rates


def measure(bench: Bench, rates: list[str], sections: list[str]) -> None:
    for turn in range(bench.rounds):
        print(f"round {turn + 1} of {bench.rounds}", file=sys.stderr, flush=True)
        for rate in rates:
            bench.lab.limit(None if rate == "none" else rate)
            if "transfers" in sections:
                bench.transfers(rate)
            if "operators" in sections and rate != "none":
                bench.operators(rate)
        bench.lab.limit(None)
        if bench.predicts:
            bench.copies()
        if "losses" in sections:
            bench.losses()
    if bench.predicts:
        bench.predict()


def measure_all(options: argparse.Namespace) -> dict:
    """Measure what is asked for, and return the document."""
    begin = time.monotonic()
    with tempfile.TemporaryDirectory() as folder, netlab.Lab() as lab:
        bench = Bench(options, Path(folder), lab)
        measure(bench, options.rates, options.only)
    return {"conditions": {**conditions.now(), "rounds": options.rounds, "seconds": round(time.monotonic() - begin),
                           "command": "./do bench network"},
            "rows": list(bench.rows.rows.values())}


def write_document(program: str, path: Path, measured: Callable[[], dict]) -> int:
    """Measure, write and print the document, and return the program's exit status."""
    for number in (signal.SIGHUP, signal.SIGTERM):
        signal.signal(number, netlab.end)
    if why := netlab.refusal():
        print(f"{program}: {why}", file=sys.stderr)
        return netlab.NOT_ALLOWED
    try:
        document = measured()
    except (Failed, subprocess.TimeoutExpired) as error:
        print(f"{program}: {error}", file=sys.stderr)
        return 1
    report.write(path, document)
    print(report.Results([path]).text())
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="./do bench network", description=__doc__)
    parser.add_argument("--rates", type=rates_of, default=["2gbit", "5gbit", "10gbit", "none"], metavar="LIST",
                        help="what each host may send and receive (default 2gbit,5gbit,10gbit,none)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="rounds of everything (default 3)")
    parser.add_argument("--only", type=part_of(SECTIONS), default=SECTIONS, metavar="LIST",
                        help="some of transfers, operators and losses")
    parser.add_argument("--quick", action="store_true", help="one short round, whose figures are not to be quoted")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE", help="file for all figures")
    parser.add_argument("--build", type=Path, required=True, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.quick:
        options.rounds = 1
    return write_document("bench network", options.json, lambda: measure_all(options))


if __name__ == "__main__":
    sys.exit(main())
