"""Lines that several commands print about a run: its alerts, and warnings about its ratings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from arena.types import RANDOM_BOT
from populations.views.parts import Document

# Leagues without cycles or styles of play have a cyclicity of 0.00.
CYCLIC = 0.25
"""Cyclicity (share of results that ratings cannot express) above which a warning is shown."""


def cyclic_warnings(cyclicity: Mapping[str, float | None], *, run: Path) -> Iterator[str]:
    """Yield a warning for each population whose players cannot be ordered by ratings.

    Args:
        cyclicity: Cyclicity of each population; None if unknown.
        run: Directory of the run.
    """
    for population, share in cyclicity.items():
        if share is not None and share > CYCLIC:
            yield (
                f"Warning: cyclicity of {population} is {share:.2f}, above {CYCLIC}: ratings order "
                "its players badly, because who meets whom matters more; "
                f"arena export {run} --mixture exports a mixture that none of them beats"
            )


def misfit_warnings(fits: Mapping[str, Document], *, run: Path) -> Iterator[str]:
    """Yield a warning for each population whose results differ from its ratings' predictions.

    Args:
        fits: Fit of each population, from `Inspection.fits`.
        run: Directory of the run.
    """
    from populations.ratings.fitting.misfit import MISFIT

    for population, fit in fits.items():
        if fit["misfit"] >= MISFIT:
            deviations = {
                "a pair": fit["pair_deviation"],
                f"against {RANDOM_BOT}": fit["anchor_deviation"],
            }
            # Leave out deviations that would be shown as 0 Elo.
            parts = [f"{elo:.0f} Elo {where}" for where, elo in deviations.items() if elo >= 0.5]
            off = (
                f"are {' and '.join(parts)} off its ratings"
                if parts
                else "between players far apart are not what its ratings promise"
            )
            yield (
                f"Warning: results of {population} {off} "
                f"({fit['misfit']:.1f} standard deviations); intervals are widened by it; "
                f"arena league {run} calibration shows where"
            )


def anchor_text(anchor: Document) -> str:
    """Return a player's score against the anchor of the ratings, in words.

    Args:
        anchor: Document of `populations.views.questions.champions.anchor_score`.
    """
    score, low, high = (anchor[key] for key in ("score", "score_low", "score_high"))
    return (
        f"{score:.3f} against {RANDOM_BOT}, 95% {low:.3f} to {high:.3f}, "
        f"in {anchor['matches']:,} matches"
    )


def told_of(champion: Document) -> Iterator[str]:
    """Yield lines about a champion's score against the anchor, and why it may be no better than
    untrained.
    """
    if anchor := champion.get("anchor"):
        yield anchor_text(anchor)
    yield from unproven_lines([champion["unproven"]])


def unproven_lines(unproven: Iterable[Document | None]) -> Iterator[str]:
    """Yield lines about champions that are not proved better than an untrained policy.

    Args:
        unproven: For each champion, the result of `populations.views.questions.champions.unproven`,
            or None if it is better.
    """
    for one in unproven:
        if one is not None:
            likelier, other = one["reasons"]
            yield f"{one['what']}; the most likely reasons:"
            yield f"  {likelier},"
            yield f"  or {other}"


def alert_lines(status: Document) -> list[str]:
    """Return a line for each active alert: the problem, and advice."""
    return [f"alert: {one['name']}: {one['what']}. {one['advice']}" for one in alerts_of(status)]


def alerts_of(status: Document) -> list[Document]:
    """Return the active alerts in a run's status."""
    alerts = status.get("alerts")
    listed = alerts if isinstance(alerts, list) else ()
    return [one for one in listed if isinstance(one, Mapping)]
