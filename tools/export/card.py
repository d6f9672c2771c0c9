"""Card of an export, gathered from a run.

Tests: `tests/tools/export/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from arena.checkpoints.manifest import Manifest
    from arena.export.card import Ancestor, Card, CardEnvironment, CardRating
    from arena.types import Digest
    from populations.inspection.views import Inspection
    from populations.league.league import League

    from ..players.game import Game
    from ..players.weights import PolicyWeights
    from .record import Export

PACKAGES = ("arena-league", "torch", "onnx", "onnxscript", "onnxruntime", "numpy")


def make_card(
    export: Export, policy: PolicyWeights, manifest: Manifest, *, population: str
) -> Card:
    """Look everything up but the record, which is empty.

    Args:
        export: The export.
        policy: A player of the run.
        manifest: Manifest of the player's checkpoint.
        population: Population of the player.
    """
    from arena.export.card import Card, CardAction, CardObservation, CardSeat

    from ..players.trained_with import trained_with

    inspection, game = export.inspection, export.game
    trained = trained_with(inspection, manifest)
    # Agents of one population have equal spaces.
    facts = game.spec.agent_specs[policy.agents[0]]
    return Card(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        run=inspection.tables.run.run,
        population=population,
        player=policy.player,
        agents=policy.agents,
        # In cooperation two seats have the same agents: for a single player they are one.
        seats=tuple(
            {
                seat.agents: CardSeat(name=seat.name, agents=seat.agents)
                for seat in reversed(game.seats)
                if seat.population == population
            }.values()
        )[::-1],
        environment=_environment(game),
        observation=CardObservation.from_space(facts.observation),
        action=CardAction.from_space(facts.action),
        mask=facts.mask,
        network=policy.network,
        agent_steps=manifest.agent_steps,
        learner_updates=manifest.learner_updates,
        generation=manifest.generation,
        weights_digest=policy.digest,
        rating=_rating(inspection, population=population, digest=policy.digest),
        record=(),
        hyperparameters=dict(trained.hyperparameters),
        factors=dict(trained.factors),
        lineage=tuple(lineage(inspection.league, policy.digest)),
        versions=dict(_versions()),
    )


def lineage(league: League, digest: Digest) -> Iterator[Ancestor]:
    """Yield the ancestors of weights, nearest first: one entry per generation of a policy."""
    from arena.export.card import Ancestor

    stretch = None
    for weights in league.ancestors(digest):
        row = league.checkpoints.get(weights)
        # Nearest first, so the first of a generation is its newest.
        if row is not None and (row.policy, row.generation) != stretch:
            stretch = (row.policy, row.generation)
            yield Ancestor(
                policy=row.policy,
                generation=row.generation,
                agent_steps=row.agent_steps,
                weights=weights,
            )


def _environment(game: Game) -> CardEnvironment:
    from arena.export.card import CardEnvironment

    spec = game.spec
    return CardEnvironment(
        id=spec.id,
        kwargs=dict(spec.kwargs),
        api=spec.api,
        agents=spec.agents,
        agent_specs=dict(spec.agent_specs),
        versions=dict(spec.versions),
        sides=dict(game.sides),
        seats=game.seats,
        # Through JSON, because an outcome is a name or a model.
        outcome=game.environment.model_dump(mode="json")["outcome"],
        populations=dict(game.populations),
        continuous_actions=game.environment.continuous_actions,
        possible_agents=game.environment.possible_agents,
    )


def _rating(inspection: Inspection, *, population: str, digest: Digest) -> CardRating:
    """Return the rating of these very weights; a policy's later checkpoints may be unrated."""
    from arena.export.card import CardRating
    from arena.types import RANDOM_BOT, Entrant
    from populations.inspection.calibration import calibrations
    from populations.league.standings import Ratings, champion

    row = inspection.tables.ratings.get(population)
    interval = Ratings(row).interval(digest)
    if row is None or interval is None:
        return CardRating()
    # A champion's rating is lowered: the matches that chose it rate it, too.
    best = champion(inspection.standings(population)[population], row=row)
    less = row.optimism if best is not None and best.weights == digest else 0.0
    rating, low, high = (end - less for end in interval)
    ours, anchor = (population, Entrant(digest)), (population, Entrant(RANDOM_BOT))
    # The same figures as `arena league RUN calibration`, for this pair alone.
    found = calibrations(
        (
            p
            for p in inspection.reader.pairs(kind="evaluate")
            if {p.first, p.second} == {digest, RANDOM_BOT}
        ),
        ratings=inspection.tables.ratings,
        seats=inspection.league.seats,
    )
    # The key's order is that of the seats that met first.
    one = found.get((ours, anchor))
    if one is None and (turned := found.get((anchor, ours))) is not None:
        one = turned.turned()
    # Only matches of these very weights count: often there are none.
    met = one if one is not None and one.matches > 0.0 else None
    return CardRating(
        rating=rating,
        rating_low=low,
        rating_high=high,
        pair_deviation=row.pair_deviation,
        anchor_matches=met and met.matches,
        anchor_score=met and met.seen / met.matches,
        anchor_predicted=met and met.predicted / met.matches,
    )


def _versions() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        try:
            yield package, version(package)
        except PackageNotFoundError:  # a checkout that is not installed
            continue
