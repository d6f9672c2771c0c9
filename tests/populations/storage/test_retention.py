"""Deciding row by row, against deciding from all rows."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from arena.types import (
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
from populations.storage.retention import Retention, RetentionRow
from tests.populations.rows import (
    make_assignment,
    make_checkpoint,
    make_evaluate,
    make_ghost,
    tables_with,
)
from tests.populations.storage.retained import retained

DIGEST = Digest("0" * 64)
KINDS = ("train", "corrupt", "exploit", "pend", "ghost", "link", "open", "close", "evaluate")
POLICIES = [PolicyId("a"), PolicyId("b"), PolicyId("c")]


def empty() -> Tables:
    return tables_with(
        policies={
            name: PolicyRow(policy=name, population="player", index=index, hyperparameters={})
            for index, name in enumerate(POLICIES)
        }
    )


def checkpoint(policy: PolicyId, number: int) -> CheckpointRow:
    return make_checkpoint(
        DIGEST,
        key=f"{policy}-{number}",
        policy=policy,
        agent_steps=number * 7,
        learner_updates=number,
        assignment_id=number,
    )


def evaluation(number: int, keys: list[str], status: str) -> AssignmentRow:
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
                row = checkpoint(policy.policy, self.count)
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
                return [evaluation(self.count, data.draw(st.lists(some_key, max_size=3)), "queued")]
            case "close":
                numbers = [*self.tables.assignments]
                return [evaluation(number, [], "finished") for number in numbers[:1]]
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
        for _ in range(data.draw(st.integers(1, 2))):  # twice is as good as once
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
