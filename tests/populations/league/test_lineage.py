"""Lineage by hand: whose training is in some weights, and the schedule that follows from it."""

from __future__ import annotations

import json

import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.types import Entrant, Tally
from populations.league import removed_rows
from populations.league.lineage import History, first_of_line, line_of, lineage, schedule_of
from populations.league.payoff import Payoff
from populations.records.columns import to_json
from populations.records.rows import EventRow, GenerationRow, Json
from populations.records.tables import GENERATIONS as KIND
from populations.records.tables import Table, Tables
from tests.populations.rows import make_generation, make_policy, make_tally, tables_with


def row(
    entrant: str,
    cause: str,
    *,
    rate: float,
    begin: int,
    end: int | None = None,
    parent: str | None = None,
    parent_agent_steps: int | None = None,
    line_begin: int = 0,
) -> GenerationRow:
    policy, generation = entrant.split("#")
    return make_generation(
        policy,
        int(generation),
        cause=cause,
        parent=parent,
        parent_agent_steps=parent_agent_steps,
        hyperparameters={"learning_rate": rate},
        agent_steps_begin=begin,
        agent_steps_end=end,
        line_begin=line_begin,
    )


# p000 trains 1000 steps, explores, trains to 2400. p001 trains to 1500, copies p000 when that has
# done 1800, trains from its own 1500 to 1900, explores, and is at 2500.
ROWS = [
    row("player/p000#0", "start", rate=1.0, begin=0, end=1000),
    row("player/p001#0", "start", rate=2.0, begin=0, end=1500),
    row("player/p000#1", "explore", rate=3.0, begin=1000, parent="player/p000#0",
        parent_agent_steps=1000),
    row("player/p001#1", "exploit", rate=4.0, begin=1500, end=1900, parent="player/p000#1",
        parent_agent_steps=1800, line_begin=1),
    row("player/p001#2", "explore", rate=5.0, begin=1900, parent="player/p001#1",
        parent_agent_steps=1900, line_begin=1),
    # Explored at once again: nothing was trained in between.
    row("player/p002#0", "start", rate=6.0, begin=0, end=700),
    row("player/p002#1", "immigrate", rate=7.0, begin=700, end=700, parent="runs/other",
        line_begin=1),
    row("player/p002#2", "explore", rate=8.0, begin=700, parent="player/p002#1",
        parent_agent_steps=700, line_begin=1),
]  # fmt: skip
GENERATIONS = {entry.entrant: entry for entry in ROWS}


def duel(*entrants: str) -> Tally:
    return make_tally(
        tuple(map(Entrant, entrants)),
        (0, 1, 1, 0, 3),
        return_sum=(1.0, 3.0),
        return_sum_of_squares=(1.0, 3.0),
        length_sum=40,
    )


def tables(**agent_steps: int) -> Tables:
    last = {entry.policy: entry.generation for entry in ROWS}
    return tables_with(
        policies={
            policy: make_policy(
                policy,
                index=index,
                generation=generation,
                agent_steps=agent_steps.get(policy.split("/")[1], 0),
            )
            for index, (policy, generation) in enumerate(last.items())
        },
        generations=GENERATIONS,
    )


def test_a_copy_goes_on_from_its_donor_as_it_was_then() -> None:
    found = lineage(GENERATIONS, Entrant("player/p001#2"), agent_steps=2500)
    assert [(generation.entrant, begin, steps) for generation, begin, steps in found] == [
        ("player/p000#0", 0, 1000),
        ("player/p000#1", 1000, 800),
        ("player/p001#1", 1800, 400),
        ("player/p001#2", 2200, 600),
    ]


def test_a_schedule_has_the_hyperparameters_of_each_part() -> None:
    schedule = schedule_of(tables(p001=2500), "player/p001")
    assert [(entry.agent_steps, entry.hyperparameters["learning_rate"]) for entry in schedule] == [
        (0, 1.0),
        (1000, 3.0),
        (1800, 4.0),
        (2200, 5.0),
    ]


def test_what_was_not_trained_and_what_came_from_outside_is_left_out() -> None:
    schedule = schedule_of(tables(p002=900), "player/p002")
    assert [(entry.agent_steps, entry.hyperparameters["learning_rate"]) for entry in schedule] == [
        (0, 8.0)
    ]


def test_a_schedule_needs_a_policy_that_has_trained() -> None:
    with pytest.raises(ConfigError, match=r"no policy 'player/p01'; did you mean 'player/p001'"):
        schedule_of(tables(), "player/p01")
    with pytest.raises(ConfigError, match="has not trained yet"):
        schedule_of(tables(p002=700), "player/p002")
    unrecorded = tables(p002=900)
    unrecorded.generations = Table(KIND)
    with pytest.raises(ConfigError, match="has not recorded its generations"):
        schedule_of(unrecorded, "player/p002")


@pytest.mark.parametrize(
    ("entrant", "line"),
    [
        ("player/p000#1", ["player/p000#0", "player/p000#1"]),
        ("player/p001#1", ["player/p001#1"]),
        ("player/p001#2", ["player/p001#1", "player/p001#2"]),
        ("player/p002#2", ["player/p002#1", "player/p002#2"]),
        ("player/p009#3", ["player/p009#3"]),
    ],
)
def test_a_line_goes_back_to_where_weights_were_replaced(entrant: str, line: list[str]) -> None:
    payoff = Payoff(half_life_matches=100.0)
    assert line_of(GENERATIONS, payoff, Entrant(entrant)) == [entrant]
    for number, own in enumerate(GENERATIONS):
        payoff.add(duel(own, f"{number:064d}"))
    assert line_of(GENERATIONS, payoff, Entrant(entrant)) == line
    assert line[0].endswith(f"#{first_of_line(GENERATIONS, Entrant(entrant))}")
    # Generations without results are no part of it.
    list(payoff.forget([Entrant(line[0])]))
    assert line_of(GENERATIONS, payoff, Entrant(entrant)) == (line[1:] or line)


def test_a_schedule_goes_through_generations_whose_rows_are_gone() -> None:
    rows = tables(p001=2500)
    whole = schedule_of(rows, "player/p001")
    gone = [GENERATIONS[Entrant(name)] for name in ("player/p000#1", "player/p001#1")]
    event = EventRow(
        sequence=1,
        time="",
        kind=removed_rows.GENERATIONS,
        subject="",
        data={"generations": [removed_rows.generation_data(row) for row in gone]},
    )
    # As the journal stores it.
    stored = replace(event, data=json.loads(to_json(event.data)))
    rows.generations = Table(KIND, [row for row in GENERATIONS.values() if row not in gone])
    assert schedule_of(rows, "player/p001") != whole
    history = History.of(rows, [stored])
    assert dict(history.generations) == GENERATIONS
    for policy in rows.policies:
        numbers = [row.generation for row in history.generations.values() if row.policy == policy]
        assert numbers == sorted(numbers)
    assert schedule_of(rows, "player/p001", history=history) == whole


def test_checkpoints_of_a_generation_are_those_there_are_and_those_that_are_gone() -> None:
    named: list[Json] = [
        ["player/p000", 300, 4, 0],
        ["player/p000", 1200, 9, 1],
    ]
    event = EventRow(
        sequence=1,
        time="",
        kind=removed_rows.CHECKPOINTS,
        subject="",
        data={
            "checkpoints": [
                *named,
                "damaged",
                ["player/p000", "many", 4, 0],
                ["player/p001", 400, 5],
            ]
        },
    )
    found = History.of(tables(p000=2400), [event]).checkpoints
    assert found == {"player/p000#0": {300}, "player/p000#1": {1200}}
