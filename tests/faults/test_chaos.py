"""Messages that come twice, late or not at all, and learners that are cut off (F14-F17)."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from populations.audit.verify import verify_run
from populations.controller.state.leases import Patience
from populations.records.aggregates import Row
from populations.storage.database import JOURNAL
from populations.storage.journal import JournalReader
from tests.faults.chaos import Link, Partition, Plan
from tests.faults.conversation import DOCUMENT, IMPATIENT, Conversation, conversation
from tests.faults.outcomes import Outcome, differences, outcome

LOSSY = Plan(seed=11, drop=0.3)
MAX_PER_ASSIGNMENT = 12
"""Messages other than heartbeats for each assignment, where three of ten are lost."""


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """What a deterministic run comes to whose messages all arrive once and in order."""
    run_dir = tmp_path_factory.mktemp("undisturbed") / "run"
    with conversation(run_dir) as talk:
        talk.server.run()
    come_to = outcome(run_dir)
    assert {getattr(row, "kind", "") for row in come_to["decisions"]} >= {"ghost_created"}
    assert len(come_to["assignments"]) >= 10
    return come_to


@pytest.mark.parametrize(
    "plan",
    [
        pytest.param(Plan(seed=3, duplicate=0.5), id="twice"),
        pytest.param(Plan(seed=5, hold=0.3), id="late"),
        pytest.param(Plan(seed=7, hold=0.5, max_hold=1), id="swapped"),
        pytest.param(LOSSY, id="lost"),
        pytest.param(Plan(seed=13, drop=0.1, duplicate=0.3, hold=0.2), id="everything"),
    ],
)
def test_whatever_becomes_of_messages_the_run_comes_to_the_same(
    undisturbed: Outcome, tmp_path: Path, plan: Plan
) -> None:
    with conversation(tmp_path / "run", plan=plan) as talk:
        started_s = time.monotonic()
        talk.server.run()
        elapsed_s = time.monotonic() - started_s
        assert talk.proxy is not None
        kinds, fates = Counter(noted.kind for noted in talk.proxy.log), talk.proxy.fates()
        assert differences(undisturbed, outcome(tmp_path / "run")) == []
        assert verify_run(tmp_path / "run").faults == []
        others = sum(kinds.values()) - kinds["Heartbeat"]
        assert others <= MAX_PER_ASSIGNMENT * len(undisturbed["assignments"]), kinds
        # There is one heartbeat each interval, and one at the beginning of each assignment.
        beats = 2 * (elapsed_s / IMPATIENT.heartbeat_s + 1) + kinds["Hello"] + kinds["Train"]
        assert kinds["Heartbeat"] <= beats + kinds["Evaluate"], kinds
        disturbed = [number for fate, number in fates.items() if not fate.endswith("sent 1")]
        assert sum(disturbed) > 10, fates


class Owners:
    """Sees at every commit that nobody's work is somebody else's, too."""

    def __init__(self, talk: Conversation) -> None:
        self._state = talk.open_run.state
        self.num_looks = 0

    def look(self, rows: Sequence[Row]) -> None:
        del rows
        learners = self._state.crew.learners.values()
        held = Counter(held.assignment_id for learner in learners for held in learner.held)
        assert max(held.values(), default=1) == 1
        open_rows = self._state.tables.assignments
        for learner in learners:
            for mine in learner.held:
                assert open_rows[mine.assignment_id].attempt == mine.attempt
        self.num_looks += 1


def test_a_learner_that_was_cut_off_is_fenced_and_its_work_is_somebody_elses(
    tmp_path: Path,
) -> None:
    patience = Patience(heartbeat_s=0.02, liveness_s=0.5, start_s=1e6, grace_s=3.0, resend_s=0.2)
    plan = Plan(partitions=(Partition(peer=0, first=12, length=80),))
    document = {
        **DOCUMENT,
        "deterministic": False,
        "assignment": {"agent_steps": 100},
        "stop": {"agent_steps_per_policy": 10_000_000},
    }
    run_dir = tmp_path / "run"
    with conversation(
        run_dir, plan=plan, patience=patience, document=document, pause_s=0.01
    ) as talk:
        owners = Owners(talk)
        talk.watchers.append(owners.look)

        def stop_when_fenced(rows: Sequence[Row]) -> None:
            del rows
            if talk.crew.codes:
                talk.server.request_stop("somebody was fenced")

        talk.watchers.append(stop_when_fenced)
        talk.server.run()
    assert talk.proxy is not None
    fenced = [noted for noted in talk.proxy.log if noted.kind == "Refuse"]
    assert {noted.peer for noted in fenced} == {0}
    assert all(noted.text.startswith("fenced") for noted in fenced)
    (_, given_up), *others = talk.crew.codes
    assert (given_up, {code for _, code in others}) == (75, {0})
    assert owners.num_looks > 10
    with JournalReader(run_dir / JOURNAL) as reader:
        lost = reader.events(kinds=["learner_lost"])
        finished = reader.assignments(statuses=("finished",))
        given = reader.events(kinds=["train_assigned", "start_assigned", "evaluation_assigned"])
    assert [row.subject for row in lost] == [talk.crew.codes[0][0]]
    assert "silent" in str(lost[0].data["reason"])
    assert lost[0].data["assignments"], "it held work when it was cut off"
    last = {row.subject: row.data for row in given}
    for row in finished:
        owner = last[str(row.assignment_id)]
        assert (row.learner, row.attempt) == (owner["learner"], owner["attempt"])
    assert verify_run(run_dir).faults == []


def test_a_plan_does_the_same_to_the_same_messages() -> None:
    plan = Plan(seed=2, drop=0.2, duplicate=0.2, hold=0.3)

    def passed() -> list[list[bytes]]:
        link = Link(plan, "up", 0)
        arrived = [link.take([b"%d" % index], is_cut=False)[1] for index in range(200)]
        return [frames for portion in arrived for frames in portion]

    numbers = [int(frames[0]) for frames in passed()]
    assert passed() == passed()
    counted = Counter(numbers)
    assert 120 < len(counted) < 190, "some are lost"
    assert max(counted.values()) == 2, "some come twice"
    assert numbers != sorted(numbers), "some come late"
    late = max(number - min(numbers[at:]) for at, number in enumerate(numbers))
    assert 0 < late <= plan.max_hold


def test_what_is_cut_off_arrives_late_and_in_order() -> None:
    link = Link(Plan(), "up", 0)
    cut = [link.take([b"%d" % index], is_cut=index >= 2) for index in range(5)]
    assert [fate for fate, _ in cut] == ["sent 1", "sent 1", "cut", "cut", "cut"]
    assert link.take([b"5"], is_cut=False) == ("sent 1", [[b"2"], [b"3"], [b"4"], [b"5"]])
