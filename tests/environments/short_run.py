"""One short run, as a controller would have it done: train, evaluate against a ghost, export, play.

The controller's decisions are made here; everything else is the real thing.
"""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import torch

from arena.checkpoints.files import read_manifest
from arena.checkpoints.manifest import Manifest
from arena.checkpoints.tensors import load_weights
from arena.config import LearnerSetup
from arena.environment_spec import EnvironmentRequest
from arena.envs.inspect import inspect_environment
from arena.envs.make import make_batched_env
from arena.envs.one_by_one.steppers import EnvsRequest
from arena.envs.random_play import action_layouts
from arena.export.actor import ExportedActor
from arena.export.card import Card, CardAction, CardEnvironment, CardObservation, CardRating
from arena.export.write import write_export
from arena.learners.spawn import spawn_learner
from arena.matches.actors import RandomActor
from arena.matches.seeds import seed_everything
from arena.matches.tournament import TournamentResult, play_tournament
from arena.rollout.calls import rollout_calls
from arena.types import (
    RANDOM_BOT,
    AssignmentId,
    CheckpointRef,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    WeightsRef,
    population_of,
)
from arena.wire.messages import (
    Evaluate,
    Failed,
    Finished,
    Pairing,
    Train,
)
from arena.wire.zeromq import ZmqControllerTransport
from populations.config.resolution import group_agents
from populations.config.run_config import validate_config
from populations.config.run_file import learner_setup, new_run_file
from tests.arena.learners.stub import ControllerEnd
from tests.environments.rows import Row
from tests.populations.rows import make_evaluate, make_train, make_trainee

ASSETS = Path(__file__).parents[1] / "assets"
NUM_ENVS = 2
ROLLOUT_LENGTH = 6
HYPERPARAMETERS = {"rollout_length": ROLLOUT_LENGTH, "num_epochs": 1, "num_minibatches": 2}
TIMEOUT_S = 240.0

Answer = Finished | Failed
CarryOut = Callable[[Train | Evaluate], Answer]


def make_setup(row: Row, *, root: Path) -> LearnerSetup:
    """What `arena launch` would tell a learner."""
    spec = inspect_environment(
        EnvironmentRequest(
            row.id,
            kwargs=row.kwargs,
            launch_directory=str(ASSETS),
            possible_agents=row.environment.get("possible_agents"),
        )
    )
    population = {
        "size": 1,
        "network": {"hidden_sizes": [16]},
        "hyperparameters": HYPERPARAMETERS,
    }
    config = validate_config(
        {
            "environment": {
                "id": row.id,
                "kwargs": row.kwargs,
                "num_envs": NUM_ENVS,
                **row.environment,
            },
            "populations": {
                name: {"agents": list(agents), **population}
                for name, agents in group_agents(spec).items()
            },
            "device": "cpu",
            "precision": "float32",
        }
    )
    run_file = new_run_file(config, spec, name=row.name, launch_directory=str(ASSETS))
    return learner_setup(run_file, root=root)


@contextlib.contextmanager
def learner_process(setup: LearnerSetup) -> Iterator[CarryOut]:
    """A learner in a process of its own, over a real socket."""
    root = Path(setup.root)
    (root / "setup.json").write_text(setup.model_dump_json(), encoding="utf8")
    with tempfile.TemporaryDirectory(prefix="m-", dir="/tmp") as socket:
        transport = ZmqControllerTransport(f"ipc://{socket}/s", run=setup.run, epoch=1)
        log = root / "learner.log"
        process = spawn_learner(
            root / "setup.json", transport.endpoint, populations=(), log_path=log
        )

        def fail_if_gone() -> None:
            assert process.poll() is None, log.read_text()

        end = ControllerEnd(transport, timeout_s=TIMEOUT_S, check=fail_if_gone)
        try:
            end.welcome(heartbeat_s=1.0)
            yield end.carry_out
        finally:
            process.close()
            transport.close(linger_s=0.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained:
    """What a short run leaves.

    Attributes:
        ghosts: The policies as they were before they learned, by policy.
        manifests: Of their last checkpoints, by policy.
        players: These, frozen.
        training: The answer that told of them.
        evaluation: The answer of the matches against the ghosts.
    """

    ghosts: dict[PolicyId, Player]
    manifests: dict[PolicyId, Manifest]
    players: dict[PolicyId, Player]
    training: Finished
    evaluation: Finished


def short_run(setup: LearnerSetup, carry_out: CarryOut) -> Trained:
    """Two rollouts of every policy against itself and its ghost, and a match of both."""
    ids = count(1)
    names = {name: PolicyId(f"{name}/p000") for name in setup.populations}
    born: dict[PolicyId, CheckpointRef] = {}
    for name in names.values():
        born |= _published(carry_out(_train({name: None}, (), ids=ids, agent_steps=0)))
    ghosts = {policy: _frozen(setup, policy, ref) for policy, ref in born.items()}
    live = {policy: Player(player=PlayerId(policy)) for policy in names.values()}
    first, *rest = setup.seats
    mirror = Seating(players=tuple(live[names[seat.population]] for seat in setup.seats))
    against = Seating(
        players=(
            live[names[first.population]],
            *(ghosts[names[seat.population]] for seat in rest),
        )
    )
    num_agents = len(setup.spec.agents)
    at_once, in_turn = (num_agents, 1) if setup.spec.api == "parallel" else (1, num_agents)
    rollout = rollout_calls(ROLLOUT_LENGTH, agents_in_turn=in_turn) * NUM_ENVS * at_once
    budget = rollout + 1
    answer = carry_out(_train(born, (mirror, against), ids=ids, agent_steps=budget))
    grown = _published(answer)
    players = {policy: _frozen(setup, policy, ref) for policy, ref in grown.items()}
    frozen = Seating(
        players=(
            players[names[first.population]],
            *(ghosts[names[seat.population]] for seat in rest),
        )
    )
    pairings = (Pairing(seating=frozen, num_matches=1),)
    evaluation = carry_out(make_evaluate(assignment_id=AssignmentId(next(ids)), pairings=pairings))
    assert isinstance(answer, Finished)
    assert isinstance(evaluation, Finished), evaluation
    return Trained(
        ghosts=ghosts,
        manifests={p: read_manifest(Path(setup.root) / ref.key) for p, ref in grown.items()},
        players=players,
        training=answer,
        evaluation=evaluation,
    )


def _train(
    trainees: Mapping[PolicyId, CheckpointRef | None],
    seatings: tuple[Seating, ...],
    *,
    ids: Iterator[int],
    agent_steps: int,
) -> Train:
    return make_train(
        *(
            make_trainee(policy, checkpoint=checkpoint, hyperparameters=HYPERPARAMETERS)
            for policy, checkpoint in trainees.items()
        ),
        assignment_id=AssignmentId(next(ids)),
        opponents=seatings,
        agent_steps=agent_steps,
        seed=7,
    )


def _published(answer: Answer) -> dict[PolicyId, CheckpointRef]:
    assert isinstance(answer, Finished), answer
    return {published.policy: published.checkpoint for published in answer.checkpoints}


def _frozen(setup: LearnerSetup, policy: PolicyId, checkpoint: CheckpointRef) -> Player:
    manifest = read_manifest(Path(setup.root) / checkpoint.key)
    return Player(
        player=PlayerId(f"{policy}@{manifest.agent_steps:012d}"),
        weights=WeightsRef(digest=manifest.weights_digest, key=checkpoint.key),
    )


def export(setup: LearnerSetup, trained: Trained, policy: PolicyId, *, to: Path) -> None:
    """Write an export of a policy, which verifies itself."""
    weights = trained.players[policy].weights
    assert weights is not None
    write_export(
        to,
        card=_card(setup, trained.manifests[policy]),
        weights=load_weights(Path(setup.root), weights)[1],
    )


def _card(setup: LearnerSetup, manifest: Manifest) -> Card:
    spec, name = setup.spec, population_of(manifest.policy)
    population = setup.populations[name]
    facts = spec.agent_specs[population.agents[0]]
    environment = setup.environment
    return Card(
        created="2026-01-01T00:00:00+00:00",
        run=setup.run,
        population=name,
        player=manifest.policy,
        agents=population.agents,
        seats=(),
        environment=CardEnvironment(
            id=spec.id,
            kwargs=dict(spec.kwargs),
            api=spec.api,
            agents=spec.agents,
            agent_specs=dict(spec.agent_specs),
            versions=dict(spec.versions),
            sides=dict(setup.sides),
            seats=setup.seats,
            outcome=environment.outcome,
            populations=setup.agents_of,
            continuous_actions=environment.continuous_actions,
            possible_agents=environment.possible_agents,
        ),
        observation=CardObservation.from_space(facts.observation),
        action=CardAction.from_space(facts.action),
        mask=facts.mask,
        network=population.network,
        agent_steps=manifest.agent_steps,
        learner_updates=manifest.learner_updates,
        generation=0,
        weights_digest=manifest.weights_digest,
        rating=CardRating(),
        record=(),
        hyperparameters=dict(manifest.hyperparameters),
        lineage=(),
        versions={},
    )


def play_exports(setup: LearnerSetup, exports: dict[str, Path]) -> TournamentResult:
    """A match between what was exported and random play."""
    populations = setup.agents_of
    env = make_batched_env(
        EnvsRequest(
            setup.environment,
            spec=setup.spec,
            sides=setup.sides,
            populations=populations,
            num_envs=1,
            launch_directory=setup.launch_directory,
        )
    )
    layouts = action_layouts(setup.spec, populations=populations)
    randoms = {name: RandomActor(layouts[name]) for name in populations}
    try:
        return play_tournament(
            env,
            contenders={
                "exports": {name: ExportedActor(path) for name, path in exports.items()},
                str(RANDOM_BOT): randoms,
            },
            num_matches=1,
            seats=setup.seats,
            sides=setup.sides,
            seed=1,
            generator=seed_everything(1, device=torch.device("cpu")),
        )
    finally:
        env.close()
