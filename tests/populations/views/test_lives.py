from __future__ import annotations

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from msgspec.structs import asdict, replace

from arena.errors import ConfigError
from arena.types import Entrant, PolicyId
from populations.league.names import Subject
from populations.league.ratings import Interval
from populations.records.rows import GenerationRow
from populations.views.players import why_document
from populations.views.questions.inspection import Document, Inspection
from populations.views.questions.lives import FIGURES, begun, entries, gains, life_of
from populations.views.sentences import event_document
from tests.populations.rows import make_event, make_generation

P0 = PolicyId("player/p000")


def event(sequence: int, kind: str, subject: str, **data: Any) -> Document:
    return event_document(make_event(kind, subject, sequence=sequence, time=f"t{sequence}", **data))


def ghost(sequence: int, steps: int, policy: str = "player/p000") -> Document:
    name = f"{policy}@{steps:012d}"
    return event(sequence, "ghost_created", name, policy=policy, agent_steps=steps)


EVENTS = [
    event(1, "policy_created", "player/p000", role="main"),
    event(2, "policy_created", "player/p001", role="main"),
    ghost(3, 0),
    ghost(4, 100, "player/p001"),
    ghost(5, 100),
    event(6, "champion", "player/p000@000000000100", population="player", previous="player/p001"),
    ghost(7, 200),
    event(8, "exploited", "player/p000", donor="player/p001", generation=1, agent_steps=200),
    event(
        9,
        "exploited",
        "player/p001",
        donor="player/p000",
        donor_agent_steps=200,
        agent_steps=900,
        generation=1,
    ),
    event(10, "quarantined", "player/p000", reason="not finite"),
    event(11, "learning_rate_halved", "player/p000", old={"lr": 2.0}, new={"lr": 1.0}),
    event(12, "explored", "player/p001", generation=2, agent_steps=950),
    event(13, "champion", "player/p001", population="player", previous="player/p000"),
]


def generation(number: int, *, begin: int, end: int | None, **about: Any) -> GenerationRow:
    return make_generation(
        P0,
        number,
        cause=about.get("cause", "start"),
        parent=about.get("parent"),
        parent_agent_steps=about.get("parent_agent_steps"),
        agent_steps_begin=begin,
        agent_steps_end=end,
    )


def test_a_life_has_every_change_in_order_and_ghosts_summed_up() -> None:
    known = (10.0, 0.0, 20.0, 60.0, 50.0, 70.0, 50.0, 38.0, 62.0, None)
    of_it = asdict(generation(0, begin=0, end=200)) | dict(zip(FIGURES, known, strict=True))
    generations = [of_it, {**of_it, "policy": "player/p001"}]
    life = life_of(P0, generations=generations, events=EVENTS)
    assert life == list(entries(EVENTS, Subject(policy=P0), generations=generations))
    told = [(one["kind"], one["time"], one["agent_steps"], one["generation"]) for one in life]
    assert told == [
        ("policy_created", "t1", None, 0),
        # Ghosts of another policy in between do not count.
        ("ghost_created", "t5", 100, 0),
        ("champion", "t6", None, 0),
        ("ghost_created", "t7", 200, 0),
        ("gained", "t8", 200, 0),
        ("exploited", "t8", 200, 1),
        # Agent steps and generation are those of the donor itself.
        ("exploited", "t9", 200, 1),
        ("quarantined", "t10", None, 1),
        # The event does not name the generation that it began.
        ("learning_rate_halved", "t11", None, 2),
        ("champion", "t13", None, 2),
    ]
    sentences = {cast(str, one["time"]): one["sentence"] for one in life if one["kind"] != "gained"}
    assert sentences["t5"] == (
        "player/p000 left 2 ghosts, from player/p000@000000000000 to player/p000@000000000100"
    )
    (gained,) = [one for one in life if one["kind"] == "gained"]
    assert gained["sentence"] == (
        "Generation 0 gained 50 Elo [+38, +62] in 200 agent steps: 10 -> 60"
    )
    assert cast(Any, gained["data"])["elo_gain_low"] == 38.0


def test_the_life_of_a_ghost_ends_with_its_agent_steps_but_for_itself() -> None:
    subject = Subject(policy=P0, agent_steps=100)
    life = list(entries(EVENTS, subject, generations=[]))
    assert [one["time"] for one in life if one["agent_steps"] is not None] == ["t5"]
    assert "t6" in [one["time"] for one in life]
    assert "t8" not in [one["time"] for one in life]


def test_a_life_needs_a_player() -> None:
    with pytest.raises(ConfigError, match="needs a player"):
        why_document(cast("Inspection", None), None)


@dataclass
class PlantedFit:
    """Ratings that are known by construction; differences have a deviation of their own."""

    tables: Any

    ratings: ClassVar = {"a0": 0.0, "a1": 50.0, "a2": 90.0, "b1": 400.0, "a3": 430.0}

    def intervals(self) -> dict[Any, Interval]:
        return {("player", n): Interval(r, r - 100, r + 100) for n, r in self.ratings.items()}

    def difference(self, first: Any, second: Any) -> Interval:
        mean = self.ratings[first[1]] - self.ratings[second[1]]
        return Interval(mean, mean - 5.0, mean + 5.0)


def test_a_generation_gains_from_the_weights_it_began_with_to_its_newest() -> None:
    def made(policy: str, number: int, steps: int, weights: str) -> Any:
        return SimpleNamespace(
            trainee=f"{policy}#{number}", policy=policy, agent_steps=steps, weights_digest=weights
        )

    checkpoints = [
        made("player/p000", 0, 0, "a0"),
        made("player/p000", 0, 100, "a1"),
        made("player/p000", 1, 150, "a2"),
        made("player/p001", 0, 300, "b1"),
        made("player/p000", 2, 220, "a3"),
        made("player/p000", 2, 210, "unrated"),
    ]
    rows = {name: SimpleNamespace(population="player") for name in ("player/p000", "player/p001")}
    tables = SimpleNamespace(checkpoints=dict(enumerate(checkpoints)), policies=rows)
    p1 = SimpleNamespace(
        entrant="player/p001#0", parent=None, parent_agent_steps=None, agent_steps_begin=0
    )
    generations = {
        "player/p000#0": generation(0, begin=0, end=120),
        "player/p000#1": generation(
            1, begin=120, end=200, parent="player/p000#0", parent_agent_steps=120
        ),
        # The copied policy was at 350 agent steps; the newest rated weights before that are b1.
        "player/p000#2": generation(
            2, begin=200, end=None, parent="player/p001#0", parent_agent_steps=350
        ),
        "player/p000#3": generation(
            3, begin=230, end=None, parent="player/p000#2", parent_agent_steps=215
        ),
        "player/p001#0": p1,
    }
    found = gains(cast(Any, PlantedFit(tables)), cast(Any, generations))
    figures = {
        name: [one[key] for key in ("elo_begin", "elo_end", "elo_gain")]
        for name, one in found.items()
    }
    assert figures == {
        "player/p000#0": [0.0, 50.0, 50.0],
        "player/p000#1": [50.0, 90.0, 40.0],
        "player/p000#2": [400.0, 430.0, 30.0],
        # None of its own weights are rated, and a3 was made after the copy, so the line continues
        # to b1.
        "player/p000#3": [400.0, None, None],
        # One rated checkpoint shows no gain.
        "player/p001#0": [400.0, 400.0, None],
    }
    first = found[Entrant("player/p000#0")]
    assert (first["elo_gain_low"], first["elo_gain_high"]) == (45.0, 55.0)
    # The steps are those between the two weights: 0 to 100, and 100 to 120 and 120 to 150. Most of
    # the steps since b1 (50 of its donor and 20 of its own) belong to other generations.
    steps = [one["elo_gain_agent_steps"] for one in found.values()]
    assert steps == [100, 50, None, None, None]


def test_steps_of_a_gain_go_back_over_generations_of_which_nothing_is_rated() -> None:
    def made(number: int, steps: int, weights: str) -> Any:
        return SimpleNamespace(
            trainee=f"player/p000#{number}",
            policy="player/p000",
            agent_steps=steps,
            weights_digest=weights,
        )

    tables = SimpleNamespace(
        checkpoints={0: made(0, 90, "a0"), 1: made(2, 190, "a1"), 2: made(2, 70, "a2")},
        policies={"player/p000": SimpleNamespace(population="player")},
    )
    before = {"player/p000#0": generation(0, begin=0, end=100)}
    for number, steps in ((1, 100), (2, 120)):
        parent = f"player/p000#{number - 1}"
        before[f"player/p000#{number}"] = generation(
            number, begin=steps, end=None, parent=parent, parent_agent_steps=steps
        )
    fit = cast(Any, PlantedFit(tables))
    found = gains(fit, cast(Any, before))
    # The line has 90 to 100 in generation 0, 20 in generation 1, 70 of its own.
    assert found[Entrant("player/p000#2")]["elo_gain_agent_steps"] == 10 + 20 + 70
    untold = replace(before["player/p000#2"], parent_agent_steps=None)
    found = gains(fit, cast(Any, {**before, "player/p000#2": untold}))
    assert found[Entrant("player/p000#2")]["elo_gain"] is not None
    assert found[Entrant("player/p000#2")]["elo_gain_agent_steps"] is None


def test_generations_are_counted_where_an_event_does_not_say_them() -> None:
    found = [(one["sequence"], one["subject"], number) for one, number in begun(EVENTS)]
    assert (11, "player/p000", 2) in found
    assert (12, "player/p001", 2) in found
    assert len(found) == 6
