"""Ways of training of a league and of plain self-play, and the figures of what they leave.

One policy trains against itself alone (``latest``), or half against itself and half against its
ghosts (``pfsp``). Of what it leaves (ghosts and the last checkpoint) there are the last policy, the
uniform mixture, and the Nash mixture of the game in which players choose one of them. Kuhn and
Leduc poker, tic-tac-toe: exact exploitability, half of NashConv, of policies that sample.
Rock-paper-scissors: the L1 distance from uniform, from a start that plays rock four times of five.
Connect Four is too large for either.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
import torch

from arena import __version__
from arena.checkpoints.files import encode_manifest, file_records
from arena.checkpoints.manifest import MANIFEST, WEIGHTS, Manifest
from arena.checkpoints.tensors import serialize
from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_environment
from arena.game_theory.exploitability import exploitability, mixture, values
from arena.game_theory.game_tree import grow_tree
from arena.networks.actor_critic import make_actor_critic
from arena.networks.frozen import FrozenPolicy
from experiments.commands import arena
from experiments.leagues import mixed_tictactoe
from experiments.learning.frozen_players import POKER_GAMES, as_policy, layouts, left_behind
from populations.config.overrides import apply_overrides
from populations.config.run_config import RunConfig, validate_config
from populations.config.run_file import RunFile, new_run_file
from populations.controller.server.run_directory import create_run
from populations.ratings.nash import max_entropy_nash
from populations.views.questions.inspection import Inspection

CPU = torch.device("cpu")
ROCK = 0
ROCK_LOGIT = 2.08
"""exp(2.08) is 8 times as likely as each of the others: 80%."""

COMMON: dict[str, object] = {
    "populations": {
        "player": {
            "size": 1,
            "network": {"hidden_sizes": [64, 64], "normalize_observations": False},
            "search_space": {},
        }
    },
    "matchmaking": {"latest_ratio": 0.5, "opponents": 32},
    "pbt": {"exploit": "none", "explore": "none"},
    "evaluation": {"share": 0.05},
    "learners": 1,
}
POKER: dict[str, object] = {
    "learning_rate": 1e-3,
    "entropy_coef": 0.05,
    "gamma": 1.0,
    "gae_lambda": 1.0,
    "num_epochs": 4,
    "num_minibatches": 4,
}
BOARD: dict[str, object] = {"learning_rate": 2.5e-3, "entropy_coef": 0.1, "num_epochs": 2}
GAMES: dict[str, dict[str, object]] = {
    "kuhn": {
        "environment": {"id": "openspiel:kuhn_poker", "num_envs": 1024},
        "hyperparameters": {**POKER, "rollout_length": 8},
        "ghosts": {"every_agent_steps": 25_000},
        "stop": {"agent_steps_per_policy": 2_000_000},
    },
    "leduc": {
        "environment": {"id": "openspiel:leduc_poker", "num_envs": 1024},
        "hyperparameters": {**POKER, "entropy_coef": 0.1, "rollout_length": 16},
        "ghosts": {"every_agent_steps": 93_750},
        "stop": {"agent_steps_per_policy": 7_500_000},
    },
    "rock_paper_scissors": {
        # One rollout an assignment, and win rates that follow it: opponents change before a policy
        # has become pure against them, which it could not leave again.
        "environment": {"id": "classic/rps-v2", "kwargs": {"max_cycles": 1}, "num_envs": 512},
        "hyperparameters": {**POKER, "rollout_length": 4},
        "assignment": {"agent_steps": 3_000},
        "payoffs": {"half_life_matches": 30},
        "ghosts": {"every_agent_steps": 10_000},
        "stop": {"agent_steps_per_policy": 1_000_000},
    },
    "tictactoe": {
        "environment": {
            "id": "classic/tictactoe-v3",
            "num_envs": 1024,
            "random_openings": {"share": 0.5, "max_decisions": 4},
        },
        "hyperparameters": {**BOARD, "num_minibatches": 4, "rollout_length": 8},
        "ghosts": {"every_agent_steps": 25_000},
        "stop": {"agent_steps_per_policy": 1_000_000},
    },
    "connect_four": {
        "environment": {
            "id": "classic/connect_four-v3",
            "num_envs": 2048,
            "random_openings": {"share": 0.25, "max_decisions": 8},
        },
        "hyperparameters": {**BOARD, "num_minibatches": 16, "rollout_length": 16},
        "ghosts": {"every_agent_steps": 100_000},
        "stop": {"agent_steps_per_policy": 1_500_000},
    },
}


def configuration(game: str, *, kind: str, seed: int, overrides: Sequence[str]) -> RunConfig:
    """Return the configuration of one way of training in one game."""
    document = {**COMMON, **GAMES[game], "seed": seed}
    hyperparameters = document.pop("hyperparameters")
    fixed = [
        f"populations.player.hyperparameters={json.dumps(hyperparameters)}",
        f"matchmaking.kind={kind}",
    ]
    return validate_config(apply_overrides(document, [*fixed, *overrides]))


def prepare(config: RunConfig) -> RunFile:
    """Resolve a configuration of two sides and one population, as a launch would."""
    environment = config.environment
    spec = inspect_environment(
        EnvironmentRequest(
            environment.id, kwargs=environment.kwargs, launch_directory=str(Path.cwd())
        )
    )
    return new_run_file(config, spec, name="check", launch_directory=str(Path.cwd()))


def train(config: RunConfig, run: Path, *, is_biased: bool) -> None:
    """Train to the end; with ``is_biased`` from weights that play rock four times of five."""
    run_file = prepare(config)
    weights = {"player": _rock(run_file)} if is_biased else {}
    run.mkdir(parents=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    create_run(run, run_file, initial_weights=weights, utc=now)
    arena("launch", "--resume", "--run-dir", run)


def _rock(run_file: RunFile) -> dict[str, bytes]:
    """Return weights that ignore what they see, and their manifest."""
    population = run_file.config.populations["player"]
    observation, action = layouts(run_file.spec)
    network = make_actor_critic(population.network, observation=observation, action=action, seed=0)
    tensors = network.state_dict()
    tensors["head.weight"].zero_()
    tensors["head.bias"].zero_()
    tensors["head.bias"][ROCK] = ROCK_LOGIT
    files = {WEIGHTS: serialize(tensors)}
    manifest = Manifest(
        policy="player/p000",
        generation=0,
        agent_steps=0,
        learner_updates=0,
        hyperparameters={},
        parent=None,
        donor=None,
        environment_digest=run_file.spec.digest,
        population_agents=population.agents or (),
        network=population.network,
        files=file_records(files),
        arena_version=__version__,
        created=run_file.created,
    )
    return {**files, MANIFEST: encode_manifest(manifest)}


def facts(game: str, run: Path, *, max_players: int | None = None) -> dict[str, object]:
    """Return the figures of a finished run.

    Args:
        game: Its name.
        run: Its directory.
        max_players: Most players, evenly spaced and with the last one; None: all.
    """
    inspection = Inspection.open(run)
    try:
        elapsed_s = inspection.tables.run.elapsed_s
        found: dict[str, object] = {
            "agent_steps": inspection.tables.run.agent_steps,
            "elapsed_s": round(elapsed_s, 1),
        }
        policies = left_behind(inspection)
    finally:
        inspection.close()
    if max_players is not None and len(policies) > max_players:
        kept = np.linspace(0, len(policies) - 1, max_players).round().astype(int)
        policies = [policies[index] for index in kept]
    found["players"] = len(policies)
    if game == "rock_paper_scissors":
        return found | _distances(policies)
    if game == "tictactoe":
        return found | _tictactoe(policies)
    if game in POKER_GAMES:
        return found | _poker(game, policies)
    return found


def _poker(game: str, policies: Sequence[FrozenPolicy]) -> dict[str, object]:
    """Return the exploitability of the last policy and of the mixtures."""
    tree = grow_tree(POKER_GAMES[game])
    plays = [as_policy(policy) for policy in policies]
    won = values(tree, plays)
    nash = max_entropy_nash(((won - won.T) / 2).numpy()).tolist()
    uniform = [1.0 / len(plays)] * len(plays)
    return {
        "last": round(exploitability(tree, plays[-1]), 4),
        "uniform": round(exploitability(tree, mixture(tree, plays, shares=uniform)), 4),
        "nash": round(exploitability(tree, mixture(tree, plays, shares=nash)), 4),
        "nash_support": sum(share > 1e-3 for share in nash),
    }


def _tictactoe(policies: Sequence[FrozenPolicy]) -> dict[str, object]:
    """Return the exploitability of the last policy and of the mixtures, over whole histories."""
    boards = torch.from_numpy(mixed_tictactoe.observations()).flatten(1).float()
    legal = torch.from_numpy(mixed_tictactoe.legal())
    plays = np.stack([p.logits(boards, legal).double().softmax(dim=1).numpy() for p in policies])
    won = mixed_tictactoe.values(plays)
    nash = max_entropy_nash((won - won.T) / 2)
    uniform = np.full(len(plays), 1.0 / len(plays))
    last = np.eye(len(plays))[-1]
    shares = {"last": last, "uniform": uniform, "nash": nash}
    found: dict[str, object] = {
        name: round(mixed_tictactoe.exploitability(plays, shares=share), 4)
        for name, share in shares.items()
    }
    return found | {"nash_support": int((nash > 1e-3).sum())}


def _distances(policies: Sequence[FrozenPolicy]) -> dict[str, object]:
    """Return L1 distances from uniform; the observation of the only round shows no move."""
    unmoved = torch.eye(4)[3:]
    chances = torch.stack([p.logits(unmoved)[0].double().softmax(dim=0) for p in policies])
    beats = torch.tensor([[0.0, -1.0, 1.0], [1.0, 0.0, -1.0], [-1.0, 1.0, 0.0]]).double()
    nash = torch.from_numpy(max_entropy_nash((chances @ beats @ chances.T).numpy()))

    def distance(mixed: torch.Tensor) -> float:
        return round(float((mixed - 1 / 3).abs().sum()), 4)

    return {
        "first": [round(chance, 3) for chance in chances[0].tolist()],
        "last": distance(chances[-1]),
        "uniform": distance(chances.mean(dim=0)),
        "nash": distance(nash @ chances),
    }
