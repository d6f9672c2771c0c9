from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from arena.checkpoints.files import encode_manifest, verify_directory
from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS, Manifest, checkpoint_key
from arena.codec import from_json
from arena.errors import DecodeError
from arena.transfer.service import EXPIRE_S, StoreService
from arena.transfer.terms import Grant, Terms, check_granted, grants_of
from arena.types import CheckpointRef, Digest, Player, PlayerId, PolicyId, Seating
from arena.wire.messages import Train, Trainee
from arena.wire.store_messages import (
    PIECE_BYTES,
    Denied,
    Fetch,
    FileName,
    Give,
    Held,
    Piece,
    StoreAnswer,
)
from tests.arena.transfer.conftest import (
    GRANT,
    HOLDER,
    Checkpoint,
    Run,
    answered,
    checkpoint,
    files_in,
    service_of,
)
from tests.populations.rows import make_train, make_trainee

MANIFEST_NAME: FileName = "manifest.json"
WEIGHTS_NAME: FileName = "weights.safetensors"
OPTIMIZER_NAME: FileName = "optimizer.safetensors"
NEW = checkpoint(2000)


def give(
    service: StoreService,
    of: Checkpoint,
    file: FileName,
    data: bytes,
    *,
    offset: int = 0,
    key: str | None = None,
    holder: str = HOLDER,
) -> StoreAnswer:
    request = Give(key=of.key if key is None else key, file=file, offset=offset)
    answer, behind = answered(service, request, data, holder=holder)
    assert behind == b""
    return answer


def begin(service: StoreService, of: Checkpoint, *, holder: str = HOLDER) -> StoreAnswer:
    return give(service, of, MANIFEST_NAME, encode_manifest(of.manifest), holder=holder)


def give_whole(service: StoreService, of: Checkpoint, *, holder: str = HOLDER) -> StoreAnswer:
    answer = begin(service, of, holder=holder)
    names: tuple[FileName, ...] = (WEIGHTS_NAME, OPTIMIZER_NAME)
    for name in names:
        data = of.files[name]
        for offset in range(0, len(data), PIECE_BYTES):
            piece = data[offset : offset + PIECE_BYTES]
            answer = give(service, of, name, piece, offset=offset, holder=holder)
    return answer


def test_pieces_of_a_file_are_the_file(run: Run) -> None:
    whole = run.known.files[WEIGHTS]
    found = b""
    while len(found) < len(whole):
        request = Fetch(key=run.known.key, file=WEIGHTS_NAME, offset=len(found))
        answer, data = answered(run.service, request, b"", holder=HOLDER)
        assert answer == Piece(size_bytes=len(whole))
        assert 0 < len(data) <= PIECE_BYTES
        found += data
    assert found == whole
    request = Fetch(key=run.known.key, file=WEIGHTS_NAME, offset=len(whole) + 5)
    assert answered(run.service, request, b"", holder=HOLDER) == (Piece(size_bytes=len(whole)), b"")


def test_a_checkpoint_appears_once_all_of_it_is_there(run: Run) -> None:
    before = files_in(run.root)
    assert begin(run.service, NEW) == Held(held={WEIGHTS: 0, OPTIMIZER: 0}, is_published=False)
    half = NEW.files[WEIGHTS][:100]
    assert give(run.service, NEW, WEIGHTS_NAME, half) == Held(
        held={WEIGHTS: 100, OPTIMIZER: 0}, is_published=False
    )
    assert files_in(run.root) == before
    # The transfer starts again, but bytes that are held stay held.
    assert begin(run.service, NEW) == Held(held={WEIGHTS: 100, OPTIMIZER: 0}, is_published=False)
    rest = NEW.files[WEIGHTS][100:]
    give(run.service, NEW, WEIGHTS_NAME, rest, offset=100)
    assert give(run.service, NEW, OPTIMIZER_NAME, NEW.files[OPTIMIZER]) == Held(
        held={}, is_published=True
    )
    assert verify_directory(run.root / NEW.key).digest == NEW.manifest.digest
    assert begin(run.service, NEW) == Held(held={}, is_published=True)


def test_a_piece_counts_only_where_the_bytes_held_so_far_end(run: Run) -> None:
    begin(run.service, NEW)
    data = NEW.files[WEIGHTS]
    give(run.service, NEW, WEIGHTS_NAME, data[:100])
    expected = Held(held={WEIGHTS: 100, OPTIMIZER: 0}, is_published=False)
    assert give(run.service, NEW, WEIGHTS_NAME, data[:100]) == expected
    assert give(run.service, NEW, WEIGHTS_NAME, data[200:300], offset=200) == expected
    assert give(run.service, NEW, WEIGHTS_NAME, data[50:150], offset=50) == expected


def test_uploads_of_two_learners_do_not_touch_each_other(run: Run) -> None:
    begin(run.service, NEW)
    begin(run.service, NEW, holder="remote-1")
    give(run.service, NEW, WEIGHTS_NAME, b"x" * 100, holder="remote-1")
    assert give_whole(run.service, NEW) == Held(held={}, is_published=True)
    assert verify_directory(run.root / NEW.key).digest == NEW.manifest.digest


def denied(answer: StoreAnswer, kind: str, text: str) -> None:
    assert isinstance(answer, Denied), answer
    assert (answer.kind, text in answer.reason) == (kind, True), answer


@pytest.mark.parametrize(
    ("given", "key", "text"),
    [
        (checkpoint(policy="other/p000"), None, "of no population of this run"),
        (checkpoint(digest="e" * 64), None, "environment_digest"),
        (checkpoint(3000), NEW.key, "not of"),
        (checkpoint(3000), "populations/player/p000/ghosts/000000003000-01234567", "not of"),
        (checkpoint(3000), "keys", "not of"),
    ],
    ids=["population", "environment", "another key", "ghost", "keys"],
)
def test_what_no_learner_of_the_run_would_publish_is_refused(
    run: Run, given: Checkpoint, key: str | None, text: str
) -> None:
    before = files_in(run.root)
    data = encode_manifest(given.manifest)
    denied(give(run.service, given, MANIFEST_NAME, data, key=key), "refused", text)
    assert files_in(run.root) == before


def test_a_policy_that_would_leave_the_store_is_refused(run: Run) -> None:
    manifest = structs.replace(NEW.manifest, policy="player/../../p000")
    evil = dataclasses.replace(NEW, manifest=manifest)
    before = files_in(run.root.parent)
    answer = give_whole(run.service, evil)
    assert isinstance(answer, Denied | Held)
    assert answer != Held(held={}, is_published=True)
    assert files_in(run.root.parent) == before


def test_a_ghost_without_an_optimizer_is_no_new_checkpoint(run: Run) -> None:
    files = {WEIGHTS: NEW.manifest.files[WEIGHTS]}
    bare = dataclasses.replace(NEW, manifest=structs.replace(NEW.manifest, files=files))
    denied(begin(run.service, bare), "refused", "weights and optimizer")


def test_other_bytes_than_the_manifest_says_are_refused_and_leave_nothing(run: Run) -> None:
    before = files_in(run.root)
    wrong = dataclasses.replace(NEW, files={**NEW.files, WEIGHTS: NEW.files[WEIGHTS][:-1] + b"?"})
    denied(give_whole(run.service, wrong), "refused", "do not match its manifest")
    assert files_in(run.root) == before
    assert give_whole(run.service, NEW) == Held(held={}, is_published=True)


def test_more_bytes_than_declared_are_refused(run: Run) -> None:
    begin(run.service, NEW)
    too_many = NEW.files[WEIGHTS] + b"?"
    denied(give(run.service, NEW, WEIGHTS_NAME, too_many), "refused", "more bytes")
    # The transfer is forgotten together with all held bytes.
    assert give(run.service, NEW, WEIGHTS_NAME, b"x") == Held(held={}, is_published=False)


def test_the_bytes_under_way_are_bounded(run: Run) -> None:
    now_s = 0.0
    size = sum(len(data) for data in NEW.files.values())
    service = service_of(run.root, max_bytes=2 * size, clock=lambda: now_s)
    denied(begin(service, checkpoint(9000, size=3 * len(NEW.files[WEIGHTS]))), "refused", "at most")
    others = [checkpoint(steps) for steps in (3000, 4000, 5000)]
    for other in others:
        # Only the newest transfers of a learner count, because it does one assignment at a time.
        assert isinstance(begin(service, other), Held)
    assert give(service, others[0], WEIGHTS_NAME, b"x") == Held(held={}, is_published=False)
    denied(begin(service, NEW, holder="remote-1"), "busy", "other uploads")
    now_s = EXPIRE_S + 1.0
    assert isinstance(begin(service, NEW, holder="remote-1"), Held)


@pytest.mark.parametrize(
    ("key", "kind"),
    [
        ("populations/player/p000/checkpoints/000000000001-01234567", "missing"),
        ("keys", "corrupt"),
        ("populations", "corrupt"),
        ("..", "refused"),
        ("populations/../keys", "refused"),
        (".hidden", "refused"),
        ("a" * 600, "refused"),
        ("link", "refused"),
    ],
)
def test_nothing_but_checkpoints_can_be_fetched(run: Run, key: str, kind: str) -> None:
    keys = run.root / "keys"
    keys.mkdir()
    (keys / "controller.key").write_text("secret")
    (run.root / "link").symlink_to(run.root / "populations")
    answer, data = answered(
        run.service, Fetch(key=key, file=MANIFEST_NAME, offset=0), b"", holder=HOLDER
    )
    assert isinstance(answer, Denied)
    assert (answer.kind, data) == (kind, b"")


def test_a_full_disk_is_said_and_the_checkpoint_can_be_given_again(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*arguments: object, **more: object) -> int:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", refuse)
        denied(give_whole(run.service, NEW), "storage", "No space left")
    assert give_whole(run.service, NEW) == Held(held={}, is_published=True)


def test_a_damaged_checkpoint_is_given_again_and_set_aside(run: Run) -> None:
    path = run.root / run.known.key / WEIGHTS
    path.write_bytes(b"damaged")
    assert give_whole(run.service, run.known) == Held(held={}, is_published=True)
    assert verify_directory(run.root / run.known.key).digest == run.known.manifest.digest


@settings(
    max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    file=st.sampled_from([MANIFEST_NAME, WEIGHTS_NAME, OPTIMIZER_NAME]),
    key=st.sampled_from([NEW.key, "x", "populations/player"]) | st.text(max_size=20),
    offset=st.integers(0, 2**63 - 1),
    data=st.binary(max_size=200) | st.just(encode_manifest(NEW.manifest)),
)
def test_no_request_raises_or_changes_the_store(
    run: Run, file: FileName, key: str, offset: int, data: bytes
) -> None:
    before = files_in(run.root)
    for request in (
        Give(key=key, file=file, offset=offset),
        Fetch(key=key, file=file, offset=offset),
    ):
        answer, _ = answered(run.service, request, data, holder=HOLDER)
        assert isinstance(answer, StoreAnswer)
    assert files_in(run.root) == before
    assert not (run.root / MANIFEST).exists()


P0, P1 = PolicyId("player/p000"), PolicyId("player/p001")
PARENT = Digest("a" * 64)


def begin_terms(service: StoreService, manifest: Manifest, *, holder: str = HOLDER) -> StoreAnswer:
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
    assert isinstance(begin_terms(service, manifest), Held)
    answer = begin_terms(service, structs.replace(manifest, **changes))
    assert isinstance(answer, Denied)
    assert (answer.kind, text in answer.reason) == ("refused", True)


def test_no_more_agent_steps_than_were_asked_for(tmp_path: Path) -> None:
    service = service_of(tmp_path, max_bytes=1 << 30)
    service.grants = {HOLDER: (structs.replace(GRANT, agent_steps=1500),)}
    assert isinstance(begin_terms(service, checkpoint(1500).manifest), Held)
    assert isinstance(begin_terms(service, checkpoint(10**6).manifest), Held)
    for agent_steps in (1499, 10**6 + 1, 10**12):
        answer = begin_terms(service, checkpoint(agent_steps).manifest)
        assert isinstance(answer, Denied)
        assert "its agent_steps are" in answer.reason


def test_another_policy_and_another_learner_are_refused(tmp_path: Path) -> None:
    service = service_of(tmp_path, max_bytes=1 << 30)
    for manifest, holder in (
        (checkpoint(2000, policy=P1).manifest, HOLDER),
        (checkpoint(2000).manifest, "remote-7"),
    ):
        answer = begin_terms(service, manifest, holder=holder)
        assert isinstance(answer, Denied)
        assert "has no open assignment" in answer.reason


def test_an_upload_whose_assignment_ends_is_not_published(tmp_path: Path) -> None:
    service = service_of(tmp_path, max_bytes=1 << 30)
    new = checkpoint(2000, size=100)
    assert isinstance(begin_terms(service, new.manifest), Held)
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
        from_json(json.dumps({**structs.asdict(GRANT), name: 2**70}).encode(), Grant)


def train(*trainees: Trainee) -> Train:
    seating = Seating(players=(Player(player=PlayerId(P0)),))
    return make_train(*trainees, opponents=(seating,), agent_steps=100, may_stop_early=True)


def test_grants_are_those_of_the_trainees() -> None:
    first = make_trainee(
        P0,
        generation=3,
        agent_steps=1000,
        learner_updates=7,
        checkpoint=CheckpointRef(digest=PARENT, key="populations/player/p001/checkpoints/x"),
        donor=P1,
        hyperparameters={"num_epochs": 4, "learning_rate": 1e-3},
    )
    second = structs.replace(first, policy=P1, checkpoint=None, donor=None)
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
    check_granted(manifest, (structs.replace(GRANT, generation=5), GRANT))
