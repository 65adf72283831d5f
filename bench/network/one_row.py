#!/usr/bin/env python3
"""Measure all-reduces of one row between two hosts, as tokens of a decode make them.

    ./do bench network one-row                       rows of 1024 and 4096 in f32
    bench/network/one_row.py --json FILE             where plait is installed already

The hosts are network namespaces of this machine, with a rank and a processor each, so it needs
root. Each rate is a start of two ranks, in which contenders take turns; figures are medians of all
calls on rank 0.

    round trip         the row's bytes there and back over a TCP connection, by two programs that
                       poll it
    plait.all_reduce   the native call
    all_reduce         torch.distributed.all_reduce of the row, with the backends plait and gloo
    row layer          plait.torch.RowParallelLinear with 64 inputs on each rank
"""

import argparse
import json
import os
import socket
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
sys.path[1:1] = [str(ROOT / "bench"), str(ROOT / "tools")]
COLUMNS = (1024, 4096)
PORT = 29700
BARS = {"plait.all_reduce": 1.3}
Times = dict[str, list[float]]


def connection() -> socket.socket:
    """Return a connection with the other rank that sends each message at once."""
    address = os.environ["MASTER_ADDR"], PORT
    if os.environ["RANK"] == "0":
        with socket.create_server(address) as server:
            found, _ = server.accept()
    else:
        deadline = time.monotonic() + 30
        while True:
            try:
                found = socket.create_connection(address)
                break
            except ConnectionRefusedError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
    found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    found.setblocking(False)
    return found


def receive(source: socket.socket, into: memoryview) -> None:
    """Poll until the buffer is full."""
    deadline = time.monotonic() + 30
    while into:
        try:
            into = into[source.recv_into(into) :]
        except BlockingIOError:
            if time.monotonic() > deadline:
                raise TimeoutError("the other rank sends nothing") from None


def contenders(columns: int, with_other: socket.socket) -> dict[str, Callable[[], None]]:
    """Return the calls that are measured."""
    import torch
    import torch.distributed as dist

    import plait.torch

    row, x = torch.ones(1, columns), torch.ones(1, 64)
    layer = plait.torch.RowParallelLinear.from_linear(torch.nn.Linear(128, columns, bias=False))
    array, comm = row.numpy(), plait.torch.communicator()
    gloo = dist.new_group(backend="gloo")
    is_first = dist.get_rank() == 0
    buffer = memoryview(bytearray(4 * columns))

    def round_trip() -> None:
        if is_first:
            with_other.sendall(buffer)
        receive(with_other, buffer)
        if not is_first:
            with_other.sendall(buffer)

    return {
        "round trip": round_trip,
        "plait.all_reduce": lambda: plait.all_reduce(array, comm),
        "all_reduce, plait": lambda: dist.all_reduce(row),
        "all_reduce, gloo": lambda: dist.all_reduce(row, group=gloo),
        "row layer": lambda: layer(x),
    }


def measure_as_rank(options: argparse.Namespace) -> None:
    """Measure all calls in turns, as one of two ranks."""
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("plait")
    with_other = connection()
    found: dict[int, Times] = {}
    with torch.no_grad():
        for columns in COLUMNS:
            calls = contenders(columns, with_other)
            times: Times = {name: [] for name in calls}
            for turn in range(options.rounds + 1):
                for name, call in calls.items():
                    for _ in range(options.calls):
                        begin = time.perf_counter()
                        call()
                        if turn > 0:  # plans are chosen in the first one
                            times[name].append(time.perf_counter() - begin)
            found[columns] = times
    if dist.get_rank() == 0:
        options.json.write_text(json.dumps(found))
    dist.destroy_process_group()


def measure_all(options: argparse.Namespace) -> dict[str, Any]:
    """Start the ranks over each link, and return the document."""
    import conditions
    import measure
    import netlab

    begin, rows = time.monotonic(), []
    with netlab.Lab() as lab, tempfile.TemporaryDirectory() as folder:
        for rate in options.rates:
            lab.limit(None if rate == "none" else rate)
            result = Path(folder) / "result.json"
            words = [sys.executable, "-B", __file__, "--as-rank", "--json", result]
            for size in ("rounds", "calls"):
                words += [f"--{size}", getattr(options, size)]
            measure.on_each_host(lab, words, XDG_CACHE_HOME=f"{folder}/{rate}")
            for columns, times in json.loads(result.read_text()).items():
                rows += rows_of(measure.title(rate), f"1x{columns} f32", times)
    document = {
        **conditions.now(),
        "rounds": options.rounds,
        "calls": options.calls,
        "seconds": round(time.monotonic() - begin),
        "command": f"./do bench network one-row --rates {','.join(options.rates)}",
    }
    return {"what": "one row", "conditions": document, "rows": rows}


def rows_of(title: str, row: str, times: Times) -> list[dict[str, Any]]:
    """Return what the table says: the time of each call, and over a round trip's."""
    trip = statistics.median(times["round trip"])
    rows = []
    for name, seconds in times.items():
        median = statistics.median(seconds)
        bar = BARS.get(name)
        rows.append(
            {
                "table": f"One row, {title}",
                "what": {"row": row, "call": name},
                "values": {"time": median, "of a round trip": median / trip},
                "unit": {"time": "s"},
                "bar": {} if bar is None else {"of": "of a round trip", "at most": bar},
            }
        )
    return rows


def main() -> int:
    """Measure what is asked for."""
    parser = argparse.ArgumentParser(
        prog="./do bench network one-row",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    rates = "what each host may send and receive (default none,1gbit)"
    parser.add_argument("--rates", default="none,1gbit", metavar="LIST", help=rates)
    parser.add_argument("--rounds", type=int, default=5, help="turns of each contender")
    parser.add_argument("--calls", type=int, default=100, help="in each turn")
    parser.add_argument("--json", type=Path, required=True, metavar="FILE")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.as_rank:
        measure_as_rank(options)
        return 0
    import measure

    options.rates = measure.rates_of(options.rates)
    return measure.write_document(
        "bench network one-row", options.json, lambda: measure_all(options)
    )


if __name__ == "__main__":
    sys.exit(main())
