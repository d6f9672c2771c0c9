"""Differences of two runs: configuration, versions, work, players and alerts, side by side.

Tests: `tests/populations/views/test_diff.py`.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from arena.config import LearnerSetup
from arena.types import RANDOM_BOT
from populations.config.resume import Change, compare, without_secrets
from populations.config.run_file import learner_setup
from populations.league.standings import RATING, Standing
from populations.records.rows import Json
from populations.views.parts import picked
from populations.views.questions.champions import opponents
from populations.views.questions.inspection import Document, Inspection

COUNTED = ("exploited", "explored", "immigrated", "kept", "reset", "quarantined")
"""Kinds of events about policies that are counted."""

_COUNTS = ("state", "reason", "elapsed_s", "agent_steps", "matches", "assignments_finished")
_PLAYER = ("player", *RATING, "agent_steps", "generation", "matches")
_RESULT = ("matches", "score", "score_low", "score_high", "mean_return")


def differences(one: Side, two: Side) -> Document:
    """Return the differences of two runs."""
    labels = labels_of(one.run.run_dir, two.run.run_dir)
    configurations = [side.run.run_file.config.model_dump(mode="json") for side in (one, two)]
    met = _common_opponents(one, two)
    return {
        "runs": {
            side: {"run": it.run.tables.run.run, "run_dir": str(it.run.run_dir), "label": label}
            for side, it, label in zip(("first", "second"), (one, two), labels, strict=True)
        },
        "same_environment": _plays_the_same(one, two),
        "figures": _entries(one.figures(), two.figures()),
        "versions": _different(one.run.run_file.versions, two.run.run_file.versions),
        "configuration": _different(*configurations),
        "evolution": _by_population(one.evolution(), two.evolution()),
        "champions": _by_population(one.best(), two.best()),
        "standings": _by_population(one.places(), two.places()),
        "opponents": met,
        "alerts": _alerts(one, two),
        "notes": _notes(one, two, met),
        "evaluate": _evaluate(one, two, labels),
    }


@dataclass(frozen=True, kw_only=True)
class Side:
    """One of the two runs."""

    run: Inspection
    setup: LearnerSetup
    status: Mapping[str, Any]
    standings: Mapping[str, list[Standing]]
    champions: Mapping[str, Standing]
    results: Mapping[tuple[str, str, str], Document]
    """Results of each champion, by its population, and the opponent's population and name."""
    events: Counter[tuple[str, str]]
    """Counts of events by population and kind."""
    generations: Counter[str]

    @classmethod
    def of(cls, run: Inspection, population: str | None, *, status: Mapping[str, Any]) -> Side:
        """Read a run, with its document of the view status; the side needs its reader no more."""
        found, names = run.standings(population), run.names()
        champions, cells = run.champions(population), run.cells()
        results = {
            (name, str(row["opponent_population"]), str(row["opponent"])): row
            for name, best in champions.items()
            for row in opponents(
                cells, population=name, player=names[name, best.weights or best.player]
            )
        }
        counted = run.reader.events(kinds=COUNTED)
        return cls(
            run=run,
            setup=learner_setup(run.run_file, root=run.run_dir),
            status=status,
            standings=found,
            champions=champions,
            results=results,
            events=Counter((row.subject.split("/")[0], row.kind) for row in counted),
            generations=Counter(row.population for row in run.history().generations.values()),
        )

    def figures(self) -> Document:
        """Return what the run is, and how much it has done."""
        row, file = self.run.tables.run, self.run.run_file
        evaluation = self.status["evaluation"]
        return {
            "name": file.name,
            "environment": file.spec.id,
            "environment_digest": file.spec.digest,
            "init_from": file.init_from,
            "created": file.created,
            **{key: self.status[key] for key in _COUNTS},
            "mean_agent_steps_per_s": _ratio(row.agent_steps, row.elapsed_s),
            # The speed is that of one learner while it trains, so it does not depend on how many
            # there are.
            "agent_steps_per_training_s": _ratio(row.agent_steps, row.training_s),
            "evaluation_share": evaluation["share_reached"],
            "checkpoints": self.status["checkpoints"],
            "ghosts": self.status["ghosts"],
        }

    def evolution(self) -> dict[str, Document]:
        """Return counts of policies, generations and events, by population."""
        return {
            name: {
                "policies": sum(line.kind == "policy" for line in lines),
                "generations": self.generations[name],
                **{kind: self.events[name, kind] for kind in COUNTED},
            }
            for name, lines in self.standings.items()
        }

    def best(self) -> dict[str, Document]:
        """Return the champions by population, with their hyperparameters."""
        return {
            name: {
                "champion": {
                    **picked(one, *_PLAYER),
                    "hyperparameters": dict(one.hyperparameters),
                }
            }
            for name, one in self.champions.items()
        }

    def places(self) -> dict[str, Document]:
        """Return the policies by population and place, the best first."""
        return {
            name: {
                str(place): picked(line, *_PLAYER)
                for place, line in enumerate(
                    (line for line in lines if line.kind == "policy"), start=1
                )
            }
            for name, lines in self.standings.items()
        }

    def result(self, population: str, of: str, bot: str) -> Document:
        """Return a champion's result against a bot; null: it has none.

        Args:
            population: Population of the champion.
            of: Population that the bot plays for.
            bot: Name of the bot.
        """
        best, row = self.champions.get(population), self.results.get((population, of, bot), {})
        return {**picked(best, "player"), **{key: row.get(key) for key in _RESULT}}

    @cached_property
    def bots(self) -> dict[tuple[str, str], Standing]:
        """Return the bots that evaluation has met, by population and name."""
        return {
            (name, line.player): line
            for name, lines in self.standings.items()
            for line in lines
            if line.kind == "bot"
        }


def labels_of(first: Path, second: Path) -> tuple[str, str]:
    """Return short names of two directories: the last parts of their paths that differ."""
    paths = first.resolve().parts, second.resolve().parts
    for length in range(1, max(map(len, paths)) + 1):
        one, two = (str(Path(*parts[-length:])) for parts in paths)
        if one != two:
            break
    return one, two


def _different(first: Json, second: Json) -> Document:
    """Return the keys of two nested objects whose values differ, and the number of equal ones.

    A population's key that differs just as the run's own, which it follows, is not repeated.
    """
    compared = list(compare(first, second))
    found = {one.key: one for one in compared if one.before != one.after}
    different: list[Document] = [
        {
            "key": one.key,
            "first": without_secrets(one.before, one.key),
            "second": without_secrets(one.after, one.key),
        }
        for one in found.values()
        if not _follows(one, found)
    ]
    return {"equal": len(compared) - len(found), "different": different}


def _follows(one: Change, found: Mapping[str, Change]) -> bool:
    """Return whether a key of a population differs just as the same key of the whole run."""
    first, *rest = one.key.split(".", 2)
    if first != "populations" or len(rest) < 2:
        return False
    return found.get(rest[1]) == replace(one, key=rest[1])


def _entries(
    first: Mapping[str, Json], second: Mapping[str, Json], **labels: str
) -> list[Document]:
    return [
        {**labels, "key": key, "first": first.get(key), "second": second.get(key)}
        for key in dict.fromkeys((*first, *second))
    ]


def _by_population(
    first: Mapping[str, Mapping[str, Json]], second: Mapping[str, Mapping[str, Json]]
) -> list[Document]:
    return [
        entry
        for name in dict.fromkeys((*first, *second))
        for entry in _entries(first.get(name, {}), second.get(name, {}), population=name)
    ]


def _ratio(count: float, seconds: float) -> float | None:
    return count / seconds if seconds > 0.0 else None


def _common_opponents(one: Side, two: Side) -> list[Document]:
    """Return the bots of both runs that a champion has met, with the results of both champions.

    ``rating`` is that of the bot on the run's own scale.
    """
    return [
        {
            "population": population,
            "opponent_population": of,
            "key": bot,
            **{
                name: {
                    **picked(side.bots[of, bot], *RATING),
                    **side.result(population, of, bot),
                }
                for name, side in (("first", one), ("second", two))
            },
        }
        for population, of, bot in dict.fromkeys((*one.results, *two.results))
        if (of, bot) in one.bots and (of, bot) in two.bots
    ]


def _alerts(one: Side, two: Side) -> list[Document]:
    first, second = (
        {(alert["subject"], alert["name"]): alert["what"] for alert in side.status["alerts"]}
        for side in (one, two)
    )
    return [
        {"subject": key[0], "key": key[1], "first": first.get(key), "second": second.get(key)}
        for key in dict.fromkeys((*first, *second))
    ]


def _plays_the_same(one: Side, two: Side) -> bool:
    # Lessons are of training: matches are about the same game with or without them.
    first, second = (side.run.run_file.spec.of_matches.digest for side in (one, two))
    return first == second


def _notes(one: Side, two: Side, met: list[Document]) -> list[str]:
    """Return what must be known to read the numbers, a sentence each."""
    if not _plays_the_same(one, two):
        first, second = (side.run.run_file.spec.id for side in (one, two))
        which = (
            f"{first} and {second}"
            if first != second
            else f"{first} with other spaces or arguments, as its digest says"
        )
        return [
            f"The runs play different environments, {which}: ratings and scores of one say nothing "
            "about the other."
        ]
    bots = dict.fromkeys(str(entry["key"]) for entry in met)
    bots.pop(RANDOM_BOT, None)
    others = f" and through bots that both have met ({', '.join(bots)})" if bots else ""
    return [
        "Ratings are on each run's own scale. Two scales can be compared only through their "
        f"anchor, {RANDOM_BOT} at 0{others}: of two players of different runs, the one with the "
        "higher rating need not be the better one."
    ]


def _evaluate(one: Side, two: Side, labels: tuple[str, str]) -> Document:
    """Return the command that lets the champions meet, or the reason for which they cannot."""
    reason = _obstacle(one, two, labels)
    runs = [str(side.run.run_dir) for side in (one, two)]
    command = None if reason else shlex.join(["arena", "evaluate", *runs])
    return {"command": command, "reason": reason}


def _obstacle(one: Side, two: Side, labels: tuple[str, str]) -> str | None:
    """Return why champions of two runs cannot meet; None: they can."""
    if one.run.run_dir.resolve() == two.run.run_dir.resolve():
        return "both are the same run"
    if not _plays_the_same(one, two):
        return "the runs play different environments"
    if dict(one.setup.agents_of) != dict(two.setup.agents_of):
        return "the runs divide their agents into different populations"
    actions = {side.setup.environment.continuous_actions for side in (one, two)}
    # Without a Box the key has no meaning.
    if len(actions) > 1 and one.setup.spec.has_numbers:
        return "the runs differ in environment.continuous_actions"
    if set(one.setup.agent_ids) != set(two.setup.agent_ids):
        return "the runs differ in network.agent_id"
    for side, label in zip((one, two), labels, strict=True):
        if not side.champions:
            return f"{label} has no champion yet"
    return None
