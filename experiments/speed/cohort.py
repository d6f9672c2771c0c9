"""Hand-written cohort: P policies that play Connect Four and learn on a device, without a league.

The bound of a learner with many policies, and a spike of how such a learner could be built. All
policies are one stack of tensors: products are batched, hyperparameters are vectors, one Adam has a
learning rate for each policy, and clipping and the quarantine of numbers that are not finite are
those of each policy. A rollout and an update are fixed programs on fixed tensors, so that a device
can capture them once and replay them: nothing in them asks the device for a number. All that is
random is drawn before them.

Shapes: P policies, B games of each, T steps of a rollout, N = T * B decisions of each policy, M of
a minibatch, W weights of a policy, 84 = 2 planes of 42 cells, 7 columns.

Tests: `tests/experiments/speed/test_cohort.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch.nn import functional

Mode = Literal["eager", "captured", "compiled"]
"""How programs run: call by call, as captured graphs, or compiled and then captured."""

Precision = Literal["float64", "float32", "tf32", "bfloat16"]

COLUMNS, ROWS, COLUMN_BITS = 7, 6, 7
FULL = sum(1 << (COLUMN_BITS * column + row) for column in range(COLUMNS) for row in range(ROWS))
# Up, down to the right, to the right, up to the right
DIRECTIONS = (1, COLUMN_BITS - 1, COLUMN_BITS, COLUMN_BITS + 1)
CELLS = [COLUMN_BITS * column + row for column in range(COLUMNS) for row in range(ROWS)]
INPUTS = 2 * len(CELLS)

GAMMA, GAE_LAMBDA, CLIP, VALUE, MAX_NORM = 0.99, 0.95, 0.2, 0.5, 0.5
BETA1, BETA2, ADAM_EPSILON = 0.9, 0.999, 1e-5
# Finite: exp(-inf) * -inf would make the entropy NaN.
ILLEGAL = -1e9
WARM_UPS = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class CohortSettings:
    """Settings of a cohort.

    Attributes:
        learning_rates: Learning rate of each of the P policies.
        entropy_coefs: Weight of the entropy of each policy.
        num_games: B.
        rollout_length: T.
        num_epochs: Passes over a rollout.
        num_minibatches: Equal parts of a pass; it divides N.
        hidden_sizes: Widths of the hidden layers.
        precision: Dtype of weights and products; ``tf32``, ``bfloat16``: those of products.
        seed: Seed of weights, noise and order.
    """

    learning_rates: Sequence[float] = (1e-3,)
    entropy_coefs: Sequence[float] = (0.01,)
    num_games: int = 2048
    rollout_length: int = 32
    num_epochs: int = 4
    num_minibatches: int = 8
    hidden_sizes: tuple[int, ...] = (128, 128)
    precision: Precision = "float32"
    seed: int = 1


def captured(program: Callable[[], None]) -> Callable[[], None]:
    """Run a program some times, capture it as a graph of the current device, and return its replay.

    Raises:
        RuntimeError: If it cannot be captured.
    """
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(WARM_UPS):
            program()
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        program()
    return graph.replay


class Cohort:
    """Policies that play themselves and learn; one call of `iterate` is a rollout and its update.

    Args:
        settings: Settings.
        device: Device of all tensors.
        mode: How programs run. ``captured`` and ``compiled`` need a CUDA device.
    """

    def __init__(self, settings: CohortSettings, *, device: torch.device, mode: Mode) -> None:
        self._settings = settings
        self._device = device
        self._mode = mode
        self._dtype = torch.float64 if settings.precision == "float64" else torch.float32
        bfloat16 = settings.precision == "bfloat16"
        self._product_dtype = torch.bfloat16 if bfloat16 else self._dtype
        self._generator = torch.Generator(device).manual_seed(settings.seed)
        self._make_weights()
        self._make_buffers()
        self._programs: dict[str, Callable[[], None]] = {}
        self._loss_terms = self._terms
        self._adam_step = self._adam
        self._one_step = self._choose
        if mode == "compiled":
            self._loss_terms = torch.compile(self._terms, dynamic=False)
            self._adam_step = torch.compile(self._adam, dynamic=False)
            self._one_step = torch.compile(self._choose, dynamic=False)

    @property
    def num_policies(self) -> int:
        """P."""
        return len(self._settings.learning_rates)

    def iterate(self) -> int:
        """Play T steps, learn from them, and return the decisions of all policies."""
        self._draw()
        self._run("rollout", self._rollout)
        self._run("update", self._update)
        return self.noise.shape[0] * self.noise.shape[1] * self.noise.shape[2]

    def metrics(self) -> dict[str, list[float]]:
        """Read what was gathered since the last call, by policy: one question to the device."""
        rows: list[list[float]] = (self.sums / self.sums[:, -1:].clamp(min=1.0)).tolist()
        self.sums.zero_()
        names = ("policy_loss", "value_loss", "entropy", "gradient_norm", "skipped")
        return {name: [row[at] for row in rows] for at, name in enumerate(names)}

    # What is on the device, all of it at fixed addresses.

    def _make_weights(self) -> None:
        settings = self._settings
        num_policies, device, dtype = self.num_policies, self._device, self._dtype
        sizes = [INPUTS, *settings.hidden_sizes, COLUMNS + 1]
        shapes = [(after, before) for before, after in pairwise(sizes)]
        length = sum(after * before + after for after, before in shapes)
        generator = torch.Generator().manual_seed(settings.seed)
        self.weights = torch.zeros(num_policies, length, device=device, dtype=dtype)
        self.first_moments = torch.zeros_like(self.weights)
        self.second_moments = torch.zeros_like(self.weights)
        self.steps = torch.zeros(num_policies, 1, device=device, dtype=dtype)
        self.layers: list[tuple[torch.Tensor, torch.Tensor]] = []
        at = 0
        for index, (after, before) in enumerate(shapes):
            # Small in the head: the first policy is nearly uniform, and values begin near 0.
            gain = 0.01 if index == len(shapes) - 1 else 2.0**0.5
            first = torch.empty(after, before, dtype=torch.float64)
            torch.nn.init.orthogonal_(first, gain, generator=generator)
            weight = self.weights[:, at : at + after * before].view(-1, after, before)
            weight.copy_(first.expand_as(weight))
            at += after * before
            bias = self.weights[:, at : at + after].view(-1, 1, after)
            at += after
            # They share the memory of `weights`, which the optimizer changes.
            self.layers.append((weight.detach().requires_grad_(), bias.detach().requires_grad_()))

        def column(values: Sequence[float]) -> torch.Tensor:
            return torch.tensor(values, device=device, dtype=dtype)[:, None]

        self.learning_rates = column(settings.learning_rates)
        self.entropy_coefs = column(settings.entropy_coefs)

    def _make_buffers(self) -> None:
        settings, device, dtype = self._settings, self._device, self._dtype
        num_policies, games, length = (
            self.num_policies,
            settings.num_games,
            settings.rollout_length,
        )

        def constant(values: Sequence[int]) -> torch.Tensor:
            return torch.tensor(values, dtype=torch.int64, device=device)

        self._cells = constant(CELLS)
        self._bottom = constant([1 << COLUMN_BITS * column for column in range(COLUMNS)])
        self._top = constant([COLUMN_BITS * column + ROWS - 1 for column in range(COLUMNS)])
        self._directions = constant(DIRECTIONS)
        # Stones of the player on turn, and all.
        self.own = torch.zeros(num_policies, games, dtype=torch.int64, device=device)
        self.stones = torch.zeros_like(self.own)
        shape = (num_policies, length, games)
        self.noise = torch.zeros(*shape, COLUMNS, device=device, dtype=dtype)
        rows = length * games
        if rows % settings.num_minibatches:
            raise ValueError(
                f"num_minibatches must divide {rows} decisions, got {settings.num_minibatches}"
            )
        self.order = torch.zeros(settings.num_epochs, rows, dtype=torch.int64, device=device)
        self.observation = torch.zeros(*shape, INPUTS, device=device, dtype=self._product_dtype)
        self.legal = torch.zeros(*shape, COLUMNS, device=device, dtype=torch.bool)
        self.action = torch.zeros(shape, device=device, dtype=torch.int64)
        # Log-probability, value, reward and whether the game goes on, side by side.
        self.numbers = torch.zeros(*shape, 4, device=device, dtype=dtype)
        # Log-probability, advantage and target, as the update reads them.
        self.learned = torch.zeros(num_policies, rows, 3, device=device, dtype=dtype)
        self.sums = torch.zeros(num_policies, 6, device=device, dtype=dtype)

    def _draw(self) -> None:
        """Draw all that is random in the next rollout and update."""
        self.noise.exponential_(generator=self._generator).log_()
        for order in self.order:
            # The order is that of all policies.
            keys = torch.rand(len(order), device=self._device, generator=self._generator)
            order.copy_(keys.argsort())

    def _run(self, name: str, program: Callable[[], None]) -> None:
        if self._mode == "eager":
            program()
            return
        if name not in self._programs:
            self._programs[name] = self._captured(program)
        self._programs[name]()

    def _captured(self, program: Callable[[], None]) -> Callable[[], None]:
        """Capture a program that changes nothing but this object's tensors."""
        live = [tensor for tensor in vars(self).values() if isinstance(tensor, torch.Tensor)]
        before = [tensor.clone() for tensor in live]
        replay = captured(program)
        # What the warm-up has changed counts for nothing.
        for tensor, value in zip(live, before, strict=True):
            tensor.copy_(value)
        return replay

    # The programs.

    def _look(self) -> tuple[torch.Tensor, torch.Tensor]:
        """Return observations [P, B, 84] and legal columns bool [P, B, 7]."""
        boards = torch.stack((self.own, self.stones ^ self.own), dim=2)
        bits = (boards[..., None] >> self._cells) & 1
        legal = ((self.stones[..., None] >> self._top) & 1) == 0
        return bits.flatten(2).to(self._product_dtype), legal

    def _outputs(self, observation: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Return logits [P, M, 7] and values [P, M]."""
        features = observation
        for index, (weight, bias) in enumerate(self.layers):
            weight, bias = weight.to(self._product_dtype), bias.to(self._product_dtype)
            features = torch.baddbmm(bias, features, weight.mT)
            if index < len(self.layers) - 1:
                features = torch.relu(features)
        outputs = features.to(self._dtype)
        return outputs[..., :COLUMNS], outputs[..., COLUMNS]

    def _choose(self, noise: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Decide in all games and step them.

        Returns:
            Observations, legal columns, actions, and the four numbers of a decision; then the own
            stones and all stones after it.
        """
        observation, legal = self._look()
        logits, value = self._outputs(observation)
        log_probs = functional.log_softmax(torch.where(legal, logits, ILLEGAL), dim=2)
        # The largest of log-probabilities with Gumbel noise is a sample.
        action = (log_probs - noise).argmax(dim=2)
        log_prob = log_probs.gather(2, action[..., None])[..., 0]
        other = self.stones ^ self.own
        # The column's lowest bit, added to its stones, carries to its lowest empty cell.
        stones = self.stones | (self.stones + self._bottom[action])
        mover = (stones ^ other)[..., None]
        # Two in a row, and two of these two steps apart: four.
        pairs = mover & (mover >> self._directions)
        won = ((pairs & (pairs >> 2 * self._directions)) != 0).any(dim=2)
        over = won | (stones == FULL)
        # 1 for the move that wins, 0 otherwise; the loss is the other player's next value.
        numbers = torch.stack(
            (log_prob, value, won.to(self._dtype), (~over).to(self._dtype)), dim=2
        )
        # The other player is on turn now.
        own, stones = other.masked_fill(over, 0), stones.masked_fill(over, 0)
        return observation, legal, action, numbers, own, stones

    @torch.no_grad()
    def _rollout(self) -> None:
        for t in range(self._settings.rollout_length):
            observation, legal, action, numbers, own, stones = self._one_step(self.noise[:, t])
            self.observation[:, t] = observation
            self.legal[:, t] = legal
            self.action[:, t] = action
            self.numbers[:, t] = numbers
            self.own.copy_(own)
            self.stones.copy_(stones)
        next_value = self._outputs(self._look()[0])[1]
        ahead = torch.zeros_like(next_value)
        log_prob, value, reward, goes_on = self.numbers.unbind(dim=3)
        advantage = torch.empty_like(value)
        for t in reversed(range(self._settings.rollout_length)):
            # delta_t = r_t - gamma V(s_{t+1}) - V(s_t);  A_t = delta_t - gamma lambda A_{t+1}
            discount = GAMMA * goes_on[:, t]
            ahead = reward[:, t] - discount * (next_value + GAE_LAMBDA * ahead) - value[:, t]
            advantage[:, t] = ahead
            next_value = value[:, t]
        flat = advantage.flatten(1)
        deviation, mean = torch.std_mean(flat, dim=1, correction=0, keepdim=True)
        normalized = (flat - mean) / (deviation + 1e-8)
        self.learned.copy_(
            torch.stack((log_prob.flatten(1), normalized, flat + value.flatten(1)), dim=2)
        )

    def _terms(
        self,
        observation: torch.Tensor,
        legal: torch.Tensor,
        action: torch.Tensor,
        learned: torch.Tensor,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return the loss of all policies, and the terms of each, [P, 3]."""
        logits, value = self._outputs(observation)
        log_probs = functional.log_softmax(torch.where(legal, logits, ILLEGAL), dim=2)
        old_log_prob, advantage, target = learned.unbind(dim=2)
        # H = -sum_a p_a log p_a; illegal actions have p = 0.
        entropy = -(log_probs.exp() * log_probs).sum(dim=2).mean(dim=1)
        # r = pi(a) / pi_old(a);  L = -min(r A, clip(r, 1 - eps, 1 + eps) A)
        ratio = (log_probs.gather(2, action[..., None])[..., 0] - old_log_prob).exp()
        clipped = ratio.clamp(1 - CLIP, 1 + CLIP)
        policy_loss = -torch.minimum(ratio * advantage, clipped * advantage).mean(dim=1)
        value_loss = (value - target).square().mean(dim=1)
        # L + c_v (V - target)^2 - c_e H; the gradient of a sum over policies is that of each.
        total = policy_loss + VALUE * value_loss - self.entropy_coefs[:, 0] * entropy
        return total.sum(), torch.stack((policy_loss, value_loss, entropy), dim=1).detach()

    def _adam(self, gradient: torch.Tensor, terms: torch.Tensor) -> None:
        """Take a step of all policies but those whose numbers are not finite."""
        norm = gradient.norm(dim=1, keepdim=True)
        sane = norm.isfinite()
        # g <- g min(1, max_norm / |g|)
        clipped = gradient * (MAX_NORM / (norm + 1e-6)).clamp(max=1.0)
        clipped = torch.where(sane, clipped, 0.0)
        steps = self.steps + sane
        first = torch.where(sane, self.first_moments.lerp(clipped, 1 - BETA1), self.first_moments)
        second = torch.where(
            sane,
            self.second_moments * BETA2 + (1 - BETA2) * clipped.square(),
            self.second_moments,
        )
        # m / (1 - b1^t) / (sqrt(v / (1 - b2^t)) + eps)
        by = (second / (1 - BETA2**steps)).sqrt() + ADAM_EPSILON
        change = self.learning_rates * (first / (1 - BETA1**steps)) / by
        self.weights.sub_(torch.where(sane, change, 0.0))
        self.first_moments.copy_(first)
        self.second_moments.copy_(second)
        self.steps.copy_(steps)
        seen = torch.where(sane, torch.cat((terms, norm), dim=1), 0.0)
        skipped = (~sane).to(seen.dtype)
        self.sums.add_(torch.cat((seen, skipped, torch.ones_like(skipped)), dim=1))

    def _update(self) -> None:
        parameters = [tensor for layer in self.layers for tensor in layer]
        parts = (
            self.observation.flatten(1, 2),
            self.legal.flatten(1, 2),
            self.action.flatten(1, 2),
            self.learned,
        )
        for order in self.order:
            for index in order.chunk(self._settings.num_minibatches):
                rows = [part.index_select(1, index) for part in parts]
                loss, terms = self._loss_terms(*rows)
                gradients = torch.autograd.grad(loss, parameters)
                with torch.no_grad():
                    flat = torch.cat([gradient.flatten(1) for gradient in gradients], dim=1)
                    self._adam_step(flat, terms)

    @torch.no_grad()
    def score_against_random(self, *, seed: int = 0) -> list[float]:
        """Play each policy's games to their end against even play, and return its mean scores.

        The policy plays greedily and begins in every other game. A draw counts a half.
        """
        generator = torch.Generator(self._device).manual_seed(seed)
        saved = self.own.clone(), self.stones.clone()
        self.own.zero_()
        self.stones.zero_()
        begins = torch.arange(self.own.shape[1], device=self._device) % 2 == 0
        result = torch.full(self.own.shape, torch.nan, device=self._device)
        for turn in range(len(CELLS)):
            observation, legal = self._look()
            logits, _ = self._outputs(observation)
            noise = torch.rand(logits.shape, device=self._device, generator=generator)
            own_turn = (begins if turn % 2 == 0 else ~begins)[:, None]
            preferred = torch.where(own_turn, logits.float(), noise)
            # The largest of these is chosen where there is no noise.
            chosen = preferred.masked_fill(~legal, -torch.inf)
            greedy = functional.one_hot(chosen.argmax(dim=2), COLUMNS).bool()
            moves = torch.where(greedy, -1e9, 1e9).to(self._dtype)
            _, _, _, numbers, own, stones = self._choose(moves)
            won, over = numbers[..., 2] > 0, numbers[..., 3] == 0
            score = torch.where(won, own_turn[:, 0].float(), 0.5)
            result = torch.where(result.isnan() & over, score, result)
            self.own.copy_(own)
            self.stones.copy_(stones)
        self.own.copy_(saved[0])
        self.stones.copy_(saved[1])
        means: list[float] = result.mean(dim=1).tolist()
        return means
