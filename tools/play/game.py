"""A game of a person against a player: what can be done, what was done, and how to take it back.

One environment is stepped as in matches. The person's decisions come from outside; all others are
the player's. What was done is the seed and the actions, of which the game is played again to take
a decision back and to show it later (`tools.replay.saved`).

Tests: `tests/tools/play/test_game.py`.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from itertools import islice
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from arena.drawings.draw import checked, pictures_of
from arena.drawings.games import DRAWINGS, game_of, move_of
from arena.drawings.picture import Move
from arena.envs.base import Phase, Told
from arena.envs.openspiel.game import is_openspiel
from arena.envs.phase import players_of_agents
from arena.errors import ArenaError, EnvironmentFault
from arena.games.recording import shown
from arena.matches.seated import SeatedPlayers
from arena.matches.seeds import seed_everything
from arena.spaces import ObservationLayout, nested, unflattened

from ..players.weights import MixtureWeights, PolicyWeights
from ..replay.retelling import (
    NEAR,
    Document,
    Mind,
    drawable,
    numbers_of,
    said_action,
    thoughts,
    told_action,
)
from .table import Table

if TYPE_CHECKING:
    from arena.drawings.picture import Moment, Picture
    from arena.envs.base import Group

Actions = dict[str, torch.Tensor]

HERE = torch.zeros(1, dtype=torch.int64)
"""The only environment."""


class Refused(ArenaError):
    """Refusal of what the person asked for; the game stays as it was."""


class _Person:
    """The person in a seat: decides elsewhere."""

    state_size = 0


class PersonsGame:
    """A game against the player of a table, of which the person decides for one agent.

    Args:
        table: Environment, person and player.
        seed: Seed of the environment and of the player's draws, in [0, 2**63).
        past: Actions of the first steps, which are played again, and digests of what they showed.

    Attributes:
        table: Environment, person and player.
        seed: Seed of the environment.
        agents: All agents.
        layout: Layout of the person's actions.
        weights: Weights that play, by population.
        mind: Policy that says what it would do in the person's place; None: there is none.
        actions: Actions of each step, by population.
        shown: Digests of what the start and each step showed.
        is_over: Whether it has ended.
        points: Points of each side at the end; NaN where a side has none.
        returns: Sum of each agent's rewards. float64 [A].
        told: Decisions of the others since the person's last one, in words.
        moment: Moment that was drawn last; None: nothing can be drawn.
        picture: Picture of it.
        problem: Why there is none. Empty: there is one.

    Raises:
        ConfigError: If the environment or a player cannot be made.
        EnvironmentFault: If the environment breaks.
        Refused: If it does not show what it showed in the past.
    """

    def __init__(
        self, table: Table, *, seed: int, past: Sequence[tuple[Actions, bytes]] = ()
    ) -> None:
        game = table.game
        self.table, self.seed = table, seed
        self._layouts = game.action_layouts()
        self.layout = self._layouts[table.population]
        self._generator = seed_everything(seed, device=torch.device("cpu"))
        rng = np.random.default_rng(seed)
        self.weights = {name: _drawn(one, rng) for name, one in table.player.policies.items()}
        own = self.weights.get(table.population)
        self.mind = None if own is None else Mind(player=own.player, policy=own.make_policy(game))
        self._thought: Document = {}
        self._env = game.make_env(1)
        self.agents = self._env.agents
        self._agent = self.agents.index(table.agent)
        self._seated = self._sit_down()
        if isinstance(self._env, Told):
            players = players_of_agents(game.seats, table.players)
            self._env.tell([Phase(name="evaluation", agent_steps=None, players=players)])
        self._turn = self._env.reset([seed])
        self.shown = shown(self._turn, HERE)
        self.actions: list[Actions] = []
        self._mine: list[int] = []
        self.is_over = False
        self.points: tuple[float, ...] = ()
        self.returns = torch.zeros(len(self.agents), dtype=torch.float64)
        self.told: list[str] = []
        # A second environment, which is only drawn, repeats these turns.
        self._turns: list[dict[str, Any]] = []
        self._moments = pictures_of(
            drawable(game, seed=seed, turns=self._turns, viewer=table.agent)
        )
        self.moment: Moment | None = None
        self.picture: Picture | None = None
        self.problem = ""
        self._look()
        self._think()
        for actions, digest in past:
            # The players act so that their recurrent state follows; the recorded actions are used.
            self._chosen()
            self._step(actions)
            if self.shown[-1] != digest:
                self.close()
                raise Refused(
                    "it cannot be taken back: from the same seed and actions the environment goes "
                    f"on differently at step {len(self.actions)}"
                )
        self._go_on()

    def close(self) -> None:
        """Close the environment."""
        self._env.close()

    @property
    def moves(self) -> dict[str, tuple[int, Move]]:
        """Legal choices by name, with their indices; empty if actions are more than one choice.

        Raises:
            Refused: If the game is over.
        """
        mask = self._mask
        if not self.layout.is_discrete:
            return {}
        (number,) = self.layout.branches
        found = {}
        for index in range(number) if mask is None else mask.nonzero().flatten().tolist():
            move = self._named(self.table.agent, index)
            found[move.name] = (index, move)
        return found

    @property
    def asks_for(self) -> str:
        """Parts of an action that is more than one choice, as the person types them."""
        ends = zip(self.layout.low, self.layout.high, strict=True)
        spans: list[tuple[float, float]] = []
        for leaf in self.layout.leaves:
            last = np.add(leaf.starts, leaf.choices) - 1
            spans += islice(ends, leaf.size) if leaf.is_box else zip(leaf.starts, last, strict=True)
        return f"{len(spans)} numbers, {' '.join(f'{low:g}..{high:g}' for low, high in spans)}"

    @property
    def observation(self) -> Any:  # noqa: ANN401
        """Observation of the person's agent, as its environment gives it."""
        group, slot = self._decision
        facts = self.table.game.spec.agent_specs[self.table.agent]
        layout = ObservationLayout.from_json(facts.observation)
        # A policy's row may have more columns, such as the deciding agent; only the observation
        # counts.
        rows = group.observation[0, slot, None, : layout.size].cpu().numpy()
        parts = [unflattened(leaf, rows[:, leaf.place])[0] for leaf in layout.leaves]
        return nested(layout.nest, parts)

    @property
    def seen(self) -> str:
        """`observation` in words."""
        with np.printoptions(threshold=200, precision=4, suppress=True):
            return f"you observe {self.observation}"

    @property
    def thought(self) -> Document:
        """Choices, probabilities and value of the player in the person's place.

        Raises:
            Refused: If it tells none: a bot, or a player of other populations.
        """
        if self.mind is None:
            raise Refused(
                f"{self.table.player.name} has no probabilities and no value for "
                f"{self.table.agent}: it has no network that plays it"
            )
        _ = self._decision
        return self._thought

    def name_of(self, action: Any) -> str:  # noqa: ANN401
        """Return an action of the person's agent, as `thought` has it, as the person types it."""
        return self._named(self.table.agent, action).name

    def read(self, text: str) -> torch.Tensor:
        """Return the row of an action that the person has typed.

        Raises:
            Refused: If it is none, or not legal now; the text has the rule and what was typed.
        """
        if not self.layout.is_discrete:
            return self._numbers(text)
        moves = self.moves
        known = {name.lower(): index for name, (index, _) in moves.items()}
        # Numbers select by position only if no name is itself a number, as a column is.
        if not any(name.isdecimal() for name in known):
            start = self.layout.leaves[0].starts[0]
            known |= {str(index + start): index for index in known.values()}
        if (index := known.get(text.strip().lower())) is None:
            raise Refused(f"{text.strip()!r:.40} is no legal move: {' '.join(moves)}")
        return torch.tensor(index)

    def play(self, row: torch.Tensor) -> None:
        """Carry out the person's decision, and the others' until the next one or the end.

        Args:
            row: Action from `read`.

        Raises:
            EnvironmentFault: If the environment breaks.
        """
        _, slot = self._decision
        actions = self._chosen()
        actions[self.table.population][0, slot] = row
        self._step(actions)
        self._go_on()

    @property
    def can_undo(self) -> bool:
        """Return whether the person has decided anything."""
        return bool(self._mine)

    def undo(self) -> None:
        """Take the person's last decision back, with all that followed.

        The game is played again from its seed until there.

        Raises:
            Refused: If there is none, or the environment does not follow its seed.
        """
        if not self.can_undo:
            raise Refused("there is no move of yours to take back")
        past = [*zip(self.actions, self.shown[1:], strict=True)][: self._mine[-1]]
        again = PersonsGame(self.table, seed=self.seed, past=past)
        self.close()
        # This object becomes the replayed game, so that references to it stay valid.
        vars(self).update(vars(again))

    @property
    def ending(self) -> str:
        """Return how it ended for the person, in words."""
        mine = f"{float(self.returns[self._agent]):g}"
        if len(self.points) < 2:
            return f"the game is over: {self.table.agent} got {mine}"
        sides = self.table.game.sides.values()
        own = self.points[[self.table.agent in agents for agents in sides].index(True)]
        better = sum(points > own for points in self.points)
        word = "lost" if better else "won" if self.points.count(own) == 1 else "drew"
        if len(self.points) > 2:
            word = f"came {better + 1} of {len(self.points)}"
        return f"the game is over: you {word}, with {mine}"

    def _sit_down(self) -> SeatedPlayers[Any]:
        game, person = self.table.game, (self.table.agent,)
        actors = replace(self.table.player, policies=self.weights).make_actors(game, greedy=False)
        seated = [
            _Person() if seat.agents == person else actors[seat.population] for seat in game.seats
        ]
        return SeatedPlayers([seated], block_of_env=HERE, seats=game.seats, agents=self.agents)

    @property
    def _on_turn(self) -> tuple[Group, int] | None:
        """Group and place of the person's decision; None: others are on turn, or it is over."""
        group = self._turn.groups[self.table.population]
        agents = group.agent_index[0].tolist()
        if self.is_over or self._agent not in agents:
            return None
        return group, agents.index(self._agent)

    @property
    def _decision(self) -> tuple[Group, int]:
        """Group and place of the person's decision, for which every game waits until its end."""
        if self._on_turn is None:
            raise Refused("the game is over")
        return self._on_turn

    @property
    def _mask(self) -> torch.Tensor | None:
        group, slot = self._decision
        return None if group.action_mask is None else group.action_mask[0, slot]

    def _chosen(self) -> Actions:
        """Return the decisions of the others, with zeros for the person's."""
        with torch.no_grad():
            return {
                population: self._seated.decide(population, group, generator=self._generator)
                for population, group in self._turn.groups.items()
            }

    def _go_on(self) -> None:
        """Let the others decide until the person is on turn."""
        while not self.is_over and self._on_turn is None:
            self._step(self._chosen())

    def _step(self, actions: Actions) -> None:
        if self._on_turn is not None:
            self._mine.append(len(self.actions))
            self.told = []
        # Actions have the form that the drawing takes.
        turn = {
            self.agents[index]: told_action(rows[0, slot], self._layouts[population])
            for population, rows in actions.items()
            for slot, index in enumerate(self._turn.groups[population].agent_index[0].tolist())
            if index >= 0
        }
        self._tell(turn)
        self._turn = reached = self._env.step(actions)
        self._seated.recurrent_state.reset(reached)
        self.actions.append({name: rows.clone() for name, rows in actions.items()})
        self.shown += shown(reached, HERE)
        self.returns += reached.reward[0]
        if reached.void is not None and bool(reached.void[0]):
            raise EnvironmentFault("the environment broke, and its game with it")
        if bool(reached.episode_over[0]):
            self.is_over = True
            self.points = tuple(reached.score[0].tolist())
        self._turns.append(turn)
        self._look()
        self._think()

    def _tell(self, turn: dict[str, Any]) -> None:
        """Note what the others are about to do, unless that may be hidden from the person."""
        environment = self.table.game.spec.id
        # OpenSpiel games with a drawing show their whole state.
        if is_openspiel(environment) and game_of(environment) not in DRAWINGS:
            return
        for agent, action in turn.items():
            if agent != self.table.agent:
                self.told.append(f"{agent}: {self._named(agent, action).name}")

    def _named(self, agent: str, action: Any) -> Move:  # noqa: ANN401
        layout = self._layouts[self.table.game.population_of(agent)]
        move = None
        if self.moment is not None and layout.is_discrete:
            move = move_of(self.moment, agent, action)
        return move or Move(said_action(action, layout))

    def _look(self) -> None:
        """Draw the moment, as long as what is drawn pays what this game does."""
        self.moment = self.picture = None
        if self.problem:
            return
        try:
            moment, picture = next(self._moments)
            mine = dict(zip(self.agents, self.returns.tolist(), strict=True))
            paid = dict(moment.returns)
            if not all(math.isclose(paid[one], mine[one], **NEAR) for one in paid):
                raise EnvironmentFault(f"as it is drawn it pays {paid}, not {mine}")
            self.moment, self.picture = moment, checked(picture)
        except (ArenaError, ValueError) as error:
            self.problem = str(error)
        except StopIteration:
            self.problem = "as it is drawn the game is over"

    def _think(self) -> None:
        """Let the mind see the person's decision: once, as it may remember it."""
        if self.mind is not None and self._on_turn is not None:
            group, slot = self._on_turn
            blank = group.new_actions()[0, slot]
            self._thought = thoughts(self.mind, self.table.agent, group, slot, blank, self.layout)

    def _numbers(self, text: str) -> torch.Tensor:
        """Return the row of numbers that were typed, one for each part of an action."""
        layout, mask = self.layout, self._mask
        ends = np.cumsum([leaf.size for leaf in layout.leaves])[:-1]
        # A wrong count or a text that is not a number raises ValueError here and is refused below.
        with suppress(ValueError):
            numbers = np.array([float(one) for one in text.replace(",", " ").split()])
            if not np.isfinite(numbers).all():
                raise ValueError
            parts = [
                part.reshape(1, *leaf.shape).astype(np.float64 if leaf.is_box else np.int64)
                for leaf, part in zip(layout.leaves, np.split(numbers, ends), strict=True)
            ]
            rows = layout.from_environment(nested(layout.nest, parts))
            is_legal = bool(layout.are_legal(rows, None if mask is None else mask[None].numpy())[0])
            # A number out of bounds or a fractional choice does not survive the round trip.
            given = numbers_of(rows[0], layout)
            if is_legal and np.allclose(given, numbers, rtol=1e-4, atol=1e-4):
                return torch.from_numpy(rows[0])
        raise Refused(f"an action is {self.asks_for}, got {text.strip()!r:.40}")


def _drawn(weights: PolicyWeights | MixtureWeights, rng: np.random.Generator) -> PolicyWeights:
    """Return weights; of a mixture a member that is drawn for the game."""
    if isinstance(weights, MixtureWeights):
        return weights.members[int(rng.choice(len(weights.members), p=weights.probabilities))]
    return weights
