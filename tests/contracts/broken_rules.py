"""Rules of the controller's half with one mistake each, as users make them."""

from __future__ import annotations

import itertools
import random
from dataclasses import replace
from typing import Any

import numpy as np

from arena.types import PlayerId
from populations.core import Exploration, Opponents
from populations.decisions import Evidence, ExploitDonor, ExploreOwn, Keep
from populations.matchmaking.window import LATEST


class Uniform:
    """Right: uniform over ghosts; the trainee itself, or the latest, where there is none."""

    def draw(self, request: Any, *, rng: Any) -> Any:
        ghosts = request.ghosts
        if not len(ghosts):
            return LATEST.make(LATEST.settings()).draw(request, rng=rng)
        return self.of(
            ghosts[int(i)] for i in rng.integers(len(ghosts), size=request.num_opponents)
        )

    def of(self, players: Any, *, num_mirrors: int = 0) -> Opponents:
        return Opponents(num_mirrors=num_mirrors, players=tuple(players))


class ForgetsTheStart:
    def draw(self, request: Any, *, rng: Any) -> Any:
        newest = request.ghosts[len(request.ghosts) - 1]
        return Opponents(num_mirrors=0, players=(newest,) * request.num_opponents)


class ReturnsAList(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        return list(super().draw(request, rng=rng).players)


class OneForAll(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        return replace(super().draw(request, rng=rng), players=(request.latest[0],))


class DrawsGlobally(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        if not len(request.ghosts):
            return super().draw(request, rng=rng)
        drawn = np.random.choice(len(request.ghosts), size=request.num_opponents)
        return self.of(request.ghosts[int(i)] for i in drawn)


class DrawsUnseeded(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        return super().draw(request, rng=np.random.default_rng())


class TakesTurns(Uniform):
    def __init__(self) -> None:
        self.turn = itertools.count()

    def draw(self, request: Any, *, rng: Any) -> Any:
        if not len(request.ghosts):
            return super().draw(request, rng=rng)
        ghosts = [request.ghosts[next(self.turn) % len(request.ghosts)]]
        return self.of(ghosts * request.num_opponents)


class MirrorsOthers(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        if not len(request.ghosts) and not len(request.latest):
            return super().draw(request, rng=rng)
        return Opponents(num_mirrors=request.num_opponents, players=())


class SortsInPlace(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        request.ghosts.agent_steps.sort()
        request.ghosts.agent_steps[:] = request.ghosts.agent_steps[::-1].copy()
        return super().draw(request, rng=rng)


class InventsAPlayer(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        drawn = super().draw(request, rng=rng)
        return replace(
            drawn, players=tuple(replace(p, player=PlayerId(p.policy)) for p in drawn.players)
        )


class TakesAnotherName(Uniform):
    def draw(self, request: Any, generator: Any) -> Any:  # type: ignore[override]
        return super().draw(request, rng=generator)


class NeverRefuses(Uniform):
    def draw(self, request: Any, *, rng: Any) -> Any:
        if not len(request.ghosts) and not len(request.latest) and not request.is_own_population:
            return Opponents(num_mirrors=0, players=())
        return super().draw(request, rng=rng)


MATCHMAKERS = {
    ForgetsTheStart: "draw must answer a league without a ghost (every run begins so)",
    ReturnsAList: "draw must return populations.core.Opponents",
    OneForAll: "num_mirrors and players must sum to request.num_opponents",
    DrawsGlobally: "draw must draw from rng alone",
    DrawsUnseeded: "draw must be a function of its arguments",
    TakesTurns: "draw must be a function of its arguments",
    MirrorsOthers: "num_mirrors must be 0 where the opponents are of another population",
    SortsInPlace: "draw must not change its request",
    InventsAPlayer: "players must be candidates of request.ghosts and request.latest",
    TakesAnotherName: "its method draw must take (..., rng)",
    NeverRefuses: "draw must raise where there is nobody to draw",
}


NOTHING = Evidence(rank=None, num_ranked=0, num_selected=0, rating=None, num_matches=0)


class CopiesTheBest:
    """Right: the best rated policy is copied by all that are behind it."""

    def __init__(self, section: Any) -> None:
        self.section = section

    def decide(
        self, policy: Any, *, members: Any, difference: Any, common: Any = None, rng: Any
    ) -> Any:
        rated = [m for m in members if m.rating is not None]
        if not rated:
            return Keep(reason="nobody is rated", evidence=NOTHING)
        best = self.best(rated)
        gap = difference(best.policy, policy)
        if best.policy == policy or gap is None or gap[0] <= 0.0:
            return Keep(reason="nobody is better", evidence=NOTHING)
        own = next(m for m in members if m.policy == policy)
        return self.copy(best, gap=gap[0], own=own)

    def best(self, rated: Any) -> Any:
        return max(rated, key=lambda m: (m.rating, -m.index))

    def copy(self, donor: Any, *, gap: float, own: Any) -> Any:
        return ExploitDonor(
            donor=donor.policy,
            explore=not own.is_reference,
            donor_rank=1,
            donor_rating=donor.rating,
            gap=gap,
            gap_deviation=1.0,
            probability_better=0.99,
            num_donors=1,
            evidence=NOTHING,
        )


class NeedsRatings(CopiesTheBest):
    def decide(self, policy: Any, *, members: Any, **rest: Any) -> Any:
        max(members, key=lambda m: m.rating)
        return super().decide(policy, members=members, **rest)


class CopiesTheWorst(CopiesTheBest):
    def decide(self, policy: Any, *, members: Any, **rest: Any) -> Any:
        rated = sorted((m for m in members if m.rating is not None), key=lambda m: m.rating)
        if len(rated) < 2 or rated[0].policy == policy:
            return Keep(reason="nobody is better", evidence=NOTHING)
        return self.copy(rated[0], gap=1.0, own=rated[-1])


class CopiesItself(CopiesTheBest):
    def decide(self, policy: Any, *, members: Any, **rest: Any) -> Any:
        rated = [m for m in members if m.rating is not None]
        if not rated:
            return Keep(reason="nobody is rated", evidence=NOTHING)
        return self.copy(self.best(rated), gap=1.0, own=members[0])


class NamesAMember(CopiesTheBest):
    def copy(self, donor: Any, *, gap: float, own: Any) -> Any:
        return replace(super().copy(donor, gap=gap, own=own), donor=donor)


class ExploresTheReference(CopiesTheBest):
    def decide(self, policy: Any, **rest: Any) -> Any:
        decision = super().decide(policy, **rest)
        if isinstance(decision, Keep):
            return ExploreOwn(reason="nobody is better", evidence=NOTHING)
        return decision


class RanksFromZero(CopiesTheBest):
    def decide(self, policy: Any, **rest: Any) -> Any:
        evidence = replace(NOTHING, rank=0, num_ranked=8)
        return replace(super().decide(policy, **rest), evidence=evidence)


class DrawsItsRival(CopiesTheBest):
    def best(self, rated: Any) -> Any:
        return random.choice(rated)


class SortsTheMembers(CopiesTheBest):
    def decide(self, policy: Any, *, members: Any, **rest: Any) -> Any:
        members.sort(key=lambda m: -(m.rating or 0.0))
        return super().decide(policy, members=members, **rest)


class TakesTheFirst(CopiesTheBest):
    def best(self, rated: Any) -> Any:
        good = [m for m in rated if m.rating > 0.0]
        return good[0] if good else rated[0]


class SaysNothing(CopiesTheBest):
    def decide(self, policy: Any, **rest: Any) -> Any:
        decision = super().decide(policy, **rest)
        return decision if isinstance(decision, ExploitDonor) else None


class NeedsNoSection(CopiesTheBest):
    def __init__(self) -> None:
        super().__init__(None)


class HasNoNumbers(CopiesTheBest):
    def copy(self, donor: Any, *, gap: float, own: Any) -> Any:
        copied = super().copy(donor, gap=gap, own=own)
        return replace(copied, probability_better=gap / (gap - gap) if gap < 0 else gap)


EXPLOITS = {
    NeedsRatings: "decide must answer about policies without a rating (every run begins so)",
    CopiesTheWorst: "a donor must be better than its receiver",
    CopiesItself: "a donor must be the id of another member",
    NamesAMember: "a donor must be the id of another member",
    ExploresTheReference: "the reference member must never explore",
    RanksFromZero: "evidence.rank must be null or from 1 to num_ranked",
    DrawsItsRival: "decide must draw from rng alone",
    SortsTheMembers: "decide must not change members",
    TakesTheFirst: "decide must not depend on the order of members",
    SaysNothing: "decide must return NotReady, Keep, ExploreOwn, ExploitDonor",
    NeedsNoSection: "it must be made with the section pbt as its argument",
    HasNoNumbers: "probability_better must be in [0, 1]",
}


class Nudges:
    """Right: the learning rate up or down by a tenth, within its bounds."""

    factors = (0.9, 1.1)

    def __init__(self, section: Any) -> None:
        self.section = section

    def explore(
        self,
        hyperparameters: Any,
        search_space: Any,
        *,
        history: Any = (),
        agent_steps: int = 0,
        rng: Any,
    ) -> Any:
        new = dict(hyperparameters)
        moves = dict.fromkeys(search_space, "kept")
        for name in self.names(search_space):
            low, high = search_space[name]["low"], search_space[name]["high"]
            new[name] = self.within(new[name] * float(rng.choice(self.factors)), low, high)
            moves[name] = "nudged"
        return Exploration(old=dict(hyperparameters), new=new, moves=moves)

    def names(self, search_space: Any) -> Any:
        return [name for name in search_space if name == "learning_rate"]

    def within(self, value: float, low: float, high: float) -> float:
        return min(max(value, low), high)


class LeavesTheBounds(Nudges):
    def within(self, value: float, low: float, high: float) -> float:
        return value


class MovesAllAlike(Nudges):
    """Choices have no bounds."""

    def names(self, search_space: Any) -> Any:
        return list(search_space)


class MovesIntegers(Nudges):
    def names(self, search_space: Any) -> Any:
        return [name for name in search_space if name in ("learning_rate", "num_epochs")]


class MovesWithoutASpace(Nudges):
    def explore(self, hyperparameters: Any, search_space: Any, **rest: Any) -> Any:
        explored = super().explore(hyperparameters, search_space, **rest)
        return replace(explored, new={**explored.new, "clip_coef": 0.1})


class ChangesInPlace(Nudges):
    def explore(self, hyperparameters: Any, search_space: Any, **rest: Any) -> Any:
        old = dict(hyperparameters)
        hyperparameters.update(super().explore(hyperparameters, search_space, **rest).new)
        moves = dict.fromkeys(search_space, "nudged")
        return Exploration(old=old, new=hyperparameters, moves=moves)


class GivesOnlyTheChanged(Nudges):
    def explore(self, hyperparameters: Any, search_space: Any, **rest: Any) -> Any:
        explored = super().explore(hyperparameters, search_space, **rest)
        return replace(explored, new={name: explored.new[name] for name in search_space})


class NamesNoMoves(Nudges):
    def explore(self, hyperparameters: Any, search_space: Any, **rest: Any) -> Any:
        return replace(super().explore(hyperparameters, search_space, **rest), moves={})


class DrawsFromRandom(Nudges):
    def within(self, value: float, low: float, high: float) -> float:
        return random.uniform(low, high)


class LearnsItsOwnWay(Nudges):
    def __init__(self, section: Any) -> None:
        super().__init__(section)
        self.step = 0.5

    def within(self, value: float, low: float, high: float) -> float:
        self.step *= 0.99
        return super().within(value * self.step, low, high)


class GivesNumbersAlone(Nudges):
    def explore(self, hyperparameters: Any, search_space: Any, **rest: Any) -> Any:
        return super().explore(hyperparameters, search_space, **rest).new


class KnowsNoHistory(Nudges):
    def explore(  # type: ignore[override]
        self, hyperparameters: Any, search_space: Any, *, rng: Any
    ) -> Any:
        return super().explore(hyperparameters, search_space, rng=rng)


EXPLORES = {
    LeavesTheBounds: "new must be every hyperparameter, in its bounds: learning_rate must be in",
    MovesAllAlike: "explore must answer any values and search space: it raised KeyError: 'low'",
    MovesIntegers: "in its bounds: num_epochs must be an integer",
    MovesWithoutASpace: "in its bounds: clip_coef is not in the search space",
    ChangesInPlace: "explore must not change hyperparameters",
    GivesOnlyTheChanged: "new must be every hyperparameter, in its bounds: it must give",
    NamesNoMoves: "moves must name every hyperparameter of the search space, and no other",
    DrawsFromRandom: "explore must draw from rng alone",
    LearnsItsOwnWay: "explore must be a function of its arguments",
    GivesNumbersAlone: "explore must return populations.core.Exploration",
    KnowsNoHistory: "its method explore must take (..., ..., history, agent_steps, rng)",
}


class Eldest:
    """Right: those that came first and may go."""

    def __init__(self, section: Any) -> None:
        self.section = section

    def choose(self, request: Any) -> Any:
        return np.flatnonzero(~request.is_needed)[: request.num_to_go]


class TakesTheNeeded(Eldest):
    def choose(self, request: Any) -> Any:
        return range(len(request.is_needed) - request.num_to_go, len(request.is_needed))


class TakesTooMany(Eldest):
    def choose(self, request: Any) -> Any:
        return np.flatnonzero(~request.is_needed)


class GivesAMask(Eldest):
    def choose(self, request: Any) -> Any:
        return list(np.arange(len(request.is_needed)) < request.num_to_go)


class TakesNobody(Eldest):
    def choose(self, request: Any) -> Any:
        weak = np.flatnonzero(request.ratings < -1000.0)
        return weak[: request.num_to_go]


class RanksInPlace(Eldest):
    def choose(self, request: Any) -> Any:
        request.ratings[np.isnan(request.ratings)] = 0.0
        return super().choose(request)


class DrawsTheUnlucky(Eldest):
    def choose(self, request: Any) -> Any:
        may = np.flatnonzero(~request.is_needed)
        return np.random.default_rng().permutation(may)[: request.num_to_go]


THINNINGS = {
    TakesTheNeeded: "choose must answer a pool whose newest ghosts are needed",
    TakesTooMany: "choose must answer a full pool of 12 ghosts: it raised ValueError: at most 4",
    GivesAMask: "choose must answer a full pool of 12 ghosts: it raised TypeError: choose must",
    TakesNobody: "choose must name ghosts where some must go and all may",
    RanksInPlace: "choose must not change its request",
    DrawsTheUnlucky: "choose must be a function of its request",
}
