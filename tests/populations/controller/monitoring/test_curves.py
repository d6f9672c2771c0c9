"""What goes to the sinks of a whole simulated run, compared with what the run recorded."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field

import pytest
from msgspec.structs import replace

from arena.environment_spec import EnvironmentSpec
from arena.types import Digest, PolicyId
from populations.choices import number_of
from populations.controller.monitoring.curves import curve_names, evaluated_steps, is_due
from populations.controller.state.events import Command, ControllerStarted, WriteMetrics
from populations.controller.state.state import make_state
from populations.league.lineage import num_copies
from populations.league.standings import champion, standings
from populations.records.rows import GenerationRow
from populations.views.questions.results import payoff_cells
from tests.populations.controller.simulated import (
    DUEL,
    DUET,
    TAG,
    World,
    by_rate,
    duet_spec,
    fold,
    make_world,
    tag_spec,
)

Points = dict[str, list[tuple[int, Mapping[str, float]]]]

PBT = {
    "ready_agent_steps": 1000,
    "warm_up_agent_steps": 1000,
    "min_matches": 20,
    "min_rating_gap": 1,
    "confidence": 0.0,
}
PLAYED = {**DUEL, "pbt": PBT, "stop": {"agent_steps_per_policy": 4000}}


@dataclass(slots=True)
class NotingWorld(World):
    """A world that notes everything that its sinks would be told."""

    points: Points = field(default_factory=lambda: defaultdict(list))

    def carry_out(self, command: Command) -> None:
        if isinstance(command, WriteMetrics):
            self.points[command.policy].append((command.agent_steps, command.metrics))
        World.carry_out(self, command)


def noting_world(document: dict[str, object], spec: EnvironmentSpec | None = None) -> NotingWorld:
    world = make_world(document, spec)
    return NotingWorld(
        state=world.state, setup=world.setup, learner=world.learner, committed=world.committed
    )


@pytest.fixture(scope="module")
def played() -> NotingWorld:
    world = noting_world(PLAYED)
    world.learning = by_rate
    world.join()
    world.join()
    world.run()
    return world


def test_a_copys_point_is_where_it_was_copied(played: NotingWorld) -> None:
    tables = played.state.tables
    policy = tables.policies[PolicyId("player/p001")]
    digests = {row.policy: row.weights_digest for row in tables.checkpoints.values()}
    copied = replace(policy, generation_at=3777)
    assert evaluated_steps(played.state.league, copied, digests[PolicyId("player/p002")]) == 3777
    own = played.state.league.checkpoints[digests[policy.policy]]
    assert evaluated_steps(played.state.league, copied, own.weights_digest) == own.agent_steps


def last(points: list[tuple[int, Mapping[str, float]]], name: str) -> tuple[int, float]:
    return [(step, metrics[name]) for step, metrics in points if name in metrics][-1]


def test_every_policy_has_its_rating_with_interval_at_the_weights_that_were_rated(
    played: NotingWorld,
) -> None:
    world = played
    lines = standings(world.state.league)["player"]
    for line in lines:
        if line.kind != "policy":
            continue
        points = played.points[line.player]
        step, low = last(points, "rating/low_elo")
        policy = world.state.tables.policies[PolicyId(line.player)]
        origin = world.state.league.checkpoints[Digest(str(line.weights))]
        # After a copy the evaluated weights may be the donor's, with the donor's step count.
        is_own = origin.policy == policy.policy
        assert step == (line.evaluated_agent_steps if is_own else policy.generation_at)
        assert low == line.rating_low
        assert last(points, "rating/mean_elo")[1] == line.rating
        assert last(points, "rating/high_elo")[1] == line.rating_high
        assert last(points, "evaluation/matches_count")[1] == line.matches
        assert last(points, "evaluation/return_mean")[1] == pytest.approx(line.mean_return)
        score = (line.wins + line.draws / 2) / (line.wins + line.draws + line.losses)
        assert last(points, "evaluation/score_mean")[1] == pytest.approx(score)
        steps = [step for step, metrics in points if "rating/mean_elo" in metrics]
        assert steps == sorted(steps), "no curve goes back"


def test_score_and_return_against_each_bot_are_those_of_the_payoff(played: NotingWorld) -> None:
    world = played
    league = world.state.league
    checkpoints = world.state.tables.checkpoints.values()
    names: dict[tuple[str, str], str] = {
        ("player", row.weights_digest): row.weights_digest for row in checkpoints
    }
    names["player", "bot:random"] = "bot:random"
    cells = {
        (cell["player"], cell["opponent"]): cell
        for cell in payoff_cells(
            [row for row in league.tables.pairs.values() if row.kind == "evaluate"],
            seats=league.seats,
            names=names,
        )
    }
    compared = 0
    # Only current weights are compared: older ones may have played the bot as ghosts after their
    # points were written.
    for line in standings(league)["player"]:
        cell = cells.get((str(line.weights), "bot:random"))
        if line.kind != "policy" or cell is None:
            continue
        points = world.points[line.player]
        step, score = last(points, "evaluation/score_vs_random")
        assert step == last(points, "rating/mean_elo")[0]
        assert score == pytest.approx(cell["score"])
        assert last(points, "evaluation/return_vs_random")[1] == pytest.approx(cell["mean_return"])
        compared += 1
    assert compared > 0


def test_hyperparameters_generations_copies_and_ghosts_are_those_of_the_assignment(
    played: NotingWorld,
) -> None:
    tables = played.state.tables
    assert tables.run.exploits > 0, "else nothing is shown here"
    for policy, row in tables.policies.items():
        trained = [(s, m) for s, m in played.points[policy] if "pbt/generation_count" in m]
        assert [step for step, _ in trained] == [500 * number for number in range(1, 9)]
        generations = [one for one in tables.generations.values() if one.policy == policy]
        for step, metrics in trained:
            during = generation_at(generations, step - 500)
            assert metrics["pbt/generation_count"] == during.generation
            shown = {
                name.removeprefix("hyperparameter/"): value
                for name, value in metrics.items()
                if name.startswith("hyperparameter/")
            }
            assert shown == during.hyperparameters
            assert shown.keys() == row.hyperparameters.keys()
        copies = [one for one in generations if one.cause == "exploit"]
        assert trained[-1][1]["pbt/copies_count"] <= len(copies)
        assert num_copies(tables.generations, policy) == len(copies)
        ghosts = [ghost for ghost in tables.ghosts.values() if ghost.policy == policy]
        assert trained[-1][1]["league/ghosts_count"] == len(ghosts)


def generation_at(generations: list[GenerationRow], step: int) -> GenerationRow:
    """The generation that trained from a count on."""
    return next(
        one
        for one in reversed(generations)
        if one.agent_steps_begin <= step and one.agent_steps_end != one.agent_steps_begin
    )


def test_the_runs_own_curves_end_with_what_it_counted(played: NotingWorld) -> None:
    tables, points = played.state.tables, played.points["run"]
    steps = [step for step, _ in points]
    assert steps == sorted(steps)
    assert len(steps) < len(played.committed) / 4, "not one for each transaction"
    step, metrics = points[-1]
    assert step == tables.run.agent_steps
    assert metrics["run/matches_count"] == tables.run.matches
    assert metrics["run/copies_count"] == tables.run.exploits
    assert metrics["run/ghosts_count"] == len(tables.ghosts)
    assert metrics["run/assignments_count"] == tables.run.assignments_finished
    assert metrics["run/evaluation_share"] == pytest.approx(
        tables.run.evaluation_s / (tables.run.evaluation_s + tables.run.training_s)
    )
    lines = standings(played.state.league)["player"]
    best = champion(lines)
    assert best is not None
    assert metrics["champion/player_low_elo"] == best.rating_low
    assert metrics["rating/player_cyclicity"] == tables.ratings["player"].cyclicity
    rates = [number_of(row.hyperparameters["learning_rate"]) for row in tables.policies.values()]
    assert metrics["hyperparameter/player_learning_rate_mean"] == pytest.approx(sum(rates) / 4)


def trained_steps(points: list[tuple[int, Mapping[str, float]]]) -> list[int]:
    return [step for step, metrics in points if "pbt/generation_count" in metrics]


def test_a_curve_has_one_point_in_each_interval_and_its_last_one() -> None:
    every = 1200
    thinned = {**PLAYED, "metrics": {"every_agent_steps": every}}
    world, whole = noting_world(thinned), noting_world(PLAYED)
    for one in (world, whole):
        one.join()
        one.run()
    for policy in world.state.tables.policies:
        # Assignments end at 500, 1000, ... 4000: the first ones past 1200, 2400 and 3600 count.
        assert trained_steps(world.points[policy]) == [1500, 2500, 4000]
        assert trained_steps(whole.points[policy]) == [500 * number for number in range(1, 9)]
        rated = [(s, m) for s, m in world.points[policy] if "rating/mean_elo" in m]
        intervals = [step // every for step, _ in rated[:-1]]
        assert intervals == sorted(set(intervals))
        assert len(rated) < sum("rating/mean_elo" in m for _, m in whole.points[policy])
        # The last rating is written in any case.
        elo = world.state.fits.ratings("player").interval(
            world.state.measured.curves.written[policy][0]
        )
        assert elo is not None
        assert rated[-1][1]["rating/mean_elo"] == elo[0]
    steps = [step for step, _ in world.points["run"]]
    assert steps[-1] == world.state.tables.run.agent_steps
    intervals = [step // every for step in steps if step < steps[-1]]
    assert intervals == sorted(set(intervals))
    assert len(steps) < len(whole.points["run"])


def test_the_last_point_of_a_curve_is_there_however_long_the_interval_is() -> None:
    world = noting_world({**PLAYED, "metrics": {"every_agent_steps": 10**9}})
    world.join()
    world.run()
    for policy in world.state.tables.policies:
        assert trained_steps(world.points[policy]) == [4000]


def test_after_a_resume_an_interval_goes_on() -> None:
    world = noting_world({**PLAYED, "metrics": {"every_agent_steps": 1200}})
    world.join()
    policy = PolicyId("player/p000")
    while world.state.tables.policies[policy].agent_steps < 2000:
        world.step()
    again = make_state(world.state.settings.config, world.setup, fold(world.committed))
    world.state = again
    world.given.clear()
    world.questions.clear()
    world.fits.clear()
    world.handle(ControllerStarted())
    world.join()
    world.run()
    assert trained_steps(world.points[policy]) == [1500, 2500, 4000]


@pytest.mark.parametrize("every", [None, 0])
def test_without_an_interval_every_assignment_has_a_point(every: int | None) -> None:
    world = noting_world({**PLAYED, "metrics": {"every_agent_steps": every}})
    assert is_due(world.state.settings.config, 500, 501)
    assert is_due(world.state.settings.config, 500, 500)


@pytest.mark.parametrize(
    ("document", "spec", "names"),
    [(TAG, tag_spec(), ("predator", "prey")), (DUET, duet_spec(), ("speaker", "listener"))],
)
def test_several_populations_and_teams_have_curves_too(
    document: dict[str, object], spec: EnvironmentSpec, names: tuple[str, ...]
) -> None:
    world = noting_world(
        {**document, "pbt": {"exploit": "none"}, "stop": {"agent_steps_per_policy": 1500}},
        spec,
    )
    if document is TAG:
        for name in ("predator", "prey"):
            world.join(populations=(name,))
    else:
        world.join()
    world.run()
    _, metrics = world.points["run"][-1]
    for name in names:
        assert f"champion/{name}_mean_elo" in metrics
    for policy in world.state.tables.policies:
        written = {name for _, points in world.points[policy] for name in points}
        assert {"pbt/generation_count", "rating/mean_elo", "evaluation/score_mean"} <= written


def test_bots_are_called_by_names_that_every_reader_takes() -> None:
    assert curve_names(["bot:random", "bot:a.b:C(depth=3)", "bot:a.b:C(depth: 3)"]) == {
        "bot:random": "random",
        "bot:a.b:C(depth=3)": "a.b_C_depth_3",
        "bot:a.b:C(depth: 3)": "a.b_C_depth_3_2",
    }
