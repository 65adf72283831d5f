#!/usr/bin/env python3
"""Checks a timeline and says what is in it.

    tools/trace_check.py timeline.json

A timeline is a file in Chrome's trace event format, as plait writes it: a rank is a process, a
lane of a thread is a thread. Every event must have what its phase needs, the spans of a track must
nest or be disjoint, and every rank and track must have a name. Then follows a line per rank and
lane, and one for what was in flight (chunks on their way, which no thread is busy with):

    busy     time in which a thread of the rank, or more, was in the lane; share of the timeline
    exposed  the part of it in which the rank computed nothing: what overlap is to remove

Exit status: 0 in order, 1 not a valid timeline, 2 wrong usage.
"""

import argparse
import collections
import json
import sys

NUMBER = (int, float)
# The keys that a phase needs beside "ph" and "pid": https://perfetto.dev/docs/getting-started/other-formats
NEEDS = {
    "X": {"name": str, "cat": str, "tid": int, "ts": NUMBER, "dur": NUMBER},
    "i": {"name": str, "cat": str, "tid": int, "ts": NUMBER, "s": str},
    "C": {"name": str, "ts": NUMBER, "args": dict},
    "b": {"name": str, "cat": str, "tid": int, "ts": NUMBER, "id2": dict},
    "e": {"name": str, "cat": str, "tid": int, "ts": NUMBER, "id2": dict},
    "M": {"name": str, "args": dict},
}
METADATA = {
    "process_name": ("name", str),
    "process_labels": ("labels", str),
    "process_sort_index": ("sort_index", int),
    "thread_name": ("name", str),
    "thread_sort_index": ("sort_index", int),
}
ROWS = ("compute", "comm", "wait", "flight")


class Invalid(Exception):
    """One sentence about what is wrong with the file."""


def require(good, *parts):
    if not good:
        raise Invalid(" ".join(str(part) for part in parts))


def is_a(value, kind):
    return isinstance(value, kind) and not isinstance(value, bool)


def nanoseconds(microseconds):
    return round(microseconds * 1000)


def check_event(event, where):
    require(isinstance(event, dict), where, "is not an object")
    phase = event.get("ph")
    require(isinstance(phase, str) and phase in NEEDS, where, "has no known phase but", repr(phase))
    for key, kind in {"pid": int, **NEEDS[phase]}.items():
        require(key in event, where, f'of phase {phase} has no "{key}"')
        require(is_a(event[key], kind), where, f'has "{key}":', repr(event[key]))
    for key in ("ts", "dur"):
        # The comparison refuses NaN too.
        require(0 <= event.get(key, 0) < 1e18, where, f'has "{key}":', event.get(key))
    require(isinstance(event.get("args", {}), dict), where, 'has "args" that are no object')
    if phase == "i":
        require(event["s"] in ("g", "p", "t"), where, 'has "s":', repr(event["s"]))
    if phase == "C":
        values = event["args"].values()
        require(values and all(is_a(v, NUMBER) for v in values), where, "counts what is no number")
    if phase in ("b", "e"):
        require(isinstance(event["id2"].get("local"), str), where, 'has "id2" without "local"')
    if phase == "M":
        check_metadata(event, where)


def check_metadata(event, where):
    name = event["name"]
    require(name in METADATA, where, "is metadata of no known name but", repr(name))
    key, kind = METADATA[name]
    require(is_a(event["args"].get(key), kind), where, f'is {name} without "{key}"')
    require(not name.startswith("thread") or is_a(event.get("tid"), int), where, 'has no "tid"')


def check_nesting(track, spans):
    """Spans are (begin, end, name) in nanoseconds."""
    open_spans = []
    for begin, end, name in sorted(spans, key=lambda span: (span[0], -span[1])):
        while open_spans and open_spans[-1][0] <= begin:
            open_spans.pop()
        if open_spans:
            outer_end, outer = open_spans[-1]
            require(
                end <= outer_end,
                f'rank {track[0]}, track {track[1]}: "{name}" from {begin} to {end} ns',
                f'outlasts "{outer}", which it lies in and which ends at {outer_end} ns',
            )
        open_spans.append((end, name))


def flights(events):
    """Pairs of events that begin and end a flight."""
    begun = {}
    pairs = []
    ends = (event for event in events if event["ph"] in "be")
    for event in sorted(ends, key=lambda e: (nanoseconds(e["ts"]), e["ph"])):
        key = (event["pid"], event["cat"], event["id2"]["local"])
        flight = f'flight {key[2]} of rank {key[0]}'
        if event["ph"] == "b":
            require(key not in begun, flight, "begins twice")
            begun[key] = event
        else:
            require(key in begun, flight, "ends but never began")
            pairs.append((begun.pop(key), event))
    for pid, _, flight in begun:
        raise Invalid(f"flight {flight} of rank {pid} never ends")
    return pairs


def check_names(events):
    naming = (e for e in events if e["ph"] == "M" and e["name"].endswith("_name"))
    names = {(event["pid"], event.get("tid")) for event in naming}
    for event in events:
        require((event["pid"], None) in names, f'process {event["pid"]} has no name')
        if event["ph"] in "Xibe":
            place = (event["pid"], event["tid"])
            require(place in names, f"track {place[1]} of process {place[0]} has no name")


def check(document):
    """The events of a valid timeline; raises Invalid."""
    require(isinstance(document, dict), "the file is not a JSON object")
    events = document.get("traceEvents")
    require(isinstance(events, list), 'the file has no list "traceEvents"')
    for index, event in enumerate(events):
        check_event(event, f"event {index}")
    check_names(events)
    flights(events)
    tracks = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = nanoseconds(event["ts"])
            span = (begin, begin + nanoseconds(event["dur"]), event["name"])
            tracks[event["pid"], event["tid"]].append(span)
    for track, spans in tracks.items():
        check_nesting(track, spans)
    return events


def union(intervals):
    merged = []
    for begin, end in sorted(intervals):
        if merged and begin <= merged[-1][1]:
            merged[-1][1] = max(end, merged[-1][1])
        else:
            merged.append([begin, end])
    return merged


def length(merged):
    return sum(end - begin for begin, end in merged)


def exposed(merged, compute):
    """The length of what is in one union but not in the other: |A or B| - |B|."""
    return length(union(merged + compute)) - length(compute)


def summarise(events):
    """A row per rank and lane that has spans, in order."""
    intervals = collections.defaultdict(list)
    for event in events:
        if event["ph"] == "X":
            begin = nanoseconds(event["ts"])
            intervals[event["pid"], event["cat"]].append((begin, begin + nanoseconds(event["dur"])))
    for begin, end in flights(events):
        if begin["cat"] == "compute":  # the name of a whole run, of which each part is counted
            continue
        intervals[begin["pid"], "flight"].append((nanoseconds(begin["ts"]), nanoseconds(end["ts"])))
    everything = [interval for lane in intervals.values() for interval in lane]
    extent = max((e for _, e in everything), default=0) - min((b for b, _ in everything), default=0)
    order = {lane: number for number, lane in enumerate(ROWS)}
    rows = []
    for rank, lane in sorted(intervals, key=lambda k: (k[0], order.get(k[1], len(order)), k[1])):
        merged = union(intervals[rank, lane])
        compute = union(intervals.get((rank, "compute"), []))
        rows.append(
            {
                "rank": rank,
                "lane": lane,
                "spans": len(intervals[rank, lane]),
                "busy_ns": length(merged),
                "busy_share": length(merged) / extent if extent else 0.0,
                "exposed_ns": exposed(merged, compute),  # none for compute itself
            }
        )
    return rows


def show(rows, events, dropped):
    print(f"{len(events)} events, in order")
    print(f"{'rank':>4}  {'lane':<8} {'spans':>8} {'busy':>14} {'share':>7} {'exposed':>14}")
    for row in rows:
        busy, share, bare = row["busy_ns"] / 1e3, row["busy_share"], row["exposed_ns"] / 1e3
        print(
            f"{row['rank']:>4}  {row['lane']:<8} {row['spans']:>8} {busy:>11.3f} us {share:>6.1%} "
            f"{bare:>11.3f} us"
        )
    for rank, count in dropped.items():
        if count:
            print(f"rank {rank} lost {count} older records")


def main(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("timeline")
    parser.add_argument("--json", action="store_true", help="the summary as JSON")
    options = parser.parse_args(arguments)
    try:
        with open(options.timeline, encoding="utf-8") as file:
            document = json.load(file)
        events = check(document)
    except OSError as error:
        print(f"trace_check: {options.timeline}: {error.strerror}", file=sys.stderr)
        return 2
    except (Invalid, ValueError, RecursionError) as error:
        print(f"trace_check: {options.timeline}: {error}", file=sys.stderr)
        return 1
    rows = summarise(events)
    other = document.get("otherData")
    dropped = other.get("dropped") if isinstance(other, dict) else None
    dropped = dropped if isinstance(dropped, dict) else {}
    if options.json:
        print(json.dumps({"events": len(events), "dropped": dropped, "rows": rows}))
    else:
        show(rows, events, dropped)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
