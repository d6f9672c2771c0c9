"""Is a league's mixture harder to exploit than what plain self-play ends on?

    python -m tests.checks.mixtures kuhn --seeds 1 2 3
    python -m tests.checks.mixtures leduc | rock_paper_scissors [KEY=VALUE ...]

Not a test that passes or fails: it prints one JSON line per seed and way of training. One policy
trains against itself alone (``latest``), or half against itself and half against its ghosts
(``pfsp``), for equally many agent steps. Of what it leaves (ghosts and the last checkpoint) there
are the last policy, the uniform mixture, and the Nash mixture of the game in which players choose
one of them. Kuhn and Leduc poker: exact exploitability, half of NashConv. Rock-paper-scissors: the
L1 distance from uniform, from a start that plays rock four times of five.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch

from arena import __version__
from arena.checkpoints.files import encode_manifest, file_records
from arena.checkpoints.manifest import MANIFEST, WEIGHTS, Manifest
from arena.checkpoints.tensors import load_weights, serialize
from arena.envs.batched.kuhn_poker import KuhnPoker
from arena.envs.batched.leduc_poker import LeducPoker
from arena.matches.exploitability import Policy, exploitability, mixture, values
from arena.networks.frozen import FrozenPolicy
from arena.networks.make import make_actor_critic
from arena.types import WeightsRef
from populations.config import RunConfig, validate_config
from populations.controller.run import create_run
from populations.league.views import Inspection
from populations.overrides import apply_overrides
from populations.ratings.nash import max_entropy_nash
from populations.run_file import RunFile
from tests.checks.commands import arena
from tests.checks.in_process import prepare

CPU = torch.device("cpu")
ROCK = 0
ROCK_LOGIT = 2.08
"""exp(2.08) is 8 times as likely as each of the others: 80%."""

RECIPE: dict[str, object] = {
    "learning_rate": 1e-3,
    "entropy_coef": 0.05,
    "gamma": 1.0,
    "gae_lambda": 1.0,
    "num_epochs": 4,
    "num_minibatches": 4,
}
GAMES: dict[str, dict[str, object]] = {
    "kuhn": {
        "id": "openspiel:kuhn_poker",
        "num_envs": 1024,
        "rollout_length": 8,
        "agent_steps": 2_000_000,
        "ghosts": 80,
        "entropy_coef": 0.05,
    },
    "leduc": {
        "id": "openspiel:leduc_poker",
        "num_envs": 1024,
        "rollout_length": 16,
        "agent_steps": 7_500_000,
        "ghosts": 80,
        "entropy_coef": 0.1,
    },
    "rock_paper_scissors": {
        "id": "classic/rps-v2",
        "kwargs": {"max_cycles": 1},
        "num_envs": 1024,
        "rollout_length": 2,
        "agent_steps": 1_000_000,
        "ghosts": 100,
        "entropy_coef": 0.05,
    },
}


def main() -> None:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("game", choices=sorted(GAMES))
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--kinds", nargs="+", default=["latest", "pfsp"])
    parser.add_argument("overrides", nargs="*")
    options = parser.parse_intermixed_args()
    with tempfile.TemporaryDirectory() as scratch:
        for seed in options.seeds:
            for kind in options.kinds:
                run = Path(scratch) / f"{kind}-{seed}"
                config = configuration(
                    options.game, kind=kind, seed=seed, overrides=options.overrides
                )
                train(config, run, is_biased=options.game == "rock_paper_scissors")
                line = {
                    "game": options.game,
                    "kind": kind,
                    "seed": seed,
                    **facts(options.game, run),
                }
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()


def configuration(game: str, *, kind: str, seed: int, overrides: Sequence[str]) -> RunConfig:
    """One way of training in one game."""
    facts = GAMES[game]
    steps = facts["agent_steps"]
    assert isinstance(steps, int)
    ghosts = facts["ghosts"]
    assert isinstance(ghosts, int)
    recipe = {
        **RECIPE,
        "entropy_coef": facts["entropy_coef"],
        "rollout_length": facts["rollout_length"],
    }
    document: dict[str, object] = {
        "environment": {
            "id": facts["id"],
            "kwargs": facts.get("kwargs", {}),
            "num_envs": facts["num_envs"],
        },
        "populations": {
            "player": {
                "size": 1,
                "network": {"hidden_sizes": [64, 64], "normalize_observations": False},
                "hyperparameters": recipe,
                "search_space": {},
            }
        },
        "matchmaking": {"kind": kind, "latest_ratio": 0.5, "opponents": 32},
        "ghosts": {"every_agent_steps": steps // ghosts},
        "pbt": {"exploit": "none", "explore": "none"},
        "evaluation": {"share": 0.05},
        "learners": 1,
        "stop": {"agent_steps_per_policy": steps},
        "seed": seed,
    }
    return validate_config(apply_overrides(document, overrides))


def train(config: RunConfig, run: Path, *, is_biased: bool) -> None:
    """Train to the end; with ``is_biased`` from weights that play rock four times of five."""
    run_file = prepare(config)
    weights = {"player": _rock(run_file)} if is_biased else {}
    run.mkdir(parents=True)
    now = datetime.now(UTC).isoformat(timespec="seconds")
    create_run(run, run_file, initial_weights=weights, utc=now)
    arena("launch", "--resume", "--run-dir", run)


def _rock(run_file: RunFile) -> dict[str, bytes]:
    """Weights that ignore what they see, and their manifest."""
    population = run_file.config.populations["player"]
    network = make_actor_critic(population.network, observation_size=4, num_actions=3, seed=0)
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


def facts(game: str, run: Path) -> dict[str, object]:
    """What a finished run left."""
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
    found["players"] = len(policies)
    if game == "rock_paper_scissors":
        return found | _distances(policies)
    game_class = {"kuhn": KuhnPoker, "leduc": LeducPoker}[game]
    plays = [as_policy(policy) for policy in policies]
    won = values(game_class, plays)
    nash = max_entropy_nash(((won - won.T) / 2).numpy()).tolist()
    uniform = [1.0 / len(plays)] * len(plays)
    return found | {
        "last": round(exploitability(game_class, plays[-1]), 4),
        "uniform": round(exploitability(game_class, mixture(game_class, plays, shares=uniform)), 4),
        "nash": round(exploitability(game_class, mixture(game_class, plays, shares=nash)), 4),
        "nash_support": sum(share > 1e-3 for share in nash),
    }


def left_behind(inspection: Inspection) -> list[FrozenPolicy]:
    """The ghosts, oldest first, and the last checkpoint of each policy."""
    tables = inspection.tables
    rows = sorted(tables.ghosts.values(), key=lambda ghost: ghost.agent_steps)
    refs = {ghost.weights.digest: ghost.weights for ghost in rows}
    for policy in tables.policies.values():
        assert policy.checkpoint is not None
        last = tables.checkpoints[policy.checkpoint].weights
        refs.pop(last.digest, None)
        refs[last.digest] = last
    return [_load(inspection.run_dir, ref) for ref in refs.values()]


def _load(run: Path, ref: WeightsRef) -> FrozenPolicy:
    manifest, tensors = load_weights(run, ref)
    return FrozenPolicy.from_weights(manifest.network, tensors, device=CPU)


def as_policy(frozen: FrozenPolicy) -> Policy:
    """Its probabilities."""

    def play(observation: torch.Tensor, mask: torch.Tensor, agent: str) -> torch.Tensor:
        return frozen.logits(observation, mask).double().softmax(dim=1)

    return play


def _distances(policies: Sequence[FrozenPolicy]) -> dict[str, object]:
    """L1 from uniform; the observation before the only round is that nobody has moved."""
    nobody = torch.eye(4)[3:]
    chances = torch.stack([p.logits(nobody)[0].double().softmax(dim=0) for p in policies])
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


if __name__ == "__main__":
    main()
