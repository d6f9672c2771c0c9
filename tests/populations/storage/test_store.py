from __future__ import annotations

import logging

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.checkpoints.files import list_directories
from arena.types import (
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    WeightsRef,
)
from arena.wire.messages import Pairing
from populations.config.sections import CheckpointsConfig
from populations.records.aggregates import RecordRow, Row
from populations.records.rows import AssignmentRow, CheckpointRow, GhostRow, PolicyRow
from populations.records.tables import Tables
from populations.storage.store import Retention, RetentionRow, link_ghosts, remove_doomed
from tests.populations.rows import (
    make_assignment,
    make_checkpoint,
    make_evaluate,
    make_ghost,
    make_policy,
    make_train,
    make_trainee,
    tables_with,
)
from tests.populations.small_run import SmallRun
from tests.populations.storage.retained import retained

DIGEST = Digest("0" * 64)


def policy(name: str, checkpoint: str | None) -> PolicyRow:
    return make_policy(name, index=0, checkpoint=checkpoint)


def checkpoint(name: str, agent_steps: int, *, state: str = "present") -> CheckpointRow:
    return make_checkpoint(
        DIGEST, key=f"{name}-{agent_steps}", policy=name, agent_steps=agent_steps, state=state
    )


def ghost(source: str, *, linked: bool) -> GhostRow:
    key = f"ghost of {source}"
    return make_ghost("a", player=f"g {source}", key=key, checkpoint=source, linked=linked)


def seating(*keys: str) -> Seating:
    players = [
        Player(player=PlayerId(key), weights=WeightsRef(digest=DIGEST, key=key)) for key in keys
    ]
    return Seating(players=(*players, Player(player=PlayerId("bot:random"))))


def training(*, trains: str, against: str) -> AssignmentRow:
    trainee = make_trainee("a", checkpoint=CheckpointRef(digest=DIGEST, key=trains))
    message = make_train(trainee, opponents=(seating(against),))
    return AssignmentRow(assignment_id=AssignmentId(1), kind="train", message=message, metrics={})


def evaluation(*keys: str) -> AssignmentRow:
    message = make_evaluate(
        assignment_id=2, pairings=(Pairing(seating=seating(*keys), num_matches=4),)
    )
    return make_assignment(message)


def leftover(
    rows: list[CheckpointRow],
    *,
    policies: list[PolicyRow] | None = None,
    ghosts: list[GhostRow] | None = None,
    assignments: list[AssignmentRow] | None = None,
    keep: int | None = 1,
    milestones: int | None = None,
    pinned: tuple[str, ...] = (),
) -> list[str]:
    return retained(
        policies={row.policy: row for row in policies or []},
        checkpoints={row.key: row for row in rows},
        ghosts={row.player: row for row in ghosts or []},
        assignments={row.assignment_id: row for row in assignments or []},
        keep=keep,
        milestones_every_agent_steps=milestones,
        pinned=pinned,
    )


FIVE = [checkpoint("a", agent_steps) for agent_steps in (10, 20, 30, 40, 50)]


def test_the_newest_of_each_policy_stay() -> None:
    rows = [*FIVE, checkpoint("b", 5), checkpoint("b", 15)]
    assert leftover(rows, keep=2) == ["a-10", "a-20", "a-30"]
    assert leftover(rows, keep=1) == ["a-10", "a-20", "a-30", "a-40", "b-5"]
    assert leftover(list(reversed(rows)), keep=2) == ["a-10", "a-20", "a-30"]
    assert leftover(rows, keep=None) == []
    assert leftover(rows, keep=9) == []


def test_keep_must_be_positive() -> None:
    with pytest.raises(ValueError, match="got 0"):
        leftover(FIVE, keep=0)


def test_only_present_ones_go_and_only_present_ones_count() -> None:
    rows = [*FIVE[:3], checkpoint("a", 40, state="doomed"), checkpoint("a", 50, state="corrupt")]
    assert leftover(rows, keep=2) == ["a-10"]


def test_every_kind_of_pin_holds() -> None:
    everything = {"a-10", "a-20", "a-30", "a-40"}
    assert set(leftover(FIVE)) == everything
    assert set(leftover(FIVE, policies=[policy("b", "a-10")])) == everything - {"a-10"}
    assert set(leftover(FIVE, ghosts=[ghost("a-20", linked=False)])) == everything - {"a-20"}
    assert set(leftover(FIVE, ghosts=[ghost("a-20", linked=True)])) == everything
    open_ = [training(trains="a-10", against="a-30"), evaluation("a-20", "a-40")]
    assert leftover(FIVE, assignments=open_) == []
    closed = [replace(row, status="finished") for row in open_]
    assert set(leftover(FIVE, assignments=closed)) == everything
    assert set(leftover(FIVE, pinned=("a-30",))) == everything - {"a-30"}


def test_a_milestone_is_the_first_at_or_after_each_multiple() -> None:
    # Milestones are multiples of 20: 20 is reached at 20, 40 at 40; 10 is before the first, 30 is
    # between.
    assert leftover(FIVE, milestones=20) == ["a-10", "a-30"]
    assert leftover(FIVE, milestones=25) == ["a-10", "a-20", "a-40"]
    assert leftover(FIVE, milestones=1000) == ["a-10", "a-20", "a-30", "a-40"]


@given(
    counts=st.lists(st.integers(0, 300), unique=True, max_size=12),
    keep=st.integers(1, 4),
    every=st.integers(1, 100),
)
def test_milestones_do_not_depend_on_what_went_before(
    counts: list[int], keep: int, every: int
) -> None:
    """Dooming after each checkpoint leaves what dooming once at the end would leave."""
    rows = [checkpoint("a", count) for count in sorted(counts)]
    present: list[CheckpointRow] = []
    for row in rows:
        present.append(row)
        gone = leftover(present, keep=keep, milestones=every)
        present = [other for other in present if other.key not in gone]
    gone = leftover(rows, keep=keep, milestones=every)
    assert present == [row for row in rows if row.key not in gone]


def test_linking_and_removing_are_done_again_without_harm(small_run: SmallRun) -> None:
    rows = small_run.checkpoints_of("player/p000")
    frozen = small_run.snapshot(rows[0], linked=False)
    for _ in range(2):
        assert link_ghosts(small_run.run_dir, [frozen]) == ([frozen.player], [], "")
        assert remove_doomed(small_run.run_dir, [rows[0].key]) == [rows[0].key]
    assert frozen.key in list_directories(small_run.run_dir, "ghosts")
    assert rows[0].key not in list_directories(small_run.run_dir, "checkpoints")


def test_one_that_cannot_be_done_does_not_stop_the_others(
    small_run: SmallRun, caplog: pytest.LogCaptureFixture
) -> None:
    first, second, _ = small_run.checkpoints_of("player/p000")
    ghosts = [small_run.snapshot(row, linked=False) for row in (first, second)]
    remove_doomed(small_run.run_dir, [first.key])
    with caplog.at_level(logging.ERROR):
        assert link_ghosts(small_run.run_dir, ghosts) == ([ghosts[1].player], [], "")
        assert remove_doomed(small_run.run_dir, ["../x", second.key]) == [second.key]
    assert ghosts[0].player in caplog.text
    assert "../x" in caplog.text


KINDS = ("train", "corrupt", "exploit", "pend", "ghost", "link", "open", "close", "evaluate")
POLICIES = [PolicyId("a"), PolicyId("b"), PolicyId("c")]


def empty() -> Tables:
    return tables_with(
        policies={
            name: PolicyRow(policy=name, population="player", index=index, hyperparameters={})
            for index, name in enumerate(POLICIES)
        }
    )


def known_checkpoint(policy: PolicyId, number: int) -> CheckpointRow:
    return make_checkpoint(
        DIGEST,
        key=f"{policy}-{number}",
        policy=policy,
        agent_steps=number * 7,
        learner_updates=number,
        assignment_id=number,
    )


def open_evaluation(number: int, keys: list[str], status: str) -> AssignmentRow:
    players = tuple(
        Player(player=PlayerId(key), weights=WeightsRef(digest=DIGEST, key=key)) for key in keys
    )
    message = make_evaluate(
        assignment_id=number, pairings=(Pairing(seating=Seating(players=players), num_matches=4),)
    )
    return make_assignment(message, status=status)


class Run:
    """Random rows, and what both ways decide."""

    def __init__(self, *, keep: int | None, every: int | None) -> None:
        self.tables = empty()
        self.keep, self.every = keep, every
        self.standing: dict[PolicyId, str] = {}
        self.retention = self.made()
        self.count = 0

    def made(self) -> Retention:
        kept = CheckpointsConfig(keep=self.keep, milestones_every_agent_steps=self.every)
        return Retention(self.tables, kept)

    def change(self, data: st.DataObject) -> list[Row]:
        """Rows of one transaction."""
        keys = [*self.tables.checkpoints, "elsewhere"]
        some_key = st.sampled_from(keys)
        policy = self.tables.policies[data.draw(st.sampled_from(POLICIES))]
        what = data.draw(st.sampled_from(KINDS))
        self.count += 1
        match what:
            case "train":
                row = known_checkpoint(policy.policy, self.count)
                return [row, replace(policy, checkpoint=row.key)]
            case "corrupt":
                found = self.tables.checkpoints.get(data.draw(some_key))
                return [] if found is None else [replace(found, state="corrupt")]
            case "exploit":
                return [replace(policy, checkpoint=data.draw(some_key), pending={})]
            case "pend":
                return [replace(policy, pending={"checkpoint": data.draw(some_key)})]
            case "ghost":
                return [self.ghost(policy.policy, data.draw(some_key))]
            case "link":
                ghosts = self.tables.ghosts.values()
                return [*[replace(ghost, linked=True) for ghost in ghosts][:1]]
            case "open":
                return [
                    open_evaluation(self.count, data.draw(st.lists(some_key, max_size=3)), "queued")
                ]
            case "close":
                numbers = [*self.tables.assignments]
                return [open_evaluation(number, [], "finished") for number in numbers[:1]]
            case _:
                self.standing[policy.policy] = data.draw(some_key)
                return [RecordRow(population="player", entrant=Entrant(DIGEST))]

    def ghost(self, policy: PolicyId, key: str) -> GhostRow:
        return make_ghost(
            policy, self.count, weights_digest=DIGEST, key=f"ghost-{self.count}", checkpoint=key
        )

    def decide(self) -> None:
        """Both ways name the same keys; they are doomed."""
        expected = retained(
            policies=self.tables.policies,
            checkpoints=self.tables.checkpoints,
            ghosts=self.tables.ghosts,
            assignments=self.tables.assignments,
            keep=self.keep,
            milestones_every_agent_steps=self.every,
            pinned=self.standing.values(),
        )
        keys = self.retention.unneeded(
            self.tables, standing=lambda policy: self.standing.get(policy.policy)
        )
        assert keys == expected
        for key in keys:
            doomed = replace(self.tables.checkpoints[key], state="doomed")
            self.tables.put(doomed)
            self.retention.apply(doomed)


@settings(max_examples=150, deadline=None)
@given(st.data(), st.none() | st.integers(1, 3), st.none() | st.integers(5, 60))
@pytest.mark.slow
def test_deciding_row_by_row_is_deciding_from_all_rows(
    data: st.DataObject, keep: int | None, every: int | None
) -> None:
    run = Run(keep=keep, every=every)
    for _ in range(data.draw(st.integers(1, 60))):
        rows = run.change(data)
        for row in rows:
            run.tables.put(row)
        for _ in range(data.draw(st.integers(1, 2))):  # deleting twice is the same as once
            for row in rows:
                if isinstance(row, RetentionRow):
                    run.retention.apply(row)
        match data.draw(st.sampled_from(["go on", "decide", "decide", "resume"])):
            case "decide":
                run.decide()
            case "resume":
                run.retention = run.made()
            case _:
                pass
    run.decide()
