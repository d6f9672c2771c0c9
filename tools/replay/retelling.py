"""A game that was kept, played again and told: who decided what, how likely that was, what it paid.

What comes out is the document of ``arena replay --json``; text, pages and films are made of it.

Tests: `tests/tools/replay/test_retelling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from arena.core import ActorInput
from arena.drawings.draw import draw_game
from arena.drawings.picture import Game as Drawable
from arena.envs.base import Group, Phase, Turn
from arena.envs.chance import episode_seed
from arena.envs.phase import players_of_agents
from arena.envs.spaces.actions import ActionLayout
from arena.errors import ArenaError, CheckpointError, ConfigError
from arena.games.recording import GameParted, replay
from arena.networks.distributions import Categorical
from arena.networks.frozen import FrozenPolicy
from arena.types import Digest, Seat, WeightsRef, is_bot, is_external, population_of
from populations.config.run_file import learner_setup
from populations.config.trust import word_for_run
from populations.league.names import find_player
from populations.records.games import places, worst_games
from populations.records.rows import GameRow
from populations.views.questions.inspection import Inspection

from ..league.documents import Opened
from ..players.game import Game
from ..players.in_run import champions, find_in_run
from ..players.resolve import resolve_player
from ..players.weights import MixtureWeights, PolicyWeights, load_policy
from .saved import read_game

Document = dict[str, Any]

Seated = tuple[Seat, str, str, str]
"""Seat, player in it, its weights' digest and their directory."""

MOST_CHOICES = 5
"""Likeliest actions of a decision that are told."""

NEAR = {"rel_tol": 1e-5, "abs_tol": 1e-5}
"""Difference of sums of rewards that are the same."""


@dataclass(slots=True, kw_only=True)
class Mind:
    """A policy that looks on, with the state that it would have.

    Attributes:
        player: Its name.
        policy: The policy.
        states: Recurrent state after the last decision of each agent. float32 [1, H].
    """

    player: str
    policy: FrozenPolicy
    states: dict[str, torch.Tensor] = field(default_factory=dict)


def retold(
    run_dir: Path,
    *,
    player: str | None = None,
    opponent: str | None = None,
    worst: int | None = None,
    game: str | None = None,
    beside: str | None = None,
    trust: bool = False,
) -> Opened:
    """Find a game of a run, and tell it with pictures; the arguments are those of `find_game`.

    Args:
        run_dir: The run, or the file of a game that a person played.
        player: Player that took part.
        opponent: Player that took part, too.
        worst: The N-th worst game of the player.
        game: Id.
        beside: Player of whom it is told what it would have done.
        trust: Whether code that run.yaml names may be imported, wherever it is from.

    Raises:
        ConfigError: If there is no such run, game or player.
        NotTrusted: If the run names code that nobody vouches for.
        GameParted: If the environment shows something else than in the game.
    """
    if run_dir.is_file():
        saved, played = read_game(run_dir, trust=trust)
        telling = Retelling(None, played, trust=trust)
        document = telling.tell(saved.row, is_over=saved.is_over)
    else:
        with closing(Inspection.open(run_dir)) as inspection:
            row = find_game(inspection, player=player, opponent=opponent, worst=worst, game=game)
            setup = learner_setup(inspection.run_file, root=run_dir)
            word = word_for_run(inspection.run_file, run_dir, trust=trust)
            played = Game.of_setup(setup, word=word)
            telling = Retelling(inspection, played)
            document = telling.tell(row, beside=beside)
    telling.draw(document)
    return Opened(document, tuple(played.populations))


class Retelling:
    """Tells games of one run.

    Args:
        inspection: The run; None: the game is from a file.
        game: Its game, with the user's word for its code.
        trust: Whether code that players' files name may be imported, of a game from a file.
    """

    def __init__(self, inspection: Inspection | None, game: Game, *, trust: bool = False) -> None:
        self._trust = trust
        self._inspection = inspection
        self._game = game
        self._layouts = game.action_layouts()

    def tell(self, row: GameRow, *, beside: str | None = None, is_over: bool = True) -> Document:
        """Play a game again and tell it.

        Args:
            row: The game.
            beside: Player of the run of whom it is told what it would have done; None: the champion
                of each population.
            is_over: Whether it was played to its end.

        Raises:
            GameParted: If the environment shows something else than it did.
            ConfigError: If there is no such player.
        """
        seats, sides = [self._game.seats[seat] for seat in row.seats], [*self._game.sides]
        seated = list(zip(seats, row.players, row.entrants, row.keys, strict=True))
        players = players_of_agents(seats, row.players)
        minds, gone = self._minds(one for one in seated if one[2] and not is_bot(one[1]))
        others, _ = self._minds(self._onlookers(seated, beside))
        phase = Phase(name="evaluation", agent_steps=None, players=players)
        try:
            with closing(self._game.make_env(1)) as env:
                steps = [
                    self._step(step, turn, actions, env.agents, players, minds, others)
                    for step, (turn, actions) in enumerate(
                        replay(env, row, phase=phase, is_over=is_over)
                    )
                ]
        except GameParted as error:
            raise GameParted(
                f"game {row.game} cannot be shown: {self._game.spec.id} was changed since, or does "
                f"not follow its seed: {error}"
            ) from None
        return {
            "game": row.game,
            "time": row.time,
            "environment": self._game.spec.id,
            "kwargs": dict(self._game.spec.kwargs),
            "seed": row.seed,
            "seats": [
                {
                    "seat": seat.name,
                    "agents": list(seat.agents),
                    "player": player,
                    "weights": None if is_bot(player) else entrant or None,
                    "points": row.points[sides.index(seat.side)] if row.points else None,
                    "return": paid,
                }
                for (seat, player, entrant, _), paid in zip(seated, row.returns, strict=True)
            ],
            "turned": turned_at(steps),
            "notes": [
                f"the weights of {player} are gone: what it thought is not known" for player in gone
            ],
            "steps": steps,
        }

    def draw(self, document: Document) -> None:
        """Add a picture and names of moves to each step, as far as there are some, and say why
        pictures are missing.

        Drawn by a process of its own: an environment may hang or break as it renders.
        """
        turns = [
            {one["agent"]: one["action"] for one in step["decisions"]} for step in document["steps"]
        ]
        named = [
            {
                agent: [int(action) for action in moves if action.isdecimal()]
                for agent, moves in step["moves"].items()
            }
            for step in document["steps"]
        ]
        # Nobody decides at the end.
        drawn = draw_game(
            drawable(self._game, seed=document["seed"], turns=turns[:-1], named=named)
        )
        for step, names in zip(document["steps"], drawn.names, strict=False):
            for agent, found in names.items():
                step["moves"][agent] |= {str(action): name for action, name in found.items()}
        paid = {
            agent: sum(step["rewards"].get(agent, 0.0) for step in document["steps"])
            for agent in drawn.returns
        }
        if drawn.problem:
            document["notes"].append(drawn.problem)
        # The process that draws plays it by steppers of its own, without digests.
        elif not all(math.isclose(drawn.returns[one], paid[one], **NEAR) for one in paid):
            document["notes"].append(
                f"pictures are left out: as it was drawn it paid {dict(drawn.returns)}, not {paid}"
            )
            return
        for step, picture in zip(document["steps"], drawn.pictures, strict=False):
            step["picture"] = asdict(picture)

    def _onlookers(self, seated: Iterable[Seated], beside: str | None) -> Iterator[Seated]:
        """Yield who would have played in a seat: the champion, or whom the user names."""
        found = {}
        if self._inspection is None:
            return
        if beside is not None:
            named = find_in_run(self._inspection, beside)
            found = {population_of(named[0]): named}
        else:
            # Nobody is rated yet.
            with suppress(ConfigError):
                found = champions(self._inspection)
        for seat, _, entrant, _ in seated:
            # Its own thoughts are told in any case.
            if (one := found.get(seat.population)) and str(one[1].digest) != entrant:
                yield seat, one[0], one[1].digest, one[1].key

    def _minds(self, seated: Iterable[Seated]) -> tuple[dict[str, Mind], list[str]]:
        """Return the players whose weights are there, by agent, and those whose are gone."""
        minds: dict[str, Mind] = {}
        gone: dict[str, None] = {}
        for seat, player, entrant, key in seated:
            weights = self._weights(player, entrant, key)
            if weights is None:
                gone[player] = None
            else:
                mind = Mind(player=player, policy=weights.make_policy(self._game))
                minds.update(dict.fromkeys(seat.agents, mind))
        return minds, list(gone)

    def _weights(self, player: str, entrant: str, key: str) -> PolicyWeights | None:
        """Load a player's weights; None: they are gone, or others by now."""
        with suppress(ArenaError if self._inspection is None else CheckpointError):
            if self._inspection is None:
                found = resolve_player(player, trust=self._trust).policies.values()
                for one in found:
                    members = one.members if isinstance(one, MixtureWeights) else (one,)
                    for weights in members:
                        if str(weights.digest) == entrant:
                            return weights
            elif not is_external(player):
                reference = WeightsRef(digest=Digest(entrant), key=key)
                return load_policy(self._inspection, player, reference, word=self._game.word)[1]
        return None

    def _step(
        self,
        step: int,
        turn: Turn,
        actions: Mapping[str, torch.Tensor] | None,
        agents: tuple[str, ...],
        players: Mapping[str, str],
        minds: Mapping[str, Mind],
        others: Mapping[str, Mind],
    ) -> Document:
        """Return what was paid before a step, and what is decided for it."""
        rewards = turn.reward[0].tolist() if step else []
        decisions, moves = [], {}
        for population, chosen in (actions or {}).items():
            layout, group = self._layouts[population], turn.groups[population]
            for slot, index in enumerate(group.agent_index[0].tolist()):
                if index < 0:
                    continue
                agent, action = agents[index], chosen[0, slot]
                decision: Document = {
                    "agent": agent,
                    "player": players[agent],
                    "action": told_action(action, layout),
                }
                if agent in minds:
                    decision |= thoughts(minds[agent], agent, group, slot, action, layout)
                if agent in others:
                    seen = thoughts(others[agent], agent, group, slot, action, layout)
                    decision["beside"] = {"player": others[agent].player, **seen}
                decisions.append(decision)
                moves[agent] = {str(one): said_action(one, layout) for one in _actions_of(decision)}
        return {
            "step": step,
            "rewards": dict(zip(agents, rewards, strict=False)),
            "decisions": decisions,
            # As people type them; games that have names for them are drawn by those.
            "moves": moves,
        }


def drawable(
    game: Game,
    *,
    seed: int,
    turns: Sequence[Mapping[str, int | list[float]]],
    named: Sequence[Mapping[str, Sequence[int]]] = (),
    viewer: str | None = None,
) -> Drawable:
    """Return a game of a seed as drawings take it; see there for the rest."""
    return Drawable(
        spec=game.spec,
        seed=episode_seed(seed, episode=0),
        turns=turns,
        named=named,
        launch_directory=game.launch_directory,
        possible_agents=game.environment.possible_agents,
        continuous_actions=game.environment.continuous_actions,
        viewer=viewer,
    )


def thoughts(
    mind: Mind, agent: str, group: Group, slot: int, action: torch.Tensor, layout: ActionLayout
) -> Document:
    """Return what a policy thinks of a decision, and of the action that was chosen."""
    state = None
    if mind.policy.state_size:
        state = mind.states.get(agent, torch.zeros(1, mind.policy.state_size))
    mask = None if group.action_mask is None else group.action_mask[:, slot]
    distribution, value, state = mind.policy.judge(
        ActorInput(observation=group.observation[:, slot], action_mask=mask, recurrent_state=state)
    )
    if state is not None:
        mind.states[agent] = state
    chance = None if layout.num_continuous else float(distribution.log_prob(action[None]).exp())
    told: Document = {
        "likeliest": told_action(distribution.greedy()[0], layout),
        # A density is no probability.
        "probability": chance,
        "value": None if value is None else float(value[0]),
    }
    if isinstance(distribution, Categorical):
        chances = enumerate(distribution.log_probs[0].exp().tolist())
        # Of equal ones the first: an untrained policy's are all alike.
        best = sorted(chances, key=lambda one: -one[1])[:MOST_CHOICES]
        told["choices"] = [
            {"action": action, "probability": chance} for action, chance in best if chance > 0
        ]
    return told


def told_action(action: torch.Tensor, layout: ActionLayout) -> Any:  # noqa: ANN401
    """Return an action as JSON has it: an integer from 0, or its choices and numbers."""
    return int(action) if layout.is_discrete else action.tolist()


def numbers_of(action: Any, layout: ActionLayout) -> list[float]:  # noqa: ANN401
    """Return a row of an action as the environment's own numbers, part by part."""
    (own,) = layout.actions(np.array([action], layout.row_dtype))
    parts = [np.ravel(leaf.select(own)) for leaf in layout.leaves]
    return [float(number) for part in parts for number in part]


def said_action(action: Any, layout: ActionLayout) -> str:  # noqa: ANN401
    """Return a row of an action as people type it where the game has no name for it."""
    return " ".join(
        f"{number:.15g}" if layout.is_discrete else f"{number:g}"
        for number in numbers_of(action, layout)
    )


def _actions_of(decision: Document) -> Iterator[Any]:
    """Yield the actions that a decision names: the one that was chosen, and those thought of."""
    yield decision["action"]
    for thought in (decision, decision.get("beside", {})):
        if "likeliest" in thought:
            yield thought["likeliest"]
        yield from (one["action"] for one in thought.get("choices", ()))


def turned_at(steps: list[Document]) -> int | None:
    """Return the step whose decision was followed by the largest fall of its player's own value.

    None: no player's value fell, or none is known.
    """
    last: dict[str, tuple[int, float]] = {}
    largest, found = 0.0, None
    for step in steps:
        for decision in step["decisions"]:
            value = decision.get("value")
            if value is None:
                continue
            agent = decision["agent"]
            if agent in last and last[agent][1] - value > largest:
                largest, found = last[agent][1] - value, last[agent][0]
            last[agent] = (step["step"], value)
    return found


def find_game(
    inspection: Inspection,
    *,
    player: str | None = None,
    opponent: str | None = None,
    worst: int | None = None,
    game: str | None = None,
) -> GameRow:
    """Find a game of a run.

    Args:
        inspection: The run.
        player: Player that took part, as `arena league` names it; None: the champion.
        opponent: Player that took part, too.
        worst: The N-th worst game of the player, from 1; None: its newest one.
        game: Id, instead of all others.

    Raises:
        ConfigError: If there is none.
    """
    games, run_dir = inspection.tables.games, inspection.run_dir
    if not games:
        raise ConfigError(f"{run_dir} has kept no games yet; replays.keep is the most it may")
    if game is not None:
        if game in games:
            return games[game]
        raise ConfigError(f"{run_dir} has kept no game {game!r}; its newest is {list(games)[-1]}")
    asked = [player, *([opponent] if opponent is not None else [])]
    names = [_names(inspection, one) for one in asked]
    found = [row for row in games.values() if all(places(row, each) for each in names)]
    ranked = found[::-1]
    if worst is not None:
        ranked = worst_games(found, names[0], seats=inspection.league.seats)
    place = (worst or 1) - 1
    if place < len(ranked):
        return ranked[place]
    who = " and ".join(one or "its champion" for one in asked)
    raise ConfigError(
        f"{run_dir} has kept {len(ranked)} games of {who}, so there is no number {place + 1}"
    )


def _names(inspection: Inspection, player: str | None) -> set[str]:
    """Return the names that a player has in games; None: the champions."""
    if player is None:
        return {str(reference.digest) for _, reference in champions(inspection).values()}
    # Of games nothing but the name may be left.
    if any(player in row.players for row in inspection.tables.games.values()):
        return {player}
    subject = find_player(player, inspection.tables, where=inspection.run_dir)
    return {str(subject.weights) if subject.weights else subject.player}
