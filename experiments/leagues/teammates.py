r"""Do policies that train beside others play well with others?

    python -m experiments.leagues.teammates --seeds 1 2 3 --agent-steps 60000 --keep runs

Not a test that passes or fails. In the game, two against two, the agents of a side get a point in
each round in which they act differently. They are told nothing of who is who, so the best partner
of a policy is one that differs from it. Beside itself it must first differ by chance, and then keep
the roles apart by a rule: in each of a few contexts both stay, or both swap. Either rule is as
good, and both together fail.

For each seed a population learns twice with equal agent steps and without PBT: with
``matchmaking.teammates`` ``same`` and ``mixed``. One JSON line per run: the share of rounds with a
point, by pair of policies that share a side (cross-play), its means on and off the diagonal, and
the seconds that training took. ``--keep`` keeps the runs; called again, it goes on where it ended.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from itertools import combinations_with_replacement
from pathlib import Path
from typing import Any

import numpy as np
from gymnasium.spaces import Box, Discrete
from pettingzoo import ParallelEnv

from arena.learners.loop import NoProgress
from arena.learners.work.worker import Worker
from arena.matches.teammates import seats_per_agent
from arena.types import AssignmentId, Player, PlayerId, Seating
from arena.wire.messages import Evaluate, Finished, Pairing
from experiments.commands import launch
from populations.config.run_file import learner_setup
from populations.views.questions.inspection import Inspection

ROUNDS, CONTEXTS = 16, 4
AGENTS = ("red_0", "red_1", "blue_0", "blue_1")
PARTNER = {"red_0": "red_1", "red_1": "red_0", "blue_0": "blue_1", "blue_1": "blue_0"}
NOTHING = 2
"""Last action of an agent that has not acted yet."""

ARMS = ("same", "mixed")


class Roles(ParallelEnv):  # type: ignore[misc]
    """The game: partners get a point for each round in which their actions differ."""

    metadata: dict[str, Any] = {"name": "roles"}  # noqa: RUF012

    def __init__(self) -> None:
        self.possible_agents = list(AGENTS)
        self._rng = np.random.default_rng()
        self._last = dict.fromkeys(AGENTS, NOTHING)
        self._context = 0
        self._round = 0

    def observation_space(self, agent: str) -> Box:
        """Return the space: last action of oneself and of the partner, and the context."""
        return Box(0.0, 1.0, (3 + 3 + CONTEXTS,), np.float32)

    def action_space(self, agent: str) -> Discrete:
        """Return the space: one of two roles."""
        return Discrete(2)

    def reset(self, seed: int | None = None, options: object = None) -> Any:
        """Begin an episode."""
        if seed is not None:
            self._rng = np.random.default_rng(seed)
        self.agents = list(AGENTS)
        self._last = dict.fromkeys(AGENTS, NOTHING)
        self._round = 0
        self._context = int(self._rng.integers(CONTEXTS))
        return self._observations(), {agent: {} for agent in AGENTS}

    def step(self, actions: dict[str, int]) -> Any:
        """Play a round."""
        self._last = {agent: int(actions[agent]) for agent in AGENTS}
        self._round += 1
        self._context = int(self._rng.integers(CONTEXTS))
        is_over = self._round == ROUNDS
        if is_over:
            self.agents = []
        return (
            self._observations(),
            {a: float(self._last[a] != self._last[PARTNER[a]]) / ROUNDS for a in AGENTS},
            dict.fromkeys(AGENTS, is_over),
            dict.fromkeys(AGENTS, False),
            {agent: {} for agent in AGENTS},
        )

    def _observations(self) -> dict[str, Any]:
        return {
            agent: np.concatenate(
                [
                    np.eye(3, dtype=np.float32)[self._last[agent]],
                    np.eye(3, dtype=np.float32)[self._last[PARTNER[agent]]],
                    np.eye(CONTEXTS, dtype=np.float32)[self._context],
                ]
            )
            for agent in AGENTS
        }


def parallel_env() -> Roles:
    """Make the game."""
    return Roles()


def document(teammates: str, *, seed: int, size: int, agent_steps: int) -> dict[str, object]:
    """Return the configuration of a run."""
    return {
        "seed": seed,
        "environment": {
            "id": "experiments.leagues.teammates:parallel_env",
            "num_envs": 64,
            "sides": {"red": ["red_*"], "blue": ["blue_*"]},
        },
        "populations": {
            "player": {
                "agents": ["*"],
                "size": size,
                "network": {"hidden_sizes": [32]},
                "hyperparameters": {
                    "rollout_length": 16,
                    "learning_rate": 3e-3,
                    "gamma": 0.9,
                    "entropy_coef": 0.01,
                },
                "search_space": {},
            }
        },
        "matchmaking": {
            "teammates": teammates,
            "kind": "uniform",
            "opponents": 8,
            # Living partners: ghosts of the beginning know no rule yet.
            "latest_ratio": 0.25,
            "living_ratio": 0.5,
        },
        "pbt": {"exploit": "none", "explore": "none"},
        "ghosts": {"every_agent_steps": max(agent_steps // 8, 1)},
        "assignment": {"agent_steps": 4096},
        "evaluation": {"share": 0.05},
        "launcher": "inline",
        "deterministic": True,
        "stop": {"agent_steps_per_policy": agent_steps},
    }


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--policies", type=int, default=4)
    parser.add_argument("--agent-steps", type=int, default=60_000, help="of each policy")
    parser.add_argument("--matches", type=int, default=200, help="of each pair of partners")
    parser.add_argument("--keep", type=Path, help="directory in which the runs stay")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        root = options.keep or Path(scratch)
        root.mkdir(parents=True, exist_ok=True)
        for seed in options.seeds:
            for arm in ARMS:
                run = root / f"{arm}-{seed}"
                config = document(
                    arm, seed=seed, size=options.policies, agent_steps=options.agent_steps
                )
                # YAML as JSON.
                file = run.with_suffix(".yaml")
                file.write_text(json.dumps(config), encoding="utf8")
                launch(file, run, seed=seed)
                line = {"seed": seed, "teammates": arm, **facts(run, matches=options.matches)}
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


def facts(run: Path, *, matches: int) -> dict[str, object]:
    """Return the cross-play matrix of a run's policies as they ended, its means, and seconds."""
    inspection = Inspection.open(run)
    try:
        row, tables = inspection.tables.run, inspection.tables
        players = [
            Player(
                player=PlayerId(policy.policy),
                weights=tables.checkpoints[policy.checkpoint].weights,
            )
            for policy in tables.policies.values()
            if policy.checkpoint is not None
        ]
        matrix = cross_play(inspection, players, matches=matches)
    finally:
        inspection.close()
    is_self = np.eye(len(players), dtype=bool)
    return {
        "matrix": matrix.round(3).tolist(),
        "with_itself": round(float(matrix[is_self].mean()), 3),
        "with_others": round(float(matrix[~is_self].mean()), 3),
        "worst_pair": round(float(matrix.min()), 3),
        "agent_steps": row.agent_steps,
        "training_s": round(row.training_s, 1),
        "matches": row.matches,
    }


def cross_play(inspection: Inspection, players: list[Player], *, matches: int) -> Any:
    """Return the mean return of each pair of partners, sampling. float64 [N, N], symmetric.

    Both sides are the same two players, each of them at either place.
    """
    setup = learner_setup(inspection.run_file, root=inspection.run_dir)
    # A seat per agent, which evaluation in a run never has.
    worker = Worker(
        setup.model_copy(update={"seats": seats_per_agent(setup.seats), "device": "cpu"}),
        progress=NoProgress(),
        should_stop=lambda: False,
    )
    pairs = list(combinations_with_replacement(range(len(players)), 2))
    answer = worker.carry_out(
        Evaluate(
            assignment_id=AssignmentId(1),
            attempt=1,
            pairings=tuple(
                Pairing(
                    seating=Seating(players=(players[i], players[j], players[j], players[i])),
                    num_matches=matches,
                )
                for i, j in pairs
            ),
            seed=1,
        )
    )
    worker.close()
    if not isinstance(answer, Finished):
        raise RuntimeError(f"the matches failed: {answer.reason}")
    matrix = np.zeros((len(players), len(players)))
    place = {player.weights.digest: i for i, player in enumerate(players) if player.weights}
    for tally in answer.tallies:
        i, j = (place[entrant] for entrant in tally.entrants[:2])  # type: ignore[index]
        matrix[i, j] = matrix[j, i] = sum(tally.return_sum) / 4 / tally.matches
    return matrix


if __name__ == "__main__":
    main()
