"""Count what one learner on another host sends and receives in an hour, the preset as it is.

    python -m experiments.faults.hosts.traffic --minutes 3
    python -m experiments.faults.hosts.traffic --minutes 3 assignment.target_s=12 checkpoints.keep=1

Packet filter rules on the learner's host count bytes and packets of its two connections, headers
included; assignments and requests are the journal's. A run of its own with default settings, and
one more for each KEY=VALUE. One line of JSON each; needs what `experiments.faults.hosts` needs.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from experiments.faults.hosts import sandbox
from experiments.faults.hosts.figures import traffic_of
from experiments.faults.hosts.network import CONTROLLER, within
from experiments.faults.hosts.throughput import DEFAULTS
from experiments.faults.hosts.world import PORT, World, stop, world
from experiments.faults.killing import end_on_sigterm
from populations.records.rows import AssignmentRow
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader

MODULE = "experiments.faults.hosts.traffic"
HOST = "host1"
CONNECTIONS = {"messages": PORT, "checkpoints": PORT + 1}
MB = 1e6


def start_counting(host: str) -> None:
    """Count what a host sends to the controller's two ports, and receives from them."""
    sent = "".join(f"tcp dport {port} counter\n" for port in CONNECTIONS.values())
    received = "".join(f"tcp sport {port} counter\n" for port in CONNECTIONS.values())
    rules = (
        f"table inet traffic {{\n"
        f"chain sent {{\ntype filter hook output priority 0\n{sent}}}\n"
        f"chain received {{\ntype filter hook input priority 0\n{received}}}\n}}\n"
    )
    subprocess.run([*within(host), "nft", "-f", "-"], input=rules.encode(), check=True)


def read_counts(host: str) -> dict[str, dict[str, int]]:
    """Return bytes and packets so far, as ``messages_sent``, ``checkpoints_received`` and so on."""
    command = [*within(host), "nft", "--json", "list", "table", "inet", "traffic"]
    listed = json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)
    names = {port: name for name, port in CONNECTIONS.items()}
    counts = {}
    for rule in (entry["rule"] for entry in listed["nftables"] if "rule" in entry):
        match, counter = rule["expr"][0]["match"], rule["expr"][1]["counter"]
        counts[f"{names[match['right']]}_{rule['chain']}"] = counter
    return counts


def finished(made: World) -> list[AssignmentRow]:
    """Return the assignments that the other host has finished."""
    with JournalReader(made.run.run / JOURNAL) as reader:
        rows = reader.assignments(statuses=("finished",))
    return [row for row in rows if made.host_of(row) != CONTROLLER]


def measure(directory: Path, settings: Sequence[str], *, minutes: float) -> dict[str, object]:
    """Train for some minutes beside one learner of the controller's own host, and count."""
    with world(directory, (HOST,), minutes=minutes, overrides=(*DEFAULTS, *settings)) as made:
        num_before = len(finished(made))
        start_counting(HOST)
        began_s = time.monotonic()
        made.pause(1.0)
        hours = (time.monotonic() - began_s) / 3600.0
        counts, rows = read_counts(HOST), finished(made)[num_before:]
        left = stop(made)
    traffic = traffic_of(rows)
    assert traffic is not None, "the host has finished nothing"
    return {
        "settings": list(settings),
        "minutes": round(60.0 * hours, 2),
        "assignments_per_hour": round(len(rows) / hours),
        "seconds_per_assignment": round(sum(row.duration_s for row in rows) / len(rows), 2),
        "store_requests_per_hour": round(traffic.requests * traffic.assignments / hours),
        "mb_per_hour": {name: round(one["bytes"] / MB / hours, 1) for name, one in counts.items()},
        "packets_per_hour": {name: round(one["packets"] / hours) for name, one in counts.items()},
        "fetched_bytes": traffic.fetched_bytes,
        "given_bytes": traffic.given_bytes,
        "left": left,
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Count with each of the settings, and print a line as soon as it is done."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("settings", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--minutes", type=float, default=3.0)
    options = parser.parse_args(given)
    sandbox.enter(MODULE, given)
    end_on_sigterm()
    for settings in ((), *((one,) for one in options.settings)):
        with tempfile.TemporaryDirectory(prefix="arena-traffic-") as directory:
            line = measure(Path(directory), settings, minutes=options.minutes)
        sys.stdout.write(json.dumps(line) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
