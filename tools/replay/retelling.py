"""A game that was kept, played again and told: who decided what, how likely that was, what it paid.

What comes out is the document of ``arena replay --json``; text, pages and films are made of it.

Tests: `tests/tools/replay/test_retelling.py`.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, suppress
from dataclasses import asdict, dataclass, field
from functools import partial
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
from arena.errors import ArenaError, CheckpointError, ConfigError
from arena.games.recording import GameParted, replay
from arena.networks.distributions import Categorical
from arena.networks.frozen import FrozenPolicy
from arena.spaces import ActionLayout
from arena.types import Digest, Seat, WeightsRef, is_bot, is_external, population_of
from populations.config.run_file import learner_setup
from populations.config.trust import Word, word_for_run
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

Reached = tuple[Turn, Mapping[str, torch.Tensor] | None]
"""Turn, and the actions that were chosen at it; None at the end."""

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
        weights_of = partial(_weights_by_name, trust=trust)
        document = Retelling(played, saved.row, weights_of, {}).tell(is_over=saved.is_over)
    else:
        with closing(Inspection.open(run_dir)) as inspection:
            row = find_game(inspection, player=player, opponent=opponent, worst=worst, game=game)
            setup = learner_setup(inspection.run_file, root=run_dir)
            word = word_for_run(inspection.run_file, run_dir, trust=trust)
            played = Game.of_setup(setup, word=word)
            weights_of = partial(_weights_in_run, inspection, word)
            document = Retelling(played, row, weights_of, _onlookers(inspection, beside)).tell()
            if (openings := setup.match_openings).share:
                document["notes"].append(
                    f"{openings.share:.0%} of the matches begin with random decisions, at most "
                    f"{openings.max_decisions}, which no player chose (evaluation.random_openings)"
                )
    draw(document, played)
    return Opened(document, tuple(played.populations))


def _weights_by_name(player: str, entrant: str, _: str, *, trust: bool) -> PolicyWeights | None:
    """Load a player that the command line has named; None: it is gone, or another one by now."""
    with suppress(ArenaError):
        for found in resolve_player(player, trust=trust).policies.values():
            for one in found.members if isinstance(found, MixtureWeights) else (found,):
                if str(one.digest) == entrant:
                    return one
    return None


def _weights_in_run(
    inspection: Inspection, word: Word, player: str, entrant: str, key: str
) -> PolicyWeights | None:
    """Load a player of the run; None: its weights are gone, or others by now."""
    with suppress(CheckpointError):
        if not is_external(player):
            reference = WeightsRef(digest=Digest(entrant), key=key)
            return load_policy(inspection, player, reference, word=word)[1]
    return None


def _onlookers(inspection: Inspection, beside: str | None) -> Mapping[str, tuple[str, WeightsRef]]:
    """Return who looks on, by population: the champions, or whom the user names."""
    if beside is not None:
        named = find_in_run(inspection, beside)
        return {population_of(named[0]): named}
    with suppress(ConfigError):
        return champions(inspection)
    # No player is rated yet.
    return {}


class Retelling:
    """Tells a game.

    Args:
        game: Environment and its players' places, with the user's word for its code.
        row: The game.
        weights_of: Function that loads weights by a player's name, their digest and directory.
        onlookers: Players with their weights, by population, of whom is told what they would have
            done.
    """

    def __init__(
        self,
        game: Game,
        row: GameRow,
        weights_of: Callable[[str, str, str], PolicyWeights | None],
        onlookers: Mapping[str, tuple[str, WeightsRef]],
    ) -> None:
        self._game, self._row, self._weights_of = game, row, weights_of
        self._layouts = game.action_layouts()
        seats = [game.seats[seat] for seat in row.seats]
        self._seated = list(zip(seats, row.players, row.entrants, row.keys, strict=True))
        self._players = players_of_agents(seats, row.players)
        own = (one for one in self._seated if one[2] and not is_bot(one[1]))
        self._minds, self._gone = self._loaded(own)
        # An onlooker with the same weights as the player would only repeat the player's own output.
        beside = (
            (seat, one[0], one[1].digest, one[1].key)
            for seat, _, entrant, _ in self._seated
            if (one := onlookers.get(seat.population)) and str(one[1].digest) != entrant
        )
        self._others, _ = self._loaded(beside)

    def tell(self, *, is_over: bool = True) -> Document:
        """Play the game again and tell it.

        Args:
            is_over: Whether it was played to its end.

        Raises:
            GameParted: If the environment shows something else than it did.
        """
        row, sides = self._row, [*self._game.sides]
        phase = Phase(name="evaluation", agent_steps=None, players=self._players)
        try:
            with closing(self._game.make_env(1)) as env:
                turns = replay(env, row, phase=phase, is_over=is_over)
                steps = [self._step(*one, agents=env.agents) for one in enumerate(turns)]
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
                for (seat, player, entrant, _), paid in zip(self._seated, row.returns, strict=True)
            ],
            "turned": turned_at(steps),
            "notes": [
                f"the weights of {player} are gone: what it thought is not known"
                for player in self._gone
            ],
            "steps": steps,
        }

    def _loaded(self, seated: Iterable[Seated]) -> tuple[dict[str, Mind], list[str]]:
        """Return the players whose weights are there, by agent, and those whose are gone."""
        minds: dict[str, Mind] = {}
        gone: dict[str, None] = {}
        for seat, player, entrant, key in seated:
            weights = self._weights_of(player, entrant, key)
            if weights is None:
                gone[player] = None
            else:
                mind = Mind(player=player, policy=weights.make_policy(self._game))
                minds.update(dict.fromkeys(seat.agents, mind))
        return minds, list(gone)

    def _step(self, step: int, reached: Reached, agents: tuple[str, ...]) -> Document:
        """Return what was paid before a step, and what is decided for it."""
        turn, actions = reached
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
                    "player": self._players[agent],
                    "action": told_action(action, layout),
                }
                if mind := self._minds.get(agent):
                    decision |= thoughts(mind, agent, group, slot, action, layout)
                if mind := self._others.get(agent):
                    seen = thoughts(mind, agent, group, slot, action, layout)
                    decision["beside"] = {"player": mind.player, **seen}
                decisions.append(decision)
                moves[agent] = {str(one): said_action(one, layout) for one in _actions_of(decision)}
        return {
            "step": step,
            "rewards": dict(zip(agents, rewards, strict=False)),
            "decisions": decisions,
            # Moves are written as people type them; games with names for moves are drawn by those.
            "moves": moves,
        }


def draw(document: Document, game: Game) -> None:
    """Add a picture and names of moves to each step, as far as there are some, and say why pictures
    are missing.

    Drawn by a process of its own: an environment may hang or break as it renders.
    """
    steps = document["steps"]
    turns = [{one["agent"]: one["action"] for one in step["decisions"]} for step in steps]
    named = [step["moves"] for step in steps]
    # The last step has no decision, so its turn is left out.
    drawn = draw_game(drawable(game, seed=document["seed"], turns=turns[:-1], named=named))
    for step, names in zip(steps, drawn.names, strict=False):
        step["moves"] = names
    paid = {
        agent: sum(step["rewards"].get(agent, 0.0) for step in steps) for agent in drawn.returns
    }
    if drawn.problem:
        document["notes"].append(drawn.problem)
    # The drawing process replays the game without digests, so only the returns can be compared.
    elif not all(math.isclose(drawn.returns[one], paid[one], **NEAR) for one in paid):
        document["notes"].append(
            f"pictures are left out: as it was drawn it paid {dict(drawn.returns)}, not {paid}"
        )
        return
    for step, picture in zip(steps, drawn.pictures, strict=False):
        step["picture"] = asdict(picture)


def drawable(
    game: Game,
    *,
    seed: int,
    turns: Sequence[Mapping[str, int | list[float]]],
    named: Sequence[Mapping[str, Mapping[str, str]]] = (),
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
        # A density is not a probability, so the entry is null for continuous actions.
        "probability": chance,
        "value": None if value is None else float(value[0]),
    }
    if isinstance(distribution, Categorical):
        chances = enumerate(distribution.log_probs[0].exp().tolist())
        # The sort is stable: the first of equal moves are kept, as for an untrained policy.
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
    # Games may name a player whose other rows have been removed.
    if any(player in row.players for row in inspection.tables.games.values()):
        return {player}
    subject = find_player(player, inspection.tables, where=inspection.run_dir)
    return {str(subject.weights) if subject.weights else subject.player}
