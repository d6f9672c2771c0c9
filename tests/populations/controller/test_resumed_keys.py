"""Effects of every key that a resume may change, on what the controller does next.

`KEYS` follows from the code, so a new key without an entry in `EFFECTS` fails. Each effect has the
same run twice, resumed with the old value and with the new one.
"""

from __future__ import annotations

import copy
import typing
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import pytest
from msgspec.structs import replace

from arena.types import RANDOM_BOT, PolicyId
from arena.wire.messages import Train
from populations.choices import number_of
from populations.config.resume import is_under, why_not
from populations.config.run_config import validate_config
from populations.config.run_file import (
    RunFile,
    check_resume,
    learner_setup,
    new_run_file,
    with_config,
)
from populations.controller.evaluation.pairings import draw_pairings
from populations.controller.evolution import pbt
from populations.controller.evolution.changes import explore_own
from populations.controller.evolution.exploring import answer, ask
from populations.controller.evolution.snapshots import steps_to_next
from populations.controller.lineups import draw_lineup
from populations.controller.monitoring.alerts import record
from populations.controller.opponents import make_request
from populations.controller.state.events import (
    Command,
    ControllerStarted,
    ExploreHyperparameters,
    Now,
    StartLearner,
    Ticked,
    WriteMetrics,
)
from populations.controller.state.goals import StopGoals, bound_at_any_time
from populations.controller.state.state import make_state
from populations.controller.state.transaction import Transaction
from populations.core import OpponentRequest, Opponents
from populations.hooks.findings import Finding
from populations.matchmaking.drawing import draw_opponents, with_latest
from populations.pbt.scheduler import next_mark
from populations.records.rows import EventRow, PolicyRow, TallyRow
from tests.goldens.front_door import leaves
from tests.populations.controller.simulated import DUEL, TAG, World, duel_spec, fold, tag_spec
from tests.populations.controller.simulated import make_world as make_simulated
from tests.populations.launchers import test_resumed_processes

Effect = Callable[[World, World], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A change, and what it does.

    Attributes:
        change: ``KEY=VALUE`` of the resume.
        context: Changes without which nothing reads the key, before and after.
        of: Document and specification of the run.
        check: Function of the controller without the change and with it.
    """

    change: str
    context: tuple[str, ...]
    of: str
    check: Effect


EFFECTS: dict[str, list[Case]] = {}


def effect(change: str, *context: str, of: str = "duel") -> Callable[[Effect], Effect]:
    """Enter an effect into the table; of ``pbt`` also by the population's own section."""

    def enter(check: Effect) -> Effect:
        for said in (change, f"populations.player.{change}")[: 1 + change.startswith("pbt.")]:
            key = said.partition("=")[0].replace("populations.player", "populations.*")
            EFFECTS.setdefault(key, []).append(
                Case(change=said, context=context, of=of, check=check)
            )
        return check

    return enter


def transaction(world: World) -> Transaction:
    return world.state.begin(Now(monotonic_s=world.now_s, utc=""))


def go_on(world: World, *, steps: int = 6) -> list[Command]:
    """Let controller and learners go on, without fits; return what the controller asks for."""
    commands = [*world.handle(ControllerStarted()).commands]
    for _ in range(2):
        world.join()
    for _ in range(steps):
        world.now_s += 1.0
        for learner, known in list(world.state.crew.learners.items()):
            known.last_heard_s = known.progress_at_s = world.now_s
            event = world.work(learner)
            if event is not None:
                commands += world.handle(event).commands
        commands += world.handle(Ticked()).commands
    return commands


def ticked(world: World) -> str:
    """Return why the run ends at its first moment; empty: it goes on."""
    world.handle(ControllerStarted())
    world.handle(Ticked())
    return world.state.phase.reason


def policy_of(world: World, index: int) -> PolicyRow:
    return world.state.tables.policies[PolicyId(f"player/p{index:03d}")]


WORST, SECOND, BEST = 1, 2, 3
"""Policies by rating; the reference is the worst of all."""


def decided(world: World, index: int) -> tuple[str, PolicyRow]:
    """Return the event of a decision of PBT that is due, "waits" or "", and the policy after it."""
    tx = transaction(world)
    row = replace(policy_of(world, index), ready_at=0)
    tx.put(row)
    pbt.evolve(world.state, tx, row)
    kinds = [found.kind for found in tx.rows if isinstance(found, EventRow)]
    after = policy_of(world, index)
    return str(after.pending.get("kind", "")) or "".join(kinds), after


def moved(world: World, name: str = "learning_rate") -> tuple[float, str]:
    """Return by what the best one's hyperparameter is multiplied, and the move of it."""
    policy = policy_of(world, BEST)
    explore_own(transaction(world), policy, data={})
    tx = transaction(world)
    ask(world.state.settings, world.state.indexes, world.state.phase, tx)
    (question,) = (one for one in tx.commands if isinstance(one, ExploreHyperparameters))
    exploration = answer(question).exploration
    return number_of(exploration.new[name]) / number_of(exploration.old[name]), exploration.moves[
        name
    ]


def drawn(world: World, index: int = 2, *, times: int = 25) -> Counter[str]:
    """Return whom a policy meets in training, itself included, and how often."""
    met: Counter[str] = Counter()
    policy = policy_of(world, index)
    for _ in range(times):
        for seating in draw_lineup(world.state, transaction(world), (policy,)).seatings:
            names = [str(player.player) for player in seating.players]
            names.remove(policy.policy)
            met.update(names)
    return met


def ghosts_of(met: Counter[str]) -> set[str]:
    return {name for name in met if "@" in name}


def events(world: World, *kinds: str) -> list[EventRow]:
    """Return events of some kinds since the resume."""
    before = len(played("duel")[1].committed)
    rows = world.committed[before:]
    return [row for row in rows if isinstance(row, EventRow) and row.kind in kinds]


# ---- stop


@effect("stop.agent_steps_per_policy=500")
@effect("stop.agent_steps=500")
@effect("stop.duration_s=0.001")
@effect("stop.rating=-3000")
@effect("stop.evaluation.score=0.01", "stop.evaluation={player: 'bot:random', score: 0.999}")
@effect("stop.evaluation.return=-9", "stop.evaluation={player: 'bot:random', return: 9}")
@effect("stop.success_rate=0.5")
def ends(before: World, after: World) -> None:
    for world in (before, after):
        # Simulated learners do not report success, which would end the run as well.
        world.state.indexes.goals.unreported["player"] = 1e6
        world.now_s = 1.0
    assert ticked(before) == ""
    assert ticked(after).startswith("stop.")


@effect(
    "stop.evaluation.player='bot:a.b:C'",
    "evaluation.bots=['bot:random', 'bot:a.b:C']",
    "stop.evaluation={player: 'bot:random', score: 0.01}",
)
def ends_by_another(before: World, after: World) -> None:
    assert ticked(before).startswith("stop.evaluation")
    # No policy has played this bot yet.
    assert ticked(after) == ""


@effect("stop.members=all", "stop.rating=0")
def ends_with_all(before: World, after: World) -> None:
    for world in (before, after):
        # The limit is between the best bound and the next one.
        bounds = [bound_at_any_time(world.state.fits, policy_of(world, i)) for i in range(4)]
        low, high = sorted(-9999.0 if bound is None else bound for bound in bounds)[-2:]
        stop = world.state.settings.config.stop.model_copy(update={"rating": (low + high) / 2})
        world.state.settings.config = world.state.settings.config.model_copy(update={"stop": stop})
    assert ticked(before).startswith("stop.rating")
    assert ticked(after) == ""


# ---- evaluation


@effect("evaluation.share=0")
def evaluates(before: World, after: World) -> None:
    def num_new(world: World) -> int:
        # Open assignments are finished in any case.
        is_open = {str(one) for one in world.state.tables.assignments}
        go_on(world)
        return len({row.subject for row in events(world, "evaluation_assigned")} - is_open)

    assert num_new(before) > 0
    assert num_new(after) == 0


@effect("evaluation.bots=['bot:random', 'bot:a.b:C']")
def meets_bots(before: World, after: World) -> None:
    def players(world: World) -> set[str]:
        pairings = draw_pairings(world.state, transaction(world), num_matches=256)
        return {p.player for pairing in pairings for p in pairing.seating.players}

    assert "bot:a.b:C" not in players(before)
    assert "bot:a.b:C" in players(after)


# ---- learners


@effect("learners=3")
@effect("learners=1")
def starts_learners(before: World, after: World) -> None:
    for world in (before, after):
        asked = [c for c in world.handle(ControllerStarted()).commands]
        started = [command for command in asked if isinstance(command, StartLearner)]
        assert len(started) == world.state.settings.config.learners
    assert before.state.settings.config.learners != after.state.settings.config.learners


# ---- alerts, metrics, checkpoints


@effect("alerts.fail=[kl_high]")
def fails(before: World, after: World) -> None:
    for world in (before, after):
        for _ in range(20):
            record(
                world.state.measured,
                transaction(world),
                Finding("kl_high", "player", "p", "KL is 9"),
            )
    assert (before.state.phase.failed, after.state.phase.failed) == (False, True)


@effect("metrics.every_agent_steps=1000000")
def writes_fewer_points(before: World, after: World) -> None:
    def points(world: World) -> int:
        commands = go_on(world, steps=8)
        return sum(isinstance(c, WriteMetrics) and "/" in c.policy for c in commands)

    assert points(after) < points(before)


ENDLESS = ("stop.agent_steps_per_policy=null", "evaluation.share=0")


def num_kept(world: World) -> int:
    go_on(world)
    return sum(row.state == "present" for row in world.state.tables.checkpoints.values())


@effect("checkpoints.keep=1", *ENDLESS)
def keeps_fewer(before: World, after: World) -> None:
    assert num_kept(after) < num_kept(before)


@effect("checkpoints.milestones_every_agent_steps=1", *ENDLESS, "checkpoints.keep=1")
def keeps_more(before: World, after: World) -> None:
    assert num_kept(after) > num_kept(before)


@effect("checkpoints.export_every_agent_steps=500")
def exports(before: World, after: World) -> None:
    for world in (before, after):
        go_on(world)
    assert not events(before, "export_due")
    assert events(after, "export_due")


@effect("replays.keep=0")
def keeps_games(before: World, after: World) -> None:
    num_before = len(after.state.tables.games)
    for world in (before, after):
        go_on(world, steps=12)
    assert len(before.state.tables.games) > num_before
    assert len(after.state.tables.games) == num_before


@effect(
    "checkpoints.keep_exports=1",
    *(*ENDLESS, "checkpoints.keep=1", "checkpoints.export_every_agent_steps=1"),
)
def keeps_fewer_exported(before: World, after: World) -> None:
    assert num_kept(after) < num_kept(before)


# ---- ghosts


@effect("ghosts.every_agent_steps=100000")
def leaves_ghosts(before: World, after: World) -> None:
    assert steps_to_next(after.state.settings.config, policy_of(after, BEST)) > 90_000
    for world in (before, after):
        go_on(world, steps=10)
    assert events(before, "ghost_created")
    assert not events(after, "ghost_created")


MANY = ("ghosts.every_agent_steps=1", *ENDLESS)


def thinned(world: World) -> set[str]:
    go_on(world, steps=16)
    return {ghost.player for ghost in world.state.tables.ghosts.values() if ghost.is_present}


@effect("ghosts.keep=16", *MANY)
def keeps_few(before: World, after: World) -> None:
    assert len(thinned(after)) <= 16 < len(thinned(before))


@effect("ghosts.thinning=oldest", *MANY, "ghosts.keep=16")
@effect("ghosts.newest_ratio=0.9", *MANY, "ghosts.keep=16", "ghosts.strongest_ratio=0")
@effect("ghosts.strongest_ratio=0.9", *MANY, "ghosts.keep=16", "ghosts.newest_ratio=0")
def keeps_others(before: World, after: World) -> None:
    assert thinned(before) != thinned(after)


@effect("ghosts.window=1", "matchmaking.kind=window", "matchmaking.latest_ratio=0")
@effect("matchmaking.delta=1", "matchmaking.kind=delta_uniform", "matchmaking.latest_ratio=0")
@effect(
    "matchmaking.meta_solver=latest",
    *("matchmaking.kind=psro", "matchmaking.meta_solver=uniform", "matchmaking.latest_ratio=0"),
)
def meets_the_newest(before: World, after: World) -> None:
    newest = max(ghost.agent_steps for ghost in after.state.tables.ghosts.values())
    assert len(ghosts_of(drawn(before))) > 2
    met = ghosts_of(drawn(after))
    found = [ghost for ghost in after.state.tables.ghosts.values() if ghost.player in met]
    assert {ghost.agent_steps for ghost in found} == {newest}


# ---- matchmaking


@effect("matchmaking.kind=latest")
@effect("matchmaking.latest_ratio=1")
def meets_itself(before: World, after: World) -> None:
    assert ghosts_of(drawn(before))
    assert set(drawn(after)) == {"player/p002"}


@effect("matchmaking.living_ratio=0.5")
def meets_the_living(before: World, after: World) -> None:
    others = {"player/p000", "player/p001", "player/p003"}
    assert not others & set(drawn(before))
    assert others <= set(drawn(after))


@effect("matchmaking.bots={'bot:random': 0.5}")
def trains_with_bots(before: World, after: World) -> None:
    assert drawn(before)[RANDOM_BOT] == 0
    met = drawn(after)
    assert 0.45 < met[RANDOM_BOT] / met.total() < 0.55


@effect("matchmaking.opponents=2")
def meets_fewer(before: World, after: World) -> None:
    # Each opponent plays in both seats.
    assert drawn(before, times=1).total() == 16
    assert drawn(after, times=1).total() == 4


@effect("matchmaking.psro_players=2", "matchmaking.kind=psro", "matchmaking.meta_solver=uniform")
def plays_a_smaller_game(before: World, after: World) -> None:
    assert len(ghosts_of(drawn(before))) > 2
    assert len(ghosts_of(drawn(after))) == 2


GHOSTS_ONLY = "matchmaking.latest_ratio=0"


def share_of_strong(world: World) -> float:
    """Return the share of the stronger half's ghosts among those that the worst one is to meet."""
    request = make_request(world.state.settings, world.state.indexes, policy_of(world, 0), "player")
    rng = np.random.default_rng(3)
    drawn = [
        player.player
        for _ in range(200)
        for player in world.state.settings.matchmaker.draw(request, rng=rng).players
    ]
    return sum(str(name).startswith(("player/p002", "player/p003")) for name in drawn) / len(drawn)


@effect("matchmaking.weighting=variance", GHOSTS_ONLY)
@effect("matchmaking.posterior=thompson", GHOSTS_ONLY)
@effect(
    "matchmaking.left_threshold=0.49",
    *(GHOSTS_ONLY, "matchmaking.weighting=variance_left_rectified"),
    "matchmaking.left_threshold=0.001",
)
@effect(
    "matchmaking.rating_width=0.02",
    *(GHOSTS_ONLY, "matchmaking.kind=rating_proximate", "matchmaking.rating_width=100"),
)
def weighs_otherwise(before: World, after: World) -> None:
    assert share_of_strong(before) != share_of_strong(after)


@effect("matchmaking.quality_step=1", "matchmaking.kind=quality", "matchmaking.quality_step=1e-6")
def lowers_qualities(before: World, after: World) -> None:
    def lowest(world: World) -> float:
        go_on(world)
        return min(ghost.quality for ghost in world.state.tables.ghosts.values())

    assert lowest(after) < -0.01 < lowest(before)


@effect("matchmaking.constants=paper", "matchmaking.kind=alphastar")
def attacks_the_past(before: World, after: World) -> None:
    def met(world: World) -> set[str]:
        # In the paper a main exploiter plays older main agents while it beats them half of the
        # time.
        tx = transaction(world)
        tx.put(replace(policy_of(world, BEST), role="main_exploiter"))
        return ghosts_of(drawn(world, BEST))

    assert not met(before)
    assert met(after)


class Own:
    """A user's own kind: a share of the ghosts."""

    def __init__(self, *, share: float) -> None:
        self._share = share

    def draw(self, request: OpponentRequest, *, rng: np.random.Generator) -> Opponents:
        ghosts = np.full(len(request.ghosts), 1.0 / len(request.ghosts))
        chosen = with_latest(request, ghosts=ghosts, latest_ratio=1.0 - self._share)
        return draw_opponents(request, chosen, rng=rng)


@effect(
    "matchmaking.options={share: 1}",
    f"matchmaking.kind='{__name__}:Own'",
    "matchmaking.options={share: 0}",
)
def asks_its_own_rule(before: World, after: World) -> None:
    assert not ghosts_of(drawn(before))
    assert drawn(after)["player/p002"] == 0


@effect("matchmaking.rivals=learning", of="tag")
def trains_both(before: World, after: World) -> None:
    def together(world: World) -> int:
        go_on(world)
        given = [message for queue in world.given.values() for message in queue]
        return max(len(message.trainees) for message in given if isinstance(message, Train))

    assert together(before) == 1
    assert together(after) == 2


@effect(
    "matchmaking.learning_side_turns.every_agent_steps=100000",
    "matchmaking.learning_side_turns={every_agent_steps: 1}",
    of="tag",
)
def takes_longer_turns(before: World, after: World) -> None:
    def num_trained(world: World) -> int:
        rows = world.state.tables.policies.values()
        then = {row.policy: row.agent_steps for row in rows}
        go_on(world, steps=8)
        rows = world.state.tables.policies.values()
        return len({row.population for row in rows if row.agent_steps > then[row.policy]})

    assert num_trained(before) == 2
    assert num_trained(after) == 1


# ---- pbt

COPIES = ("pbt.exploit=truncation", "pbt.reference=false")


@effect("pbt.exploit=truncation")
def copies(before: World, after: World) -> None:
    assert decided(before, WORST)[0] == ""
    assert decided(after, 0)[0] == "exploited"


@effect("pbt.explore=none", *COPIES)
def explores(before: World, after: World) -> None:
    assert decided(before, 0)[0] == "exploit"
    kind, policy = decided(after, 0)
    assert kind == "exploited"
    assert policy.hyperparameters == policy_of(after, BEST).hyperparameters


@effect("pbt.ready_agent_steps=1000000", *COPIES)
@effect("pbt.warm_up_agent_steps=1000000", *COPIES)
def decides_later(before: World, after: World) -> None:
    assert decided(before, 0)[0] == "exploit"
    assert decided(after, 0)[0] == ""


@effect("pbt.ready_growth=1", "pbt.exploit=truncation")
def decides_later_the_older_it_is(before: World, after: World) -> None:
    def waits(world: World) -> int:
        row = replace(policy_of(world, 0), ready_at=100_000, agent_steps=100_000)
        return next_mark(row, world.state.settings.config.pbt_of("player"))

    assert (waits(before), waits(after)) == (10_000, 100_000)


@effect("pbt.share=halving", *COPIES)
def retires(before: World, after: World) -> None:
    assert decided(before, 0)[0] == "exploit"
    kind, policy = decided(after, 0)
    assert (kind, policy.state) == ("retired", "retired")


@effect("pbt.min_matches=1000000", *COPIES)
def waits_for_matches(before: World, after: World) -> None:
    assert decided(before, 0)[0] == "exploit"
    assert decided(after, 0)[0] == "decision_postponed"


def num_copies(world: World) -> int:
    """Return how often one of several decisions about the second worst is to copy."""
    row = policy_of(world, WORST)
    found = 0
    for _ in range(16):
        found += decided(world, WORST)[0] == "exploit"
        transaction(world).put(row)
    return found


@effect("pbt.min_rating_gap=9999", "pbt.exploit=binary_tournament")
@effect(
    "pbt.confidence=0.9999999999",
    *("pbt.exploit=binary_tournament", "pbt.confidence=0", "pbt.min_rating_gap=0"),
)
@effect(
    "pbt.win_rate_threshold=1e-6",
    *("pbt.exploit=predicted_win", "pbt.confidence=0", "pbt.win_rate_threshold=0.5"),
)
@effect("pbt.significance=1e-100", "pbt.exploit=welch")
def asks_for_more(before: World, after: World) -> None:
    assert num_copies(after) < num_copies(before)


@effect("pbt.fraction=0.5", *COPIES)
def copies_more(before: World, after: World) -> None:
    assert decided(before, WORST)[0] != "exploit"
    assert decided(after, WORST)[0] == "exploit"


@effect("pbt.fraction=0.5")
def evaluates_another_border(before: World, after: World) -> None:
    """Who may be among the worst has most matches."""

    def pairs(world: World) -> tuple[object, ...]:
        return draw_pairings(world.state, transaction(world), num_matches=512)

    assert pairs(before) != pairs(after)


@effect("pbt.mutate_others=false", *COPIES)
def leaves_the_middle(before: World, after: World) -> None:
    assert decided(before, SECOND)[0] == "explore"
    assert decided(after, SECOND)[0] == "kept"


@effect("pbt.reference=false", "pbt.exploit=truncation")
def explores_the_first(before: World, after: World) -> None:
    assert decided(before, 0)[0] == "exploited"
    assert decided(after, 0)[0] == "exploit"


@effect("pbt.immigration.probability=1", *COPIES)
def takes_immigrants(before: World, after: World) -> None:
    assert decided(before, 0)[0] == "exploit"
    assert decided(after, 0)[0] == "immigrated"


STEADY = "pbt.resample_probability=0"


@effect("pbt.perturb_factors=[1.5]", STEADY)
def moves_further(before: World, after: World) -> None:
    assert moved(before)[1] in ("x0.8", "x1.2")
    assert moved(after)[0] == pytest.approx(1.5)


@effect("pbt.perturb_uniform=[0.5, 2]", STEADY)
def moves_anywhere(before: World, after: World) -> None:
    assert moved(before)[1] in ("x0.8", "x1.2")
    factor, move = moved(after)
    assert move == f"x{factor:g}"
    assert 0.5 <= factor <= 2.0


@effect("pbt.resample_probability=1", STEADY)
def draws_anew(before: World, after: World) -> None:
    assert moved(before)[1].startswith("x")
    assert moved(after)[1] == "resampled"


@effect("pbt.mutation_probability=0", STEADY)
def moves_nothing(before: World, after: World) -> None:
    assert moved(before)[1].startswith("x")
    assert moved(after) == (1.0, "kept")


@effect("pbt.reset_probability=1", STEADY)
def goes_back(before: World, after: World) -> None:
    assert moved(before)[1].startswith("x")
    start = after.state.settings.config.populations["player"].start_values["learning_rate"]
    factor = number_of(start) / number_of(policy_of(after, BEST).hyperparameters["learning_rate"])
    found, move = moved(after)
    assert found == pytest.approx(factor)
    assert move == "reset"


@effect("populations.player.search_space={learning_rate: {low: 1.0, high: 2.0}}")
def explores_elsewhere(before: World, after: World) -> None:
    for world, low, high in ((before, 1e-5, 3e-3), (after, 1.0, 2.0)):
        policy = policy_of(world, BEST)
        assert low <= moved(world)[0] * number_of(policy.hyperparameters["learning_rate"]) <= high


def changeable() -> list[str]:
    """Return every key that `why_not` lets a resume change; * is a population's name."""
    return [key for key in leaves(population="*") if why_not(key) is None]


def test_every_key_that_may_change_has_an_effect() -> None:
    elsewhere = {
        next(key for key in changeable() if is_under(named(case), key))
        for case in test_resumed_processes.EFFECTS
    }
    assert {*EFFECTS, *elsewhere} == set(changeable())


@cache
def played(of: str) -> tuple[RunFile, World]:
    """A run in the middle: the larger a policy's index, the better it is. Nobody copies yet."""
    document, spec = {"duel": (DUEL, duel_spec()), "tag": (TAG, tag_spec())}[of]
    section = {**typing.cast("dict[str, object]", DUEL["pbt"]), "exploit": "none"}
    document = {**document, "pbt": section, "learners": 2}
    run_file = new_run_file(validate_config(document), spec, name=of, launch_directory=".")
    world = make_simulated(document, spec)
    world.learning = lambda trainee: 60.0 * int(trainee.policy[-1])
    for _ in range(2):
        world.join()
    world.steps(14)
    return run_file, world


def resumed(case: Case, *changes: str) -> World:
    """The run as it goes on with these changes: by the functions that a resume calls, no disk."""
    run_file, old = played(case.of)
    config, found = check_resume(run_file, config=None, overrides=[*case.context, *changes])
    # Otherwise the key would have another name, and the case would test nothing.
    assert bool(found) == bool(case.context or changes)
    setup = learner_setup(with_config(run_file, config), root=Path("/nowhere"))
    tables = fold(old.committed)
    state = make_state(config, setup, tables)
    # The first fit of an epoch restores what the last one does not store.
    state.fits.last = dict(old.state.fits.last)
    tallies = [row for row in old.committed if isinstance(row, TallyRow) if row.kind == "evaluate"]
    state.indexes.goals = StopGoals.fold(
        config.stop.player, tallies=tallies, assignments=(), origins=state.league.checkpoints
    )
    return World(
        state=state, setup=setup, learner=copy.deepcopy(old.learner), committed=[*old.committed]
    )


def named(case: Case | test_resumed_processes.Case) -> str:
    return case.change.partition("=")[0]


@pytest.mark.parametrize("case", [case for cases in EFFECTS.values() for case in cases], ids=named)
def test_a_changed_key_changes_what_the_controller_does(case: Case) -> None:
    case.check(resumed(case), resumed(case, case.change))
