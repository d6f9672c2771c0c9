"""The contract of `arena.bots.asking.Bot`."""

from __future__ import annotations

import copy
import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import islice
from typing import Any, cast

import torch

from arena.bots.asking import Bot
from arena.bots.ids import parse_bot
from arena.contracts.contract import Subject, name_of
from arena.contracts.sample import MAX_CALLS, SampleGame, sample_game
from arena.core import ActorInput, Games
from arena.envs.base import Group
from arena.envs.checks.native_watch import are_equal
from arena.envs.pettingzoo.pending_decisions import NO_DECISION
from arena.envs.random_play import random_turns
from arena.matches.actors import BotActor
from arena.matches.recurrent_state import new_episodes
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


def _play(subject: Subject, bot: object, game: SampleGame) -> Transcript:
    """Play some episodes at once: all seats by the bot in the first half of the games, one of them
    in the others, where it meets what it would never do itself.
    """
    transcript: Transcript = []
    watched = _Watched(bot)
    with subject.obeying("its methods must take the arguments of arena.bots.asking.Bot"):
        actors = {
            name: BotActor(
                cast("Bot", watched),
                name=subject.name,
                facts=game.facts(name),
                actions=game.actions[name],
            )
            for name in game.populations
        }
    episodes = new_episodes(NUM_GAMES)
    generator, chance = (torch.Generator().manual_seed(seed) for seed in (1, 2))
    num_over = 0
    with closing(game.make(num_envs=NUM_GAMES)) as env:
        own = torch.arange(NUM_GAMES)[:, None] % len(env.agents)
        plays_all = torch.arange(NUM_GAMES)[:, None] < NUM_GAMES // 2
        turns = random_turns(env, seeds=range(NUM_GAMES), actions=game.actions, generator=chance)
        for turn, actions in islice(turns, MAX_CALLS):
            # Of the step before.
            over = turn.episode_over
            num_over += int(over.sum())
            episodes = torch.where(over, new_episodes(NUM_GAMES), episodes)
            if num_over >= NUM_EPISODES:
                break
            for name, group in turn.groups.items():
                is_own = plays_all | (group.agent_index == own)
                asked = _asked(group, is_own=is_own, agents=env.agents, episodes=episodes)
                for agent, rows, inputs in asked:
                    with subject.answering(LEGAL, draws="act must draw from rng alone"):
                        output = actors[name].act(inputs, agent=agent, generator=generator)
                    actions[name][rows] = output.action
                    transcript.append((agent, output.action.tolist()))
            rule = "act must not change its observations and action masks"
            subject.must(rule, not watched.has_changed_its_arguments)
    return transcript


def _asked(
    group: Group, *, is_own: torch.Tensor, agents: Sequence[str], episodes: torch.Tensor
) -> Iterator[tuple[str, torch.Tensor, ActorInput]]:
    """Yield each agent whose decisions are the bot's: its name, where they are, and they."""
    for index in sorted({*group.agent_index.flatten().tolist()} - {NO_DECISION}):
        agent = agents[index]
        asked = (group.agent_index == index) & is_own
        if not asked.any():
            continue
        games = asked.nonzero()[:, 0]
        seat = Seat(name=agent, side=agent, population="", agents=(agent,))
        mask = None if group.action_mask is None else group.action_mask[asked].clone()
        inputs = ActorInput(
            observation=group.observation[asked].clone(),
            action_mask=mask,
            games=Games(seat=seat, index=games, episode=episodes[games]),
        )
        yield agent, asked, inputs


class _Watched:
    """A bot whose arguments are looked at after each call."""

    def __init__(self, bot: Any) -> None:  # noqa: ANN401
        self.has_changed_its_arguments = False
        act = self.act = getattr(bot, "act", None)
        if callable(act):
            # The signature stays that of the bot's own method.
            @functools.wraps(act)
            def watched(observation: object, action_mask: object, **more: object) -> object:
                before = copy.deepcopy((observation, action_mask))
                answer: object = act(observation, action_mask, **more)
                self.has_changed_its_arguments |= not are_equal(before, (observation, action_mask))
                return answer

            self.act = watched
        if hasattr(bot, "reset"):
            self.reset = bot.reset
