"""Games of an evaluation as they can be played again: a seed, the actions, and what was shown.

Of a few environments the first game is recorded; which ones is settled before it begins, so what
is recorded does not depend on how games go. Nothing but rows of these environments is read. Played
again in a batch of one environment, a game is checked step by step.

Shapes: B environments, R recorded ones.

Tests: `tests/arena/games/test_recording.py`.
"""

from __future__ import annotations

import zlib
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b

import numpy as np
import torch

from arena.envs.base import BatchedEnv, Phase, Told, Turn
from arena.envs.chance import seed_of_episode
from arena.errors import ArenaError, EnvironmentFault
from arena.types import MAX_GAME_BYTES, MAX_GAMES_BYTES, SHOWN_BYTES, Game

MOST_OF_A_PAIRING = 2
"""Most games of one pairing; more games of equal seatings would add little information."""


def shown(turn: Turn, environments: torch.Tensor) -> list[bytes]:
    """Return digests of what a turn shows and pays.

    Where an episode is over, the turn shows the beginning of another one, which is left out.

    Args:
        turn: Turn of B environments.
        environments: Indices of environments. int64 [R].

    Returns:
        `SHOWN_BYTES` for each of them.
    """
    goes_on = ~turn.episode_over[environments]
    # A score is NaN until the end, and different NaNs must have equal digests.
    paid = [turn.reward, turn.terminated, turn.truncated, turn.score.nan_to_num()]
    columns = [column[environments] for column in paid]
    for group in turn.groups.values():
        index = group.agent_index[environments].masked_fill(~goes_on[:, None], -1)
        # Observations without a decision are undefined, so they must not count.
        nobody = (index < 0)[:, :, None]
        columns += [index, group.observation[environments].masked_fill(nobody, 0)]
        if group.action_mask is not None:
            columns.append(group.action_mask[environments].masked_fill(nobody, False))
    arrays = [column.cpu().contiguous().numpy() for column in columns]
    rows = (b"".join(array[row].tobytes() for array in arrays) for row in range(len(environments)))
    return [blake2b(row, digest_size=SHOWN_BYTES).digest() for row in rows]


@dataclass(slots=True)
class _Open:
    """Game that goes on. Its actions are packed as they come: a long game's are never held."""

    actions: bytearray = field(default_factory=bytearray)
    shown: bytearray = field(default_factory=bytearray)
    packer: zlib._Compress = field(default_factory=zlib.compressobj)

    @property
    def size_bytes(self) -> int:
        """Return the bytes that keeping it takes."""
        return len(self.actions) + len(self.shown)


class GameRecorder:
    """Records the first game of some environments. Owned by the loop that steps them.

    Attributes:
        games: Games so far, at most `MAX_GAMES_BYTES` together.
        num_left_out: Games that were too long.

    Args:
        most: Most games.
    """

    def __init__(self, most: int = 0) -> None:
        self.games: list[Game] = []
        self.num_left_out = 0
        self._most = most
        self._bytes_left = MAX_GAMES_BYTES
        self._pairing_of: Mapping[int, int] = {}
        self._open: dict[int, _Open] = {}
        self._ended: set[tuple[int, tuple[int, ...]]] = set()
        self._rows = torch.zeros(0, dtype=torch.int64)
        self._seeds: Sequence[int] = ()
        self._seats: tuple[int, ...] = ()
        self._mean = torch.zeros(0, 0)

    def choose(self, shares: Sequence[tuple[int, int]], *, num_plays: int = 1) -> None:
        """Choose environments of the matches that come next, as `recorded_environments` does.

        Args:
            shares: Pairing of each block of environments and their number.
            num_plays: Plays of a match, each of which is a game.
        """
        most = (self._most - len(self.games)) // num_plays
        self._pairing_of, self._ended = recorded_environments(shares, most=most), set()

    def begin(
        self, turn: Turn, *, seeds: Sequence[int], seats: tuple[int, ...], mean: torch.Tensor
    ) -> None:
        """Begin the games of a play that was reset just now.

        Args:
            turn: First turn.
            seeds: Seeds of the environments. Length B.
            seats: Indices of the seats that take part.
            mean: Matrix from returns of agents to mean returns of these seats. float64 [A, Q].
        """
        self._open = {
            environment: _Open()
            for environment in self._pairing_of
            # A play that is repeated after a void episode keeps its recorded game, if there is
            # one.
            if (environment, seats) not in self._ended
        }
        self._seeds, self._seats, self._mean = seeds, seats, mean
        self._narrow(turn.reward.device)
        self._look(turn)

    def absorb(self, actions: Mapping[str, torch.Tensor]) -> None:
        """Add the actions of a step. int64 [B, S] or float32 [B, S, K], by population."""
        if not self._open:
            return
        # The order of populations is that of the environment's turns.
        chosen = [rows[self._rows].cpu().contiguous().numpy() for rows in actions.values()]
        for place, game in enumerate(self._open.values()):
            game.actions += game.packer.compress(b"".join(rows[place].tobytes() for rows in chosen))

    def record(self, turn: Turn, *, lengths: torch.Tensor, returns: torch.Tensor) -> None:
        """Take in what a step brought.

        Args:
            turn: Turn after the step.
            lengths: Steps of each episode until now. int64 [B].
            returns: Undiscounted, of each agent until now. float64 [B, A].
        """
        if not self._open:
            return
        self._look(turn)
        over = turn.episode_over[self._rows].tolist()
        for place, (environment, game) in enumerate([*self._open.items()]):
            if over[place]:
                self._end(turn, environment, game, int(lengths[environment]), returns)
            elif game.size_bytes > MAX_GAME_BYTES:
                self.num_left_out += 1
            else:
                continue
            del self._open[environment]
        if len(self._open) < len(over):
            self._narrow(turn.reward.device)

    def _narrow(self, device: torch.device) -> None:
        self._rows = torch.tensor(list(self._open), dtype=torch.int64, device=device)

    def _look(self, turn: Turn) -> None:
        if self._open:
            for game, digest in zip(self._open.values(), shown(turn, self._rows), strict=True):
                game.shown += digest

    def _end(
        self, turn: Turn, environment: int, game: _Open, length: int, returns: torch.Tensor
    ) -> None:
        if turn.void is not None and bool(turn.void[environment]):
            return
        self._ended.add((environment, self._seats))
        game.actions += game.packer.flush()
        if game.size_bytes > min(MAX_GAME_BYTES, self._bytes_left):
            self.num_left_out += 1
            return
        self._bytes_left -= game.size_bytes
        episode = 0 if turn.episode is None else int(turn.episode[environment])
        score = turn.score[environment].tolist()
        self.games.append(
            Game(
                pairing=self._pairing_of[environment],
                seats=self._seats,
                seed=seed_of_episode(self._seeds[environment], episode=episode),
                steps=length,
                points=tuple(score) if len(score) > 1 else (),
                returns=tuple((returns[environment].cpu() @ self._mean).tolist()),
                actions=bytes(game.actions),
                shown=bytes(game.shown),
            )
        )


def recorded_environments(shares: Sequence[tuple[int, int]], *, most: int) -> dict[int, int]:
    """Choose the environments whose first game is recorded, as many pairings as there can be.

    Args:
        shares: Pairing of each block of environments and their number, in order of environments.
        most: Most environments.

    Returns:
        Pairing of each of them, by environment.
    """
    seen: Counter[int] = Counter()
    ranked = []
    pairings = (pairing for pairing, num_envs in shares for _ in range(num_envs))
    for environment, pairing in enumerate(pairings):
        ranked.append((seen[pairing], environment, pairing))
        seen[pairing] += 1
    few = [one for one in sorted(ranked) if one[0] < MOST_OF_A_PAIRING]
    return {environment: pairing for _, environment, pairing in few[:most]}


class GameParted(ArenaError):
    """The environment does not show what it showed in the game."""


def replay(
    env: BatchedEnv, game: Game, *, phase: Phase | None = None, is_over: bool = True
) -> Iterator[tuple[Turn, Mapping[str, torch.Tensor] | None]]:
    """Play a recorded game again.

    A turn is valid until the next one is asked for.

    Args:
        env: One environment, as matches of the run are played in.
        game: The game.
        phase: Phase that the environment is told before, if it wants to know.
        is_over: Whether the game was played to its end.

    Yields:
        The turn (B = 1) before each step and after the last one, once its digest was found to be
        that of the game, with the actions that were chosen at it, by population; None at the end.

    Raises:
        GameParted: If the environment shows or pays something else than in the game, does not take
            an action of it, breaks, or ends elsewhere.
        EnvironmentFault: If the environment breaks at its reset.
    """
    if phase is not None and isinstance(env, Told):
        env.tell([phase])
    here = torch.zeros(1, dtype=torch.int64)
    turn = env.reset([game.seed])
    actions = _actions(game, turn)
    for step in range(game.steps + 1):
        digest = game.shown[SHOWN_BYTES * step : SHOWN_BYTES * (step + 1)]
        if shown(turn, here.to(turn.reward.device)) != [digest]:
            raise GameParted(
                f"at step {step} of {game.steps} it shows or pays something else than in the game"
            )
        chosen = next(actions, None)
        if chosen is None and is_over and not bool(turn.episode_over[0]):
            raise GameParted(f"after step {game.steps} it goes on, where the game was over")
        yield turn, chosen
        if chosen is not None:
            try:
                turn = env.step(chosen)
            # A recorded game contains no fault, so a fault means that the environment differs.
            except (ValueError, EnvironmentFault) as error:
                raise GameParted(f"at step {step} of {game.steps} it refuses: {error}") from error


def _actions(game: Game, turn: Turn) -> Iterator[dict[str, torch.Tensor]]:
    """Yield the actions of each step of a game, by population, B = 1."""
    blank = {name: group.new_actions() for name, group in turn.groups.items()}
    fields = ((name, one.cpu().numpy()) for name, one in blank.items())
    step = np.dtype([(name, one.dtype, one.shape) for name, one in fields])
    wanted = game.steps * step.itemsize
    unpacker = zlib.decompressobj()
    try:
        # Decompression is bounded, because packed data may expand far beyond the expected size.
        data = bytearray(unpacker.decompress(game.actions, max(wanted, 1)))
    except zlib.error as error:
        raise GameParted(f"its actions cannot be read: {error}") from error
    if len(data) != wanted or unpacker.unconsumed_tail:
        raise GameParted(
            f"its actions are {len(data)} bytes, and {game.steps} steps of this environment have "
            f"{wanted}"
        )
    for rows in np.ndarray(game.steps, step, data):
        yield {name: torch.from_numpy(rows[name]).to(one.device) for name, one in blank.items()}
