"""Hand-written loop: a program for one game, without a league.

Connect Four on NumPy bitboards, one policy for both seats, PPO, one thread, nothing else: no
populations, no environments' view, no masks of who sits where. It is the bound of Arena's learner.
The game is its own, so that it stays a bound where Arena's twin of the game changes.

    python -m populations.commands.bench.loop 10 '{"num_games": 1024}'

Shapes: N games, T steps of a rollout, D = T * N decisions, M of a minibatch, 84 = 2 planes of 42
cells, 7 columns.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import numpy.typing as npt
import torch
from torch import nn

from arena.codec import from_json
from arena.types import Part

from .children import work_as_child
from .measure import Work

NUM_COLUMNS, NUM_ROWS = 7, 6
NUM_CELLS = NUM_COLUMNS * NUM_ROWS
COLUMN_BITS = NUM_ROWS + 1
"""A column's cells, and one bit that stays empty so that no line runs into the next column."""

BOTTOM = np.array([1 << COLUMN_BITS * column for column in range(NUM_COLUMNS)], dtype=np.int64)
# Bit of cell (column, row): 7 column + row
TOP = BOTTOM << (NUM_ROWS - 1)
FULL = np.int64(sum((int(bit) << NUM_ROWS) - int(bit) for bit in BOTTOM))
# Up, down to the right, to the right, up to the right
DIRECTIONS = (1, COLUMN_BITS - 1, COLUMN_BITS, COLUMN_BITS + 1)

GAMMA, GAE_LAMBDA, CLIP, ENTROPY, VALUE, MAX_NORM = 0.99, 0.95, 0.2, 0.01, 0.5, 0.5
LEARNING_RATE, ADAM_EPSILON = 1e-3, 1e-5
# The value is finite, because exp(-inf) * -inf would make the entropy NaN.
ILLEGAL = -1e9


class Games:
    """N games of Connect Four; those that end begin anew at once.

    A board is two sets of stones in 49 bits, column by column from the bottom up: those of the
    player on turn, and all.
    """

    def __init__(self, num_games: int) -> None:
        self.own = np.zeros(num_games, dtype=np.int64)
        self.stones = np.zeros(num_games, dtype=np.int64)

    def observation(self) -> npt.NDArray[np.float32]:
        """Return own stones, then the other's; columns from the left, cells from the bottom.
        [N, 84].
        """
        num_games = len(self.own)
        boards = np.stack((self.own, self.stones ^ self.own), axis=1)
        # int64 [N, 2] -> bits [N, 2, 64], lowest first on a little-endian machine
        bits = np.unpackbits(boards.view(np.uint8).reshape(num_games, 2, 8), -1, bitorder="little")
        # [N, 2, 49] -> [N, 2, 7, 7] -> [N, 2, 7, 6], without the empty bit of each column
        columns = bits[:, :, : NUM_COLUMNS * COLUMN_BITS]
        cells = columns.reshape(num_games, 2, NUM_COLUMNS, COLUMN_BITS)[..., :NUM_ROWS]
        return cells.astype(np.float32).reshape(num_games, 2 * NUM_CELLS)

    def legal(self) -> npt.NDArray[np.bool_]:
        """Return the columns with room. [N, 7]."""
        legal: npt.NDArray[np.bool_] = (self.stones[:, None] & TOP) == 0
        return legal

    def step(
        self, column: npt.NDArray[np.int64]
    ) -> tuple[npt.NDArray[np.bool_], npt.NDArray[np.bool_]]:
        """Drop a stone in each game.

        Returns:
            Whether the player who dropped it has won, and whether the game is over. bool [N] each.
        """
        other = self.stones ^ self.own
        # Adding the column's lowest bit carries to the lowest empty cell of the column.
        stones = self.stones | (self.stones + BOTTOM[column])
        mover = stones ^ other
        won = np.zeros(len(mover), dtype=np.bool_)
        for direction in DIRECTIONS:
            # A pair and another pair two steps away along the same direction make four in a row.
            pairs = mover & (mover >> direction)
            won |= (pairs & (pairs >> 2 * direction)) != 0
        over = won | (stones == FULL)
        # The boards are stored from the view of the player who is on turn next.
        self.own = np.where(over, 0, other)
        self.stones = np.where(over, 0, stones)
        return won, over


class LoopSettings(Part, frozen=True, kw_only=True):
    """Settings that the loop shares with the learner that is measured against it."""

    num_games: int = 1024
    rollout_length: int = 32
    num_epochs: int = 4
    num_minibatches: int = 4
    hidden_sizes: tuple[int, ...] = (128, 128)
    seed: int = 1


class _Network(nn.Module):
    """Seven logits and the value from one product."""

    def __init__(self, hidden_sizes: Sequence[int]) -> None:
        super().__init__()
        sizes = [2 * NUM_CELLS, *hidden_sizes]
        layers: list[nn.Module] = []
        for size, next_size in pairwise(sizes):
            layers += [nn.Linear(size, next_size), nn.ReLU()]
        head = nn.Linear(sizes[-1], NUM_COLUMNS + 1)
        # A small head makes the first policy nearly uniform and the first values nearly 0.
        nn.init.orthogonal_(head.weight, 0.01)
        self.layers = nn.Sequential(*layers, head)

    def forward(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        outputs = self.layers(observation)
        return outputs[:, :NUM_COLUMNS], outputs[:, NUM_COLUMNS]


def _log_probs(logits: torch.Tensor, legal: torch.Tensor) -> torch.Tensor:
    # log p_a = l_a - log sum_b e^(l_b) over legal b
    masked = torch.where(legal, logits, ILLEGAL)
    return masked - masked.logsumexp(dim=1, keepdim=True)


class HandWrittenLoop:
    """Loop that plays and learns; one call of `iterate` is one rollout and its update."""

    def __init__(self, settings: LoopSettings) -> None:
        self._settings = settings
        torch.manual_seed(settings.seed)
        self._games = Games(settings.num_games)
        self._network = _Network(settings.hidden_sizes)
        self._optimizer = torch.optim.Adam(
            self._network.parameters(), lr=LEARNING_RATE, eps=ADAM_EPSILON, fused=True
        )
        shape = (settings.rollout_length, settings.num_games)
        self._observation = torch.empty(*shape, 2 * NUM_CELLS)
        self._legal = torch.empty(*shape, NUM_COLUMNS, dtype=torch.bool)
        self._action = torch.empty(shape, dtype=torch.int64)
        self._log_prob = torch.empty(shape)
        # The extra row holds V(s_T), from which the last advantages are bootstrapped.
        self._value = torch.empty(settings.rollout_length + 1, settings.num_games)
        self._reward = torch.empty(shape)
        self._goes_on = torch.empty(shape)

    def iterate(self) -> int:
        """Play T steps, learn from them, and return the number of decisions."""
        self._play()
        advantage = self._advantages()
        self._learn(advantage, target=advantage + self._value[:-1])
        return self._settings.rollout_length * self._settings.num_games

    @torch.no_grad()
    def _play(self) -> None:
        for t in range(self._settings.rollout_length):
            observation = torch.from_numpy(self._games.observation())
            legal = torch.from_numpy(self._games.legal())
            logits, value = self._network(observation)
            log_probs = _log_probs(logits, legal)
            # The argmax of log-probabilities with Gumbel noise is a sample.
            noise = torch.empty_like(log_probs).exponential_().log_()
            action = (log_probs - noise).argmax(dim=1)
            self._observation[t] = observation
            self._legal[t] = legal
            self._action[t] = action
            self._log_prob[t] = log_probs.gather(1, action[:, None])[:, 0]
            self._value[t] = value
            won, over = self._games.step(action.numpy())
            # The reward is 1 for a winning move, else 0; a loss enters by the negated value of the
            # next state.
            self._reward[t] = torch.from_numpy(won)
            self._goes_on[t] = torch.from_numpy(~over)
        self._value[-1] = self._network(torch.from_numpy(self._games.observation()))[1]

    @torch.no_grad()
    def _advantages(self) -> torch.Tensor:
        """Return advantages in zero-sum self-play: the next state's value is the other player's."""
        advantage = torch.empty_like(self._reward)
        ahead = torch.zeros(self._settings.num_games)
        for t in reversed(range(self._settings.rollout_length)):
            # delta_t = r_t - gamma V(s_{t+1}) - V(s_t);  A_t = delta_t - gamma lambda A_{t+1}
            discount = GAMMA * self._goes_on[t]
            delta = self._reward[t] - discount * self._value[t + 1] - self._value[t]
            ahead = delta - GAE_LAMBDA * discount * ahead
            advantage[t] = ahead
        return advantage

    def _learn(self, advantage: torch.Tensor, *, target: torch.Tensor) -> None:
        settings = self._settings
        deviation, mean = torch.std_mean(advantage)
        # [T, N, ...] -> [T * N, ...]
        rows = (
            self._observation.flatten(0, 1),
            self._legal.flatten(0, 1),
            self._action.flatten(),
            self._log_prob.flatten(),
            ((advantage - mean) / (deviation + 1e-8)).flatten(),
            target.flatten(),
        )
        num_rows = len(rows[0])
        for _ in range(settings.num_epochs):
            for index in torch.randperm(num_rows).tensor_split(settings.num_minibatches):
                self._step(*(tensor.index_select(0, index) for tensor in rows))

    def _step(
        self,
        observation: torch.Tensor,
        legal: torch.Tensor,
        action: torch.Tensor,
        old_log_prob: torch.Tensor,
        advantage: torch.Tensor,
        target: torch.Tensor,
    ) -> None:
        logits, value = self._network(observation)
        log_probs = _log_probs(logits, legal)
        # H = -sum_a p_a log p_a; illegal actions have p = 0.
        entropy = -(log_probs.exp() * log_probs).sum(dim=1).mean()
        # r = pi(a) / pi_old(a);  L = -min(r A, clip(r, 1 - eps, 1 + eps) A)
        ratio = (log_probs.gather(1, action[:, None])[:, 0] - old_log_prob).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean()
        # L + c_v (V - target)^2 - c_e H
        loss = policy_loss + VALUE * (value - target).square().mean() - ENTROPY * entropy
        self._optimizer.zero_grad(set_to_none=True)
        loss.backward()
        nn.utils.clip_grad_norm_(self._network.parameters(), MAX_NORM)
        self._optimizer.step()


def _work(settings: str) -> Work:
    """Return the loop with settings in JSON."""
    return HandWrittenLoop(from_json(settings.encode(), LoopSettings)).iterate


if __name__ == "__main__":
    work_as_child(_work)
