"""Levels of play of a run: members of its league whose distances direct matches have checked.

Tests: `tests/tools/export/test_levels.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, NamedTuple

from ..players.weights import load_policy
from ..terminal.output import tell

if TYPE_CHECKING:
    from arena.envs.base import BatchedEnv
    from arena.export.card import CardLevel, CardRating
    from arena.matches.tournament import Contender
    from arena.types import Digest, WeightsRef
    from populations.inspection.views import Inspection
    from populations.league.standings import Standing

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
    # All members before `first` are too strong, that at `last` and all after it too weak.
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
    # Chance may keep the search from its aim, but not from what is asked for.
    if nearest is None or not SCORES[0] <= tried[nearest] <= SCORES[1]:
        return None
    return Candidate(member, nearest)


def _score(upper: Candidate, lower: Candidate, meet: Meet, target: float) -> float:
    score = meet(upper, lower)
    # Who was near by chance is not chosen: it has to be near twice.
    return meet(upper, lower) if abs(score - target) <= TOLERANCE else score


@dataclass(frozen=True, slots=True, kw_only=True)
class Team:
    """Members of the league who play together: one of each population that trains.

    Attributes:
        rating: Mean of their ratings.
        players: Player and weights of each population.
    """

    rating: float
    players: Mapping[str, tuple[str, WeightsRef]]


def find_teams(inspection: Inspection, top: Mapping[str, tuple[str, WeightsRef]]) -> list[Team]:
    """Return a run's rated members as teams, the best first, beginning with those exported.

    Of one population each member is a team. Of several, members are together that are equally far
    between the exported one and the weakest.

    Args:
        inspection: The run.
        top: Exported players, of every population that has one.

    Raises:
        ConfigError: If an exported player has no rating.
    """
    ladders = {name: _ladder(inspection, name, *chosen) for name, chosen in top.items()}
    if len(ladders) == 1:
        ((name, ladder),) = ladders.items()
        return [Team(rating=line.rating or 0.0, players={name: one}) for line, one in ladder]
    teams: dict[tuple[str, ...], Team] = {}
    for step in range(MAX_TEAMS):
        lines = [_at(ladder, step / (MAX_TEAMS - 1)) for ladder in ladders.values()]
        players = {name: one for name, (_, one) in zip(ladders, lines, strict=True)}
        rating = math.fsum(line.rating or 0.0 for line, _ in lines) / len(lines)
        names = tuple(player for player, _ in players.values())
        teams.setdefault(names, Team(rating=rating, players=players))
    return list(teams.values())


_Ladder = list[tuple["Standing", tuple[str, "WeightsRef"]]]


def _ladder(inspection: Inspection, name: str, player: str, reference: WeightsRef) -> _Ladder:
    from arena.errors import ConfigError
    from arena.types import WeightsRef

    from .mixture import is_present

    lines = [
        line
        for line in inspection.standings(name)[name]
        if line.kind != "bot" and line.rating is not None and line.weights and line.key
    ]
    top = next((line for line in lines if line.weights == reference.digest), None)
    if top is None or top.rating is None:
        raise ConfigError(f"--levels begins at a player with a rating: {player} has none")
    found: dict[Digest, tuple[Standing, tuple[str, WeightsRef]]] = {}
    found[reference.digest] = (top, (player, reference))
    for line in lines:
        assert line.weights is not None, "left out above"
        assert line.key is not None, "left out above"
        if (line.rating or 0.0) < top.rating and is_present(inspection, line):
            one = (line.player, WeightsRef(digest=line.weights, key=line.key))
            # A policy and its ghost may have the same weights.
            found.setdefault(line.weights, (line, one))
    return list(found.values())


def _at(ladder: _Ladder, share: float) -> tuple[Standing, tuple[str, WeightsRef]]:
    best, worst = (ladder[end][0].rating or 0.0 for end in (0, -1))
    wanted = best + share * (worst - best)
    return min(ladder, key=lambda one: abs((one[0].rating or 0.0) - wanted))


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
        # Scores and matches of each ordered pair that has met, seen from its first.
        self._scores: dict[tuple[Candidate, Candidate], list[tuple[float, int]]] = {}

    def policies(self, candidate: Candidate) -> dict[str, PolicyWeights]:
        """Return the weights of a candidate's members, without its temperature."""
        word = self._export.game.word
        if candidate.member not in self._policies:
            self._policies[candidate.member] = {
                name: load_policy(self._export.inspection, *one, word=word)[1]
                for name, one in self._teams[candidate.member].players.items()
            }
        return self._policies[candidate.member]

    def meet(self, upper: Candidate, lower: Candidate) -> float:
        """Let two candidates play, as `Meet`."""
        export, known = self._export, self._scores.setdefault((upper, lower), [])
        export.progress.begin(f"levels: {self._name(upper)} against {self._name(lower)}")
        result = export.game.play(
            self._env,
            (self._contender(upper), self._contender(lower)),
            num_matches=NUM_MATCHES,
            # Other games each time that they meet.
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

    def _contender(self, candidate: Candidate) -> Contender:
        from arena.matches.tournament import Contender

        game, at = self._export.game, candidate.temperature
        policies = {k: one.at_temperature(at) for k, one in self.policies(candidate).items()}
        actors = {name: one.make_actor(game, greedy=False) for name, one in policies.items()}
        return Contender(name=self._name(candidate), actors=actors)

    def _name(self, candidate: Candidate) -> str:
        players = self._teams[candidate.member].players.values()
        name = " + ".join(player for player, _ in players)
        at = candidate.temperature
        return name if at == 1.0 else f"{name} at temperature {at:.4g}"


def find_levels(
    export: Export, top: Mapping[str, tuple[str, WeightsRef]], *, number: int
) -> dict[str, list[tuple[CardLevel, PolicyWeights]]]:
    """Find levels of play, and return those of each population, the weakest first.

    Args:
        export: The export.
        top: Exported players, of every population.
        number: Most levels.

    Raises:
        ConfigError: As `find_teams`.
    """
    teams = find_teams(export.inspection, top)
    with closing(export.game.make_env(export.game.batch_size(2 * NUM_MATCHES))) as env:
        matches = Matches(export, env, teams)
        chosen = choose_levels([team.rating for team in teams], matches.meet, number=number)
    scores = [matches.score(*pair) for pair in pairwise(chosen)]
    if len(chosen) < number:
        low, high = SCORES
        tell(
            f"{len(chosen)} levels of {number}: the league spans no more (each beats the one "
            f"below in {low} to {high} of their matches)"
        )
    found: dict[str, list[tuple[CardLevel, PolicyWeights]]] = {}
    for name in top:
        policies = [matches.policies(candidate)[name] for candidate in chosen]
        levels = _card_levels(policies, chosen, scores)
        found[name] = [*zip(levels, policies, strict=True)][::-1]
    return found


def _card_levels(
    policies: Sequence[PolicyWeights],
    chosen: Sequence[Candidate],
    scores: Sequence[tuple[float, int]],
) -> Iterator[CardLevel]:
    """Yield levels, the strongest first, with what is known of them before a card is."""
    from arena.export.card import POLICY, CardLevel

    graphs = {policies[0].digest: POLICY}
    for place, (policy, candidate) in enumerate(zip(policies, chosen, strict=True)):
        # The exported policy's graph is there already.
        graph = graphs.setdefault(policy.digest, f"levels/{len(graphs):02d}/{POLICY}")
        distance, deviation = distance_of(scores[:place])
        score, matches = scores[place] if place < len(scores) else (None, 0)
        yield CardLevel(
            level=len(chosen) - place,
            player=policy.player,
            graph=graph,
            temperature=candidate.temperature,
            agent_steps=policy.agent_steps,
            weights_digest=policy.digest,
            rating=-distance,
            rating_low=-distance - NORMAL_95 * deviation,
            rating_high=-distance + NORMAL_95 * deviation,
            score_below=score,
            matches_below=matches,
        )


def distance_of(scores: Sequence[tuple[float, int]]) -> tuple[float, float]:
    """Return the distance in Elo over a chain of levels, and its standard deviation.

    Args:
        scores: Score of each against the next, and the matches that it is from.
    """
    # The deviation of a score is at most sqrt(s (1 - s) / n), and less where there are draws.
    distance = math.fsum(ELO * math.log(score / (1.0 - score)) for score, _ in scores)
    variance = math.fsum(ELO**2 / (n * score * (1.0 - score)) for score, n in scores)
    return distance, math.sqrt(variance)


def on_scale(level: CardLevel, rating: CardRating) -> CardLevel:
    """Return a level on the scale of the exported player, whose rating is as unsure as it is."""
    assert rating.rating is not None, "`find_teams` wants a rating"
    assert rating.rating_low is not None, "who is rated has an interval"
    own, top = level.rating - level.rating_low, rating.rating - rating.rating_low
    at, spread = rating.rating + level.rating, math.hypot(own, top)
    high = None if rating.rating_high is None else at + spread
    return level.model_copy(update={"rating": at, "rating_low": at - spread, "rating_high": high})
