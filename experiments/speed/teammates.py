"""How much slower is a learner with a seat per agent: mixed teammates beside the same, in turns?

    python -m experiments.speed.teammates --rounds 11

For each game, one learner process plays and learns with ``matchmaking.teammates`` ``same`` and with
``mixed``, a rollout and its update of each in turn. In half of the blocks the policy meets itself,
in the others eight frozen policies; where teammates are mixed, frozen policies sit beside it in all
of them. Games: Simple Tag (a policy plays one of three adversaries, or all), and the two against
two of ``experiments.leagues.teammates``. One JSON line per game: medians over rounds of steps of
environments and of trained agent steps per processor second, and the median and quartiles of mixed
relative to the same, of both. Fewer agents train at a step of mixed teammates, so trained steps
fall more than steps.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path

import torch

from experiments.leagues.teammates import document
from tools.bench.learner import NUM_FROZEN, LearnerWork
from tools.bench.subject import Subject, load_subject

ARMS = ("same", "mixed")


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    options = parser.parse_args()
    torch.set_num_threads(1)
    with tempfile.TemporaryDirectory() as scratch:
        roles = Path(scratch) / "roles.yaml"
        # YAML as JSON.
        roles.write_text(json.dumps(document("same", seed=1, size=4, agent_steps=100_000)))
        for game in ("simple_tag", str(roles)):
            subjects = {arm: load_subject(game, [f"matchmaking.teammates={arm}"]) for arm in ARMS}
            line = {"game": Path(game).stem, **measure(subjects, num_rounds=options.rounds)}
            sys.stdout.write(json.dumps(line) + "\n")
            sys.stdout.flush()


def measure(subjects: Mapping[str, Subject], *, num_rounds: int) -> dict[str, object]:
    """Return the rates of both arms and their ratios."""
    envs = {arm: subject.make_env() for arm, subject in subjects.items()}
    with closing(envs["same"]), closing(envs["mixed"]):
        works = {
            arm: LearnerWork(subject, envs[arm], num_frozen=NUM_FROZEN)
            for arm, subject in subjects.items()
        }
        steps: dict[str, list[float]] = {arm: [] for arm in ARMS}
        trained: dict[str, list[float]] = {arm: [] for arm in ARMS}
        for turn in range(num_rounds + 1):
            for arm in ARMS:
                started = time.process_time()
                num_trained = works[arm]()
                seconds = time.process_time() - started
                # The first round allocates.
                if turn:
                    trained[arm].append(num_trained / seconds)
                    steps[arm].append(steps_per_rollout(subjects[arm]) / seconds)
    return {
        "rounds": num_rounds,
        "steps_per_s": {arm: round(statistics.median(steps[arm])) for arm in ARMS},
        "trained_agent_steps_per_s": {arm: round(statistics.median(trained[arm])) for arm in ARMS},
        "steps_mixed_to_same": quartiles(steps),
        "trained_mixed_to_same": quartiles(trained),
    }


def steps_per_rollout(subject: Subject) -> int:
    """Return the calls of ``step`` of all environments in one rollout, for agents at once."""
    return int(subject.hyperparameters["rollout_length"]) * subject.num_envs


def quartiles(rates: Mapping[str, list[float]]) -> list[float]:
    """Return the quartiles over rounds of mixed relative to the same."""
    ratios = [m / s for m, s in zip(rates["mixed"], rates["same"], strict=True)]
    return [round(value, 3) for value in statistics.quantiles(ratios, n=4)]


if __name__ == "__main__":
    main()
