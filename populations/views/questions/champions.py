"""Champion of each population: since when, by how much, against which players it does worst.

Tests: `tests/populations/views/test_champions.py`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from arena.matches.pair_scores import wilson
from arena.types import Digest, Entrant, trainee_entrant
from populations.controller.monitoring.champions import CHAMPION
from populations.league.lineage import lineage
from populations.league.standings import RATING, Standing
from populations.records.rows import Json
from populations.views.questions.anchor import anchor_score
from populations.views.questions.cells import payoff_cells
from populations.views.questions.inspection import Document, Inspection
from populations.views.questions.ratings import CheckpointFit, champion_spans
from populations.views.questions.unproven import unproven


def champion_view(run: Inspection, population: str | None) -> Document:
    """Return the champion of each population that has one.

    ``lead`` is its rating difference to the next player with other weights, by one fit, with the
    interval of the difference. ``opponents`` are the players that it met in evaluation, the worst
    score first, with Wilson's 95% interval. ``unproven`` is null where it is surely better than
    untrained (`populations.views.questions.unproven`). ``line`` is the training behind its
    weights, oldest first.
    """
    _, fit = run.rated
    found = run.standings()
    names = run.names()
    spans = champions_of(run, population)
    cells = payoff_cells(run.reader.pairs(kind="evaluate"), seats=run.league.seats, names=names)
    champions = []
    for name, best in run.champions(population).items():
        history = [span for span in spans if span["population"] == name]
        own = names[name, best.weights or best.player]
        champions.append(
            {
                **_described(name, best, history),
                **lead(name, best, found[name], fit),
                "anchor": anchor_score(run, name, best),
                "unproven": unproven(run, name, best),
                "history": history,
                "opponents": opponents(cells, population=name, player=own),
                "line": _line(run, best),
            }
        )
    return {"champions": champions}


def champions_of(run: Inspection, population: str | None) -> list[Document]:
    """Return since when and until when each champion has led its population, oldest first."""
    spans = champion_spans(run.reader.events(kinds=(CHAMPION,)))
    return [span for span in spans if population in (None, span["population"])]


def _described(population: str, best: Standing, history: list[Document]) -> Document:
    last = history[-1] if history else {}
    return {
        "population": population,
        **best.picked("player", "generation", "agent_steps", "evaluated_agent_steps"),
        **best.picked("checkpoint", "weights", *RATING),
        # Null where the journal has not recorded yet that it leads.
        "since": last.get("since") if last.get("player") == best.player else None,
        "changes": max(len(history) - 1, 0),
    }


def lead(
    population: str, best: Standing, lines: Iterable[Standing], fit: CheckpointFit
) -> Document:
    """Return by how much a champion leads the next player of the standings with other weights."""
    others = [
        line
        for line in lines
        if line.kind != "bot"
        and line.state == "active"
        and line.rating is not None
        and line.weights not in (None, best.weights)
    ]
    # The standings are sorted by rating.
    second = others[0] if others else None
    gap = None
    if second is not None:
        gap = fit.difference(
            (population, Entrant(best.weights or "")), (population, Entrant(second.weights or ""))
        )
    return {
        "next": None if second is None else second.player,
        "lead": None if gap is None else gap.rating,
        "lead_low": None if gap is None else gap.low,
        "lead_high": None if gap is None else gap.high,
    }


def opponents(
    cells: Iterable[Mapping[str, Json]], *, population: str, player: str
) -> list[Document]:
    """Return a player's results by opponent, the worst score first."""
    rows: list[tuple[float, int, Document]] = []
    for cell in cells:
        score, matches = cell["score"], cell["matches"]
        is_own = (cell["population"], cell["player"]) == (population, player)
        # Against itself a player has half of the points.
        is_itself = (cell["opponent_population"], cell["opponent"]) == (population, player)
        if not is_own or is_itself or not isinstance(score, float) or not isinstance(matches, int):
            continue
        low, high = wilson(score, matches)
        keys = ("opponent_population", "opponent", "matches", "wins", "draws", "losses", "score")
        row: Document = {key: cell[key] for key in keys}
        row |= {"score_low": low, "score_high": high, "mean_return": cell["mean_return"]}
        rows.append((score, -matches, row))
    # Of equal scores the one that more matches tell of comes first.
    return [row for _, _, row in sorted(rows, key=lambda one: one[:2])]


def _line(run: Inspection, best: Standing) -> list[Document]:
    """Return the generations behind a champion's weights, the copies it came through included."""
    origin = run.league.checkpoints.get(Digest(best.weights or ""))
    generations = run.history().generations
    if origin is None:
        return []
    entrant = trainee_entrant(origin.policy, generation=origin.generation)
    if entrant not in generations:
        return []
    return [
        {
            "policy": stretch.generation.policy,
            "generation": stretch.generation.generation,
            "cause": stretch.generation.cause,
            "begin": stretch.begin,
            "agent_steps": stretch.agent_steps,
        }
        for stretch in lineage(generations, entrant, agent_steps=origin.agent_steps)
    ]
