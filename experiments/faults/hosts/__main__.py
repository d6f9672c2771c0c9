"""Train Connect Four on two and three hosts, under bad luck of network, hosts and disks.

    python -m experiments.faults.hosts                                 # all regimes, 2 minutes each
    python -m experiments.faults.hosts --regimes partition --minutes 5

Hosts are network namespaces of this machine (root), joined by a switch. Learners see nothing of the
run's directory: each has run.yaml, its key and a cache, and is started again as long as its exit
code is not 0. Regimes, each in a run of its own:

none               no fault
delay              every frame takes 40 ms, each way (a relay in user space)
loss               2% of all frames are lost
slow               one host has a line of 1 Mbit/s
partition          one host is cut off for a minute
one_way            all to one host is lost for a minute, and then all from it
store_cut          one host reaches the controller but not the checkpoints, for 90 s
flapping           all hosts are cut off for 15 s, twice a minute
host_killed        all processes of one host are killed at once, three times
controller_killed  the controller, and what dies with it, is killed and resumed, three times
store_killed       the process that serves checkpoints is killed every 3 s
learner_disk       one learner's disk is full for a third of the time
run_disk           the run's disk is full for a third of the time

One line of JSON each: what was acknowledged is in the journal once (``tallies``), `arena verify`
finds nothing (``faults``), nothing is left behind (``left``), and nothing on the wire can be read
(``capture``). Exit code 1 if any of it is not so.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from experiments.faults.hosts import sandbox
from experiments.faults.hosts.capture import PROBE
from experiments.faults.hosts.figures import Figures, figures_of
from experiments.faults.hosts.regimes import REGIMES
from experiments.faults.hosts.world import logs, send_probe, stop, world
from experiments.faults.killing import agent_steps, end_on_signals
from experiments.harness import parser_of, say

MODULE = "experiments.faults.hosts"


def train(directory: Path, name: str, *, minutes: float) -> Figures:
    """Train under a regime, stop and count."""
    regime = REGIMES[name]
    hosts = [f"host{number}" for number in range(1, regime.num_hosts + 1)]
    with world(
        directory,
        hosts,
        minutes=minutes,
        delay_ms=regime.delay_ms,
        run_disk_mb=regime.run_disk_mb,
        cache_disk_mb=regime.cache_disk_mb,
        overrides=regime.overrides,
    ) as made:
        send_probe(made, hosts[0], PROBE)
        began_s, before = time.monotonic(), agent_steps(made.run.run)
        try:
            regime.body(made)
        except BaseException:
            sys.stderr.write(logs(made))
            raise
        seconds, done = time.monotonic() - began_s, agent_steps(made.run.run) - before
        made.network.heal()
        left = stop(made)
        made.network.stop_capture()
        return figures_of(made, regime=name, seconds=seconds, agent_steps=done, left=left)


def main(arguments: Sequence[str] | None = None) -> int:
    """Train under each regime, and print a line as soon as it is over."""
    given = sys.argv[1:] if arguments is None else list(arguments)
    parser = parser_of(__doc__)
    parser.add_argument("--regimes", nargs="+", choices=REGIMES, default=list(REGIMES))
    parser.add_argument("--minutes", type=float, default=2.0, help="minutes of each, at least")
    options = parser.parse_args(given)
    sandbox.enter(MODULE, given)
    end_on_signals()
    code = 0
    for name in options.regimes:
        with tempfile.TemporaryDirectory(prefix="arena-hosts-") as directory:
            figures = train(Path(directory), name, minutes=options.minutes)
        say({"schema": 1, **asdict(figures), "is_sound": figures.is_sound})
        code |= not figures.is_sound
    return code


if __name__ == "__main__":
    sys.exit(main())
