"""The contract of `arena.bots.asking.Bot`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Mapping
from contextlib import closing
from typing import Any, cast

import torch

from arena.bots.asking import Bot
from arena.bots.ids import parse_bot
from arena.contracts.contract import Subject, name_of
from arena.contracts.sample import MAX_CALLS, SampleGame, sample_game
from arena.core import Actor, ActorInput, ActorOutput
from arena.envs.checks.native_watch import are_equal
from arena.matches.actors import BotActor, RandomActor
from arena.matches.play import Play
from arena.matches.seated import SeatedPlayers
from arena.resolve import resolve
from arena.types import BOT_PREFIX, Seat

NUM_GAMES = 8
NUM_EPISODES = 16
LEGAL = "act must give one legal action for each row"

Transcript = list[tuple[str, list[Any]]]
"""Deciding agent and its actions, call by call."""


def check_bot(
    bot: Bot | type[Bot] | str,
    *,
    environment: str,
    kwargs: Mapping[str, object] | None = None,
    launch_directory: str = "",
) -> None:
    """Check that a bot plays whole episodes legally, repeatably, and each game for itself.

    Args:
        bot: Object, class without arguments, or a bot's id: ``package.module:Class(depth=3)``, with
            or without ``bot:``.
        environment: Id of the environment that it plays: some games in all seats, some in one
            against random play.
        kwargs: Arguments of the environment's factory.
        launch_directory: Directory where ``package`` is looked for first; empty: where the process
            is.

    Raises:
        ContractBroken: With the first rule that it breaks.
    """
    subject = Subject(name_of(bot))
    game = sample_game(subject, environment, kwargs=kwargs, launch_directory=launch_directory)
    make = _maker(subject, bot, launch_directory)
    one, other = make(), make()
    first = _play(subject, one, game)
    rule = "a bot's decisions must be a function of its calls, and of rng and the seeds of reset"
    found = "two unequal matches of one seed"
    subject.must(rule, _play(subject, other, game) == first, found=found)
    rule = "a bot must begin every game anew: what it remembers must be kept by game and agent"
    found = "another match of the same seed, the second time"
    subject.must(rule, _play(subject, one, game) == first, found=found)


def _maker(subject: Subject, given: object, launch_directory: str) -> Callable[[], Any]:
    rule = "it must be made with the arguments of its id"
    if isinstance(given, type):
        return lambda: subject.made(given, rule)
    if not isinstance(given, str):
        return lambda: copy.deepcopy(given)
    with subject.obeying("it must be found by its id"):
        named = parse_bot(BOT_PREFIX + given.removeprefix(BOT_PREFIX))
        subject.must("bot:random is no class to check", named is not None)
        assert named is not None
        found = resolve(named.reference, launch_directory=launch_directory)
    subject.must("it must be a class", callable(found), got=found)
    assert callable(found)
    make: Callable[..., object] = found
    return lambda: subject.made(make, rule, **named.arguments)


@torch.no_grad()
def _play(subject: Subject, bot: object, game: SampleGame) -> Transcript:
    """Play some episodes at once: all seats by the bot in the first half of the games, one of them
    in the others, where it meets what it would never do itself.
    """
    watched = _Watched(bot)
    with subject.obeying("its methods must take the arguments of arena.bots.asking.Bot"):
        bots: dict[str, Actor] = {
            name: _Heard(subject, watched, game, population=name) for name in game.populations
        }
    others: dict[str, Actor] = {k: RandomActor(actions) for k, actions in game.actions.items()}
    transcript = watched.transcript
    with closing(game.make(num_envs=NUM_GAMES)) as env:
        seats = [
            Seat(name=agent, side=agent, population=game.population_of(agent), agents=(agent,))
            for agent in env.agents
        ]
        own = [
            range(len(seats)) if number < NUM_GAMES // 2 else [number % len(seats)]
            for number in range(NUM_GAMES)
        ]
        play = Play[Actor](
            env,
            seeds=range(NUM_GAMES),
            generator=torch.Generator().manual_seed(1),
            seated=SeatedPlayers(
                [
                    [(bots if at in mine else others)[s.population] for at, s in enumerate(seats)]
                    for mine in own
                ],
                block_of_env=torch.arange(NUM_GAMES),
                seats=seats,
                agents=env.agents,
            ),
        )
        num_over = 0
        for _ in range(MAX_CALLS):
            play.step()
            num_over += int(play.turn.episode_over.sum())
            if num_over >= NUM_EPISODES:
                break
    return transcript


class _Heard(BotActor):
    """A bot whose answers are noted and checked."""

    def __init__(
        self, subject: Subject, watched: _Watched, game: SampleGame, *, population: str
    ) -> None:
        super().__init__(
            cast("Bot", watched),
            name=subject.name,
            facts=game.facts(population),
            actions=game.actions[population],
        )
        self._subject, self._watched = subject, watched

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        with self._subject.answering(LEGAL, draws="act must draw from rng alone"):
            output = super().act(inputs, agent=agent, generator=generator)
        rule = "act must not change its observations and action masks"
        self._subject.must(rule, not self._watched.has_changed_its_arguments)
        self._watched.transcript.append((agent, output.action.tolist()))
        return output


class _Watched:
    """A bot whose arguments are looked at after each call; who asks it adds its answers."""

    def __init__(self, bot: Any) -> None:  # noqa: ANN401
        self.transcript: Transcript = []
        self.has_changed_its_arguments = False
        act = self.act = getattr(bot, "act", None)
        if callable(act):
            # `wraps` keeps the signature of the bot's own method.
            @functools.wraps(act)
            def watched(observation: object, action_mask: object, **more: object) -> object:
                before = copy.deepcopy((observation, action_mask))
                answer: object = act(observation, action_mask, **more)
                self.has_changed_its_arguments |= not are_equal(before, (observation, action_mask))
                return answer

            self.act = watched
        if hasattr(bot, "reset"):
            self.reset = bot.reset
