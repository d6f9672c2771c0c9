"""Rows and messages for tests: what a test does not name is the plainest there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from arena.checkpoints.files import file_records
from arena.checkpoints.manifest import Manifest
from arena.config import NetworkConfig
from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.types import (
    AssignmentId,
    Digest,
    PairScore,
    PolicyId,
    Tally,
    ghost_id,
    trainee_entrant,
)
from arena.wire.messages import Evaluate, Failed, Finished, Train, Trainee
from populations.records.rows import (
    AssignmentRow,
    CheckpointRow,
    EventRow,
    GenerationRow,
    GhostRow,
    PolicyRow,
    RatingsRow,
    RunRow,
    TallyRow,
)
from populations.records.tables import Table, Tables

PLAYER = PolicyId("player/p000")
BOX: dict[str, object] = {
    "kind": "Box", "shape": [4], "dtype": "float32", "low": None, "high": None
}  # fmt: skip
DISCRETE: dict[str, object] = {"kind": "Discrete", "n": 3, "start": 0}
PLAIN = AgentSpec(observation=BOX, action=DISCRETE, mask=None)


def make_spec(
    name: str,
    agents: tuple[str, ...],
    *,
    api: Literal["aec", "parallel"] = "aec",
    **others: AgentSpec,
) -> EnvironmentSpec:
    """Specification of an environment; agents have the spaces of ``others``, else the same ones."""
    specs = {agent: others.get(agent, PLAIN) for agent in agents}
    return EnvironmentSpec(id=name, kwargs={}, api=api, agents=agents, agent_specs=specs)


def tables_with(**more: Any) -> Tables:
    tables = Tables(run=more.pop("run", RunRow(run="r")))
    for name, value in more.items():
        is_rows = isinstance(value, Mapping)
        known = getattr(tables, name)
        setattr(tables, name, Table(known.kind, value.values()) if is_rows else value)
    return tables


def make_policy(policy: str = PLAYER, **more: Any) -> PolicyRow:
    population, _, name = policy.rpartition("/")
    plain: dict[str, Any] = {"population": population or "player", "index": int(name[1:] or 0)}
    return PolicyRow(**{"policy": policy, "hyperparameters": {}, **plain, **more})


def make_checkpoint(name: str, **more: Any) -> CheckpointRow:
    """Checkpoint whose key and digests are its name."""
    plain: dict[str, Any] = dict.fromkeys(("generation", "agent_steps", "learner_updates"), 0)
    plain |= dict.fromkeys(("key", "digest", "weights_digest"), name)
    plain |= {"policy": PLAYER, "parent": None, "assignment_id": AssignmentId(1)}
    return CheckpointRow(**{**plain, **more})


def make_manifest(policy: str, files: Mapping[str, bytes], **more: Any) -> Manifest:
    plain: dict[str, Any] = dict.fromkeys(("generation", "agent_steps", "learner_updates"), 0)
    plain |= {"parent": None, "donor": None, "environment_digest": Digest("0" * 64)}
    plain |= {"population_agents": ("player_0", "player_1"), "network": NetworkConfig()}
    plain |= {"hyperparameters": {}, "files": file_records(files), "arena_version": "0"}
    return Manifest(policy=policy, **{"created": "2026-01-01T00:00:00+00:00", **plain, **more})


def make_ghost(policy: str = PLAYER, agent_steps: int = 0, **more: Any) -> GhostRow:
    player = ghost_id(PolicyId(policy), agent_steps=agent_steps)
    plain: dict[str, Any] = {"player": player, "policy": policy, "agent_steps": agent_steps}
    plain |= {
        "population": policy.rpartition("/")[0] or "player",
        "generation": 0,
        "key": f"ghosts/{player}",
    }
    plain |= {"weights_digest": Digest("f" * 64), "checkpoint": f"checkpoints/{player}"}
    return GhostRow(**{**plain, **more})


def make_generation(policy: str = PLAYER, generation: int = 0, **more: Any) -> GenerationRow:
    entrant = trainee_entrant(PolicyId(policy), generation=generation)
    plain: dict[str, Any] = {"entrant": entrant, "policy": policy, "generation": generation}
    plain |= {
        "population": policy.rpartition("/")[0] or "player",
        "hyperparameters": {},
        "parent": None,
    }
    plain |= {"cause": "explore" if generation else "start", "agent_steps_begin": 0}
    return GenerationRow(**{**plain, **more})


def make_event(
    kind: str, subject: str = "", *, sequence: int = 1, time: str = "2026-01-01", **data: Any
) -> EventRow:
    """Event with its data."""
    return EventRow(sequence=sequence, time=time, kind=kind, subject=subject, data=data)


def make_ratings(**more: Any) -> RatingsRow:
    plain: dict[str, Any] = dict.fromkeys(("entrants", "ratings", "deviations"), ())
    return RatingsRow(
        **{"population": "player", "cyclicity": 0.0, "num_tallies": 0, **plain, **more}
    )


def make_tally(
    entrants: tuple[str, ...], *scores: tuple[int, int, int, int, int], **more: Any
) -> Tally:
    """Tally of ``(first, second, wins, draws, losses)``; without sums of returns."""
    pairs = tuple(
        PairScore(first=first, second=second, wins=wins, draws=draws, losses=losses)
        for first, second, wins, draws, losses in scores
    )
    plain: dict[str, Any] = {"entrants": entrants, "pairs": pairs, "length_sum": 0}
    plain |= dict.fromkeys(("return_sum", "return_sum_of_squares"), (0.0,) * len(entrants))
    most = max((sum(score[2:]) for score in scores), default=0)
    return Tally(**{"matches": most, **plain, **more})


def make_tally_row(tally: Tally, sequence: int = 1, **more: Any) -> TallyRow:
    plain: dict[str, Any] = {"assignment_id": AssignmentId(sequence), "kind": "evaluate"}
    return TallyRow(**{"sequence": sequence, "tally": tally, **plain, **more})


def make_trainee(policy: str = PLAYER, **more: Any) -> Trainee:
    plain: dict[str, Any] = dict.fromkeys(("generation", "agent_steps", "learner_updates"), 0)
    return Trainee(**{"policy": policy, "checkpoint": None, "hyperparameters": {}, **plain, **more})


def make_train(*trainees: Trainee, **more: Any) -> Train:
    plain: dict[str, Any] = {
        "assignment_id": AssignmentId(1),
        "attempt": 1,
        "agent_steps": 1,
        "seed": 1,
    }
    plain |= {"opponents": (), "may_stop_early": False}
    return Train(**{"trainees": trainees, **plain, **more})


def make_evaluate(**more: Any) -> Evaluate:
    return Evaluate(**{"assignment_id": AssignmentId(1), "attempt": 1, "seed": 1, **more})


def make_assignment(message: Train | Evaluate, **more: Any) -> AssignmentRow:
    kind = "train" if isinstance(message, Train) else "evaluate"
    plain: dict[str, Any] = {"assignment_id": message.assignment_id, "kind": kind, "metrics": {}}
    return AssignmentRow(**{"message": message, **plain, **more})


def make_finished(message: Train | Evaluate, **more: Any) -> Finished:
    plain: dict[str, Any] = {
        "assignment_id": message.assignment_id,
        "attempt": message.attempt,
        "metrics": {},
    }
    return Finished(**{"checkpoints": (), "tallies": (), "duration_s": 1.0, **plain, **more})


def make_failed(message: Train | Evaluate, **more: Any) -> Failed:
    plain: dict[str, Any] = {"assignment_id": message.assignment_id, "attempt": message.attempt}
    return Failed(**{"kind": "error", "reason": "it broke", **plain, **more})
