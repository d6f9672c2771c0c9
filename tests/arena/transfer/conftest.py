"""A run's store with one checkpoint and one ghost, and its learners' setup."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest, checkpoint_key, ghost_key
from arena.checkpoints.publish import link_ghost, publish
from arena.config import LearnerSetup, NetworkConfig, PopulationSetup
from arena.transfer.service import StoreService
from arena.transfer.terms import Grant, NotGranted
from arena.types import CheckpointRef, Digest, WeightsRef
from arena.wire.store_messages import PIECE_BYTES, StoreAnswer, StoreRequest
from tests.arena.learners import stub
from tests.populations.rows import make_manifest

AGENTS = ("a", "b")
HOLDER = "remote-0"
BIG = PIECE_BYTES + 17


def answered(
    service: StoreService, request: StoreRequest, data: bytes, *, holder: str = HOLDER
) -> tuple[StoreAnswer, bytes]:
    """What a learner is told in the end: as `arena.transfer.process.serve`, which waits before."""
    try:
        return service.answer(request, data, holder=holder)
    except NotGranted as error:
        return service.refuse(request, error, holder=holder)


@dataclass(frozen=True)
class Checkpoint:
    manifest: Manifest
    files: Mapping[str, bytes] = field(repr=False)

    @property
    def key(self) -> str:
        return checkpoint_key(
            self.manifest.policy, agent_steps=self.manifest.agent_steps, digest=self.manifest.digest
        )

    @property
    def ref(self) -> CheckpointRef:
        return CheckpointRef(digest=self.manifest.digest, key=self.key)


def bytes_of(seed: int, *, size: int) -> bytes:
    """Bytes in which no two pieces are alike."""
    return random.Random(seed).randbytes(size)


def checkpoint(
    agent_steps: int = 1000, *, policy: str = "player/p000", size: int = BIG, digest: str = ""
) -> Checkpoint:
    files = {
        WEIGHTS: bytes_of(agent_steps, size=size),
        OPTIMIZER: bytes_of(agent_steps + 1, size=2 * size),
    }
    manifest = make_manifest(
        policy,
        files,
        generation=1,
        agent_steps=agent_steps,
        learner_updates=3,
        hyperparameters={"learning_rate": 3e-4},
        environment_digest=Digest(digest) if digest else setup_of(Path("/nowhere")).spec.digest,
        population_agents=AGENTS,
    )
    return Checkpoint(manifest=manifest, files=files)


def setup_of(root: Path) -> LearnerSetup:
    population = PopulationSetup(agents=AGENTS, network=NetworkConfig())
    return stub.setup().model_copy(
        update={"root": str(root), "populations": {"player": population}}
    )


GRANT = Grant(
    policy="player/p000",
    generation=1,
    agent_steps=0,
    max_agent_steps=10**6,
    learner_updates=3,
    hyperparameters={"learning_rate": 3e-4},
    parent=None,
    donor=None,
)
GRANTS = {HOLDER: (GRANT,), "remote-1": (GRANT,)}
"""Of learners whose open assignments train the same policy: what `checkpoint` makes of it."""


def service_of(
    root: Path, *, max_bytes: int, clock: Callable[[], float] = time.monotonic
) -> StoreService:
    """What serves a store to learners with `GRANTS`."""
    service = StoreService(root, setup_of(root), max_bytes=max_bytes, clock=clock)
    service.grants = GRANTS
    return service


@dataclass
class Run:
    """A store with what serves it."""

    root: Path
    service: StoreService
    known: Checkpoint
    ghost: WeightsRef


@pytest.fixture
def run(tmp_path: Path) -> Run:
    root = tmp_path / "run"
    root.mkdir()
    known = checkpoint()
    publish(root, manifest=known.manifest, files=known.files)
    manifest = known.manifest
    key = ghost_key(manifest.policy, agent_steps=manifest.agent_steps, digest=manifest.digest)
    link_ghost(root, checkpoint_key=known.key, ghost_key=key)
    service = service_of(root, max_bytes=64 << 20)
    ghost = WeightsRef(digest=manifest.weights_digest, key=key)
    return Run(root=root, service=service, known=known, ghost=ghost)


class Wire:
    """Connection in memory; faults are a function of the request's number and the answer."""

    def __init__(self, service: StoreService) -> None:
        self.service = service
        self.asked: list[tuple[StoreRequest, bytes]] = []
        self.is_lost: Callable[[int], bool] = lambda number: False
        self.alter: Callable[[bytes], bytes] = lambda data: data
        self.now_s = 0.0
        self.seconds_per_answer = 0.0
        self._next_s = 0.0
        self._answers: list[tuple[int, StoreAnswer, bytes]] = []

    def clock(self) -> float:
        return self.now_s

    def ask(self, request: StoreRequest, data: bytes = b"") -> int | None:
        number = len(self.asked)
        self.asked.append((request, data))
        if not self.is_lost(number):
            answer, more = answered(self.service, request, data)
            self._answers.append((number, answer, self.alter(more)))
        return number

    def receive(self, timeout_s: float) -> tuple[int, StoreAnswer, bytes] | None:
        if self._answers and self.now_s >= self._next_s:
            self._next_s = self.now_s + self.seconds_per_answer
            return self._answers.pop(0)
        self.now_s += timeout_s
        return None


def files_in(root: Path) -> dict[str, bytes]:
    """All files of a directory's stores, by their paths."""
    return {
        path.relative_to(root).as_posix(): path.read_bytes()
        for path in root.rglob("*")
        if path.is_file()
    }
