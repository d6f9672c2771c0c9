"""Levels of play of a run: members of its league whose distances direct matches have checked.

Tests: `tests/tools/export/test_levels.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..players.weights import load_policy
from ..terminal.output import tell

if TYPE_CHECKING:
    from arena.envs.base import BatchedEnv
    from arena.export.card import Card, CardLevel, CardRating
    from arena.matches.tournament import Contender
    from arena.types import WeightsRef
    from populations.views.questions.inspection import Inspection

    from ..players.weights import PolicyWeights
    from .record import Export

SCORES = (0.64, 0.81)
"""Scores of a level against the one below: 100 to 250 Elo."""

GAPS = (140.0, 200.0)
"""Elo that are aimed at, within those of `SCORES` by more than matches are unsure of."""

TOLERANCE = 0.03
"""Difference from the score aimed at that is close enough."""

NUM_MATCHES = 200
"""Matches of each order of two candidates, each time that they meet."""

MAX_TEMPERATURE = 1000.0
"""Temperature at which play is almost uniform, whatever the policy."""

NUM_TEMPERATURES = 12
"""Most temperatures of a member that are tried for a level."""

MAX_TEAMS = 32
"""Most teams of members of several populations."""

ELO = 400.0 / math.log(10.0)
"""Elo of a log-odds of 1."""

NORMAL_95 = 1.96


class Candidate(NamedTuple):
    """Candidate for a level.

    Attributes:
        member: Place among the members of the league, the strongest being 0.
        temperature: Temperature at which it plays.
    """

    member: int
    temperature: float = 1.0


Meet = Callable[[Candidate, Candidate], float]
"""Matches of two candidates: returns the first one's mean score in all that they have played."""


def choose_levels(ratings: Sequence[float], meet: Meet, *, number: int) -> list[Candidate]:
    """Choose levels, the strongest first, each of which beats the next in `SCORES` of matches.

    Ratings propose who is next, and direct matches decide. Where members are too far apart, the
    stronger one plays at a temperature.

    Args:
        ratings: Ratings of the members, the best first, above those of random play at 0.
        meet: Direct matches.
        number: Most levels.

    Returns:
        At least the first member; fewer than ``number`` where the members span no more.
    """
    gap = min(max(ratings[0] / max(number - 1, 1), GAPS[0]), GAPS[1])
    chosen = [Candidate(0)]
    while len(chosen) < number and (found := _below(chosen[-1], ratings, meet, gap)) is not None:
        chosen.append(found)
    return chosen


def _below(upper: Candidate, ratings: Sequence[float], meet: Meet, gap: float) -> Candidate | None:
    target = 1.0 / (1.0 + 10.0 ** (-gap / 400.0))
    # All members before `first` are too strong; those from `last` on are too weak.
    first, last = upper.member + 1, len(ratings)
    proposed = (i for i in range(first, last) if ratings[i] <= ratings[upper.member] - gap)
    place = next(proposed, last - 1)
    while first < last:
        score = _score(upper, Candidate(place), meet, target)
        if abs(score - target) <= TOLERANCE:
            return Candidate(place)
        first, last = (place + 1, last) if score < target else (first, place)
        place = (first + last) // 2
    return _tempered(upper, first - 1, meet, target)


def _tempered(upper: Candidate, member: int, meet: Meet, target: float) -> Candidate | None:
    """Find the temperature at which a member is as much weaker as it should be."""
    low = upper.temperature if member == upper.member else 1.0
    high = math.inf
    tried: dict[float, float] = {}
    while len(tried) < NUM_TEMPERATURES and low < MAX_TEMPERATURE:
        temperature = 4.0 * low if math.isinf(high) else math.sqrt(low * high)
        score = _score(upper, Candidate(member, temperature), meet, target)
        if abs(score - target) <= TOLERANCE:
            return Candidate(member, temperature)
        tried[temperature] = score
        low, high = (temperature, high) if score < target else (low, temperature)
    nearest = min(tried, key=lambda one: abs(tried[one] - target), default=None)
    # By chance the search may miss its target, but the score must stay within `SCORES`.
    if nearest is None or not SCORES[0] <= tried[nearest] <= SCORES[1]:
        return None
    return Candidate(member, nearest)


def _score(upper: Candidate, lower: Candidate, meet: Meet, target: float) -> float:
    score = meet(upper, lower)
    # The score is measured twice, so that a policy is not chosen for a lucky score.
    return meet(upper, lower) if abs(score - target) <= TOLERANCE else score


class Member(NamedTuple):
    """Member of the league.

    Attributes:
        rating: Its rating.
        player: Its name in the run.
        reference: Its weights.
    """

    rating: float
    player: str
    reference: WeightsRef


Team = Mapping[str, Member]
"""Members who play together: one of each population that trains."""


def find_teams(
    inspection: Inspection,
    top: Mapping[str, tuple[str, WeightsRef]],
    ratings: Mapping[str, CardRating],
) -> list[Team]:
    """Return a run's rated members as teams, the best first, beginning with those exported.

    Of one population each member is a team. Of several, members are together that are equally far
    between the exported one and the weakest.

    Args:
        inspection: The run.
        top: Exported players, of every population that has one.
        ratings: Ratings of these.

    Raises:
        ConfigError: If an exported player has no rating.
    """
    ladders = {k: [*_ladder(inspection, k, *one, ratings[k].rating)] for k, one in top.items()}
    if len(ladders) == 1:
        ((name, ladder),) = ladders.items()
        return [{name: member} for member in ladder]
    shares = [step / (MAX_TEAMS - 1) for step in range(MAX_TEAMS)]
    teams = [{name: _at(ladder, share) for name, ladder in ladders.items()} for share in shares]
    # The shares are far apart, yet some may have the same members.
    return list({tuple(team.values()): team for team in teams}.values())


def _ladder(
    inspection: Inspection, name: str, player: str, reference: WeightsRef, rating: float | None
) -> Iterator[Member]:
    from arena.errors import ConfigError

    from .mixture import is_present

    if rating is None:
        raise ConfigError(f"--levels begins at a player with a rating: {player} has none")
    yield Member(rating, player, reference)
    known = {reference.digest}
    for line in inspection.standings(name)[name]:
        one, own = line.reference, line.rating
        if one is None or own is None or own >= rating:
            continue
        # A policy and its ghost may have the same weights.
        if one.digest not in known and is_present(inspection, line):
            known.add(one.digest)
            yield Member(own, line.player, one)


def _at(ladder: Sequence[Member], share: float) -> Member:
    best, worst = ladder[0].rating, ladder[-1].rating
    wanted = best + share * (worst - best)
    return min(ladder, key=lambda one: abs(one.rating - wanted))


class Matches:
    """Direct matches of candidates.

    Args:
        export: The export.
        env: Environments to play in.
        teams: Members of the league, the best first.
    """

    def __init__(self, export: Export, env: BatchedEnv, teams: Sequence[Team]) -> None:
        self._export = export
        self._env = env
        self._teams = teams
        self._policies: dict[int, dict[str, PolicyWeights]] = {}
        # Scores and matches of each ordered pair that has played, from the view of its first
        # member.
        self._scores: dict[tuple[Candidate, Candidate], list[tuple[float, int]]] = {}

    def policies(self, candidate: Candidate) -> dict[str, PolicyWeights]:
        """Return the weights of a candidate's members, without its temperature."""
        word = self._export.game.word
        if candidate.member not in self._policies:
            self._policies[candidate.member] = {
                name: load_policy(self._export.inspection, *one[1:], word=word)[1]
                for name, one in self._teams[candidate.member].items()
            }
        return self._policies[candidate.member]

    def meet(self, upper: Candidate, lower: Candidate) -> float:
        """Let two candidates play, as `Meet`."""
        export, known = self._export, self._scores.setdefault((upper, lower), [])
        export.progress.begin(f"levels: {self._name(upper)} against {self._name(lower)}")
        result = export.game.play(
            self._env,
            {self._name(one): self._actors(one) for one in (upper, lower)},
            num_matches=NUM_MATCHES,
            # The seed changes, so that a repeated pair plays other games.
            seed=export.settings.seed + len(known),
            progress=export.progress,
        )
        for pair in result.pairs:
            is_upper = pair.home == self._name(upper)
            known.append((pair.score if is_upper else 1.0 - pair.score, pair.matches))
        return self.score(upper, lower)[0]

    def score(self, upper: Candidate, lower: Candidate) -> tuple[float, int]:
        """Return the mean score of one against another, and the matches that it is from."""
        known = self._scores[upper, lower]
        matches = sum(number for _, number in known)
        return math.fsum(score * number for score, number in known) / matches, matches

    def _actors(self, candidate: Candidate) -> Contender:
        game, at = self._export.game, candidate.temperature
        policies = {k: one.at_temperature(at) for k, one in self.policies(candidate).items()}
        return {name: one.make_actor(game, greedy=False) for name, one in policies.items()}

    def _name(self, candidate: Candidate) -> str:
        name = " + ".join(one.player for one in self._teams[candidate.member].values())
        at = candidate.temperature
        return name if at == 1.0 else f"{name} at temperature {at:.4g}"


def find_levels(
    export: Export,
    top: Mapping[str, tuple[str, WeightsRef]],
    cards: Mapping[str, Card],
    *,
    number: int,
) -> dict[str, list[tuple[CardLevel, PolicyWeights]]]:
    """Find levels of play, and return those of each population, the weakest first.

    Args:
        export: The export.
        top: Exported players, of every population.
        cards: Their cards.
        number: Most levels.

    Raises:
        ConfigError: As `find_teams`.
    """
    ratings = {name: card.rating for name, card in cards.items()}
    teams = find_teams(export.inspection, top, ratings)
    with closing(export.game.make_env(export.game.batch_size(2 * NUM_MATCHES))) as env:
        matches = Matches(export, env, teams)
        strengths = [math.fsum(one.rating for one in t.values()) / len(t) for t in teams]
        chosen = choose_levels(strengths, matches.meet, number=number)
    scores = [matches.score(*pair) for pair in pairwise(chosen)]
    if len(chosen) < number:
        low, high = SCORES
        tell(
            f"{len(chosen)} levels of {number}: the league spans no more (each beats the one "
            f"below in {low} to {high} of their matches)"
        )
    found: dict[str, list[tuple[CardLevel, PolicyWeights]]] = {}
    for name, rating in ratings.items():
        policies = [matches.policies(candidate)[name] for candidate in chosen]
        levels = card_levels(policies, [one.temperature for one in chosen], scores, rating)
        found[name] = [*zip(levels, policies, strict=True)][::-1]
    return found


def card_levels(
    policies: Sequence[PolicyWeights],
    temperatures: Sequence[float],
    scores: Sequence[tuple[float, int]],
    top: CardRating,
) -> Iterator[CardLevel]:
    """Yield levels, the strongest first.

    Args:
        policies: Policy of each, the strongest first, without its temperature.
        temperatures: Temperature of each.
        scores: Score of each against the next, and the matches that it is from.
        top: Rating of the exported player, which a level is at least as unsure as.
    """
    from arena.export.card import POLICY, CardLevel

    assert top.rating is not None, "`find_teams` wants a rating"
    assert top.rating_low is not None, "a rating has an interval"
    graphs = {policies[0].digest: POLICY}
    for place, (policy, temperature) in enumerate(zip(policies, temperatures, strict=True)):
        # The graph of the exported policy is already written.
        graph = graphs.setdefault(policy.digest, f"levels/{len(graphs):02d}/{POLICY}")
        distance, deviation = distance_of(scores[:place])
        rating = top.rating - distance
        spread = math.hypot(NORMAL_95 * deviation, top.rating - top.rating_low)
        score, matches = scores[place] if place < len(scores) else (None, 0)
        yield CardLevel(
            level=len(policies) - place,
            player=policy.player,
            graph=graph,
            temperature=temperature,
            agent_steps=policy.agent_steps,
            weights_digest=policy.digest,
            rating=rating,
            rating_low=rating - spread,
            # The interval is open above if the exported player's is.
            rating_high=None if top.rating_high is None else rating + spread,
            score_below=score,
            matches_below=matches,
        )


def distance_of(scores: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the distance in Elo over a chain of levels, and its standard deviation.

    Args:
        scores: Score of each against the next, and the matches that it is from.
    """
    # The deviation of a score is at most sqrt(s (1 - s) / n), and less if there are draws.
    distance = math.fsum(ELO * math.log(score / (1.0 - score)) for score, _ in scores)
    variance = math.fsum(ELO**2 / (n * score * (1.0 - score)) for score, n in scores)
    return distance, math.sqrt(variance)
