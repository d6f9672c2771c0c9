"""Simulated learner without a network: results of assignments follow from the planted truth.

Tests: `tests/populations/controller/simulated.py`, `tests/populations/simulation/test_league.py`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, FileRecord, Manifest, checkpoint_key
from arena.config import LearnerSetup
from arena.matches.comparisons import comparisons
from arena.matches.seating import plays_of, seat_teams
from arena.matches.teammates import members
from arena.types import (
    SHOWN_BYTES,
    CheckpointRef,
    Digest,
    Entrant,
    Game,
    PairScore,
    Player,
    PlayerId,
    Seating,
    Tally,
    is_bot,
    population_of,
)
from arena.wire.messages import Evaluate, Finished, Published, Train, Trainee
from populations.simulation.planted import Landscape, PlantedModel, Weights

UTC = "2000-01-01T00:00:00+00:00"
"""Date in all records, because simulated time has no date."""

# Checkpoints count one learner update for this many agent steps.
UPDATE_AGENT_STEPS = 10


@dataclass(slots=True, kw_only=True)
class SimulatedLearner:
    """Simulated learner; one object carries out the assignments of all learners of a run.

    Attributes:
        setup: Setup of the learners.
        model: Planted truth.
        landscapes: Effect of hyperparameters on the speed of learning, by population.
        agent_steps_per_s: Simulated speed of training.
        matches_per_s: Simulated speed of evaluation.
        episode_length: Calls of ``step`` in an episode.
        matches_per_seating: Matches per seating in a training assignment. None: the number that
            follows from its agent steps.
        weights: Planted truth about weights, by weights digest.
        origins: Weights digest of each checkpoint, by checkpoint digest.
    """

    setup: LearnerSetup
    model: PlantedModel
    landscapes: Mapping[str, Landscape]
    agent_steps_per_s: float = 100_000.0
    matches_per_s: float = 1000.0
    episode_length: int = 20
    matches_per_seating: int | None = None
    weights: dict[Digest, Weights] = field(default_factory=dict)
    origins: dict[Digest, Digest] = field(default_factory=dict)
    _environment_digest: Digest = field(init=False)

    def __post_init__(self) -> None:
        self._environment_digest = self.setup.spec.digest

    def carry_out(self, message: Train | Evaluate) -> tuple[Finished, dict[str, Manifest]]:
        """Carry out an assignment: a function of the message and of the weights that it names."""
        # Only the message's seed is used, so that a repeated assignment has the same result.
        rng = np.random.default_rng(message.seed)
        if isinstance(message, Train):
            return self._train(message, rng)
        asked = _by_entrants([(p.seating, p.num_matches) for p in message.pairings], {})
        tallies = [
            self._tally(seating, num_matches, rng, before={}, trainees={})
            for seating, num_matches in asked
        ]
        matches = sum(tally.matches for tally in tallies)
        finished = Finished(
            assignment_id=message.assignment_id,
            attempt=message.attempt,
            checkpoints=(),
            tallies=tuple(tallies),
            metrics={},
            duration_s=matches / self.matches_per_s,
            games=tuple(self._games(message, tallies)),
        )
        return finished, {}

    def _games(self, message: Evaluate, tallies: Sequence[Tally]) -> Iterator[Game]:
        """Yield the requested games, one of each pairing, with the pairing's most frequent result.

        They contain no actions, so they cannot be replayed.
        """
        results = {tally.entrants: tally for tally in tallies}
        is_cooperation = self.setup.is_cooperation
        seats = plays_of(self.setup.seats)[0]
        for place, pairing in enumerate(message.pairings[: message.games]):
            tally = results[pairing.seating.entrants({})]
            lead = sum(pair.wins - pair.losses for pair in tally.pairs)
            points = (float(lead > 0), *[float(lead < 0)] * (len(self.setup.sides) - 1))
            yield Game(
                pairing=place,
                seats=seats,
                seed=message.seed,
                steps=self.episode_length,
                points=() if is_cooperation else points,
                returns=tuple(0.0 for _ in seats),
                actions=b"",
                shown=bytes(SHOWN_BYTES * (self.episode_length + 1)),
            )

    def _train(
        self, message: Train, rng: np.random.Generator
    ) -> tuple[Finished, dict[str, Manifest]]:
        manifests: dict[str, Manifest] = {}
        published = []
        # All weights are read first, because trainees play each other as they were at the start.
        before: dict[str, Weights] = {
            trainee.policy: self._start(trainee, rng) for trainee in message.trainees
        }
        for trainee in message.trainees:
            weights = self.improved(message, trainee, before, rng)
            manifest = self._publish(message, trainee, weights)
            digest, steps = manifest.digest, manifest.agent_steps
            key = checkpoint_key(trainee.policy, agent_steps=steps, digest=digest)
            manifests[key] = manifest
            ref = CheckpointRef(digest=digest, key=key)
            published.append(Published(policy=trainee.policy, checkpoint=ref))
        tallies = self._training_tallies(message, before, rng)
        metrics = {
            "throughput/agent_steps_per_s": self.agent_steps_per_s,
            "episode/length_mean": float(self.episode_length),
        }
        finished = Finished(
            assignment_id=message.assignment_id,
            attempt=message.attempt,
            checkpoints=tuple(published),
            tallies=tuple(tallies),
            metrics=metrics if message.agent_steps else {},
            duration_s=message.agent_steps / self.agent_steps_per_s,
        )
        return finished, manifests

    def _start(self, trainee: Trainee, rng: np.random.Generator) -> Weights:
        """Return the weights that a trainee begins the assignment with."""
        if trainee.checkpoint is not None:
            weights = self.weights[self.origins[trainee.checkpoint.digest]]
            # The message names a donor only in the first assignment after a copy.
            return self.model.copied(weights, rng) if trainee.donor is not None else weights
        fresh = self.model.fresh(rng)
        if trainee.initial_weights is None:
            return fresh
        digest = trainee.initial_weights.digest
        # Weights of another run have no planted truth, so their skill is derived from the digest.
        imported = self.weights.get(digest) or self.model.bot(digest)
        return replace(fresh, skill=imported.skill)

    def improved(
        self,
        message: Train,
        trainee: Trainee,
        before: Mapping[str, Weights],
        rng: np.random.Generator,
    ) -> Weights:
        """Return the weights that a trainee ends the assignment with."""
        weights = before[trainee.policy]
        # An assignment of 0 steps only publishes the initial checkpoint.
        if not message.agent_steps:
            return weights
        population = population_of(trainee.policy)
        opponents = []
        for seating in message.opponents:
            # Trainees of one assignment may have seatings of their own, without this trainee.
            if Player(player=PlayerId(trainee.policy)) not in seating.players:
                continue
            # In self-play the trainee has all seats, so there are no rivals.
            rivals = [
                player for player in seating.players if player.player != PlayerId(trainee.policy)
            ]
            seated = [self._weights(player, before) for player in rivals]
            opponents.append(seated[0] if seated else weights)
        return self.model.trained(
            weights,
            agent_steps=self._share(message, trainee),
            speed=self.landscapes[population].speed(trainee.hyperparameters),
            opponents=opponents,
            rng=rng,
        )

    def _share(self, message: Train, trainee: Trainee) -> int:
        """Return a trainee's part of the assignment's agent steps, by its number of agents."""
        populations = self.setup.populations
        agents = [len(populations[population_of(t.policy)].agents) for t in message.trainees]
        own = len(populations[population_of(trainee.policy)].agents)
        # All agents decide equally often: n_i = n a_i / sum_j a_j.
        return message.agent_steps * own // sum(agents)

    def _publish(self, message: Train, trainee: Trainee, weights: Weights) -> Manifest:
        """Record new weights, and return the manifest of their checkpoint."""
        trained = self._share(message, trainee)
        steps = trainee.agent_steps + trained
        # Equal messages must give equal digests, as in deterministic training.
        text = f"{message.seed} {trainee.policy} {trainee.agent_steps}"
        digest = Digest(hashlib.sha256(text.encode()).hexdigest())
        record = FileRecord(sha256=digest, size_bytes=1)
        population = self.setup.populations[population_of(trainee.policy)]
        manifest = Manifest(
            policy=trainee.policy,
            generation=trainee.generation,
            agent_steps=steps,
            learner_updates=trainee.learner_updates + trained // UPDATE_AGENT_STEPS,
            hyperparameters=dict(trainee.hyperparameters),
            parent=trainee.checkpoint.digest if trainee.checkpoint is not None else None,
            donor=trainee.donor,
            environment_digest=self._environment_digest,
            population_agents=population.agents,
            network=population.network,
            files={WEIGHTS: record, OPTIMIZER: record},
            arena_version="simulated",
            created=UTC,
        )
        self.weights[digest] = weights
        # A trainee's message names the checkpoint's digest, but truth is stored by weights digest.
        self.origins[manifest.digest] = digest
        return manifest

    def _training_tallies(
        self, message: Train, before: Mapping[str, Weights], rng: np.random.Generator
    ) -> list[Tally]:
        entrants: dict[str, Entrant] = {one.policy: one.entrant for one in message.trainees}
        matches = self.matches_per_seating
        if matches is None and message.opponents:
            # Agent steps are divided equally among the seatings.
            matches = message.agent_steps // (self.episode_length * len(message.opponents))
        # Every assigned seating is played at least once, as by a real learner.
        number = max(matches or 0, 1)
        seatings = [(seating, number) for seating in dict.fromkeys(message.opponents)]
        return [
            self._tally(seating, num_matches, rng, before=before, trainees=entrants)
            for seating, num_matches in _by_entrants(seatings, entrants)
        ]

    def _tally(
        self,
        seating: Seating,
        num_matches: int,
        rng: np.random.Generator,
        *,
        before: Mapping[str, Weights],
        trainees: Mapping[str, Entrant],
    ) -> Tally:
        """Play matches of a seating; a seat's return is its side's points, summed over pairs."""
        seats, players = self.setup.seats, seating.players
        skills = [self._weights(player, before) for player in players]
        entrants = seating.entrants(trainees)
        # Without seats of single agents, each seat is a side of its own in the tally.
        sides, seated = tuple(range(index, index + 1) for index in range(len(seats))), seats
        if trainees and self.setup.agent_seats:
            sides, seated = members(seats), self.setup.training_seats
            skills = [_mean_skill(skills[side.start : side.stop]) for side in sides]
        is_cooperation = len({seat.side for seat in seats}) == 1
        if is_cooperation:
            # A team has one result, so all of its members count with the team's mean skill.
            skills = self._team_skills(skills)
        at = {side.start: index for index, side in enumerate(sides)}
        pairs, returns = [], [0.0] * len(seats)
        result = None
        # In cooperation evaluation compares two teams; in training there is nothing to compare.
        is_alone = bool(is_cooperation and trainees)
        for one in () if is_alone else comparisons(seated, entrants=entrants):
            own, others = [at[seat] for seat in one.first], [at[seat] for seat in one.second]
            # In cooperation all pairs share one result, so it is drawn only once.
            if result is None or not is_cooperation:
                result = self.model.play(
                    skills[own[0]], skills[others[0]], num_matches=num_matches, rng=rng
                )
            # Two players have one result in all of their seats, which is counted for each.
            wins, draws, losses = (count * one.number for count in result)
            first, second = one.names
            pairs.append(
                PairScore(first=first, second=second, wins=wins, draws=draws, losses=losses)
            )
            for side in own:
                returns[side] += wins / len(own)
            for side in others:
                returns[side] += losses / len(others)
        # Each agent of a side has the side's points as its return.
        returns = [points for side, points in zip(sides, returns, strict=True) for _ in side]
        return Tally(
            entrants=entrants,
            matches=num_matches,
            pairs=tuple(pairs),
            return_sum=tuple(returns),
            # With two sides a return is 0 or 1, so it equals its square.
            return_sum_of_squares=tuple(returns),
            # In a comparison of two teams each team plays an episode of its own.
            length_sum=num_matches * self.episode_length * (2 if is_cooperation and pairs else 1),
        )

    def _team_skills(self, seated: Sequence[Weights]) -> list[Weights]:
        """Return each seat's weights with the mean skill of the seat's team."""
        teams = seat_teams(self.setup.seats)
        by_team: dict[tuple[int, str], list[float]] = {}
        for weights, team in zip(seated, teams, strict=True):
            by_team.setdefault(team, []).append(weights.skill)
        return [
            replace(weights, skill=sum(by_team[team]) / len(by_team[team]))
            for weights, team in zip(seated, teams, strict=True)
        ]

    def _weights(self, player: Player, before: Mapping[str, Weights]) -> Weights:
        if player.weights is not None:
            return self.weights[player.weights.digest]
        if is_bot(player.player):
            return self.model.bot(player.player)
        return before[player.player]


def _mean_skill(seated: Sequence[Weights]) -> Weights:
    """Return the first player's weights with the mean skill of all players of the side."""
    return replace(seated[0], skill=sum(weights.skill for weights in seated) / len(seated))


def _by_entrants(
    asked: Sequence[tuple[Seating, int]], trainees: Mapping[str, Entrant]
) -> list[tuple[Seating, int]]:
    """Add up the matches of seatings with equal entrants, which share a tally."""
    total: dict[tuple[Entrant, ...], tuple[Seating, int]] = {}
    for seating, number in asked:
        names = seating.entrants(trainees)
        # Seatings with equal entrants have equal strengths, so the first one represents all.
        first, before = total.get(names, (seating, 0))
        total[names] = (first, before + number)
    return list(total.values())
