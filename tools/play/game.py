"""A game of a person against a player: what can be done, what was done, and how to take it back.

One environment is stepped as in matches. The person's decisions come from outside; all others are
the player's. What was done is the seed and the actions, of which the game is played again to take
a decision back and to show it later (`tools.replay.saved`).

Tests: `tests/tools/play/test_game.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from arena.drawings.draw import checked, pictures_of
from arena.drawings.find import DRAWINGS, OPTIONS
from arena.drawings.moves import Move, move_of
from arena.drawings.picture import Game as Drawable
from arena.drawings.picture import Picture
from arena.envs.base import Phase, Told
from arena.envs.chance import episode_seed
from arena.envs.openspiel.game import is_openspiel
from arena.envs.phase import players_of_agents
from arena.envs.spaces.leaves import nested
from arena.envs.spaces.observations import ObservationLayout, unflattened
from arena.errors import ArenaError, EnvironmentFault
from arena.games.recording import shown
from arena.matches.seated import SeatedPlayers
from arena.matches.seeds import seed_everything

from ..players.weights import MixtureWeights, PolicyWeights
from ..replay.retelling import Document, Mind, draw_of, thoughts, told_action
from .table import Table

if TYPE_CHECKING:
    from arena.core import Actor
    from arena.drawings.picture import Moment
    from arena.envs.base import BatchedEnv, Group, Turn
    from arena.envs.spaces.actions import ActionLayout

Actions = dict[str, torch.Tensor]

HERE = torch.zeros(1, dtype=torch.int64)
"""The only environment."""


class Refused(ArenaError):
    """Refusal of what the person asked for; the game stays as it was."""


class _Person:
    """The person in a seat: decides elsewhere."""

    state_size = 0


@dataclass(slots=True)
class _Way:
    """One way through the game from its start: an environment, and what players remember of it.

    Attributes:
        env: The environment.
        seated: Players in their seats.
        turn: Turn of the environment.
        mind: Policy that says what it would do in the person's place; None: there is none.
        thought: Document of its thoughts on the person's decision.
    """

    env: BatchedEnv
    seated: SeatedPlayers[Any]
    turn: Turn
    mind: Mind | None
    thought: Document = field(default_factory=dict)


class PersonsGame:
    """A game against the player of a table, of which the person decides for one agent.

    Args:
        table: Environment, person and player.
        seed: Seed of the environment and of the player's draws, in [0, 2**63).

    Attributes:
        table: Environment, person and player.
        seed: Seed of the environment.
        agents: All agents.
        weights: Weights that play, by population.
        actions: Actions of each step, by population.
        shown: Digests of what the start and each step showed.
        is_over: Whether it has ended.
        points: Points of each side at the end; NaN where a side has none.
        returns: Sum of each agent's rewards. float64 [A].
        told: Decisions of the others since the person's last one, in words.

    Raises:
        ConfigError: If the environment or a player cannot be made.
        EnvironmentFault: If the environment breaks.
    """

    def __init__(self, table: Table, *, seed: int) -> None:
        self.table, self.seed = table, seed
        self.is_over = False
        self.points: tuple[float, ...] = ()
        self.told: list[str] = []
        self._layouts = table.game.action_layouts()
        self._generator = seed_everything(seed, device=torch.device("cpu"))
        self.weights = dict(self._drawn(np.random.default_rng(seed)))
        self.actions: list[Actions] = []
        self._turns: list[dict[str, Any]] = []
        self.shown: list[bytes] = []
        self._mine: list[int] = []
        self._way = self._begin()
        self.agents = self._way.env.agents
        self._agent = self.agents.index(table.agent)
        self.returns = torch.zeros(len(self.agents), dtype=torch.float64)
        self._pictures = _Pictures(table, seed)
        self._go_on()

    def close(self) -> None:
        """Close the environment."""
        self._way.env.close()

    # The person's decision

    @property
    def layout(self) -> ActionLayout:
        """Layout of the person's actions."""
        return self._layouts[self.table.population]

    @property
    def moves(self) -> dict[str, tuple[int, Move]]:
        """Legal choices by name, with their indices; empty if actions are more than one choice."""
        if self.is_over or not self.layout.is_discrete:
            return {}
        (number,), (start,) = self.layout.branches, self.layout.leaves[0].starts
        mask = self._mask
        found = {}
        for index in range(number) if mask is None else mask.nonzero().flatten().tolist():
            move = self._named(self.table.agent, index) or Move(str(index + start))
            found[move.name] = (index, move)
        return found

    @property
    def asks_for(self) -> str:
        """Parts of an action that is more than one choice, as the person types them."""
        parts = []
        for leaf in self.layout.leaves:
            if leaf.is_box:
                first = leaf.offset - len(self.layout.branches)
                ends = zip(self.layout.low, self.layout.high, strict=True)
                parts += [f"{low:g}..{high:g}" for low, high in [*ends][first : first + leaf.size]]
            else:
                ends = zip(leaf.starts, leaf.choices, strict=True)
                parts += [f"{start}..{start + number - 1}" for start, number in ends]
        return f"{len(parts)} numbers, {' '.join(parts)}"

    @property
    def observation(self) -> Any:  # noqa: ANN401
        """Observation of the person's agent, as its environment gives it."""
        _, group, slot = self._decision(self._way)
        facts = self.table.game.spec.agent_specs[self.table.agent]
        layout = ObservationLayout.from_json(facts.observation)
        # A policy may be told beside who decides.
        rows = group.observation[0, slot, : layout.size].cpu().numpy()
        parts = [unflattened(leaf, rows[None, leaf.place])[0] for leaf in layout.leaves]
        return nested(layout.nest, parts)

    @property
    def advises(self) -> bool:
        """Whether the player can say what it would do in the person's place."""
        return self._way.mind is not None

    @property
    def thought(self) -> Document:
        """Choices, probabilities and value of the player in the person's place.

        Raises:
            Refused: If it tells none: a bot, or a player of other populations.
        """
        if self.is_over:
            raise Refused("the game is over")
        if self._way.mind is None:
            raise Refused(
                f"{self.table.player.name} has no probabilities and no value for "
                f"{self.table.agent}: it has no network that plays it"
            )
        return self._way.thought

    @property
    def advice(self) -> str:
        """`thought` in words."""
        thought = self.thought
        chances = [
            f"{self.name_of(one['action'])} {one['probability']:.0%}"
            for one in thought.get("choices", ())
        ]
        told = f"it would play {', '.join(chances) or self.name_of(thought['likeliest'])}"
        if thought["value"] is None:
            return told
        return f"{told}, and expects {thought['value']:+.2f} for {self.table.agent}"

    @property
    def hint(self) -> str:
        """Name of the likeliest action of `thought`."""
        return self.name_of(self.thought["likeliest"])

    @property
    def seen(self) -> str:
        """`observation` in words."""
        with np.printoptions(threshold=200, precision=4, suppress=True):
            return f"you observe {self.observation}"

    def name_of(self, action: Any) -> str:  # noqa: ANN401
        """Return an action of the person's agent, as `thought` has it, as the person types it."""
        if not self.layout.is_discrete:
            return " ".join(f"{number:g}" for number in self._environments(action))
        for name, (index, _) in self.moves.items():
            if index == action:
                return name
        return str(action)

    def read(self, text: str) -> torch.Tensor:
        """Return the row of an action that the person has typed.

        Raises:
            Refused: If it is none, or not legal now; the text has the rule and what was typed.
        """
        if not self.layout.is_discrete:
            return self._numbers(text)
        moves = self.moves
        wanted = text.strip().lower()
        for name, (index, _) in moves.items():
            if name.lower() == wanted:
                return torch.tensor(index)
        start = self.layout.leaves[0].starts[0]
        # Where names are numbers themselves, as columns are, no others count.
        if not any(name.isdecimal() for name in moves):
            for index, _ in moves.values():
                if str(index + start) == wanted:
                    return torch.tensor(index)
        raise Refused(f"{text.strip()!r:.40} is no legal move: {listed(list(moves))}")

    def play(self, row: torch.Tensor) -> None:
        """Carry out the person's decision, and the others' until the next one or the end.

        Args:
            row: Action from `read`.

        Raises:
            EnvironmentFault: If the environment breaks.
        """
        population, _, slot = self._decision(self._way)
        self._mine.append(len(self.actions))
        self.told = []
        actions = self._others(self._way, self._generator)
        actions[population][0, slot] = row
        self._step(actions)
        self._go_on()

    def undo(self) -> None:
        """Take the person's last decision back, with all that followed.

        The game is played again from its seed until there.

        Raises:
            Refused: If there is none, or the environment does not follow its seed.
        """
        if not self._mine:
            raise Refused("there is no move of yours to take back")
        until = self._mine[-1]
        way = self._begin()
        returns = torch.zeros_like(self.returns)
        # What players draw on the way is not used: they only remember it.
        spare = torch.Generator().manual_seed(0)
        for number, actions in enumerate(self.actions[:until]):
            self._think(way)
            self._others(way, spare)
            self._advance(way, actions)
            returns += way.turn.reward[0]
            if shown(way.turn, HERE) != [self.shown[number + 1]]:
                way.env.close()
                raise Refused(
                    "it cannot be taken back: from the same seed and actions the environment goes "
                    f"on differently at step {number + 1}"
                )
        self._way.env.close()
        self._think(way)
        self._way, self.returns, self.is_over, self.told = way, returns, False, []
        del self.actions[until:], self._turns[until:], self.shown[until + 1 :], self._mine[-1:]
        self._pictures = _Pictures(self.table, self.seed)
        for turn in self._turns:
            self._pictures.add(turn)

    # What there is to see and to keep

    @property
    def picture(self) -> Picture | None:
        """Picture of the moment; None: `problem` says why there is none."""
        return self._pictures.picture

    @property
    def problem(self) -> str:
        """Why there is no picture. Empty: there is one."""
        return self._pictures.problem

    @property
    def ending(self) -> str:
        """How it ended for the person, in words."""
        game = self.table.game
        mine = float(self.returns[self._agent])
        if len(self.points) < 2:
            return f"the game is over: {self.table.agent} got {mine:g}"
        own = [self.table.agent in agents for agents in game.sides.values()].index(True)
        better = sum(points > self.points[own] for points in self.points)
        word = "lost" if better else "won" if self.points.count(self.points[own]) == 1 else "drew"
        if len(self.points) > 2:
            word = f"came {better + 1} of {len(self.points)}"
        return f"the game is over: you {word}, with {mine:g}"

    # How it goes

    def _drawn(self, rng: np.random.Generator) -> Iterator[tuple[str, PolicyWeights]]:
        """Yield the weights of each population; of a mixture a member is drawn for the game."""
        for population, weights in self.table.player.policies.items():
            if isinstance(weights, MixtureWeights):
                yield (
                    population,
                    weights.members[int(rng.choice(len(weights.members), p=weights.probabilities))],
                )
            else:
                yield population, weights

    def _begin(self) -> _Way:
        """Begin at the start."""
        game, greedy = self.table.game, self.table.greedy
        actors: Mapping[str, Actor] = (
            game.make_bots(self.table.player.name, is_named=True)
            if self.table.player.game is None
            else {name: one.make_actor(game, greedy=greedy) for name, one in self.weights.items()}
        )
        env = game.make_env(1)
        seated = SeatedPlayers[Any](
            [
                [
                    _Person() if seat.agents == (self.table.agent,) else actors[seat.population]
                    for seat in game.seats
                ]
            ],
            block_of_env=HERE,
            seats=game.seats,
            agents=env.agents,
        )
        if isinstance(env, Told):
            players = players_of_agents(game.seats, self.table.players)
            env.tell([Phase(name="evaluation", agent_steps=None, players=players)])
        own = self.weights.get(self.table.population)
        mind = None
        if own is not None:
            mind = Mind(player=own.player, policy=own.make_policy(game))
        turn = env.reset([self.seed])
        if not self.shown:
            self.shown += shown(turn, HERE)
        return _Way(env, seated, turn, mind)

    def _decision(self, way: _Way) -> tuple[str, Group, int]:
        """Return the population, the group and the place of the person's decision.

        Raises:
            Refused: If it is not on turn.
        """
        found = self._on_turn(way)
        if found is None or self.is_over:
            raise Refused("the game is over" if self.is_over else "you are not on turn")
        return found

    def _on_turn(self, way: _Way) -> tuple[str, Group, int] | None:
        for population, group in way.turn.groups.items():
            for slot, agent in enumerate(group.agent_index[0].tolist()):
                if agent == way.env.agents.index(self.table.agent):
                    return population, group, slot
        return None

    @property
    def _mask(self) -> torch.Tensor | None:
        _, group, slot = self._decision(self._way)
        return None if group.action_mask is None else group.action_mask[0, slot]

    def _others(self, way: _Way, generator: torch.Generator) -> Actions:
        """Return the decisions of the others, with zeros for the person's."""
        chosen = {}
        for population, group in way.turn.groups.items():
            owner = way.seated.owners(group.agent_index, active=None)
            action = group.new_actions()
            with torch.no_grad():
                way.seated.play_frozen(
                    population, group, owner=owner, action=action, generator=generator
                )
            chosen[population] = action
        return chosen

    def _advance(self, way: _Way, actions: Actions) -> None:
        way.turn = way.env.step(actions)
        way.seated.recurrent_state.reset(way.turn)

    def _step(self, actions: Actions) -> None:
        turn = self._turn_of(actions)
        self._tell(turn)
        self._advance(self._way, actions)
        reached = self._way.turn
        self.actions.append({name: rows.clone() for name, rows in actions.items()})
        self._turns.append(turn)
        self.shown += shown(reached, HERE)
        self.returns += reached.reward[0]
        if reached.void is not None and bool(reached.void[0]):
            raise EnvironmentFault("the environment broke, and its game with it")
        if bool(reached.episode_over[0]):
            self.is_over = True
            self.points = tuple(reached.score[0].tolist())
        paid = dict(zip(self.agents, self.returns.tolist(), strict=True))
        self._pictures.add(turn, returns=paid)

    def _go_on(self) -> None:
        """Let the others decide until the person is on turn."""
        while not self.is_over and self._on_turn(self._way) is None:
            self._step(self._others(self._way, self._generator))
        if not self.is_over:
            self._think(self._way)

    def _think(self, way: _Way) -> None:
        """Let the mind see the person's decision: once, as it may remember it."""
        found = self._on_turn(way)
        if found is None or way.mind is None:
            return
        population, group, slot = found
        blank = group.new_actions()[0, slot]
        way.thought = thoughts(
            way.mind, self.table.agent, group, slot, blank, self._layouts[population]
        )

    def _turn_of(self, actions: Actions) -> dict[str, Any]:
        """Return decisions by agent, as drawings take them."""
        decided = {}
        for population, group in self._way.turn.groups.items():
            for slot, index in enumerate(group.agent_index[0].tolist()):
                if index >= 0:
                    action = told_action(actions[population][0, slot], self._layouts[population])
                    decided[self.agents[index]] = draw_of(action)
        return decided

    def _tell(self, turn: Mapping[str, Any]) -> None:
        """Note what the others are about to do, unless that may be hidden from the person."""
        if not tells_moves(self.table.game.spec.id):
            return
        for agent, action in turn.items():
            if agent == self.table.agent:
                continue
            move = self._named(agent, action) if isinstance(action, int) else None
            self.told.append(f"{agent}: {move.name if move else action}")

    def _named(self, agent: str, index: int) -> Move | None:
        moment = self._pictures.moment
        return None if moment is None else move_of(moment, agent, index)

    # Actions of more than one choice

    def _environments(self, row: Any) -> list[float]:  # noqa: ANN401
        """Return a row as the environment's numbers, part by part."""
        rows = np.array([row], self.layout.row_dtype)
        parts = [leaf.select(self.layout.to_environment(rows)) for leaf in self.layout.leaves]
        return [float(number) for part in parts for number in np.ravel(part)]

    def _numbers(self, text: str) -> torch.Tensor:
        """Return the row of numbers that were typed, one for each part of an action."""
        layout = self.layout
        typed = text.replace(",", " ").split()
        try:
            numbers = [float(one) for one in typed]
        except ValueError:
            numbers = []
        sizes = [leaf.size for leaf in layout.leaves]
        if not typed or len(numbers) != sum(sizes) or not np.isfinite(numbers).all():
            raise Refused(f"an action is {self.asks_for}, got {text.strip()!r:.40}")
        starts = np.cumsum([0, *sizes])
        parts = []
        for leaf, start in zip(layout.leaves, starts, strict=False):
            part = np.array(numbers[start : start + leaf.size]).reshape(1, *leaf.shape)
            parts.append(part if leaf.is_box else part.astype(np.int64))
        row = layout.from_environment(nested(layout.nest, parts))
        if not np.allclose(self._environments(row[0]), numbers, rtol=1e-4, atol=1e-4) or not (
            self._is_legal(row[0])
        ):
            raise Refused(f"an action is {self.asks_for}, got {text.strip()!r:.40}")
        return torch.from_numpy(row[0])

    def _is_legal(self, row: Any) -> bool:  # noqa: ANN401
        """Return whether each choice of a row is there, and legal now."""
        chosen = [int(choice) for choice in row[: len(self.layout.branches)]]
        if any(not 0 <= one < n for one, n in zip(chosen, self.layout.branches, strict=True)):
            return False
        mask, first = self._mask, np.cumsum([0, *self.layout.branches])
        return mask is None or all(
            bool(mask[start + one]) for start, one in zip(first, chosen, strict=False)
        )


def tells_moves(environment_id: str) -> bool:
    """Return whether everybody sees what is done: of OpenSpiel's games those with a drawing."""
    return not is_openspiel(environment_id) or OPTIONS.sub("", environment_id) in DRAWINGS


def listed(moves: list[str], *, most: int = 40) -> str:
    """Return names of moves in a line, the first ones of many."""
    more = f" and {len(moves) - most} more" if len(moves) > most else ""
    return " ".join(moves[:most]) + more


class _Pictures:
    """Pictures of a game that goes on: an environment that is only drawn follows it.

    Attributes:
        moment: Moment that was drawn last; None: nothing can be drawn.
        picture: Picture of it.
        problem: Why there is none. Empty: there is one.
    """

    def __init__(self, table: Table, seed: int) -> None:
        game = table.game
        self.moment: Moment | None = None
        self.picture: Picture | None = None
        self.problem = ""
        self._turns: list[dict[str, Any]] = []
        self._moments = pictures_of(
            Drawable(
                spec=game.spec,
                seed=episode_seed(seed, episode=0),
                turns=self._turns,
                launch_directory=game.launch_directory,
                possible_agents=game.environment.possible_agents,
                continuous_actions=game.environment.continuous_actions,
                viewer=table.agent,
            )
        )
        self._next()

    def add(self, turn: dict[str, Any], *, returns: Mapping[str, float] | None = None) -> None:
        """Draw the moment after a step.

        Args:
            turn: Decisions of the step by agent.
            returns: Sum of each agent's rewards in the game that is played; None: not compared.
        """
        self._turns.append(turn)
        self._next()
        if self.moment is None or returns is None:
            return
        paid = dict(self.moment.returns)
        if not all(
            math.isclose(paid[one], returns[one], rel_tol=1e-5, abs_tol=1e-5) for one in paid
        ):
            self._stop(f"as it is drawn it pays {paid}, not {dict(returns)}")

    def _next(self) -> None:
        if self.problem:
            return
        try:
            self.moment, picture = next(self._moments)
            self.picture = checked(picture)
        except (ArenaError, ValueError) as error:
            self._stop(str(error))
        except StopIteration:
            self._stop("as it is drawn the game is over")

    def _stop(self, problem: str) -> None:
        self.moment = self.picture = None
        self.problem = problem
