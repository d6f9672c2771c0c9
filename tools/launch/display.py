"""Display of `arena launch`: progress in words, standings on a terminal, plain lines elsewhere."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, NamedTuple

from arena.config import LearnerSetup
from arena.types import LearnerId, population_of
from arena.wire.messages import Train
from populations.config.run_config import RunConfig
from populations.controller.state.epoch import Measured, Phase, Settings
from populations.controller.state.leases import Crew, Learner
from populations.league.names import short_name
from populations.records.rows import CheckpointRow, EventRow, Json
from populations.records.tables import Tables
from populations.views.notices import alert_lines, alerts_of
from populations.views.parts import Column, Table
from populations.views.sentences import sentence
from populations.views.texts import one_line, plain

from ..show.text import framed
from ..terminal.output import count, duration, log_console

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import RenderableType
    from rich.live import Live
    from rich.segment import SegmentLines

    from arena.types import Digest
    from populations.controller.server.run_directory import OpenRun
    from populations.controller.state.state import ControllerState
    from populations.league.ratings import Ratings
    from populations.league.standings import Standing
    from populations.records.aggregates import Row

    from ..terminal.screen import Screen

MAX_LEARNERS = 8
"""Most learners that have a line each."""

MAX_NAME_CHARS = 16
"""Most characters of the name of a learner in no slot of the launcher."""


class Moment(NamedTuple):
    """Live figures of a run, not yet committed.

    Attributes:
        elapsed_s: Seconds of the run, over all of its epochs.
        agent_steps: Those of running assignments included.
        speed: Agent steps per second.
        now_s: Time on the controller's clock.
    """

    elapsed_s: float
    agent_steps: int
    speed: float
    now_s: float

    @classmethod
    def of(cls, state: ControllerState, status: Mapping[str, Json]) -> Moment:
        """Return the live figures of a state and its status."""
        elapsed_s = float(str(status["elapsed_s"]))
        # These steps are not committed yet: learners' heartbeats report them.
        running = sum(learner.agent_steps for learner in state.crew.learners.values())
        return cls(
            elapsed_s=elapsed_s,
            agent_steps=state.tables.run.agent_steps + running,
            speed=float(str(status["agent_steps_per_s"] or 0.0)),
            # elapsed_s = elapsed_before_s + (now_s - started_s)
            now_s=state.phase.started_s + elapsed_s - state.phase.elapsed_before_s,
        )


def what_happens(config: RunConfig, tables: Tables, phase: Phase, moment: Moment) -> str:
    """Return the phase of a run, how long it lasts, and what follows."""
    if phase.name == "over":
        return "ended"
    if phase.name == "stopping":
        # Learners that have not published by then are given up.
        grace_s = phase.crew.patience.grace_s - (moment.now_s - phase.stopping_s)
        waits = f"{len(phase.crew.learners)} learners publish what they have, "
        return f"saving: {waits if phase.crew.learners else ''}{_at_most(grace_s)}"
    if phase.name == "evaluating":
        return _finals(tables, phase)
    if not phase.crew.learners:
        return "starting learners, then training"
    share, left_s = training_progress(config, tables, phase.crew, moment)
    left = "" if left_s is None else f"{duration(left_s)} left, "
    finals_s = finals_after(config, tables, phase.crew.learners, left_s)
    finals = "finals" if finals_s is None else f"finals ({_at_most(finals_s)})"
    lesson = _lesson(config, tables)
    return f"training: {share:.0%}, {lesson}{left}then {finals} and saving"


def _lesson(config: RunConfig, tables: Tables) -> str:
    lessons = config.environment.curriculum
    return f"lesson {tables.run.lesson + 1} of {len(lessons)}, " if lessons else ""


def _finals(tables: Tables, phase: Phase) -> str:
    if phase.evaluation_only is not None:
        left_s = phase.evaluation_only.left_s
        if not phase.crew.learners:
            return "starting learners, then evaluation only"
        left = "the last matches" if left_s <= 0.0 else _at_most(left_s)
        return f"evaluation only: {left}, then saving"
    # Finals begin when the last weights are committed.
    if any(row.kind == "train" for row in tables.assignments.values()):
        return "the last assignments of training, then finals and saving"
    if phase.finals is None:
        return "finals: matches until ratings are sure, then saving"
    if phase.finals.left_s <= 0.0:
        return "finals: the last matches, then saving"
    return f"finals: {_at_most(phase.finals.left_s)}, then saving"


def training_progress(
    config: RunConfig, tables: Tables, crew: Crew, moment: Moment
) -> tuple[float, float | None]:
    """Return the share of training done, and the seconds left, by the limit that comes first.

    None while unknown: nothing was trained yet, or only a rating ends the run.
    """
    from populations.controller.phases import agent_steps_left

    stop = config.stop
    # Each limit gives a share and a time; the run ends at the largest share, the shortest time.
    shares, left = [0.0], list[float]()
    if stop.duration_s is not None:
        trained_s = moment.elapsed_s - tables.run.closing_s
        shares.append(trained_s / stop.duration_s)
        left.append(stop.duration_s - trained_s)
    in_flight = moment.agent_steps - tables.run.agent_steps
    for goal, missing in agent_steps_left(config, tables, crew):
        # Rows hold committed work, so steps in flight are subtracted.
        missing -= in_flight
        shares.append(1.0 - missing / goal if goal else 1.0)
        # The remaining time is unknown until the speed has been measured.
        if moment.speed > 0.0:
            left.append(missing / moment.speed)
    # Running assignments may exceed the limit.
    return min(max(shares), 1.0), max(min(left), 0.0) if left else None


def finals_after(
    config: RunConfig,
    tables: Tables,
    learners: Mapping[LearnerId, Learner],
    training_left_s: float | None,
) -> float | None:
    """Return the most seconds that finals may take after training; None: unknown."""
    from populations.controller.evaluation.finals import longest_s

    if config.deterministic or training_left_s is None:
        return None
    num_learners = max(len(learners), 1)
    share = config.evaluation.share
    # Evaluation gets its share of the remaining seconds.
    training_s = tables.run.training_s + training_left_s * num_learners * (1.0 - share)
    return longest_s(training_s=training_s, num_learners=num_learners)


def counts(tables: Tables, moment: Moment) -> str:
    """Say how much a run has done so far."""
    run = tables.run
    return (
        f"{duration(moment.elapsed_s)}  {count(moment.agent_steps)} agent steps, "
        f"{count(round(moment.speed))}/s  {count(run.matches)} matches  "
        f"{count(len(tables.ghosts))} ghosts  {count(run.exploits)} copies"
    )


def shares(settings: Settings, tables: Tables, measured: Measured) -> str:
    """Say which share of learner seconds evaluation has, and which decisions PBT made."""
    from populations.controller.evaluation.share import reached
    from populations.pbt.scheduler import num_due

    parts = []
    asked = settings.config.evaluation.share
    if asked > 0.0:
        parts.append(f"evaluation has {reached(measured) or 0.0:.1%} of {asked:.1%}")
    pbt = {name: settings.config.pbt_of(name) for name in settings.setup.populations}
    if any(section.exploit != "none" for section in pbt.values()):
        made, due = tables.run.pbt_decisions, num_due(tables, pbt=pbt)
        said = f"made {count(made)} of {count(due)} decisions that were due"
        parts.append(f"PBT {said if due else 'has no decision due yet'}")
    return "  ".join(parts)


def learner_lines(setup: LearnerSetup, tables: Tables, crew: Crew, moment: Moment) -> Iterator[str]:
    """Yield a line for each learner: its work, its progress, its time."""
    learners = list(crew.learners.items())
    for name, learner in learners[:MAX_LEARNERS]:
        who = f"learner {learner.slot}" if learner.slot is not None else name[:MAX_NAME_CHARS]
        yield f"{who}: {_work(setup, tables, learner, moment)}"
    if len(learners) > MAX_LEARNERS:
        yield f"and {len(learners) - MAX_LEARNERS} more learners"


def _work(setup: LearnerSetup, tables: Tables, learner: Learner, moment: Moment) -> str:
    # A learner works on the first assignment that it holds; the next one is queued.
    row = tables.assignments.get(learner.held[0].assignment_id) if learner.held else None
    if row is None:
        return "idle"
    began_s = learner.held[0].started_s
    since = f"for {duration(max(moment.now_s - began_s, 0.0))}" if began_s is not None else "begins"
    if isinstance(row.message, Train):
        policies = ", ".join(
            short_name(trainee.policy, populations=setup.populations)
            for trainee in row.message.trainees
        )
        # An assignment without steps only publishes weights.
        if row.message.agent_steps == 0:
            return f"publishes the first weights of {policies}, {since}"
        # All steps of the last rollout count.
        planned = max(row.message.agent_steps, learner.agent_steps)
        done = f"{count(learner.agent_steps)} of {count(planned)} steps"
        return f"trains {policies}, {done}, {since}"
    matches = sum(pairing.num_matches for pairing in row.message.pairings)
    return f"evaluates, {count(matches)} matches of {len(row.message.pairings)} pairings, {since}"


def _at_most(seconds: float) -> str:
    return f"at most {duration(max(seconds, 0.0))}"


def finals_line(config: RunConfig, *, num_learners: int) -> str:
    """Say that final matches follow when a limit is reached, and for how long at most."""
    from populations.controller.evaluation.finals import FINAL_S, FINAL_SHARE

    begin = "when a limit of stop is reached, training ends and final matches follow"
    if config.deterministic:
        return f"{begin}, until all ratings are sure (deterministic: no limit in seconds)"
    least_s = FINAL_S / num_learners
    text = f"{begin}: for at most {FINAL_SHARE:.0%} of the time that training took"
    longest_s = config.stop.duration_s
    if longest_s is not None:
        # Learners share them: each takes the run's seconds times its share.
        most_s = max(FINAL_SHARE * longest_s, least_s)
        return f"{text}, here {duration(most_s)}"
    return f"{text}, or {duration(least_s)} if that is more"


LINE_EVERY_S = 5.0
SHARE = 0.01
"""Most of one core that drawing takes: what takes long is drawn seldom."""
MAX_LINES = 12
NAME_CHARS = 20
MAX_CHARS = 400
"""Most characters of an event; `arena league RUN events` has all of it."""

COLUMNS = (
    *(Column("player", "word"), Column("rating", "elo"), Column("rating", "interval", "95%")),
    *(Column("change"), Column("matches", "count"), Column("generation", title="gen")),
    *(Column("agent_steps", "count", "steps"), Column("kind", "word")),
)
WIDTHS = (8, 6, 10, 7, 7, 3, 7, 6)
"""Least characters of the columns: they are as wide from the beginning as they get, and the table
does not jump."""

PAUSES = {"storage_full": "storage", "stalled": "paused"}
"""Words for a pause, by the name of its alert."""

TOLD = frozenset(
    {
        "exploited", "explored", "retired", "quarantined", "learning_rate_halved", "learner_lost",
        "learner_dismissed", "learner_start_failed",
        "assignment_failed", "checkpoint_corrupt", "fell_back", "training_stopped",
        "configuration_changed", "paused", "continued", "storage_full", "storage_recovered",
        "alert", "alert_cleared", "lesson_began", "device_differs",
    }
)  # fmt: skip
"""Kinds of events; the last lines of a run say why it ended."""


@contextmanager
def make_display(run: OpenRun) -> Iterator[PlainDisplay]:
    """Make the display that fits standard error."""
    screen = log_console()
    # The directory is printed before the first line of progress, as other commands need it.
    screen.print(f"run directory: {run.run_dir}", soft_wrap=True)
    if not screen.is_terminal:
        yield PlainDisplay(screen, run.state, run.run_dir)
        return
    from rich.live import Live

    # rich has no thread of its own here: the state belongs to the controller's thread, which
    # refreshes.
    with Live(console=screen, auto_refresh=False, transient=False) as live:
        yield LiveDisplay(screen, live, run.state, run.run_dir)


class PlainDisplay:
    """One line every few seconds, and one for each event that matters.

    Its methods are called from the controller's thread and return at once.
    """

    def __init__(self, screen: Screen, state: ControllerState, run_dir: Path) -> None:
        self._screen = screen
        self._state = state
        self._run_dir = run_dir
        # The sizes of a resumed run have been printed before.
        self._sized = {population_of(row.policy) for row in state.tables.checkpoints.values()}
        self._next_line_s = 0.0
        self._phase = ""

    @property
    def is_seen(self) -> bool:
        """Return whether its output may have a reader: neither pipe nor terminal was closed."""
        return not self._screen.is_gone

    def note(self, rows: Sequence[Row]) -> None:
        """Print those of the committed rows that matter."""
        lines = [*(explain(row, name=self._name) for row in told(rows)), *self._sizes(rows)]
        for line in lines:
            self._screen.print(line, soft_wrap=True)

    def _sizes(self, rows: Sequence[Row]) -> Iterator[str]:
        """Yield the size of the networks of each population of which this is the first."""
        from arena.checkpoints.shapes import num_parameters

        for row in rows:
            if isinstance(row, CheckpointRow) and population_of(row.policy) not in self._sized:
                self._sized.add(population := population_of(row.policy))
                if number := num_parameters(self._run_dir / row.key):
                    yield f"networks of {population}: {number:,} parameters"

    def _name(self, player: str) -> str:
        return short_name(player, populations=tuple(self._state.settings.setup.populations))

    def wait_for(self, name: str, most_s: float) -> None:
        """Print what the end of the run waits for, and for how long at most."""
        self._screen.print(waiting(name, most_s), soft_wrap=True)

    def refresh(self, status: Mapping[str, Json]) -> None:
        """Print a line now and then."""
        now_s = time.monotonic()
        # A new phase is printed at once.
        if now_s >= self._next_line_s or self._state.phase.name != self._phase:
            self._next_line_s, self._phase = now_s + LINE_EVERY_S, self._state.phase.name
            now = "  ".join(headline(self._state, status))
            text = alert(status) or now + alert_names(status)
            self._screen.print(text, soft_wrap=True)


class LiveDisplay(PlainDisplay):
    """Standings with trends, speed, time left; events scroll by above."""

    def __init__(self, screen: Screen, live: Live, state: ControllerState, run_dir: Path) -> None:
        super().__init__(screen, state, run_dir)
        self._live = live
        self._trends: dict[str, Trend] = {}
        # `_drawn` holds the content of each population's table and its rendered lines.
        self._drawn: dict[str, tuple[object, SegmentLines]] = {}

    def refresh(self, status: Mapping[str, Json]) -> None:
        """Draw anew."""
        from rich.console import Group
        from rich.text import Text

        from populations.league.standings import standings

        # Memory may be ahead of the disk, so only the warning is shown.
        if warning := alert(status):
            self._live.update(Text(warning), refresh=True)
            return
        now_s, began_s = time.monotonic(), time.thread_time()
        # A new phase is shown at once.
        if now_s < self._next_line_s and self._state.phase.name == self._phase:
            return
        moment = Moment.of(self._state, status)
        lines = [
            *headline(self._state, status),
            *learner_lines(
                self._state.settings.setup, self._state.tables, self._state.crew, moment
            ),
            *alert_lines(status),
        ]
        # Text and not str: rich would read markup in names.
        parts: list[RenderableType] = [Text(plain(line)) for line in lines]
        for name, standing in standings(self._state.league).items():
            parts.append(self._table(name, standing))
        self._live.update(Group(*parts), refresh=True)
        self._phase = self._state.phase.name
        self._next_line_s = now_s + (time.thread_time() - began_s) / SHARE

    def _table(self, population: str, lines: Sequence[Standing]) -> RenderableType:
        from rich.box import SIMPLE_HEAD
        from rich.segment import Segment, SegmentLines

        trend = self._trends.setdefault(population, Trend())
        ratings = self._state.fits.ratings(population)
        trend.record(None if ratings.row is None else ratings.row.num_tallies, lines)
        lines = [line for line in lines if line.same_as is None]
        # Policies in training are always shown; the best other players follow.
        shown = sorted(lines, key=lambda line: line.kind != "policy")[:MAX_LINES]
        is_ascii = self._screen.options.ascii_only
        rows = [
            {
                **line._asdict(),
                "player": one_line(self._name(line.player), max_chars=NAME_CHARS)
                + (" *" if line.champion else ""),
                "change": trend.change(line, ratings=ratings, is_ascii=is_ascii),
            }
            for line in shown
        ]
        notes = ["* champion"] if any(line.champion for line in shown) else []
        if len(lines) > MAX_LINES:
            notes.append(f"and {len(lines) - MAX_LINES} more players")
        says = rows, notes, self._screen.width
        known = self._drawn.get(population)
        if known is not None and known[0] == says:
            # Rendering is most of the display's cost, and most tables do not change for seconds.
            return known[1]
        table = framed(
            Table(COLUMNS, rows),
            overflow="ellipsis",
            title=population,
            caption=", ".join(notes) or None,
            caption_justify="left",
            box=SIMPLE_HEAD,
            pad_edge=False,
        )
        for column, width in zip(table.columns, WIDTHS, strict=True):
            column.min_width, column.no_wrap = width, True
        # Adjacent segments of equal style are merged, because all of them are compared each second.
        drawn = [list(Segment.simplify(line)) for line in self._screen.render_lines(table)]
        self._drawn[population] = says, SegmentLines(drawn, new_lines=True)
        return self._drawn[population][1]


class Trend:
    """Weights of one population's players in the standings of the last fit and of that before.

    Ratings of two fits cannot be compared: the second may have moved the scale. What a player has
    gained since the fit before is the difference of its weights of then and of now by the last fit.
    """

    def __init__(self) -> None:
        self._fit: int | None = None
        self._now: dict[str, Digest | None] = {}
        self._before: dict[str, Digest | None] = {}

    def record(self, fit: int | None, lines: Sequence[Standing]) -> None:
        """Take the current standings.

        Args:
            fit: Evaluation matches that the fit covers, which tell it from others; None: none yet.
            lines: Standings.
        """
        if fit != self._fit:
            self._fit, self._before = fit, self._now
        self._now = {line.player: line.weights for line in lines}

    def change(self, line: Standing, *, ratings: Ratings, is_ascii: bool) -> str:
        """Return how much stronger a player is than at the fit before: an arrow and Elo.

        Args:
            line: Standing of the player.
            ratings: Last fit of its population.
            is_ascii: Whether there is no arrow.
        """
        before = self._before.get(line.player)
        if before is None or line.weights is None:
            return "-"
        gained = ratings.difference(line.weights, before)
        if gained is None:
            return "-"
        elo = round(gained[0])
        if elo == 0:
            return "= 0"
        # The sign has the same information where there are no arrows, and no colour is needed.
        arrow = "" if is_ascii else "↑ " if elo > 0 else "↓ "
        return f"{arrow}{elo:+d}"


def waiting(name: str, most_s: float) -> str:
    """Say what a run that is over waits for."""
    # Seconds are rounded up: a wait that takes longer than was said looks like a hang.
    return f"all is saved; waiting for {name}, for at most {math.ceil(most_s)} s (logs/{name}.log)"


def told(rows: Sequence[Row]) -> Iterator[EventRow]:
    """Yield the committed events that a person wants to see as they happen."""
    for row in rows:
        if isinstance(row, EventRow) and row.kind in TOLD:
            yield row


def explain(row: EventRow, *, name: Callable[[str], str] = str) -> str:
    """Explain an event on one line.

    Args:
        row: Event.
        name: Function that shortens players' names.
    """
    if row.kind in ("alert", "alert_cleared"):
        return alert_event(row)
    # The lines after the first one are tracebacks.
    data = {key: _first_line(value) for key, value in row.data.items()}
    about = {**data, "kind": row.kind, "subject": row.subject}
    return one_line(sentence(about, name=name), max_chars=MAX_CHARS)


def _first_line(value: Json) -> Json:
    return value.strip().partition("\n")[0] if isinstance(value, str) else value


def alert_event(row: EventRow) -> str:
    """Say that an alert begins, with its advice, or that it is over."""
    what = f" ({row.subject})" if row.subject else ""
    if row.kind == "alert_cleared":
        return f"alert is over: {row.data['name']}{what}"
    said = one_line(str(_first_line(row.data["what"])), max_chars=MAX_CHARS)
    return f"alert: {row.data['name']}{what}: {said}. {row.data['advice']}"


def alert(status: Mapping[str, Json]) -> str:
    """Return a line about a pause, for the disk or because nothing finishes; empty: none is."""
    return "  ".join(
        f"{PAUSES[one['name']]}: {one['what']}"
        for one in alerts_of(status)
        if one["name"] in PAUSES
    )


def alert_names(status: Mapping[str, Json]) -> str:
    """Return the names of the alerts that hold, to end a line with."""
    names = ", ".join(dict.fromkeys(one["name"] for one in alerts_of(status)))
    return f"  alerts: {names}" if names else ""


def headline(state: ControllerState, status: Mapping[str, Json]) -> tuple[str, ...]:
    """Say what happens now and then, what was done so far, and by which shares."""
    moment = Moment.of(state, status)
    lines = (
        what_happens(state.settings.config, state.tables, state.phase, moment),
        counts(state.tables, moment),
        shares(state.settings, state.tables, state.measured),
    )
    return tuple(line for line in lines if line)
