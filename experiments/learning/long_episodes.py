"""Do long episodes end, and are all their phases trained on? Launches runs and looks at them.

    python -m experiments.learning.long_episodes chess pursuit at_the_end --runs runs/long

One JSON line per environment: environments as `launch` chose them, episodes that ended in training,
seconds to the first update, the largest memory of a learner, and a histogram of the decisions in
training by step / episode's length (ten bins, shares), from the time on at which the first episodes
ended. Whole episodes, which evaluation plays, have a tenth in each bin; `least` is the smallest
bin's share of that. The configuration has one line more than an environment's id needs: decisions
are logged by `tests.assets.logged`.

    python -m experiments.learning.long_episodes chess --deterministic 4000

Instead trains each policy for so many agent steps in deterministic mode, twice, and says whether
all digests of weights are the same.
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import threading
from collections import defaultdict
from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import psutil
import yaml

from experiments.commands import COMMAND
from populations.config.run_file import RUN_FILE, RunFile

LONG = "tests.assets.long_episodes"

ENVIRONMENTS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    "chess": ("pettingzoo.classic.chess_v6:env", {}),
    "go": ("pettingzoo.classic.go_v5:env", {"board_size": 9}),
    "pursuit": ("pettingzoo.sisl.pursuit_v5:parallel_env", {}),
    "multiwalker": ("pettingzoo.sisl.multiwalker_v9:parallel_env", {}),
    "knights": ("pettingzoo.butterfly.knights_archers_zombies_v11:parallel_env", {}),
    "battle": ("magent2.environments.battle_v4:parallel_env", {"map_size": 16}),
    "at_the_end": (f"{LONG}:paid_at_the_end", {}),
    "any_length": (f"{LONG}:of_any_length", {}),
    "two_halves": (f"{LONG}:two_halves", {}),
    "heavy": (f"{LONG}:paid_at_the_end", {"kilobytes": 2048}),
}

NUM_BINS = 10


def main(argv: Sequence[str] | None = None) -> None:
    """Launch each environment, one after the other."""
    parser = argparse.ArgumentParser(prog="long_episodes", allow_abbrev=False)
    parser.add_argument("names", nargs="+", choices=ENVIRONMENTS, help="environments")
    parser.add_argument("--seconds", type=int, default=180, help="duration of each run")
    parser.add_argument("--learners", type=int, default=2)
    parser.add_argument("--runs", type=Path, default=Path("runs/long"))
    parser.add_argument("--set", nargs="*", default=[], help="overrides of the configuration")
    parser.add_argument("--deterministic", type=int, help="agent steps of each policy")
    options = parser.parse_args(argv)
    for name in options.names:
        if options.deterministic:
            sys.stdout.write(f"{json.dumps(twice(name, options.runs, options.deterministic))}\n")
            sys.stdout.flush()
            continue
        found = check(
            name,
            run=options.runs / name,
            settings=(
                f"stop.duration_s={options.seconds}",
                f"learners={options.learners}",
                *options.set,
            ),
        )
        sys.stdout.write(f"{json.dumps(found)}\n")
        sys.stdout.flush()


def check(name: str, *, run: Path, settings: Sequence[str]) -> dict[str, Any]:
    """Launch one environment and say what came of it."""
    environment, kwargs = ENVIRONMENTS[name]
    # One place for all runs: it is among the environment's arguments.
    log = run.resolve().with_name(f"{name}.log")
    log.mkdir(parents=True, exist_ok=True)
    for path in log.iterdir():
        path.unlink()
    config = run.with_name(f"{name}.yaml")
    section = {
        "id": "tests.assets.logged:make",
        "kwargs": {"environment": environment, "log": str(log), **kwargs},
    }
    config.write_text(yaml.safe_dump({"environment": section}))
    command = [*COMMAND, "launch", str(config), *settings, "--run-dir", str(run), "--force"]
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as process:
        memory = Memory(process.pid)
        code = process.wait()
        memory.stop()
    return {"environment": name, "exit": code, "rss_mib": memory.largest, **of_run(run, log)}


def twice(name: str, runs: Path, agent_steps: int) -> dict[str, Any]:
    """Train in deterministic mode twice, and compare."""
    settings = ("deterministic=true", f"stop.agent_steps_per_policy={agent_steps}")
    found = []
    for index in range(2):
        run = runs / f"{name}-{index}"
        check(name, run=run, settings=settings)
        with closing(sqlite3.connect(f"file:{run / 'journal.db'}?mode=ro", uri=True)) as journal:
            found.append(
                journal.execute(
                    "SELECT policy, agent_steps, weights_digest FROM checkpoints ORDER BY 1, 2, 3"
                ).fetchall()
            )
    file = RunFile.load(runs / f"{name}-0" / RUN_FILE)
    return {
        "environment": name,
        "num_envs": file.config.environment.num_envs,
        "episodes": file.config.assignment.episodes,
        "checkpoints": len(found[0]),
        "same_digests": found[0] == found[1],
    }


class Memory:
    """The largest memory of any learner of a launched run, in MiB, by looking each second."""

    def __init__(self, pid: int) -> None:
        self.largest = 0
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._watch, args=(psutil.Process(pid),))
        self._thread.start()

    def stop(self) -> None:
        """Look no more."""
        self._over.set()
        self._thread.join()

    def _watch(self, process: psutil.Process) -> None:
        while not self._over.wait(1.0):
            for child in _children(process):
                self.largest = max(self.largest, child)


def _children(process: psutil.Process) -> list[int]:
    found = []
    try:
        for child in process.children(recursive=True):
            found.append(child.memory_info().rss >> 20)  # noqa: PERF401
    except psutil.NoSuchProcess:
        pass
    return found


def of_run(run: Path, log: Path) -> dict[str, Any]:
    """Return the figures of a run that has ended."""
    file = RunFile.load(run / RUN_FILE)
    with closing(sqlite3.connect(f"file:{run / 'journal.db'}?mode=ro", uri=True)) as journal:
        rows = journal.execute(
            "SELECT metrics, agent_steps FROM assignments WHERE kind = 'train' AND agent_steps > 0"
        ).fetchall()
        policies = journal.execute("SELECT policy, agent_steps FROM policies").fetchall()
        events = journal.execute("SELECT time, kind, subject FROM events").fetchall()
        ended = dict[str, float]()
        for metrics, message in journal.execute(
            "SELECT metrics, message FROM assignments WHERE kind = 'train' AND agent_steps > 0"
        ):
            policy = json.loads(message)["trainees"][0]["policy"]
            ended[policy] = ended.get(policy, 0.0) + json.loads(metrics).get("episode/count", 0.0)
    metrics = [json.loads(text) for text, _ in rows]
    return {
        "num_envs": file.config.environment.num_envs,
        "episodes_ended": sum(one.get("episode/count", 0.0) for one in metrics),
        "episodes_dropped": sum(one.get("episode/dropped", 0.0) for one in metrics),
        "episode_length": file.environment_measured and file.environment_measured.episode_length,
        "policies_without_an_end": [p for p, _ in policies if not ended.get(p)],
        "agent_steps": sum(steps for _, steps in policies),
        "first_update_s": first_update_s(events),
        **phases(log),
    }


def first_update_s(events: Sequence[tuple[str, str, str]]) -> float | None:
    """Return the seconds from the controller's start to the first training assignment's end."""
    times = {kind: time for time, kind, _ in reversed(events)}
    begun = times.get("controller_started")
    assigned = [subject for _, kind, subject in events if kind == "train_assigned"]
    following = [time for time, kind, _ in events if kind == "train_assigned"]
    if begun is None or len(assigned) < 2:
        return None
    # A learner that is given its third assignment has ended its first.
    at = following[min(4, len(following) - 1)]
    return (datetime.fromisoformat(at) - datetime.fromisoformat(begun)).total_seconds()


def phases(log: Path) -> dict[str, Any]:
    """Return the histograms, of training and of matches."""
    episodes: dict[bool, list[tuple[npt.NDArray[np.float64], int, bool]]] = defaultdict(list)
    for path in sorted(log.glob("*.log")):
        data, at = path.read_bytes(), 0
        while at < len(data):
            is_training, number = np.frombuffer(data, dtype=np.int64, count=2, offset=at).tolist()
            columns = np.frombuffer(data, dtype=np.int64, count=2 * number, offset=at + 16)
            lengths, ends = columns.reshape(2, number).tolist()
            at += 16 * (1 + number)
            if at + 8 * sum(lengths) > len(data):
                break  # a learner was killed before it had written all
            times = np.frombuffer(data, dtype=np.float64, count=sum(lengths), offset=at)
            at += times.nbytes
            for own, length, over in zip(
                np.split(times, np.cumsum(lengths)[:-1]), lengths, ends, strict=True
            ):
                episodes[bool(is_training)].append((own, length, bool(over)))
    found: dict[str, Any] = {}
    for is_training, name in ((True, "trained"), (False, "matches")):
        own_episodes = episodes[is_training]
        ended_lengths = [length for _, length, ended in own_episodes if ended]
        found[f"{name}_episodes"] = len(ended_lengths)
        if not ended_lengths:
            continue
        mean = sum(ended_lengths) / len(ended_lengths)
        first_end = min(times[-1] for times, _, ended in own_episodes if ended)
        counts = np.zeros(NUM_BINS)
        for times, length, ended in own_episodes:
            if not ended and not is_training:
                continue
            # One that was still in flight is as long as others were.
            whole = length if ended else max(length, mean)
            place = (np.arange(length) * NUM_BINS / whole).astype(int).clip(0, NUM_BINS - 1)
            counts += np.bincount(place[times >= first_end], minlength=NUM_BINS)
        shares = counts / counts.sum()
        found[f"{name}_length"] = round(mean, 1)
        found[f"{name}_phases"] = [round(float(share), 3) for share in shares]
        found[f"{name}_least"] = round(float(shares.min()) * NUM_BINS, 2)
    return found


if __name__ == "__main__":
    main()
