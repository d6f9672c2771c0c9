"""Bots: programs as players.

Shapes: N rows, F features of a flattened observation, n choices, K numbers of an action.
"""

from __future__ import annotations

import torch

from arena.bots.asking import AskedBot, Bot, make_object
from arena.core import Actor, ActorInput, ActorOutput, Games
from arena.environment_spec import AgentSpec
from arena.envs.random_play import uniform_actions
from arena.matches.recurrent_state import new_episodes
from arena.spaces import ActionLayout, ObservationLayout
from arena.types import Seat


class RandomActor(Actor):
    """A player that is uniform over the legal actions: see `uniform_actions`.

    Args:
        actions: Layout of the actions of the agents it plays.
    """

    reads_agent = False

    def __init__(self, actions: ActionLayout) -> None:
        self._actions = actions

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        """Draw one action per row."""
        action = uniform_actions(
            self._actions,
            num_rows=len(inputs.observation),
            action_mask=inputs.action_mask,
            generator=generator,
        )
        return ActorOutput(action=action)


class BotActor(Actor):
    """A user's bot as an Actor: it sees observations as the environment gives them.

    Args:
        bot: Object of the user's class.
        name: Name in error texts.
        facts: Facts about the agents it plays: how observations are flattened, where masks are.
        actions: Layout of their actions, which brings its answers into rows.

    Raises:
        ConfigError: If the object has no ``act``, or its methods take other arguments.
    """

    reads_games = True

    def __init__(self, bot: Bot, *, name: str, facts: AgentSpec, actions: ActionLayout) -> None:
        self._bot = AskedBot(bot, name=name, mask_place=facts.mask, actions=actions)
        self._layout = ObservationLayout.from_json(facts.observation)
        # The last episode that the bot played in each game (environment, seat).
        self._playing: dict[tuple[int, str], int] = {}

    @property
    def keeps_games(self) -> bool:
        """Return whether the bot keeps state per game, so that games of two batches must not be
        mixed up.
        """
        return self._bot.keeps_games

    def act(self, inputs: ActorInput, *, agent: str, generator: torch.Generator) -> ActorOutput:
        """Let the bot decide. Without given games, each row is a game without a past.

        Raises:
            ConfigError: If the bot raises, or returns anything but one legal action per row.
        """
        observation, action_mask = inputs.observation, inputs.action_mask
        games = _separate_games(agent, len(observation)) if inputs.games is None else inputs.games
        # One draw per call makes a match repeatable from its seed, whatever the bot itself draws.
        seed = torch.randint(2**63 - 1, (), generator=generator, device=generator.device).item()
        if self._bot.has_reset:
            self._begin(games, seed=int(seed))
        action = self._bot.ask(
            # The bot gets the environment's own dtypes and nesting instead of float32 rows.
            self._layout.to_environment(observation.cpu()),
            None if action_mask is None else action_mask.cpu().numpy(),
            agent=agent,
            num_rows=len(observation),
            games=games.index.numpy(),
            seed=int(seed),
        )
        return ActorOutput(action=torch.from_numpy(action).to(observation.device))

    def _begin(self, games: Games, *, seed: int) -> None:
        """Reset the bot for episodes that it has not yet seen in these games."""
        seat = games.seat
        for game, episode in zip(games.index.tolist(), games.episode.tolist(), strict=True):
            # `reset` is called at the bot's first decision, so that random openings and halted
            # environments cost nothing.
            if self._playing.get((game, seat.name)) == episode:
                continue
            self._playing[game, seat.name] = episode
            self._bot.reset(game, seat=seat.name, agents=seat.agents, seed=seed)


def _separate_games(agent: str, number: int) -> Games:
    """Return as many games without earlier decisions."""
    return Games(
        seat=Seat(name=agent, side=agent, population="", agents=(agent,)),
        index=torch.arange(number),
        episode=new_episodes(number),
    )


def make_bot(
    player: str, *, facts: AgentSpec, actions: ActionLayout, launch_directory: str
) -> Actor:
    """Make the actor that a bot's id names.

    Args:
        player: ``bot:random``, or ``bot:package.module:Class`` with or without arguments.
        facts: Facts about the agents that it plays.
        actions: Layout of their actions.
        launch_directory: First entry of ``sys.path`` while the class is resolved.

    Raises:
        ConfigError: If there is no such bot, or its class cannot be made or has no ``act``.
    """
    bot = make_object(player, launch_directory=launch_directory)
    # `bot:random` has no class.
    if bot is None:
        return RandomActor(actions)
    return BotActor(bot, name=player, facts=facts, actions=actions)
