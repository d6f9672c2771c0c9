"""Card of an export, gathered from a run.

Tests: `tests/tools/export/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Literal

from arena.learners.versions import installed

from ..players.weights import load_policy

if TYPE_CHECKING:
    from arena.checkpoints.manifest import Manifest
    from arena.export.card import Ancestor, Card, CardEnvironment, CardRating, CardSeat
    from arena.types import Digest, WeightsRef
    from populations.league.league import League
    from populations.ratings.results import Rated
    from populations.views.questions.inspection import Inspection
    from populations.views.questions.results import Calibration

    from ..players.game import Game
    from ..players.weights import PolicyWeights

PACKAGES = ("arena-league", "torch", "onnx", "onnxscript", "onnxruntime", "numpy")


@dataclass(frozen=True, slots=True, kw_only=True)
class Cards:
    """Cards of a run's players, with what all of them share.

    Attributes:
        inspection: The run.
        game: Game of the run.
        anchored: Results against ``bot:random`` beside what ratings promise, by pair.
    """

    inspection: Inspection
    game: Game
    anchored: Mapping[tuple[Rated, Rated], Calibration]

    @classmethod
    def of(cls, inspection: Inspection, game: Game) -> Cards:
        """Gather what the cards of a run share."""
        from arena.types import RANDOM_BOT
        from populations.views.questions.results import calibrations

        ratings = inspection.tables.ratings
        # The values are those of `arena league RUN calibration`, for these pairs alone.
        anchored = calibrations(
            (
                pair
                for pair in inspection.reader.pairs(kind="evaluate")
                if {pair.first, pair.second} & {RANDOM_BOT}
            ),
            ratings=ratings,
            seats=inspection.league.seats,
        )
        return cls(inspection=inspection, game=game, anchored=anchored)

    def load(
        self, player: str, reference: WeightsRef, *, population: str
    ) -> tuple[PolicyWeights, Card]:
        """Load a player of the run, with its card.

        Raises:
            CheckpointError: As `load_policy`.
        """
        manifest, policy = load_policy(self.inspection, player, reference, word=self.game.word)
        return policy, self.make(policy.player, manifest, population=population)

    def make(self, player: str, manifest: Manifest, *, population: str) -> Card:
        """Look everything up but the record, which is empty.

        Args:
            player: Player of the run.
            manifest: Manifest of its checkpoint.
            population: Population of the player.
        """
        from arena.export.card import Card, CardAction, CardObservation

        from ..players.in_run import trained_with

        inspection, game = self.inspection, self.game
        trained = trained_with(inspection, manifest)
        # Agents of one population have equal spaces.
        facts = game.spec.agent_specs[manifest.population_agents[0]]
        return Card(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            run=inspection.tables.run.run,
            population=population,
            player=player,
            agents=manifest.population_agents,
            seats=_seats(game, population),
            environment=environment_of(game),
            observation=CardObservation.from_space(facts.observation),
            action=CardAction.from_space(facts.action),
            mask=facts.mask,
            network=inspection.run_file.config.populations[population].network,
            agent_steps=manifest.agent_steps,
            learner_updates=manifest.learner_updates,
            generation=manifest.generation,
            weights_digest=manifest.weights_digest,
            rating=self._rating(population, manifest.weights_digest),
            record=(),
            hyperparameters=dict(trained.hyperparameters),
            factors=dict(trained.factors),
            lineage=tuple(lineage(inspection.league, manifest.weights_digest)),
            versions={**installed(PACKAGES)},
        )

    def _rating(self, population: str, digest: Digest) -> CardRating:
        """Return the rating of these very weights; a policy's later checkpoints may be unrated."""
        from arena.export.card import CardRating
        from populations.league.ratings import Ratings, interval_fields

        mode: Literal["greedy", "sampled"] = (
            "greedy" if self.inspection.run_file.config.evaluation.greedy else "sampled"
        )
        row = self.inspection.tables.ratings.get(population)
        interval = Ratings(row).interval(digest)
        if row is None or interval is None:
            return CardRating(mode=mode)
        met = self._against_random(population, digest)
        shown: dict[str, Any] = {**interval_fields(interval)}
        return CardRating(
            **shown,
            pair_deviation=row.pair_deviation,
            anchor_matches=None if met is None else met.matches,
            anchor_score=None if met is None else met.seen / met.matches,
            anchor_predicted=None if met is None else met.predicted / met.matches,
            mode=mode,
        )

    def _against_random(self, population: str, digest: Digest) -> Calibration | None:
        """Return the results of weights against random play, if they have met."""
        from arena.types import RANDOM_BOT, Entrant

        ours, anchor = (population, Entrant(digest)), (population, Entrant(RANDOM_BOT))
        # A key has its two seats in the order in which they first played.
        one = self.anchored.get((ours, anchor))
        if one is None and (turned := self.anchored.get((anchor, ours))) is not None:
            one = turned.turned()
        # Only matches of exactly these weights count, and often there are none.
        return one if one is not None and one.matches > 0.0 else None


def _seats(game: Game, population: str) -> tuple[CardSeat, ...]:
    from arena.export.card import CardSeat

    # In cooperation two seats may have the same agents, which are one seat for a single player.
    return tuple(
        {
            seat.agents: CardSeat(name=seat.name, agents=seat.agents)
            for seat in reversed(game.seats)
            if seat.population == population
        }.values()
    )[::-1]


def lineage(league: League, digest: Digest) -> Iterator[Ancestor]:
    """Yield the ancestors of weights, nearest first: one entry per generation of a policy."""
    from arena.export.card import Ancestor

    stretch = None
    for weights in league.ancestors(digest):
        row = league.checkpoints.get(weights)
        # Copies are nearest first, so the first row of a generation is its newest.
        if row is not None and (row.policy, row.generation) != stretch:
            stretch = (row.policy, row.generation)
            yield Ancestor(
                policy=row.policy,
                generation=row.generation,
                agent_steps=row.agent_steps,
                weights=weights,
            )


def environment_of(game: Game) -> CardEnvironment:
    """Return the environment of a game as cards have it."""
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
        # The value goes through JSON, because an outcome is a name or a model.
        outcome=game.environment.model_dump(mode="json")["outcome"],
        populations=dict(game.populations),
        continuous_actions=game.environment.continuous_actions,
        possible_agents=game.environment.possible_agents,
    )
