"""The view ``mixture``: the Nash mixture of each population, and how cyclic its results are.

Tests: `tests/tools/league/test_mixture.py`.
"""

from __future__ import annotations

from collections.abc import Callable

from arena.errors import ConfigError
from populations.league.mixture import Mixture, nash_mixtures
from populations.league.standings import RATING, Standing
from populations.views.questions.inspection import Document, Inspection


def mixture_view(run: Inspection, population: str | None) -> Document:
    """Return the members of each population's Nash mixture, the most probable first.

    ``populations`` has each one's ``cyclicity`` (the share of results that no rating can express;
    null before a fit), ``num_players`` that were weighed, and ``worst_score``, the expected score
    against the strongest of the weighed opponents. Where there is no mixture, ``reason`` says why,
    and the two are null.
    """
    try:
        found, reason = mixtures_of(run), None
    except ConfigError as error:
        found, reason = {}, str(error)
    shown = [
        name
        for name in dict.fromkeys(seat.population for seat in run.league.seats)
        if population in (None, name)
    ]
    members: list[Document] = [
        line for name in shown if name in found for line in _members(found[name])
    ]
    return {
        "populations": {name: _summary(run, name, found.get(name)) for name in shown},
        "mixture": members,
        "reason": reason,
    }


def is_kept(run: Inspection, line: Standing) -> bool:
    """Return whether a player's weights are there, as far as the journal knows."""
    if line.key is None:
        return False
    # Ghosts have no such row: they stay.
    checkpoint = run.tables.checkpoints.get(line.key)
    return checkpoint is None or checkpoint.state == "present"


def mixtures_of(
    run: Inspection, *, is_present: Callable[[Inspection, Standing], bool] = is_kept
) -> dict[str, Mixture]:
    """Find the Nash mixture of each population, of players whose weights are there.

    Args:
        run: The run.
        is_present: Whether a player's weights are there.

    Raises:
        ConfigError: As `populations.league.mixture.nash_mixtures`.
    """
    present = {
        name: [line for line in lines if is_present(run, line)]
        for name, lines in run.standings().items()
    }
    pairs = run.reader.pairs(kind="evaluate")
    return nash_mixtures(present, pairs, seats=run.league.seats)


def _summary(run: Inspection, population: str, mixture: Mixture | None) -> Document:
    row = run.tables.ratings.get(population)
    return {
        "cyclicity": None if row is None else row.cyclicity,
        "num_players": None if mixture is None else mixture.num_players,
        "worst_score": None if mixture is None else mixture.worst_score,
    }


def _members(mixture: Mixture) -> list[Document]:
    return [
        {
            "population": mixture.population,
            **member.standing.picked("player", "kind"),
            "probability": member.probability,
            **member.standing.picked(*RATING, "agent_steps", "weights"),
        }
        for member in mixture.members
    ]
