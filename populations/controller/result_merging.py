"""Merges of results of players that are gone, in a run whose pool of ghosts is full.

Weights are gone once no directory has them: their checkpoint was removed, and they are no ghost or
one that was thinned. Those that the next fit of ratings reads stay all the same. The others'
evaluation results are merged into those of the nearest evaluated ghost of the same policy, trained
from or into the same weights; where there is none near they stay, too. Training results go once the
player cannot be drawn any more, and those of a policy before its weights were replaced.

All of it happens as ratings are about to be fitted, so a fit that is repeated after a crash reads
the same results.

Tests: `tests/populations/controller/test_result_merging.py`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from operator import attrgetter

from arena.types import Digest, Entrant, PolicyId, is_trainee, policy_of_trainee, trainee_entrant
from populations.controller.rating_fit import chosen_entrants, snapshot
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction
from populations.league.league import RECENT_PER_POLICY
from populations.league.lineage import line_of
from populations.league.merging import MERGED, Merge
from populations.records.rows import CheckpointRow

BATCH = 64
"""Entrants that are gone before something is done about them: it is done seldom."""

NOT_GHOSTS = RECENT_PER_POLICY + 2
"""Evaluated weights of a policy that stay though they are no ghosts: its newest ones, its standing,
and those that its generation began with."""

MAX_APART = 1 / 16
"""Share of a policy's training that may lie between weights and those that they count for: others
are of another strength. So the others wait until the policy is older, or a nearer one is evaluated.
"""

MAX_MERGED = 256
"""Entrants of each kind that are merged at once: an old run that is resumed has very many."""

Line = tuple[PolicyId, Entrant]
"""Policy, and the first generation of a line of its weights."""


def merge(state: ControllerState, tx: Transaction) -> None:
    """Merge results of players that are gone, if ratings are to be fitted now."""
    if state.phase != "training" or state.fitting or not state.ratings_are_stale():
        return
    # Most often nothing is to be done, and nothing is looked at.
    league, tables = state.league, state.tables
    num_others = len(league.records) - len(league.evaluated_ghosts)
    if num_others < BATCH + NOT_GHOSTS * len(tables.policies):
        return
    chosen = chosen_entrants(snapshot(league, tables))
    stays = {entrant for _, entrant in chosen}
    stays.update(Entrant(row.weights_digest) for row in tables.ghosts.values() if row.is_present)
    for population in state.setup.populations:
        if not _is_full(state, population):
            continue
        found = Merge(
            population=population,
            num_tallies=tables.num_tallies,
            into=_into(state, population, stays),
            # In an order that a resumed run has, too.
            forgotten=tuple(sorted(_forgotten(state, population, stays))[:MAX_MERGED]),
        )
        if len(found.heirs) + len(found.forgotten) >= BATCH:
            _apply(state, tx, found)


def _apply(state: ControllerState, tx: Transaction, found: Merge) -> None:
    changed = state.league.merge(found)
    for row in changed.gone:
        tx.delete(row)
    for row in changed.kept:
        tx.put(row)
    # The last fit knew them all: what was evaluated since is not gone.
    num_gone = len(found.heirs)
    for ratings in state.tables.ratings.values():
        tx.put(replace(ratings, num_records=ratings.num_records - num_gone))
    # Results of before are part of what a trainee has met.
    state.opponent_pools.forget_met()
    tx.add_event(MERGED, found.population, **found.data())


def _is_full(state: ControllerState, population: str) -> bool:
    thinned_to = state.config.ghosts.thinned_to
    if thinned_to is None:
        return False
    ghosts = state.tables.ghosts.values()
    present = sum(ghost.population == population and ghost.is_present for ghost in ghosts)
    return present >= thinned_to


def _into(
    state: ControllerState, population: str, stays: set[Entrant]
) -> dict[Entrant, tuple[Entrant, ...]]:
    """Return evaluated weights that are gone, the oldest first, by those that they count for."""
    league = state.league
    gone = sorted(
        (
            made
            for own, entrant in league.records
            if own == population
            and entrant not in stays
            and (made := league.checkpoints.get(Digest(entrant))) is not None
            and made.state == "deleted"
        ),
        key=_by_age,
    )
    if not gone:
        return {}
    lines = _Lines(state)
    ghosts: defaultdict[Line, list[CheckpointRow]] = defaultdict(list)
    for ghost in state.tables.ghosts.values():
        made = league.checkpoints.get(ghost.weights_digest)
        is_evaluated = (population, Entrant(ghost.weights_digest)) in league.records
        if made is not None and ghost.is_present and is_evaluated:
            ghosts[lines.line_of(made)].append(made)
    for heirs in ghosts.values():
        heirs.sort(key=attrgetter("agent_steps"))
    found: defaultdict[Entrant, list[Entrant]] = defaultdict(list)
    num_merged = 0
    for made in gone:
        heirs = ghosts.get(lines.line_of(made), [])
        policy = state.tables.policies[made.policy]
        # PBT counts the matches of a policy's present generation.
        if made.generation == policy.generation:
            heirs = [heir for heir in heirs if heir.generation == made.generation]
        heir = _nearest(heirs, made.agent_steps) if heirs else None
        if (
            heir is not None
            and abs(heir.agent_steps - made.agent_steps) <= policy.agent_steps * MAX_APART
            and num_merged < MAX_MERGED
        ):
            found[Entrant(heir.weights_digest)].append(Entrant(made.weights_digest))
            num_merged += 1
    return {heir: tuple(others) for heir, others in found.items()}


def _nearest(heirs: list[CheckpointRow], agent_steps: int) -> CheckpointRow:
    """Return the one of the nearest age, of two the later one; they are in order of age."""
    place = bisect_left(heirs, agent_steps, key=attrgetter("agent_steps"))
    around = heirs[max(place - 1, 0) : place + 1]
    return min(reversed(around), key=lambda heir: abs(heir.agent_steps - agent_steps))


def _by_age(made: CheckpointRow) -> tuple[int, str]:
    return made.assignment_id, made.weights_digest


def _forgotten(state: ControllerState, population: str, stays: set[Entrant]) -> Iterator[Entrant]:
    """Yield entrants whose training results choose no opponent any more."""
    tables, league, lines = state.tables, state.league, _Lines(state)
    recent = state.config.ghosts.every_agent_steps
    for entrant in league.payoff.entrants():
        if is_trainee(entrant):
            name, generation = policy_of_trainee(entrant)
            row = tables.policies.get(name)
            # Statistics of replaced weights are about others.
            if row is not None and row.population == population:
                own, present = (
                    lines.first(name, number) for number in (generation, row.generation)
                )
                if own != present:
                    yield entrant
            continue
        made = league.checkpoints.get(Digest(entrant))
        if made is None or made.state != "deleted" or entrant in stays:
            continue
        row = tables.policies.get(made.policy)
        # A latest checkpoint is drawn, and then its results count until it is as old as a ghost.
        if (
            row is not None
            and row.population == population
            and made.agent_steps < row.agent_steps - recent
        ):
            yield entrant


class _Lines:
    """Lines of weights, each of which is looked up once."""

    def __init__(self, state: ControllerState) -> None:
        self._generations = state.tables.generations
        self._first: dict[Entrant, Entrant] = {}

    def line_of(self, made: CheckpointRow) -> Line:
        """Return the line of some weights."""
        return made.policy, self.first(made.policy, made.generation)

    def first(self, policy: PolicyId, generation: int) -> Entrant:
        """Return the generation with which a line began that a generation belongs to."""
        entrant = trainee_entrant(policy, generation=generation)
        if entrant not in self._first:
            line = line_of(self._generations, entrant)
            self._first.update(dict.fromkeys(line, line[0]))
        return self._first[entrant]
