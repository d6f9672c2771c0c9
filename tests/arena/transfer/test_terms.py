"""What a learner may publish: what its open assignments train, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from msgspec.structs import asdict, replace

from arena.checkpoints.files import encode_manifest
from arena.checkpoints.manifest import Manifest, checkpoint_key
from arena.codec import from_json
from arena.errors import DecodeError
from arena.transfer.service import StoreService
from arena.transfer.terms import Grant, Terms, check_granted, grants_of
from arena.types import AssignmentId, CheckpointRef, Digest, Player, PlayerId, PolicyId, Seating
from arena.wire.messages import Train, Trainee
from arena.wire.store_messages import Denied, Give, Held, StoreAnswer
from tests.arena.transfer.conftest import GRANT, HOLDER, answered, checkpoint, service_of

P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")
PARENT = Digest("a" * 64)


def begin(service: StoreService, manifest: Manifest, *, holder: str = HOLDER) -> StoreAnswer:
    key = checkpoint_key(manifest.policy, agent_steps=manifest.agent_steps, digest=manifest.digest)
    request = Give(key=key, file="manifest.json", offset=0)
    return answered(service, request, encode_manifest(manifest), holder=holder)[0]


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"generation": 2}, "its generation is 2, not 1"),
        ({"hyperparameters": {"learning_rate": 1.0}}, "its hyperparameters"),
        ({"parent": PARENT}, "its parent"),
        ({"donor": P1}, "its donor"),
        ({"learner_updates": 2}, "its learner_updates are 2, below 3"),
    ],
)
def test_a_checkpoint_that_differs_from_its_assignment_is_refused(
    tmp_path: Path, changes: dict[str, object], text: str
) -> None:
    service = service_of(tmp_path, max_bytes=1 << 30)
    manifest = checkpoint(2000).manifest
    assert isinstance(begin(service, manifest), Held)
    answer = begin(service, replace(manifest, **changes))
    assert isinstance(answer, Denied)
    assert (answer.kind, text in answer.reason) == ("refused", True)


def test_no_more_agent_steps_than_were_asked_for(tmp_path: Path) -> None:
    service = service_of(tmp_path, max_bytes=1 << 30)
    service.grants = {HOLDER: (replace(GRANT, agent_steps=1500),)}
    assert isinstance(begin(service, checkpoint(1500).manifest), Held)
    assert isinstance(begin(service, checkpoint(10**6).manifest), Held)
    for agent_steps in (1499, 10**6 + 1, 10**12):
        answer = begin(service, checkpoint(agent_steps).manifest)
        assert isinstance(answer, Denied)
        assert "its agent_steps are" in answer.reason


def test_another_policy_and_another_learner_are_refused(tmp_path: Path) -> None:
    service = service_of(tmp_path, max_bytes=1 << 30)
    for manifest, holder in (
        (checkpoint(2000, policy=P1).manifest, HOLDER),
        (checkpoint(2000).manifest, "remote-7"),
    ):
        answer = begin(service, manifest, holder=holder)
        assert isinstance(answer, Denied)
        assert "has no open assignment" in answer.reason


def test_an_upload_whose_assignment_ends_is_not_published(tmp_path: Path) -> None:
    service = service_of(tmp_path, max_bytes=1 << 30)
    new = checkpoint(2000, size=100)
    assert isinstance(begin(service, new.manifest), Held)
    first = Give(key=new.key, file="weights.safetensors", offset=0)
    answered(service, first, new.files["weights.safetensors"], holder=HOLDER)
    service.grants = {}
    last = Give(key=new.key, file="optimizer.safetensors", offset=0)
    answer, _ = answered(service, last, new.files["optimizer.safetensors"])
    assert isinstance(answer, Denied)
    assert not (tmp_path / new.key).exists()


@pytest.mark.parametrize(
    "name", ["generation", "agent_steps", "max_agent_steps", "learner_updates"]
)
def test_numbers_of_a_grant_have_bounds(name: str) -> None:
    with pytest.raises(DecodeError, match=name):
        from_json(json.dumps({**asdict(GRANT), name: 2**70}).encode(), Grant)


def train(*trainees: Trainee) -> Train:
    seating = Seating(players=(Player(player=PlayerId(P0)),))
    return Train(
        assignment_id=AssignmentId(1),
        attempt=1,
        trainees=trainees,
        opponents=(seating,),
        agent_steps=100,
        seed=1,
        may_stop_early=True,
    )


def test_grants_are_those_of_the_trainees() -> None:
    first = Trainee(
        policy=P0,
        generation=3,
        agent_steps=1000,
        learner_updates=7,
        checkpoint=CheckpointRef(digest=PARENT, key="populations/player/p001/checkpoints/x"),
        donor=P1,
        hyperparameters={"num_epochs": 4, "learning_rate": 1e-3},
    )
    second = replace(first, policy=P1, checkpoint=None, donor=None)
    grants = grants_of(train(first, second), max_agent_steps=150)
    assert grants[0] == Grant(
        policy=P0,
        generation=3,
        agent_steps=1000,
        max_agent_steps=1150,
        learner_updates=7,
        hyperparameters={"num_epochs": 4.0, "learning_rate": 1e-3},
        parent=PARENT,
        donor=P1,
    )
    assert (grants[1].policy, grants[1].parent, grants[1].donor) == (P1, None, None)


def test_terms_travel_as_a_line() -> None:
    terms = Terms.of({b"k" * 32: "remote-0"}).granting({HOLDER: (GRANT,)})
    assert b"\n" not in terms.line
    assert from_json(terms.line, Terms) == terms
    assert terms.keys == {b"k" * 32: "remote-0"}
    other = terms.admitting({})
    assert (other.keys, other.grants) == ({}, terms.grants)


def test_one_of_several_assignments_may_publish() -> None:
    manifest = checkpoint(2000).manifest
    check_granted(manifest, (replace(GRANT, generation=5), GRANT))
