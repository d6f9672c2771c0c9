"""Lineage by hand: whose training is in some weights, and the schedule that follows from it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from msgspec.structs import replace

from arena.errors import ConfigError
from arena.types import Entrant, PolicyId, Tally
from populations.league.lineage import (
    CHECKPOINTS_REMOVED,
    GENERATIONS_REMOVED,
    History,
    first_of_line,
    generation_data,
    line_of,
    lineage,
    schedule_of,
)
from populations.league.names import (
    Subject,
    compact,
    find_player,
    is_name,
    short_name,
    short_names,
)
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
# 1800 steps, trains from its own 1500 to 1900, explores, and is at 2500.
ROWS = [
    row("player/p000#0", "start", rate=1.0, begin=0, end=1000),
    row("player/p001#0", "start", rate=2.0, begin=0, end=1500),
    row("player/p000#1", "explore", rate=3.0, begin=1000, parent="player/p000#0",
        parent_agent_steps=1000),
    row("player/p001#1", "exploit", rate=4.0, begin=1500, end=1900, parent="player/p000#1",
        parent_agent_steps=1800, line_begin=1),
    row("player/p001#2", "explore", rate=5.0, begin=1900, parent="player/p001#1",
        parent_agent_steps=1900, line_begin=1),
    # It explored again at once, without training in between.
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
    # Generations without results are not part of the line.
    list(payoff.forget([Entrant(line[0])]))
    assert line_of(GENERATIONS, payoff, Entrant(entrant)) == (line[1:] or line)


def removal(kind: str, data: Mapping[str, Json]) -> EventRow:
    return EventRow(sequence=1, time="", kind=kind, subject="", data=data)


def test_a_schedule_goes_through_generations_whose_rows_are_gone() -> None:
    rows = tables(p001=2500)
    whole = schedule_of(rows, "player/p001")
    gone = [GENERATIONS[Entrant(name)] for name in ("player/p000#1", "player/p001#1")]
    data = {"generations": [generation_data(row) for row in gone]}
    event = removal(GENERATIONS_REMOVED, data)
    # The row has the form in which the journal stores it.
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
    named: list[Json] = [["player/p000", 300, 4, 0], ["player/p000", 1200, 9, 1]]
    damaged: list[Json] = ["damaged", ["player/p000", "many", 4, 0], ["player/p001", 400, 5]]
    event = removal(CHECKPOINTS_REMOVED, {"checkpoints": [*named, *damaged]})
    found = History.of(tables(p000=2400), [event]).checkpoints
    assert found == {"player/p000#0": {300}, "player/p000#1": {1200}}


@pytest.mark.parametrize(
    ("player", "alone", "among"),
    [
        ("player/p002", "p002", "player/p002"),
        ("player/p001@000002100000", "p001@2.1M", "player/p001@2.1M"),
        ("player/p1234@000000000512", "p1234@512", "player/p1234@512"),
        ("bot:random", "bot:random", "bot:random"),
        ("outsider:exports/one@2", "exports/one@2", "exports/one@2"),
        ("bot:a.b:C(path='player/p001')", *["bot:a.b:C(path='player/p001')"] * 2),
        ("", "", ""),
    ],
)
def test_a_population_is_named_where_there_are_several(player: str, alone: str, among: str) -> None:
    assert short_name(player, populations=["player"]) == alone
    assert short_name(player, populations=["player", "other"]) == among


@pytest.mark.parametrize(
    ("number", "text"),
    [
        (0, "0"), (999, "999"), (1000, "1k"), (12_500, "12.5k"), (999_949, "999.9k"),
        (999_950, "1M"), (2_100_000, "2.1M"), (3_195_847, "3.196M"), (5 * 10**9, "5G"),
        (7 * 10**12, "7T"),
    ],
)  # fmt: skip
def test_a_count_has_four_digits_and_a_unit(number: int, text: str) -> None:
    assert compact(number) == text


@pytest.mark.parametrize(
    ("text", "short"),
    [
        ("player/p001 copied player/p000@000000884342.", "p001 copied p000@884.3k."),
        ("runs/p001 and a/player/p001 are paths", "runs/p001 and a/player/p001 are paths"),
        ("player/p001/x.log, player/p001.log", "player/p001/x.log, player/p001.log"),
    ],
)
def test_players_in_a_sentence_are_short_and_paths_stay(text: str, short: str) -> None:
    assert short_names(text, populations=["player"]) == short


P0 = PolicyId("player/p000")


def tables_of(*policies: str, kept: tuple[int, ...] = (), removed: tuple[int, ...] = ()) -> Tables:
    """Return the rows of policies, and of ghosts and checkpoints of the first one.

    Every second one that is kept is a ghost.
    """
    rows = {name: SimpleNamespace(population=name.split("/")[0]) for name in policies}
    ghosts = {i: SimpleNamespace(agent_steps=n, is_present=True) for i, n in enumerate(kept[::2])}
    states = [(n, "present") for n in kept[1::2]] + [(n, "removed") for n in removed]
    checkpoints = {i: SimpleNamespace(agent_steps=n, state=s) for i, (n, s) in enumerate(states)}
    for one in (*ghosts.values(), *checkpoints.values()):
        one.policy = policies[0]
    return cast("Tables", SimpleNamespace(policies=rows, checkpoints=checkpoints, ghosts=ghosts))


TABLES = tables_of(
    *("player/p000", "player/p001"),
    kept=(0, 950, 120_000, 4_627_600, 4_628_499, 4_628_501, 4_700_000),
    removed=(4_699_990, 5_000_000),
)


@pytest.mark.parametrize(
    ("name", "agent_steps"),
    [
        ("p000", None),
        ("player/p000", None),
        ("p000@120000", 120_000),
        ("player/p000@000000120000", 120_000),
        ("p000@120k", 120_000),
        ("player/p000@4.629M", 4_628_501),
        ("p000@0", 0),
        ("p000@950", 950),
    ],
)
def test_a_player_is_found_by_any_of_its_names(name: str, agent_steps: int | None) -> None:
    assert is_name(name)
    found = find_player(name, TABLES)
    assert found == Subject(policy=P0, agent_steps=agent_steps)
    # Its full name and the shown name are accepted, too.
    assert find_player(found.player, TABLES) == found
    assert find_player(short_name(found.player, populations=["player"]), TABLES) == found


def test_of_what_is_removed_only_the_row_is_found() -> None:
    assert find_player("p000@5M", TABLES).agent_steps == 5_000_000
    with pytest.raises(ConfigError, match="keeps nothing of player/p000 at 5M agent steps; the "):
        find_player("p000@5M", TABLES, kept=True)
    # 4,699,990 is written as 4.7M, too, but the name means the kept ghost.
    assert find_player("p000@4.7M", TABLES, kept=True).agent_steps == 4_700_000


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("p000@4.628M", "may be player/p000@000004627600 or player/p000@000004628499$"),
        ("p000@4.7M", "may be player/p000@000004699990 or player/p000@000004700000$"),
        ("player/p002", "the run has no policy 'player/p002'; policies: player/p000, player/p001"),
        (
            "p000@119999",
            "has nothing of player/p000 at 119999 .* ghosts: player/p000@0*,",
        ),
        ("p001@1M", "nearest of its checkpoints and ghosts: none"),
        ("p000@1e5", "agent steps are written as 4628301 or 4.628M"),
        ("p000@", "agent steps are written"),
        ("p000@\u0663", "agent steps are written"),
        ("bot:random", "is not trained"),
        ("", "no policy ''"),
    ],
)
def test_an_unknown_or_ambiguous_name_is_refused_with_candidates(name: str, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        find_player(name, TABLES)


def test_a_name_that_two_populations_have_needs_the_population() -> None:
    tables = tables_of("fox/p000", "hen/p000")
    with pytest.raises(ConfigError, match="may be fox/p000 or hen/p000: name its population too"):
        find_player("p000", tables)
    assert find_player("p000", tables, population="hen").policy == "hen/p000"


def test_of_many_policies_the_nearest_are_listed() -> None:
    tables = tables_of(*(f"player/p{number:03}" for number in range(100)))
    with pytest.raises(ConfigError, match=r"runs/a has no .*policies: player/p099, .* and 92 more"):
        find_player("player/p0999", tables, where="runs/a")


@pytest.mark.parametrize(
    "name", ["bot:random", "../p000", "p00", "p000@", "p000@-1", "p000@4,6M", "p000@bestk", ""]
)
def test_other_texts_are_no_names(name: str) -> None:
    assert not is_name(name)
