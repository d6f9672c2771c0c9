"""Time and memory of `arena web` on a large league: first and whole answer of each page, its size.

python -m experiments.load.page /tmp/league --make      # makes the league there first
python -m experiments.load.page /tmp/league --wait-s 30 # as if the run went on between rounds
"""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path

import httpx
import psutil

from experiments.harness import parser_of, say
from experiments.planted_league.week import Size, write_long_league

NUM_POLICIES = 1000
SIZE = Size(checkpoints=62, evaluated_every=3, ghosts_every=3, pairs=3, met=12)
"""Some 62,000 checkpoints, of which 21,000 are ghosts and rated, and 311,000 results."""

TOKEN = "a-token-of-measurements"
PAGES = (
    *("index", "standings", "payoff", "ratings", "lineage", "hyperparameters", "learners"),
    *("events", "player-p003"),
)
UNMADE = "<h2>Being computed"


def peak_mib(pid: int) -> int:
    """Return the largest resident memory that a process has had; 0: it is gone."""
    try:
        found = re.search(r"VmHWM:\s+(\d+)", Path(f"/proc/{pid}/status").read_text())
    except OSError:
        return 0
    return int(found[1]) // 1024 if found else 0


def children_mib(pid: int) -> int:
    """Return the largest `peak_mib` of the processes below one."""
    below = psutil.Process(pid).children(recursive=True)
    return max((peak_mib(child.pid) for child in below), default=0)


def look(client: httpx.Client, pid: int, url: str) -> tuple[str, int]:
    """Ask for a page until it is whole.

    Returns:
        Line of the table, and the largest memory of a child seen meanwhile in MiB.
    """
    began_s, child = time.perf_counter(), 0
    answer = client.get(url)
    first_s = time.perf_counter() - began_s
    while UNMADE in answer.text:
        time.sleep(0.2)
        child = max(child, children_mib(pid))
        answer = client.get(url)
    answer.raise_for_status()
    whole_s = time.perf_counter() - began_s
    cells = (
        *(Path(url).stem, f"{first_s:.2f}", f"{whole_s:.2f}", f"{len(answer.content) / 1000:.0f}"),
        *(f"{answer.num_bytes_downloaded / 1000:.0f}", f"{peak_mib(pid)}"),
    )
    return f"| {' | '.join(cells)} |", child


def measure(run: Path, *, rounds: int, wait_s: float) -> None:
    """Print a table for each round; before later ones the run looks changed if there is a wait."""
    program = [sys.executable, "-m", "tools.main", "web", str(run), "--port", "0"]
    child = 0
    with subprocess.Popen(
        [*program, "--token", TOKEN], stdout=subprocess.PIPE, text=True
    ) as server:
        assert server.stdout is not None
        try:
            address = server.stdout.readline().partition("/?")[0]
            headers = {"authorization": f"Bearer {TOKEN}"}
            with httpx.Client(headers=headers, timeout=600.0) as client:
                for number in range(rounds):
                    if number and wait_s:
                        time.sleep(wait_s)
                        (run / "run.yaml").touch()
                    say("| page | first answer, s | whole, s | kB | sent, kB | peak, MiB |")
                    say("|---|---|---|---|---|---|")
                    for page in PAGES:
                        line, seen = look(client, server.pid, f"{address}/{run.name}/{page}.html")
                        child = max(child, seen)
                        say(line)
            say(f"largest process beside the server: {child} MiB")
        finally:
            server.terminate()


def main() -> None:
    """Measure a run."""
    parser = parser_of(__doc__)
    parser.add_argument("run", type=Path, help="Run directory.")
    parser.add_argument("--make", action="store_true", help="Make a large league there first.")
    parser.add_argument("--rounds", type=int, default=2, help="Rounds; the first one is cold.")
    parser.add_argument("--wait-s", type=float, default=0.0, help="Seconds before later rounds.")
    given = parser.parse_args()
    if given.make:
        write_long_league(given.run, SIZE, num_policies=NUM_POLICIES)
    measure(given.run, rounds=given.rounds, wait_s=given.wait_s)


if __name__ == "__main__":
    main()
