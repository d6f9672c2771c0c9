from __future__ import annotations

from typing import Any

import gymnasium
import numpy as np
import numpy.typing as npt
import pytest
import torch

from arena.core import ActorInput
from arena.environment_spec import AgentSpec
from arena.envs.spaces.observations import describe
from arena.errors import ConfigError
from arena.matches.actors import BotActor, RandomActor, make_bot
from arena.spaces import ActionLayout


def discrete(n: int) -> ActionLayout:
    return ActionLayout.from_json({"kind": "Discrete", "n": n, "start": 0}, continuous="squashed")


FOUR = discrete(4)
BOARD = AgentSpec(
    observation=describe(gymnasium.spaces.Box(0.0, 1.0, (2, 3), np.float32)),
    action={"kind": "Discrete", "n": 4, "start": 0},
    mask=None,
)


def generator(seed: int = 1) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


class Scripted:
    """Answers what it was given; remembers the question."""

    def __init__(self, answer: object) -> None:
        self.answer = answer
        self.questions: list[tuple[Any, Any, str, float]] = []

    def act(
        self,
        observation: Any,
        action_mask: npt.NDArray[np.bool_] | None,
        *,
        agent: str,
        rng: np.random.Generator,
    ) -> Any:
        self.questions.append((observation, action_mask, agent, rng.random()))
        return self.answer


def ask(bot: Scripted, *, mask: torch.Tensor | None = None, seed: int = 1) -> torch.Tensor:
    actor = BotActor(bot, name="bot:tests:Scripted", facts=BOARD, actions=FOUR)
    observation = torch.arange(12.0).reshape(2, 6)
    return actor.act(
        ActorInput(observation=observation, action_mask=mask),
        agent="player_1",
        generator=generator(seed),
    ).action


def test_random_is_uniform_over_legal_actions() -> None:
    mask = torch.tensor([[True, False, True, True]]).expand(30_000, 4)
    action = (
        RandomActor(FOUR)
        .act(
            ActorInput(observation=torch.zeros(30_000, 6), action_mask=mask),
            agent="",
            generator=generator(),
        )
        .action
    )
    counts = torch.bincount(action, minlength=4)
    assert action.dtype == torch.int64
    assert counts[1] == 0
    # Counts are Binomial(30000, 1/3): five standard deviations are 408.
    assert all(abs(int(counts[legal]) - 10_000) < 408 for legal in (0, 2, 3))


def test_random_without_a_mask_draws_from_all_actions() -> None:
    action = (
        RandomActor(discrete(3))
        .act(ActorInput(observation=torch.zeros(30_000, 6)), agent="", generator=generator())
        .action
    )
    assert all(abs(int(count) - 10_000) < 408 for count in torch.bincount(action, minlength=3))


def test_random_depends_on_the_generator_alone() -> None:
    rows, mask = torch.zeros(50, 1), torch.ones(50, 9, dtype=torch.bool)
    actor = RandomActor(discrete(9))
    one = actor.act(
        ActorInput(observation=rows, action_mask=mask), agent="", generator=generator(1)
    ).action
    torch.rand(7)
    assert torch.equal(
        one,
        actor.act(
            ActorInput(observation=rows, action_mask=mask), agent="", generator=generator(1)
        ).action,
    )
    assert not torch.equal(
        one,
        actor.act(
            ActorInput(observation=rows, action_mask=mask), agent="", generator=generator(2)
        ).action,
    )


def test_a_bots_randomness_comes_from_the_generator() -> None:
    bot = Scripted([0, 0])
    for seed in (1, 1, 2):
        ask(bot, seed=seed)
    draws = [draw for *_, draw in bot.questions]
    assert draws[0] == draws[1] != draws[2]


@pytest.mark.parametrize(
    ("answer", "text"),
    [
        (np.array([0]), "one action for each of 2 rows, got 1"),
        (np.array([[0], [1]]), r"must have shape \(N,\), got \(2, 1\)"),
        (np.array([0.0, 1.0]), "got float64"),
        (None, r"must have shape \(N,\), got \(\)"),
        (np.array([0, 4]), "chose 4, which is not legal"),
        (np.array([-1, 0]), "chose -1, which is not legal"),
        (np.array([1, 0]), r"chose 0, which is not legal: its action mask allows \[1, 2\]"),
    ],
)
def test_malformed_and_illegal_answers_are_refused(answer: object, text: str) -> None:
    mask = torch.tensor([[True, True, True, True], [False, True, True, False]])
    with pytest.raises(ConfigError, match=f"bot:tests:Scripted .*{text}"):
        ask(Scripted(answer), mask=mask)


@pytest.mark.parametrize("player", ["bot:greedy", "player/p000", "bot:"])
def test_other_ids_are_no_bots(player: str) -> None:
    with pytest.raises(ConfigError, match="a bot is bot:random, bot:package"):
        make_bot(player, facts=BOARD, actions=FOUR, launch_directory=".")
