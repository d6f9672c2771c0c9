from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest
import torch

from arena.checkpoints.files import read_manifest
from arena.checkpoints.manifest import PolicyRecord, ghost_key
from arena.checkpoints.publish import link_ghost
from arena.checkpoints.tensors import publish_policy
from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_environment
from arena.envs.spaces.agent_id_wrapper import observation_layout
from arena.networks.actor_critic import make_actor_critic
from arena.spaces import ActionLayout
from arena.types import (
    RANDOM_BOT,
    CheckpointRef,
    Digest,
    Entrant,
    PolicyId,
    population_of,
)
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile, new_run_file
from populations.config.trust import record_launch
from populations.records.aggregates import Row
from populations.records.rows import (
    CheckpointRow,
    RunRow,
    TallyRow,
)
from tests.populations.rows import (
    make_checkpoint,
    make_ghost,
    make_policy,
    make_ratings,
    make_tally,
    make_tally_row,
)
from tests.support import exit_code, write_run

CODE = Path(__file__).parents[2]
"""Directory of the code that a configuration may name: this repository's."""

NETWORK = {"encoder": "mlp", "hidden_sizes": [16]}


class RunBuilder:
    """Writes a run directory as a controller would leave it, with random policies."""

    def __init__(self, run_dir: Path, config: dict[str, Any], *, code: Path = CODE) -> None:
        self.run_dir = run_dir
        run_dir.mkdir()
        environment = config["environment"]
        spec = inspect_environment(
            EnvironmentRequest(
                environment["id"],
                kwargs=environment.get("kwargs", {}),
                launch_directory=str(code),
            )
        )
        self.run_file: RunFile = new_run_file(
            validate_config(config), spec, name="test", launch_directory=str(code)
        )
        record_launch(self.run_file)
        self.rows: list[Row] = [RunRow(run=self.run_file.run, state="stopped")]

    def checkpoint(
        self,
        policy: str,
        *,
        agent_steps: int,
        seed: int,
        generation: int = 0,
        parent: CheckpointRow | None = None,
        plays: int | None = None,
    ) -> CheckpointRow:
        """Publish random weights that are drawn by ``seed``, or that always play one action."""
        population = self.run_file.config.populations[population_of(policy)]
        agents = population.agents or ()
        facts = self.run_file.spec.agent_specs[agents[0]]
        network = make_actor_critic(
            population.network,
            observation=observation_layout(facts, agents=agents, network=population.network),
            action=ActionLayout.from_json(facts.action, continuous="squashed"),
            seed=seed,
        )
        if plays is not None:
            with torch.no_grad():
                network.head.weight.zero_()
                network.head.bias.zero_()[plays] = 100.0
        reference: CheckpointRef = publish_policy(
            self.run_dir,
            PolicyRecord(
                policy=PolicyId(policy),
                generation=generation,
                agent_steps=agent_steps,
                learner_updates=agent_steps // 100,
                hyperparameters={"learning_rate": 3e-4},
                parent=None if parent is None else parent.digest,
                donor=None,
                environment_digest=self.run_file.spec.digest,
                population_agents=agents,
                network=population.network,
            ),
            weights=network.state_dict(),
            optimizer_state={},
        )
        row = make_checkpoint(
            reference.key,
            digest=reference.digest,
            weights_digest=read_manifest(self.run_dir / reference.key).weights_digest,
            policy=PolicyId(policy),
            generation=generation,
            agent_steps=agent_steps,
            learner_updates=agent_steps // 100,
            parent=None if parent is None else parent.weights_digest,
        )
        self.rows.append(row)
        return row

    def policy(self, policy: str, *, index: int, latest: CheckpointRow | None) -> None:
        self.rows.append(
            make_policy(
                policy,
                index=index,
                agent_steps=0 if latest is None else latest.agent_steps,
                checkpoint=None if latest is None else latest.key,
                hyperparameters={"learning_rate": 3e-4},
            )
        )

    def ghost(self, source: CheckpointRow) -> None:
        key = ghost_key(source.policy, agent_steps=source.agent_steps, digest=source.digest)
        link_ghost(self.run_dir, checkpoint_key=source.key, ghost_key=key)
        self.rows.append(
            make_ghost(
                source.policy,
                source.agent_steps,
                generation=source.generation,
                weights_digest=source.weights_digest,
                key=key,
                checkpoint=source.key,
                linked=True,
            )
        )

    def rate(self, population: str, rated: dict[Digest, float], *, cyclicity: float = 0.0) -> None:
        """Record ratings, each with a deviation of 10, and ranks: its place or one below."""
        entrants = (Entrant(RANDOM_BOT), *(Entrant(digest) for digest in rated))
        ratings = (0.0, *rated.values())
        places = tuple(1 + sum(other > rating for other in ratings) for rating in ratings)
        self.rows.append(
            make_ratings(
                population=population,
                entrants=entrants,
                ratings=ratings,
                deviations=(0.0, *[10.0] * len(rated)),
                rank_lows=places,
                rank_highs=tuple(min(place + 1, len(places)) for place in places),
                cyclicity=cyclicity,
            )
        )

    def met(self, *entrants: str, wins: int = 1) -> None:
        """Record evaluation matches between these, seat by seat, that the first one won."""
        sequence = 1 + sum(isinstance(row, TallyRow) for row in self.rows)
        tally = make_tally(
            entrants,
            (0, 1, wins, 0, 0),
            return_sum=(1.0 * wins, -1.0 * wins),
            return_sum_of_squares=(1.0 * wins, 1.0 * wins),
            length_sum=9 * wins,
        )
        self.rows.append(make_tally_row(tally, sequence))

    def write(self) -> Path:
        return write_run(self.run_dir, self.run_file, self.rows, is_folded=False)


def player_run(
    run_dir: Path,
    environment: str,
    *,
    size: int = 1,
    code: Path = CODE,
    network: Mapping[str, object] = MappingProxyType({}),
    **more: object,
) -> RunBuilder:
    """A run of one population, ``player``; ``more`` are keys of the environment."""
    players = {"size": size, "network": {**NETWORK, **network}}
    config = {"environment": {"id": environment, **more}, "populations": {"player": players}}
    return RunBuilder(run_dir, config, code=code)


@pytest.fixture(scope="session")
def board_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Connect Four: p000 (champion, with an ancestor that is a ghost), p001, and p002 unborn."""
    run = player_run(tmp_path_factory.mktemp("runs") / "board", "classic/connect_four-v3", size=3)
    first = run.checkpoint("player/p000", agent_steps=60_000, seed=1)
    latest = run.checkpoint("player/p000", agent_steps=120_000, seed=2, generation=1, parent=first)
    other = run.checkpoint("player/p001", agent_steps=90_000, seed=3)
    run.policy("player/p000", index=0, latest=latest)
    run.policy("player/p001", index=1, latest=other)
    run.policy("player/p002", index=2, latest=None)
    run.ghost(first)
    run.ghost(other)
    for checkpoint in (first, latest, other):
        run.met(checkpoint.weights_digest, RANDOM_BOT)
    run.rate(
        "player",
        {first.weights_digest: 200.0, latest.weights_digest: 300.0, other.weights_digest: 100.0},
    )
    return run.write()


@pytest.fixture
def own_run(board_run: Path, tmp_path: Path) -> Path:
    """A copy of that run, which a test may change."""
    return Path(shutil.copytree(board_run, tmp_path / "run"))


@pytest.fixture(scope="session")
def leveled_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Connect Four: a champion that always takes the middle, and a ghost that plays at random."""
    run = player_run(tmp_path_factory.mktemp("runs") / "leveled", "classic/connect_four-v3")
    first = run.checkpoint("player/p000", agent_steps=1_000, seed=1)
    latest = run.checkpoint("player/p000", agent_steps=2_000, seed=2, plays=3, parent=first)
    run.policy("player/p000", index=0, latest=latest)
    run.ghost(first)
    run.met(latest.weights_digest, RANDOM_BOT)
    run.rate("player", {latest.weights_digest: 300.0, first.weights_digest: 0.0})
    return run.write()


@pytest.fixture(scope="session")
def cyclic_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Rock, paper and scissors as ghosts (of p000, p001, p002), and who loses to all of them."""
    run = player_run(
        tmp_path_factory.mktemp("runs") / "cyclic",
        "classic/rps-v2",
        size=4,
        kwargs={"max_cycles": 1},
    )
    pure = [
        run.checkpoint(f"player/p{action:03d}", agent_steps=1_000, seed=40, plays=action)
        for action in range(3)
    ]
    weak = run.checkpoint("player/p003", agent_steps=1_000, seed=41)
    for index, checkpoint in enumerate((*pure, weak)):
        run.policy(checkpoint.policy, index=index, latest=checkpoint)
        run.ghost(checkpoint)
    rock, paper, scissors = (checkpoint.weights_digest for checkpoint in pure)
    for winner, loser in ((paper, rock), (scissors, paper), (rock, scissors)):
        run.met(winner, loser, wins=100)
    for winner in (rock, paper, scissors):
        run.met(winner, weak.weights_digest, wins=50)
        run.met(winner, RANDOM_BOT, wins=10)
    rated = {rock: 50.0, paper: 50.0, scissors: 50.0, weak.weights_digest: -300.0}
    run.rate("player", rated, cyclicity=0.9)
    return run.write()


@pytest.fixture(scope="session")
def tag_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simple Tag: two populations, one policy and one ghost each."""
    run = RunBuilder(
        tmp_path_factory.mktemp("runs") / "tag",
        {
            "environment": {
                "id": "mpe2/simple_tag_v3",
                "kwargs": {"max_cycles": 10},
                "sides": {"predators": ["adversary_*"], "prey": ["agent_*"]},
                "outcome": {"threshold": 10.0, "side": "predators"},
            },
            "populations": {
                "predator": {"agents": ["adversary_*"], "size": 1, "network": NETWORK},
                "prey": {"agents": ["agent_*"], "size": 1, "network": NETWORK},
            },
        },
    )
    for seed, population in enumerate(("predator", "prey")):
        policy = f"{population}/p000"
        first = run.checkpoint(policy, agent_steps=30_000, seed=10 + seed)
        latest = run.checkpoint(policy, agent_steps=60_000, seed=20 + seed, parent=first)
        run.policy(policy, index=0, latest=latest)
        run.ghost(first)
        digests = {first.weights_digest: 50.0, latest.weights_digest: 80.0}
        run.rate(population, digests)
        for digest in digests:
            run.met(*((digest, RANDOM_BOT) if population == "predator" else (RANDOM_BOT, digest)))
    return run.write()


@pytest.fixture(scope="session")
def team_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simple Spread with two agents on one side: one policy and one ghost."""
    run = RunBuilder(
        tmp_path_factory.mktemp("runs") / "team",
        {
            "environment": {
                "id": "mpe2/simple_spread_v3",
                "kwargs": {"N": 2, "max_cycles": 10},
                "sides": {"team": ["agent_*"]},
            },
            "populations": {"agent": {"size": 1, "network": NETWORK}},
        },
    )
    first = run.checkpoint("agent/p000", agent_steps=1_000, seed=31)
    latest = run.checkpoint("agent/p000", agent_steps=2_000, seed=32, parent=first)
    run.policy("agent/p000", index=0, latest=latest)
    run.ghost(first)
    for checkpoint in (first, latest):
        run.met(checkpoint.weights_digest, RANDOM_BOT)
    run.rate("agent", {first.weights_digest: 50.0, latest.weights_digest: 80.0})
    return run.write()


@pytest.fixture(scope="session")
def steering_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Simple Spread with forces for actions: one policy, which is told who decides."""
    run = RunBuilder(
        tmp_path_factory.mktemp("runs") / "steering",
        {
            "environment": {
                "id": "mpe2/simple_spread_v3",
                "kwargs": {"N": 2, "max_cycles": 10, "continuous_actions": True},
                "sides": {"team": ["agent_*"]},
            },
            "populations": {"agent": {"size": 1, "network": {**NETWORK, "agent_id": True}}},
        },
    )
    latest = run.checkpoint("agent/p000", agent_steps=2_000, seed=33)
    run.policy("agent/p000", index=0, latest=latest)
    run.met(latest.weights_digest, RANDOM_BOT)
    run.rate("agent", {latest.weights_digest: 80.0})
    return run.write()


Command = Callable[..., dict[str, Any]]


@pytest.fixture
def command(capsys: pytest.CaptureFixture[str]) -> Command:
    """Run ``arena`` through its installed entry point.

    Gives the JSON document, or ``{"error": standard error}`` where another exit code is expected.
    """

    def run(*arguments: object, code: int = 0) -> dict[str, Any]:
        ended = exit_code(*arguments)
        output = capsys.readouterr()
        assert ended == code, output.err
        if code:
            return {"error": output.err}
        document: dict[str, Any] = json.loads(output.out)
        return document

    return run
