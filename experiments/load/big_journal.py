"""The journal of a league that has run for long, without its checkpoints: for `bounds`.

Every row is what a controller would have written: tallies of training and evaluation assignments
between policies whose planted skill grows, and their fold. Only directories are missing.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

import numpy as np
from msgspec.structs import replace

from arena.environment_spec import AgentSpec, EnvironmentSpec
from arena.types import (
    RANDOM_BOT,
    AssignmentId,
    CheckpointRef,
    Digest,
    Entrant,
    PairScore,
    Player,
    PlayerId,
    PolicyId,
    Seating,
    Tally,
    Value,
    ghost_id,
    trainee_entrant,
)
from arena.wire.messages import Evaluate, Pairing, Train, Trainee
from populations.config.run_config import validate_config
from populations.config.run_file import RunFile, content_digest, learner_setup, new_run_file
from populations.league.league import League
from populations.records.aggregates import Row
from populations.records.rows import (
    AssignmentRow,
    CheckpointRow,
    EventRow,
    GhostRow,
    Json,
    PolicyRow,
    RatingsRow,
    RunRow,
    TallyRow,
)
from populations.records.tables import Tables
from populations.storage.database import JOURNAL
from populations.storage.journal import Journal

STEPS = 5_000
KEPT = 3
"""Checkpoints of each policy that retention has left."""

HYPERPARAMETERS: dict[str, Value] = {
    "learning_rate": 3e-4, "entropy_coef": 0.01, "clip_coef": 0.2, "gamma": 0.99, "num_epochs": 4
}  # fmt: skip
ROWS_AT_ONCE = 20_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """Size of a league.

    Attributes:
        policies: Members of its one population.
        assignments: Training assignments of each; every one makes a checkpoint.
        ghosts: Ghosts of each policy, spread over its checkpoints.
        opponents: Tallies of a training assignment.
        evaluations: Evaluation assignments in all.
        pairings: Tallies of an evaluation assignment.
        matches: Matches of each tally.
    """

    policies: int = 1000
    assignments: int = 62
    ghosts: int = 20
    opponents: int = 4
    evaluations: int = 5375
    pairings: int = 12
    matches: int = 32


@dataclass(slots=True)
class BigLeague:
    """A league as it grows, one assignment after the other."""

    size: Size
    league: League
    rng: np.random.Generator
    rows: list[Row] = field(default_factory=list)
    ghosts: list[tuple[GhostRow, float]] = field(default_factory=list)
    latest: dict[PolicyId, tuple[CheckpointRow, float]] = field(default_factory=dict)
    num_assignments: int = 0
    num_tallies: int = 0
    num_events: int = 0

    def grow(self) -> Iterator[list[Row]]:
        """Yield rows, some at a time, until the league has its size."""
        policies = [PolicyId(f"player/p{index:03d}") for index in range(self.size.policies)]
        done = 0
        for turn in range(self.size.assignments):
            for index, policy in enumerate(policies):
                self._train(policy, turn)
                trained = turn * len(policies) + index + 1
                due = trained * self.size.evaluations // (self.size.assignments * len(policies))
                for _ in range(due - done):
                    self._evaluate(policy)
                done = due
                if len(self.rows) >= ROWS_AT_ONCE:
                    yield self._taken()
        for index, policy in enumerate(policies):
            self.rows.append(
                PolicyRow(
                    policy=policy,
                    population="player",
                    index=index,
                    generation=self.latest[policy][0].generation,
                    agent_steps=self.latest[policy][0].agent_steps,
                    checkpoint=self.latest[policy][0].key,
                    hyperparameters=HYPERPARAMETERS,
                )
            )
        tables = self.league.tables
        self.rows += [*tables.records.values(), *tables.pairs.values()]
        self.rows.append(self._ratings())
        yield self._taken()

    def _taken(self) -> list[Row]:
        rows, self.rows = self.rows, []
        return rows

    def _train(self, policy: PolicyId, turn: int) -> None:
        """Add one training assignment, its checkpoint and perhaps a ghost."""
        size = self.size
        old, skill = self.latest.get(policy, (None, float(self.rng.normal(0.0, 200.0))))
        generation = turn * 3 // size.assignments
        self.num_assignments += 1
        new = _checkpoint(
            policy,
            turn,
            generation,
            old,
            AssignmentId(self.num_assignments),
            is_kept=turn >= size.assignments - KEPT,
        )
        entrant = trainee_entrant(policy, generation=generation)
        me = Player(player=PlayerId(policy))
        seatings, tallies = [], []
        for number in range(size.opponents if self.ghosts else 0):
            ghost, other = self.ghosts[int(self.rng.integers(len(self.ghosts)))]
            rival = Player(player=ghost.player, weights=ghost.weights)
            players, entrants = (me, rival), (entrant, Entrant(ghost.weights_digest))
            gap = skill - other
            if number % 2:
                players, entrants, gap = players[::-1], entrants[::-1], -gap
            seatings.append(Seating(players=players))
            tallies.append(self._play(entrants, gap))
        trainee = Trainee(
            policy=policy,
            generation=generation,
            agent_steps=turn * STEPS,
            learner_updates=turn * 40,
            checkpoint=None if old is None else CheckpointRef(digest=old.digest, key=old.key),
            hyperparameters=HYPERPARAMETERS,
        )
        message = Train(
            assignment_id=AssignmentId(self.num_assignments),
            attempt=1,
            trainees=(trainee,),
            opponents=tuple(seatings),
            agent_steps=STEPS,
            seed=self.num_assignments,
            may_stop_early=False,
        )
        self.rows.append(new)
        self._finish(message, tallies)
        self.latest[policy] = (new, skill + float(self.rng.exponential(10.0)))
        self.league.tables.put(new)
        if turn % max(size.assignments // size.ghosts, 1) == 0:
            self._snapshot(new, skill)

    def _snapshot(self, source: CheckpointRow, skill: float) -> None:
        ghost = GhostRow(
            player=ghost_id(source.policy, agent_steps=source.agent_steps),
            policy=source.policy,
            population="player",
            agent_steps=source.agent_steps,
            generation=source.generation,
            weights_digest=source.weights_digest,
            key=source.key.replace("checkpoints", "ghosts"),
            checkpoint=source.key,
            linked=True,
        )
        if len(self.ghosts) < self.size.ghosts * self.size.policies:
            self.ghosts.append((ghost, skill))
            self.rows.append(ghost)
            self._note("ghost_created", ghost.player)

    def _evaluate(self, policy: PolicyId) -> None:
        """Add matches of a checkpoint against the bot, other policies and ghosts, in both seats."""
        focus, skill = self.latest[policy]
        me = Player(player=PlayerId(policy), weights=focus.weights)
        rivals = [(Player(player=RANDOM_BOT), Entrant(RANDOM_BOT), -800.0)]
        known = list(self.latest.values())
        while len(rivals) < self.size.pairings // 2:
            if len(rivals) % 2:
                row, other = known[int(self.rng.integers(len(known)))]
                rival = Player(player=PlayerId(row.policy), weights=row.weights)
            else:
                ghost, other = self.ghosts[int(self.rng.integers(len(self.ghosts)))]
                rival = Player(player=ghost.player, weights=ghost.weights)
            if rival.weights is not None and rival.weights.digest != focus.weights_digest:
                rivals.append((rival, Entrant(rival.weights.digest), other))
        tallies, pairings = [], []
        for rival, entrant, other in rivals:
            own = Entrant(focus.weights_digest)
            tallies += [
                self._play((own, entrant), skill - other),
                self._play((entrant, own), other - skill),
            ]
            pairings += [
                Pairing(seating=Seating(players=players), num_matches=self.size.matches)
                for players in ((me, rival), (rival, me))
            ]
        self.num_assignments += 1
        message = Evaluate(
            assignment_id=AssignmentId(self.num_assignments),
            attempt=1,
            pairings=tuple(pairings),
            seed=self.num_assignments,
        )
        self._finish(message, tallies)
        self._note("evaluated", policy)

    def _play(self, entrants: tuple[Entrant, ...], gap: float) -> Tally:
        matches = self.size.matches
        draws = int(self.rng.binomial(matches, 0.1))
        wins = int(self.rng.binomial(matches - draws, 1.0 / (1.0 + math.pow(10.0, -gap / 400.0))))
        losses = matches - draws - wins
        return Tally(
            entrants=entrants,
            matches=matches,
            pairs=(PairScore(first=0, second=1, wins=wins, draws=draws, losses=losses),),
            return_sum=(float(wins - losses), float(losses - wins)),
            return_sum_of_squares=(float(wins + losses), float(wins + losses)),
            length_sum=matches * 20,
        )

    def _finish(self, message: Train | Evaluate, tallies: list[Tally]) -> None:
        kind: Literal["train", "evaluate"] = "train" if isinstance(message, Train) else "evaluate"
        for tally in tallies:
            self.num_tallies += 1
            row = TallyRow(
                sequence=self.num_tallies,
                assignment_id=message.assignment_id,
                kind=kind,
                tally=tally,
            )
            self.rows.append(row)
            self.league.add_tally(row)
        self.rows.append(
            AssignmentRow(
                assignment_id=message.assignment_id,
                attempt=1,
                kind=kind,
                status="finished",
                message=message,
                learner="learner-1",
                agent_steps=STEPS if kind == "train" else 0,
                matches=self.size.matches * len(tallies),
                duration_s=3.0,
                metrics={"loss/policy": -0.01, "loss/value": 0.25, "policy/entropy": 1.5},
            )
        )

    def _note(self, kind: str, subject: str) -> None:
        self.num_events += 1
        data: dict[str, Json] = {"agent_steps": self.num_tallies, "reason": "due"}
        self.rows.append(
            EventRow(
                sequence=self.num_events,
                time="2026-01-01T00:00:00+00:00",
                kind=kind,
                subject=subject,
                data=data,
            )
        )

    def _ratings(self) -> RatingsRow:
        rated = {ghost.weights_digest: skill for ghost, skill in self.ghosts}
        rated.update({row.weights_digest: skill for row, skill in self.latest.values()})
        known = {Digest(e): s for e, s in rated.items() if self.league.is_evaluated("player", e)}
        return RatingsRow(
            population="player",
            entrants=(Entrant(RANDOM_BOT), *(Entrant(digest) for digest in known)),
            ratings=(0.0, *(skill + 800.0 for skill in known.values())),
            deviations=(0.0, *[30.0] * len(known)),
            cyclicity=0.0,
            num_tallies=self.num_tallies,
        )


def _checkpoint(
    policy: PolicyId,
    turn: int,
    generation: int,
    old: CheckpointRow | None,
    number: AssignmentId,
    *,
    is_kept: bool,
) -> CheckpointRow:
    agent_steps = (turn + 1) * STEPS
    digest = Digest(hashlib.sha256(f"{policy} {turn}".encode()).hexdigest())
    return CheckpointRow(
        key=f"populations/{policy}/checkpoints/{agent_steps:012d}-{digest[:8]}",
        digest=Digest(digest[::-1]),
        weights_digest=digest,
        policy=policy,
        generation=generation,
        agent_steps=agent_steps,
        learner_updates=turn * 40,
        parent=None if old is None else old.weights_digest,
        assignment_id=number,
        state="present" if is_kept else "deleted",
    )


def big_run_file() -> RunFile:
    """Return the run file of a game for two with one population."""
    agent = AgentSpec(
        observation={"kind": "Box", "shape": [4], "dtype": "float32", "low": None, "high": None},
        action={"kind": "Discrete", "n": 3, "start": 0},
        mask=None,
    )
    agents = ("player_0", "player_1")
    spec = EnvironmentSpec(
        id="tests.duel:env",
        kwargs={},
        api="aec",
        agents=agents,
        agent_specs=dict.fromkeys(agents, agent),
    )
    document: dict[str, object] = {"environment": {"id": spec.id}, "populations": {"player": {}}}
    return new_run_file(validate_config(document), spec, name="scale", launch_directory=".")


def write_run(run_dir: Path, size: Size, *, seed: int = 1) -> int:
    """Make a run directory with nothing but run.yaml and a journal.

    Returns:
        How many matches its tallies have.
    """
    run_file = big_run_file()
    setup = learner_setup(run_file, root=run_dir)
    half_life = run_file.config.payoffs.half_life_matches
    league = League(Tables(run=RunRow(run="")), seats=setup.seats, half_life_matches=half_life)
    grown = BigLeague(size=size, league=league, rng=np.random.default_rng(seed))
    run_dir.mkdir(parents=True, exist_ok=True)
    run_file.save(run_dir / "run.yaml")
    row = RunRow(
        run=run_file.run, state="stopped", configuration=content_digest(run_dir / "run.yaml")
    )
    with Journal.create(run_dir / JOURNAL, [row]) as journal:
        for rows in grown.grow():
            journal.commit(rows)
        matches = grown.num_tallies * size.matches
        journal.commit(
            [
                replace(
                    row,
                    next_assignment=grown.num_assignments + 1,
                    agent_steps=size.policies * size.assignments * STEPS,
                    matches=matches,
                    assignments_finished=grown.num_assignments,
                )
            ]
        )
    return matches
