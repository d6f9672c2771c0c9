"""A game that was kept, played again and told: who decided what, how likely that was, what it paid.

What comes out is the document of ``arena replay --json``; text, pages and films are made of it.

Tests: `tests/tools/replay/test_retelling.py`.
"""

from __future__ import annotations

import base64
import math
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ..players.game import Game
from ..players.in_run import champions, find_in_run

if TYPE_CHECKING:
    import torch

    from arena.envs.base import Group
    from arena.envs.spaces.actions import ActionLayout
    from arena.games.replay import Moment
    from arena.networks.frozen import FrozenPolicy
    from populations.inspection.views import Inspection
    from populations.records.rows import GameRow

Document = dict[str, Any]

MOST_CHOICES = 5
"""Likeliest actions of a decision that are told."""


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Retold:
    """Game that was told.

    Attributes:
        document: Document of `Retelling.tell`, with pictures.
        populations: Names of the run's populations.
    """

    document: Document
    populations: tuple[str, ...]


def retold(
    run_dir: Path,
    *,
    player: str | None = None,
    opponent: str | None = None,
    worst: int | None = None,
    game: str | None = None,
    beside: str | None = None,
    has_pictures: bool = True,
    trust: bool = False,
) -> Retold:
    """Find a game of a run, and tell it; the arguments are those of `find_game`.

    Args:
        run_dir: The run, or the file of a game that a person played.
        player: Player that took part.
        opponent: Player that took part, too.
        worst: The N-th worst game of the player.
        game: Id.
        beside: Player of whom it is told what it would have done.
        has_pictures: Whether its steps are drawn.
        trust: Whether code that run.yaml names may be imported, wherever it is from.

    Raises:
        ConfigError: If there is no such run, game or player.
        NotTrusted: If the run names code that nobody vouches for.
        GameParted: If the environment shows something else than in the game.
    """
    from populations.config.run_file import learner_setup
    from populations.config.trust import word_for_run
    from populations.inspection.views import Inspection

    if run_dir.is_file():
        return _retold_file(run_dir, has_pictures=has_pictures, trust=trust)
    with closing(Inspection.open(run_dir)) as inspection:
        row = find_game(inspection, player=player, opponent=opponent, worst=worst, game=game)
        setup = learner_setup(inspection.run_file, root=run_dir)
        word = word_for_run(inspection.run_file, run_dir, trust=trust)
        telling = Retelling(inspection, Game.of_setup(setup, word=word))
        document = telling.tell(row, beside=beside)
        if has_pictures:
            telling.draw(document)
    return Retold(document=document, populations=tuple(setup.populations))


def _retold_file(path: Path, *, has_pictures: bool, trust: bool) -> Retold:
    from .saved import read_game

    document, game = read_game(path, trust=trust)
    telling = Retelling(None, game, trust=trust)
    told = telling.tell(document.row, is_over=document.is_over)
    if has_pictures:
        telling.draw(told)
    return Retold(document=told, populations=tuple(game.populations))


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
        from arena.envs.base import Phase
        from arena.envs.phase import players_of_agents
        from arena.games.replay import replay
        from arena.types import is_bot

        seats = [self._game.seats[seat] for seat in row.seats]
        players = players_of_agents(seats, row.players)
        minds, notes = self._minds(row)
        others = self._others(row, beside)
        phase = Phase(name="evaluation", agent_steps=None, players=players)
        steps: list[Document] = []
        with closing(self._game.make_env(1)) as env, _named(row, self._game.spec.id):
            for moment in replay(env, row.recorded, phase=phase, is_over=is_over):
                rewards = moment.turn.reward[0].tolist() if moment.step else []
                steps.append(
                    {
                        "step": moment.step,
                        "rewards": dict(zip(env.agents, rewards, strict=False)),
                        "decisions": list(
                            self._decisions(moment, env.agents, players, minds, others)
                        ),
                    }
                )
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
                    "points": self._points(row, place),
                    "return": row.returns[place],
                }
                for place, (seat, player, entrant) in enumerate(
                    zip(seats, row.players, row.entrants, strict=True)
                )
            ],
            "turned": turned_at(steps),
            "notes": notes,
            "steps": steps,
        }

    def draw(self, document: Document) -> None:
        """Add a picture to each step, as many as there are, and say why others are missing.

        Drawn by a process of its own: an environment may hang or break as it renders.
        """
        from arena.drawings.draw import draw_game
        from arena.drawings.picture import Game as Drawable
        from arena.envs.chance import episode_seed

        environment = self._game.environment
        turns = [
            {one["agent"]: draw_of(one["action"]) for one in step["decisions"]}
            for step in document["steps"]
        ]
        drawn = draw_game(
            Drawable(
                spec=self._game.spec,
                seed=episode_seed(document["seed"], episode=0),
                # Nobody decides at the end.
                turns=tuple(turns[:-1]),
                launch_directory=self._game.launch_directory,
                possible_agents=environment.possible_agents,
                continuous_actions=environment.continuous_actions,
            )
        )
        if drawn.problem:
            document["notes"].append(drawn.problem)
        paid = {
            agent: sum(step["rewards"].get(agent, 0.0) for step in document["steps"])
            for agent in drawn.returns
        }
        # The process that draws plays it by steppers of its own, without digests.
        if not drawn.problem and not all(
            math.isclose(drawn.returns[agent], paid[agent], rel_tol=1e-5, abs_tol=1e-5)
            for agent in paid
        ):
            document["notes"].append(
                f"pictures are left out: as it was drawn it paid {dict(drawn.returns)}, not {paid}"
            )
            return
        for step, picture in zip(document["steps"], drawn.pictures, strict=False):
            step["picture"] = {
                "text": picture.text,
                "svg": picture.svg,
                "png": base64.b64encode(picture.png).decode(),
            }

    def _points(self, row: GameRow, place: int) -> float | None:
        if not row.points:
            return None
        sides = list(dict.fromkeys(seat.side for seat in self._game.seats))
        return row.points[sides.index(self._game.seats[row.seats[place]].side)]

    def _minds(self, row: GameRow) -> tuple[dict[str, Mind], list[str]]:
        """Return the players whose weights are still there, by agent, and which are not."""
        from arena.types import is_bot

        minds: dict[str, Mind] = {}
        notes: dict[str, None] = {}
        told = zip(row.seats, row.players, row.entrants, row.keys, strict=True)
        for seat, player, entrant, key in told:
            if not entrant or is_bot(player):
                continue
            mind = self._mind(player, entrant, key)
            if mind is None:
                notes[f"the weights of {player} are gone: what it thought is not known"] = None
            else:
                minds.update(dict.fromkeys(self._game.seats[seat].agents, mind))
        return minds, list(notes)

    def _others(self, row: GameRow, beside: str | None) -> dict[str, Mind]:
        """Return who looks on, by agent: the champion, or whom the user names."""
        from arena.errors import ConfigError
        from arena.types import population_of

        found = {}
        if self._inspection is None:
            return {}
        if beside is not None:
            named = find_in_run(self._inspection, beside)
            found = {population_of(named[0]): named}
        else:
            # Nobody is rated yet.
            with suppress(ConfigError):
                found = champions(self._inspection)
        minds: dict[str, Mind] = {}
        for seat, entrant in zip(row.seats, row.entrants, strict=True):
            place = self._game.seats[seat]
            player, reference = found.get(place.population, ("", None))
            # Its own thoughts are told in any case.
            if reference is None or str(reference.digest) == entrant:
                continue
            mind = self._mind(player, reference.digest, reference.key)
            if mind is not None:
                minds.update(dict.fromkeys(place.agents, mind))
        return minds

    def _mind(self, player: str, entrant: str, key: str) -> Mind | None:
        """Load a policy of the run; None: its weights are gone, or were never its own."""
        from arena.errors import CheckpointError
        from arena.types import Digest, WeightsRef, is_external

        from ..players.weights import load_policy

        if self._inspection is None:
            return self._mind_by_name(player, entrant)
        if is_external(player):
            return None
        reference = WeightsRef(digest=Digest(entrant), key=key)
        try:
            _, weights = load_policy(self._inspection, player, reference, word=self._game.word)
        except CheckpointError:
            return None
        return Mind(player=player, policy=weights.make_policy(self._game))

    def _mind_by_name(self, player: str, entrant: str) -> Mind | None:
        """Load a player by the name that a file has for it; None: it is gone, or another one."""
        from arena.errors import ArenaError

        from ..players.resolve import resolve_player
        from ..players.weights import MixtureWeights

        try:
            found = resolve_player(player, trust=self._trust)
            for weights in found.policies.values():
                members = weights.members if isinstance(weights, MixtureWeights) else (weights,)
                for one in members:
                    if str(one.digest) == entrant:
                        return Mind(player=player, policy=one.make_policy(self._game))
        except ArenaError:
            return None
        return None

    def _decisions(
        self,
        moment: Moment,
        agents: tuple[str, ...],
        players: Mapping[str, str],
        minds: Mapping[str, Mind],
        others: Mapping[str, Mind],
    ) -> Iterator[Document]:
        """Yield what is decided at a moment."""
        if moment.actions is None:
            return
        for population, group in moment.turn.groups.items():
            layout = self._layouts[population]
            for slot, index in enumerate(group.agent_index[0].tolist()):
                if index < 0:
                    continue
                agent = agents[index]
                action = moment.actions[population][0, slot]
                decision: Document = {
                    "agent": agent,
                    "player": players[agent],
                    "action": told_action(action, layout),
                }
                if agent in minds:
                    decision |= thoughts(minds[agent], agent, group, slot, action, layout)
                if agent in others:
                    seen = thoughts(others[agent], agent, group, slot, action, layout)
                    decision["beside"] = {
                        "player": others[agent].player,
                        "action": seen["likeliest"],
                        "probability": seen["probability"],
                        "value": seen["value"],
                    }
                yield decision


def draw_of(action: int | list[float]) -> int | tuple[float, ...]:
    """Return an action of the document as a drawing takes it."""
    return tuple(action) if isinstance(action, list) else action


@contextmanager
def _named(row: GameRow, environment: str) -> Iterator[None]:
    """Say of which game it is that another one comes out."""
    from arena.games.replay import GameParted

    try:
        yield
    except GameParted as error:
        raise GameParted(
            f"game {row.game} cannot be shown: {environment} was changed since, or does not follow "
            f"its seed: {error}"
        ) from None


def thoughts(
    mind: Mind, agent: str, group: Group, slot: int, action: torch.Tensor, layout: ActionLayout
) -> Document:
    """Return what a policy thinks of a decision, and of the action that was chosen."""
    import torch

    from arena.core import ActorInput
    from arena.networks.distributions import Categorical

    state = None
    if mind.policy.state_size:
        state = mind.states.get(agent, torch.zeros(1, mind.policy.state_size))
    mask = None if group.action_mask is None else group.action_mask[:, slot]
    judged = mind.policy.judge(
        ActorInput(observation=group.observation[:, slot], action_mask=mask, recurrent_state=state)
    )
    if judged.recurrent_state is not None:
        mind.states[agent] = judged.recurrent_state
    distribution = judged.distribution
    probability = None
    # A density is no probability.
    if not layout.num_continuous:
        probability = float(distribution.log_prob(action[None]).exp())
    told: Document = {
        "likeliest": told_action(distribution.greedy()[0], layout),
        "probability": probability,
        "value": None if judged.value is None else float(judged.value[0]),
    }
    if isinstance(distribution, Categorical):
        chances = distribution.log_probs[0].exp()
        # Of equal ones the first: an untrained policy's are all alike.
        best = chances.sort(descending=True, stable=True)
        told["choices"] = [
            {"action": int(index), "probability": float(chance)}
            for chance, index in zip(best.values[:MOST_CHOICES], best.indices, strict=False)
            if chance > 0
        ]
    return told


def told_action(action: torch.Tensor, layout: ActionLayout) -> Any:  # noqa: ANN401
    """Return an action as JSON has it: an integer from 0, or its choices and numbers."""
    return int(action) if layout.is_discrete else action.tolist()


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
    from arena.errors import ConfigError
    from populations.records.games import places, worst_games

    games, run_dir = inspection.tables.games, inspection.run_dir
    if not games:
        raise ConfigError(f"{run_dir} has kept no games yet; replays.keep is the most it may")
    if game is not None:
        if game in games:
            return games[game]
        raise ConfigError(f"{run_dir} has kept no game {game!r}; its newest is {list(games)[-1]}")
    names = [
        {str(reference.digest) for _, reference in champions(inspection).values()}
        if player is None
        else _names(inspection, player)
    ]
    if opponent is not None:
        names.append(_names(inspection, opponent))
    found = [row for row in games.values() if all(places(row, each) for each in names)]
    seats = inspection.league.seats
    ranked = found[::-1] if worst is None else worst_games(found, names[0], seats=seats)
    place = (worst or 1) - 1
    if place < len(ranked):
        return ranked[place]
    who = " and ".join([player or "its champion", *([opponent] if opponent else [])])
    raise ConfigError(
        f"{run_dir} has kept {len(ranked)} games of {who}, so there is no number {place + 1}"
    )


def _names(inspection: Inspection, player: str) -> set[str]:
    """Return the names that a player has in games."""
    from populations.league.names import find_player

    played = {name for row in inspection.tables.games.values() for name in row.players}
    # Of games nothing but the name may be left.
    if player in played:
        return {player}
    subject = find_player(player, inspection.tables, where=inspection.run_dir)
    return {str(subject.weights) if subject.weights else subject.player}
