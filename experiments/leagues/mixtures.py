"""Ways of training of a league and of plain self-play, and the figures of what they leave.

One policy trains against itself alone (``latest``), or half against itself and half against its
ghosts (``pfsp``). Of what it leaves (ghosts and the last checkpoint) there are the last policy, the
uniform mixture, and the Nash mixture of the game in which players choose one of them. Kuhn and
Leduc poker, tic-tac-toe: exact exploitability, half of NashConv, of policies that sample, in
tic-tac-toe of the last policy alone: a mixture has none where agents do not see all that they did.
Connect Four is too large for that.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch

from arena.checkpoints.tensors import load_weights
from arena.envs.batched.kuhn_poker import KuhnPoker
from arena.envs.batched.leduc_poker import LeducPoker
from arena.envs.batched.tictactoe import TicTacToe
from arena.game_theory.exploitability import exploitability, mixture, sampling, values
from arena.game_theory.game_tree import grow_tree
from arena.networks.frozen import FrozenPolicy
from arena.spaces import ActionLayout, ObservationLayout
from experiments.commands import arena
from populations.config.overrides import apply_overrides
from populations.ratings.nash import max_entropy_nash
from populations.views.questions.inspection import Inspection
from populations.yaml_documents import write_document

CPU = torch.device("cpu")
POKER_GAMES = {"kuhn": KuhnPoker, "leduc": LeducPoker}

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


def configuration(game: str, *, kind: str, seed: int, overrides: Sequence[str]) -> object:
    """Return the configuration of one way of training in one game."""
    document = {**COMMON, **GAMES[game], "seed": seed}
    hyperparameters = document.pop("hyperparameters")
    fixed = [
        f"populations.player.hyperparameters={json.dumps(hyperparameters)}",
        f"matchmaking.kind={kind}",
    ]
    return apply_overrides(document, [*fixed, *overrides])


def train(config: object, run: Path) -> None:
    """Train to the end."""
    path = run.with_suffix(".yaml")
    write_document(config, path)
    arena("launch", path, "--run-dir", run)


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
    if game == "tictactoe":
        tree = grow_tree(TicTacToe)
        return found | {"last": round(exploitability(tree, sampling(policies[-1])), 4)}
    if game in POKER_GAMES:
        return found | _poker(game, policies)
    return found


def _poker(game: str, policies: Sequence[FrozenPolicy]) -> dict[str, object]:
    """Return the exploitability of the last policy and of the mixtures."""
    tree = grow_tree(POKER_GAMES[game])
    plays = [sampling(policy) for policy in policies]
    won = values(tree, plays)
    nash = max_entropy_nash(((won - won.T) / 2).numpy()).tolist()
    uniform = [1.0 / len(plays)] * len(plays)
    return {
        "last": round(exploitability(tree, plays[-1]), 4),
        "uniform": round(exploitability(tree, mixture(tree, plays, shares=uniform)), 4),
        "nash": round(exploitability(tree, mixture(tree, plays, shares=nash)), 4),
        "nash_support": sum(share > 1e-3 for share in nash),
    }


def left_behind(inspection: Inspection) -> list[FrozenPolicy]:
    """Return the ghosts, oldest first, and the last checkpoint of each policy."""
    tables = inspection.tables
    rows = sorted(tables.ghosts.values(), key=lambda ghost: ghost.agent_steps)
    refs = {ghost.weights.digest: ghost.weights for ghost in rows}
    for policy in tables.policies.values():
        assert policy.checkpoint is not None
        last = tables.checkpoints[policy.checkpoint].weights
        refs.pop(last.digest, None)
        refs[last.digest] = last
    spec = inspection.run_file.spec
    facts = spec.agent_specs[spec.agents[0]]
    found = []
    for ref in refs.values():
        manifest, tensors = load_weights(inspection.run_dir, ref)
        found.append(
            FrozenPolicy.from_weights(
                manifest.network,
                tensors,
                observation=ObservationLayout.from_json(facts.observation),
                action=ActionLayout.from_json(facts.action, continuous="squashed"),
                device=CPU,
            )
        )
    return found
