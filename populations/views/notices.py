"""Lines about a run that several commands print: its alerts, and when ratings mislead."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from arena.types import RANDOM_BOT
from populations.views.parts import Document

# Leagues without cycles or styles read 0.00.
CYCLIC = 0.25
"""Cyclicity above which more than a quarter of the results depends on the pairing."""


def cyclic_warnings(cyclicity: Mapping[str, float | None], *, run: Path) -> Iterator[str]:
    """Yield a line for each population that ratings order badly.

    Args:
        cyclicity: Cyclicity of each population; None: unknown.
        run: The run's directory.
    """
    for population, share in cyclicity.items():
        if share is not None and share > CYCLIC:
            yield (
                f"Warning: cyclicity of {population} is {share:.2f}, above {CYCLIC}: ratings order "
                "its players badly, because who meets whom matters more; "
                f"arena export {run} --mixture exports a mixture that none of them beats"
            )


def misfit_warnings(fits: Mapping[str, Document], *, run: Path) -> Iterator[str]:
    """Yield a line for each population whose results are not what its ratings promise.

    Args:
        fits: Fit of each population, from `Inspection.fits`.
        run: The run's directory.
    """
    from populations.ratings.fitting.misfit import MISFIT

    for population, fit in fits.items():
        if fit["misfit"] >= MISFIT:
            deviations = {
                "a pair": fit["pair_deviation"],
                f"against {RANDOM_BOT}": fit["anchor_deviation"],
            }
            # The rounded number would be 0 below half an Elo.
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
    """Return what a player has won against the anchor itself.

    Args:
        anchor: Document of `populations.views.questions.champions.anchor_score`.
    """
    score, low, high = (anchor[key] for key in ("score", "score_low", "score_high"))
    return (
        f"{score:.3f} against {RANDOM_BOT}, 95% {low:.3f} to {high:.3f}, "
        f"in {anchor['matches']:,} matches"
    )


def told_of(champion: Document) -> Iterator[str]:
    """Yield what a champion has won against the anchor itself, and why it may not be better."""
    if anchor := champion.get("anchor"):
        yield anchor_text(anchor)
    yield from unproven_lines([champion["unproven"]])


def unproven_lines(unproven: Iterable[Document | None]) -> Iterator[str]:
    """Yield lines about champions that are not surely better than untrained, and why.

    Args:
        unproven: Findings about each, of `populations.views.questions.champions`; None: it is
            better.
    """
    for one in unproven:
        if one is not None:
            likelier, other = one["reasons"]
            yield f"{one['what']}; the most likely reasons:"
            yield f"  {likelier},"
            yield f"  or {other}"


def alert_lines(status: Document) -> list[str]:
    """Return a line for each alert that holds: what is wrong, and what to do."""
    return [f"alert: {one['name']}: {one['what']}. {one['advice']}" for one in alerts_of(status)]


def alerts_of(status: Document) -> list[Document]:
    """Return the alerts that hold, as a run's status lists them."""
    alerts = status.get("alerts")
    listed = alerts if isinstance(alerts, list) else ()
    return [one for one in listed if isinstance(one, Mapping)]
