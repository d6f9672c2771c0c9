"""Messages, runs and answers of today's code in the words of the stored conversations.

The only module that plays conversations and knows today's classes. Whoever changes those changes
this one in a commit of its own, and no stored document with it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from arena.checkpoints.files import STORE_ID, file_records, sha256_file, store_digest
from arena.checkpoints.manifest import WEIGHTS, Manifest
from arena.checkpoints.publish import publish
from arena.config import LearnerSetup
from arena.processes import guard
from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    Game,
    LearnerId,
    PairScore,
    Player,
    PolicyId,
    Seating,
    SeatOpenings,
    Tally,
    WeightsRef,
)
from arena.wire.messages import (
    PROTOCOL_VERSION,
    Evaluate,
    Failed,
    Finished,
    Goodbye,
    Heartbeat,
    Hello,
    InFlight,
    Message,
    Published,
    Train,
    named_references,
)
from populations.config.run_file import RunFile
from populations.controller import rating_input, result_merging
from populations.controller.server.run_directory import OpenRun, create_run
from populations.controller.server.server import Server
from populations.storage.lock import RunLock
from tests.goldens.conversations.rule import files_of
from tests.goldens.decisions import run_of
from tests.goldens.forms import Document

if TYPE_CHECKING:
    from tests.goldens.conversations.stage import Stage

PID = 4000
SHORT = 10
"""Digits of a digest in documents."""

ANSWERS = {
    "_fit": "fit",
    "answer": "exploration",
    "verify": "check",
    "read_back": "check",
    "remove": "removal",
}
"""Words for what a worker thread is asked, by function; all else is done at once."""

_DIGEST = re.compile(r"[0-9a-f]{64}")


def run_file_of(setting: Document) -> RunFile:
    """The facts of a conversation's run; nothing is of this machine or this moment."""
    return replace(
        run_of(setting),
        created="2026-01-01T00:00:00+00:00",
        versions={"arena-league": "0.1.0"},
    )


def serve(run_dir: Path, setting: Document, stage: Stage) -> None:
    """Make a run, and let the controller's server serve it to its end."""
    run_dir.mkdir(parents=True)
    with _settings(setting.get("fit_room")), RunLock(run_dir):
        create_run(run_dir, run_file_of(setting), initial_weights={}, utc=stage.utc())
        (run_dir / STORE_ID).write_text("0123456789abcdef" * 2, encoding="utf8")
        with OpenRun(run_dir) as run:
            server = Server(
                run_dir=run_dir,
                state=run.state,
                journal=run.journal,
                transport=stage,
                launcher=stage,
                sinks=run.sinks,
                clock=stage.clock,
                utc=stage.utc,
                wait=stage.wait,
                worker=stage.worker,
            )
            stage.open(Words(run_dir, run.setup), server.request_stop)
            server.run()


@contextmanager
def _settings(fit_room: int | None) -> Iterator[None]:
    """Set what no configuration sets: a process id, and the room that a fit has for players."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(guard, "_command_pid", PID)
        if fit_room is not None:
            for module in (rating_input, result_merging):
                patch.setattr(module, "MAX_ENTRANTS", fit_room)
        yield


def plain(value: Any) -> Any:
    """A message as plain data, without what has its default value."""
    match value:
        case Player(player=player, weights=weights):
            return str(player) if weights is None else f"{player} {plain(weights)}"
        case Seating(players=players):
            return [plain(player) for player in players]
        case CheckpointRef(digest=digest) | WeightsRef(digest=digest):
            return digest[:SHORT]
        case bytes():
            return value.hex()
        case str():
            return value[:SHORT] if _DIGEST.fullmatch(value) else value
        case Mapping():
            return {name: plain(inner) for name, inner in value.items()}
        case tuple() | list():
            return [plain(inner) for inner in value]
    if not isinstance(value, msgspec.Struct):
        return value
    found = {}
    for field in msgspec.structs.fields(value):
        own, made = getattr(value, field.name), field.default_factory
        if own != (field.default if made is msgspec.NODEFAULT else made()):
            found[field.name] = plain(own)
    return found


def _game(about: Document) -> Game:
    listed = ("seats", "points", "returns")
    packed = {name: bytes.fromhex(about[name]) for name in ("actions", "shown")}
    return Game(**{**about, **{name: tuple(about[name]) for name in listed}, **packed})


class Words:
    """Messages of one run as documents, and back."""

    def __init__(self, run_dir: Path, setup: LearnerSetup) -> None:
        self._run_dir = run_dir
        self.setup = setup
        self._long: dict[str, Digest] = {}
        self._given: dict[int, Train | Evaluate] = {}

    @cached_property
    def _store(self) -> Digest | None:
        return store_digest(self._run_dir)

    def document(self, message: Message) -> Document:
        """What the controller says; a learner could load what it names."""
        if isinstance(message, Train | Evaluate):
            self._given[message.assignment_id] = message
            for ref in named_references(message):
                self._require(ref)
        return {type(message).__name__: plain(message)}

    def _require(self, ref: CheckpointRef | WeightsRef) -> None:
        found = sha256_file(self._run_dir / ref.key / WEIGHTS)
        if isinstance(ref, WeightsRef):
            assert found == ref.digest, f"{ref.key} holds weights {found}, not {ref.digest}"

    def message(self, learner: str, kind: str, about: Document, *, utc: str) -> Message:
        """What a learner says, as the message that the transport delivers."""
        match kind:
            case "Hello":
                usual: Document = {
                    "protocol": PROTOCOL_VERSION,
                    "environment_digest": self.setup.spec.digest,
                    "config_digest": self.setup.digest,
                    "store": self._store,
                }
                # The document's entries override the usual ones, for a learner that does not belong
                # here.
                said = {**usual, **about, "populations": tuple(about["populations"])}
                return Hello(learner=LearnerId(learner), **said)
            case "Heartbeat":
                return Heartbeat(**about)
            case "Failed":
                return Failed(**about)
            case "Goodbye":
                return Goodbye(**about)
            case "Finished":
                return self._finished(about, utc=utc)
        raise ValueError(f"no learner says {kind}")

    def _finished(self, about: Document, *, utc: str) -> Finished:
        given = self._given[about["assignment_id"]]
        return Finished(
            assignment_id=AssignmentId(about["assignment_id"]),
            attempt=about["attempt"],
            checkpoints=tuple(self._publish(given, one, utc=utc) for one in about["checkpoints"]),
            tallies=tuple(self._tally(one) for one in about["tallies"]),
            metrics=about["metrics"],
            duration_s=about["duration_s"],
            in_flight=tuple(
                InFlight(entrants=self._entrants(one["entrants"]), num_envs=one["num_envs"])
                for one in about.get("in_flight", ())
            ),
            dropped=tuple(about.get("dropped", ())),
            games=tuple(map(_game, about.get("games", ()))),
        )

    def _publish(self, given: Train | Evaluate, about: Document, *, utc: str) -> Published:
        """Publish the checkpoint of a trainee; its weights are a rule's, its manifest today's."""
        assert isinstance(given, Train)
        policy = PolicyId(about["policy"])
        (trainee,) = (one for one in given.trainees if one.policy == policy)
        files = files_of(given.assignment_id, policy)
        population = self.setup.populations[policy.split("/")[0]]
        forged = about.get("forged", 0)
        # The forgery is either other keys of the manifest, or a generation that is too high.
        lies = forged if isinstance(forged, dict) else {"generation": trainee.generation + forged}
        facts: Document = {
            "policy": policy,
            "generation": trainee.generation,
            "agent_steps": about["agent_steps"],
            "learner_updates": about["learner_updates"],
            "hyperparameters": dict(trainee.hyperparameters),
            "parent": None if trainee.checkpoint is None else trainee.checkpoint.digest,
            "donor": trainee.donor,
            "environment_digest": self.setup.spec.digest,
            "population_agents": population.agents,
            "network": population.network,
            "files": file_records(files),
            "arena_version": "0.1.0",
            "created": utc,
        }
        manifest = Manifest(**{**facts, **lies})
        for digest in (manifest.digest, manifest.weights_digest):
            self._long[digest[:SHORT]] = digest
        ref = publish(self._run_dir, manifest=manifest, files=files)
        return Published(policy=policy, checkpoint=ref)

    def _entrants(self, names: list[str]) -> tuple[Entrant, ...]:
        return tuple(Entrant(self._long.get(name, Digest(name))) for name in names)

    def _tally(self, about: Document) -> Tally:
        return Tally(
            entrants=self._entrants(about["entrants"]),
            matches=about["matches"],
            pairs=tuple(PairScore(**pair) for pair in about["pairs"]),
            return_sum=tuple(about["return_sum"]),
            return_sum_of_squares=tuple(about["return_sum_of_squares"]),
            length_sum=about["length_sum"],
            distinct=about.get("distinct"),
            openings=tuple(
                SeatOpenings(**{name: tuple(items) for name, items in seat.items()})
                for seat in about.get("openings", ())
            ),
        )
