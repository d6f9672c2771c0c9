from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from arena.types import PolicyId
from populations.candidates import Candidate
from populations.core import OpponentRequest
from populations.matchmaking.alphastar import (
    AlphastarMatchmaker,
    num_before_monotonic_suffix,
)
from populations.roles import Constants
from tests.populations.matchmaking.toy_league import (
    TRAINEE,
    by_player,
    ghost,
    latest,
    request,
    shares,
)

Probabilities = dict[str, float]

GHOSTS = [
    *(ghost(steps, policy=0) for steps in (0, 100, 200)),
    *(ghost(steps, policy=1) for steps in (0, 90)),
    *(ghost(steps, policy=2, role="main_exploiter") for steps in (0, 50)),
    ghost(70, policy=3, role="league_exploiter"),
]
OTHERS = [latest(1), latest(2, role="main_exploiter"), latest(3, role="league_exploiter")]
OWN: list[str] = [row.player for row in GHOSTS[:3]]
RIVALS: list[str] = [row.player for row in GHOSTS[3:5]]
EXPLOITERS: list[str] = [row.player for row in GHOSTS[5:7]]
EVERYONE: list[str] = [row.player for row in GHOSTS]
RIVAL = "player/p001"


class Pseudocode:
    """The published pseudocode once more, every coin and choice replaced by all its outcomes."""

    def __init__(
        self, rates: Mapping[str, float], *, ghosts: Sequence[Candidate], mains: Sequence[str]
    ) -> None:
        self.rates = rates
        self.ghosts = ghosts
        self.mains = mains

    def payoff(self, player: str) -> float:
        return 0.5 if player == TRAINEE else self.rates.get(player, 0.5)

    def pfsp(self, players: Sequence[str], weighting: str) -> Probabilities:
        fns: dict[str, Callable[[float], float]] = {
            "variance": lambda x: x * (1 - x),
            "linear_capped": lambda x: min(0.5, 1 - x),
            "squared": lambda x: (1 - x) ** 2,
        }
        weights = [fns[weighting](self.payoff(player)) for player in players]
        norm = sum(weights)
        if norm < 1e-10:
            return {player: 1.0 / len(players) for player in players}
        return {player: w / norm for player, w in zip(players, weights, strict=True)}

    def history_of(self, opponent: str) -> list[str]:
        return [row.player for row in self.ghosts if row.policy == opponent]

    def historical(self) -> list[str]:
        return [row.player for row in self.ghosts]

    def without_monotonic_suffix(self, players: list[str]) -> list[str]:
        rates = [self.payoff(player) for player in players]
        for i in range(len(rates) - 1, 0, -1):
            if rates[i - 1] < rates[i]:
                return players[: i + 1]
        return []

    def selfplay_branch(self, opponent: str) -> Probabilities:
        if self.payoff(opponent) > 0.3:
            return {opponent: 1.0}
        return self.pfsp(self.history_of(opponent), "variance")

    def verification_branch(self, opponent: str) -> Probabilities | None:
        exploiters = [row.player for row in self.ghosts if row.role == "main_exploiter"]
        if exploiters and min(self.payoff(player) for player in exploiters) < 0.3:
            return self.pfsp(exploiters, "squared")
        kept = self.without_monotonic_suffix(self.history_of(opponent))
        if kept and min(self.payoff(player) for player in kept) < 0.7:
            return self.pfsp(kept, "squared")
        return None

    def main(self) -> Probabilities:
        total: defaultdict[str, float] = defaultdict(float)
        add(total, 0.5, self.pfsp(self.historical(), "squared"))
        for opponent in self.mains:
            each = 1.0 / len(self.mains)
            verified = self.verification_branch(opponent)
            add(total, 0.15 * each, verified or self.selfplay_branch(opponent))
            add(total, 0.35 * each, self.selfplay_branch(opponent))
        return total

    def main_exploiter(self, constants: Constants) -> Probabilities:
        total: defaultdict[str, float] = defaultdict(float)
        for opponent in self.mains:
            each = 1.0 / len(self.mains)
            past = self.pfsp(self.history_of(opponent), "variance")
            if self.payoff(opponent) <= (0.1 if constants == "pseudocode" else 0.2):
                add(total, each, past)
            elif constants == "pseudocode":
                add(total, each, {opponent: 1.0})
            else:
                add(total, 0.5 * each, past)
                add(total, 0.5 * each, {opponent: 1.0})
        return total

    def league_exploiter(self) -> Probabilities:
        return self.pfsp(self.historical(), "linear_capped")


def add(total: defaultdict[str, float], share: float, part: Probabilities) -> None:
    for player, probability in part.items():
        total["mirror" if player == TRAINEE else player] += share * probability


def positive(probabilities: Mapping[str, float]) -> Probabilities:
    return {player: share for player, share in probabilities.items() if share > 1e-9}


def asked(rates: Mapping[str, float], *, role: str = "main", num: int = 8) -> OpponentRequest:
    return request(ghosts=GHOSTS, others=OTHERS, rates=rates, role=role, num_opponents=num)


def distribution(found: OpponentRequest, *, constants: Constants = "pseudocode") -> Probabilities:
    matchmaker = AlphastarMatchmaker(constants=constants)
    return by_player(found, matchmaker.distribution(found, rng=np.random.default_rng(0)))


PLAYERS = [*EVERYONE, RIVAL]
# The rates lie around every threshold and at both ends; the posterior mean moves them by 1e-9.
RATES = st.sampled_from([0.0, 0.05, 0.15, 0.25, 0.35, 0.5, 0.65, 0.75, 1.0])


@settings(deadline=None, max_examples=150)
@given(st.lists(RATES, min_size=len(PLAYERS), max_size=len(PLAYERS)))
def test_every_branch_has_the_probability_of_the_pseudocode(values: list[float]) -> None:
    rates = dict(zip(PLAYERS, values, strict=True))
    main = asked(rates)
    seen = dict(zip(EVERYONE, main.win_rates(main.ghosts).tolist(), strict=True))
    seen[RIVAL] = float(main.win_rates(main.latest)[0])
    oracle = Pseudocode(seen, ghosts=GHOSTS, mains=[TRAINEE, RIVAL])
    assert distribution(main) == pytest.approx(positive(oracle.main()), abs=1e-12)
    exploiter = asked(rates, role="league_exploiter")
    assert distribution(exploiter) == pytest.approx(positive(oracle.league_exploiter()))
    against = Pseudocode(seen, ghosts=GHOSTS, mains=[RIVAL])
    both: tuple[Constants, ...] = ("pseudocode", "paper")
    for constants in both:
        found = distribution(asked(rates, role="main_exploiter"), constants=constants)
        expected = positive(against.main_exploiter(constants))
        assert found == pytest.approx(expected, abs=1e-12), constants


def test_a_main_agent_by_hand() -> None:
    # All opponents are even: PFSP is uniform over 8 ghosts; nobody is forgotten or too strong, so
    # verification is self-play, half with itself and half with the other main agent.
    found = distribution(asked({}))
    assert found == pytest.approx({**dict.fromkeys(EVERYONE, 0.5 / 8), "mirror": 0.25, RIVAL: 0.25})


def test_exploiters_that_still_win_are_verified() -> None:
    # Win rates are 0.2 and 0.6 against the exploiter's ghosts, 1 against all others.
    rates: dict[str, float] = {
        **dict.fromkeys(EVERYONE, 1.0),
        EXPLOITERS[0]: 0.2,
        EXPLOITERS[1]: 0.6,
    }
    found = distribution(asked(rates))
    # The squares are 0.64 and 0.16, in PFSP as well, where the others have weight 0.
    assert found == pytest.approx(
        {EXPLOITERS[0]: 0.65 * 0.8, EXPLOITERS[1]: 0.65 * 0.2, "mirror": 0.175, RIVAL: 0.175},
        abs=1e-6,
    )


def test_forgotten_former_selves_are_verified() -> None:
    # Its own history is 0.4, 0.9, 0.8. The suffix 0.9, 0.8 falls; 0.4 < 0.9 rises, so 0.4 and 0.9
    # remain, and 0.4 is below 0.7. The rival's 1, 1 never rises: self-play instead.
    rates: dict[str, float] = {
        **dict.fromkeys(EVERYONE, 1.0),
        OWN[0]: 0.4,
        OWN[1]: 0.9,
        OWN[2]: 0.8,
    }
    found = distribution(asked(rates))
    pfsp = {OWN[0]: 0.36, OWN[1]: 0.01, OWN[2]: 0.04}
    expected = {player: 0.5 * weight / 0.41 for player, weight in pfsp.items()}
    expected[OWN[0]] += 0.075 * 36 / 37
    expected[OWN[1]] += 0.075 * 1 / 37
    expected |= {"mirror": 0.175, RIVAL: 0.175 + 0.075}
    assert found == pytest.approx(expected, abs=1e-6)


def test_too_strong_a_main_agent_is_met_in_its_history() -> None:
    rates: dict[str, float] = {
        **dict.fromkeys(EVERYONE, 1.0),
        RIVAL: 0.25,
        RIVALS[0]: 0.9,
        RIVALS[1]: 0.5,
    }
    found = distribution(asked(rates))
    # The variances are 0.09 and 0.25; the rival's history falls, so there is no verification.
    past = 0.25
    squared = {RIVALS[0]: 0.5 * 0.01 / 0.26, RIVALS[1]: 0.5 * 0.25 / 0.26}
    assert found == pytest.approx(
        {
            RIVALS[0]: squared[RIVALS[0]] + past * 0.09 / 0.34,
            RIVALS[1]: squared[RIVALS[1]] + past * 0.25 / 0.34,
            "mirror": 0.25,
        },
        abs=1e-6,
    )


def test_what_is_drawn_is_the_distribution() -> None:
    rates = dict(zip(PLAYERS, (0.4, 0.9, 0.8, 0.7, 0.6, 0.5, 0.2, 0.3, 0.45), strict=True))
    found = asked(rates)
    drawn = shares(AlphastarMatchmaker(), found, num_draws=2000)
    # 16000 draws: standard deviation of a share at most 0.004
    assert drawn == pytest.approx(distribution(found), abs=0.016)


@pytest.mark.slow
def test_with_many_main_agents_they_are_drawn_first_and_the_frequencies_stay() -> None:
    mains = [latest(number) for number in range(1, 6)]
    history = [ghost(10 * number, policy=number) for number in range(6)]
    rates: dict[str, float] = {f"player/p{number:03d}": 0.2 for number in (1, 2)}
    found = request(ghosts=history, others=mains, rates=rates, num_opponents=2)
    drawn = shares(AlphastarMatchmaker(), found, num_draws=6000)
    # 12000 draws: standard deviation of a share at most 0.005
    assert drawn == pytest.approx(distribution(found), abs=0.02)


def test_another_populations_main_agents_have_no_mirror() -> None:
    prey = [latest(0, population="prey"), latest(1, population="prey", role="main_exploiter")]
    found = request(ghosts=0, others=prey, is_own=False)
    assert distribution(found) == pytest.approx({"prey/p000": 0.75, "prey/p001": 0.25})
    opponents = AlphastarMatchmaker().draw(found, rng=np.random.default_rng(0))
    assert opponents.num_mirrors == 0
    assert len(opponents.players) == 8


@pytest.mark.parametrize(
    ("role", "expected"),
    [
        ("main", {"mirror": 1.0}),
        ("main_exploiter", {RIVAL: 1.0}),
        ("league_exploiter", {"mirror": 1.0}),
    ],
)
def test_without_history_whoever_is_there_is_met(role: str, expected: Probabilities) -> None:
    others = [] if role == "main" else OTHERS
    assert distribution(request(ghosts=0, others=others, role=role)) == expected


def test_an_exploiter_without_main_agents_meets_history() -> None:
    found = request(ghosts=GHOSTS, others=[], role="main_exploiter")
    assert distribution(found) == pytest.approx(dict.fromkeys(EVERYONE, 1 / 8))


@pytest.mark.parametrize(
    ("win_rates", "kept"),
    [
        ([], 0),
        ([0.5], 0),
        ([0.9, 0.8, 0.8, 0.1], 0),  # never rises: nothing is forgotten
        ([0.1, 0.9], 2),
        ([0.9, 0.5, 0.6, 0.4, 0.4], 3),  # the last rise is at the third
        ([0.2, 0.3, 0.1, 0.5], 4),
    ],
)
def test_the_suffix_that_never_rises_is_dropped(win_rates: list[float], kept: int) -> None:
    assert num_before_monotonic_suffix(np.array(win_rates)) == kept


def test_the_toy_league_is_what_the_names_say() -> None:
    found = asked({})
    assert found.trainee == PolicyId("player/p000")
    assert found.latest.of_role("main").tolist() == [True, False, False]
