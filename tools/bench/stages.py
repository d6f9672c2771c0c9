"""The stages of a learner, each against its bound.

Everything runs in this process, on one thread where it runs on the CPU.

Tests: `tests/tools/bench/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from functools import partial

import torch

from arena.core import ActorInput
from arena.envs.base import BatchedEnv
from arena.envs.batched.batch import GameBatch
from arena.envs.batched.find import find_game

from .learner import NUM_FROZEN, LearnerWork
from .loop import HandWrittenLoop
from .measure import Effort, Rate, Stage, Work, harmonic, warm_rate
from .play import PlainLoop, RandomGame, random_play
from .profile import learner_methods, stage_shares
from .subject import SEED, Subject, has_bfloat16


class Products:
    """The products of one pass over M rows, into tensors that are there already.

    No bias, activation, loss, optimizer or Python object per layer but these.

    Args:
        sizes: Widths from the observation to the outputs; at least two.
        num_rows: M.
        dtype: Precision of all products.
        device: Device of all products.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        num_rows: int,
        dtype: torch.dtype = torch.float32,
        device: torch.device | None = None,
    ) -> None:
        def normal(rows: int, columns: int) -> torch.Tensor:
            # With variance 1/columns, products neither overflow nor become denormal at any width.
            values = torch.randn(rows, columns).mul_(columns**-0.5)
            return values.to(device=device, dtype=dtype)

        layers = range(len(sizes) - 1)
        self._weights = [normal(sizes[i + 1], sizes[i]) for i in layers]
        self._weight_gradients = [torch.empty_like(weight) for weight in self._weights]
        self._rows = [normal(num_rows, size) for size in sizes]
        # Each row tensor has a gradient, so that indices agree; the first one is not used.
        self._row_gradients = [normal(num_rows, size) for size in sizes]

    def forward(self) -> None:
        """Compute x[i + 1] = x[i] W[i]^T."""
        for i, weight in enumerate(self._weights):
            # x_{i+1} = x_i W_i^T
            torch.mm(self._rows[i], weight.t(), out=self._rows[i + 1])

    def backward(self) -> None:
        """Compute dW[i] = dx[i + 1]^T x[i], and dx[i] = dx[i + 1] W[i] but for the observation."""
        for i in reversed(range(len(self._weights))):
            gradient = self._row_gradients[i + 1]
            # dW_i = dx_{i+1}^T x_i
            torch.mm(gradient.t(), self._rows[i], out=self._weight_gradients[i])
            # The observation needs no gradient.
            if i > 0:
                torch.mm(gradient, self._weights[i], out=self._row_gradients[i])

    def update(self, num_passes: int) -> None:
        """Compute both for each of so many minibatches."""
        for _ in range(num_passes):
            self.forward()
            self.backward()


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as a learner process does."""
    # The thread count is global to the process, so it is restored after the block.
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Stages:
    """Measurements of the stages of one configuration's learner.

    Owns a batch of environments that is made when it is needed first; close it.

    Args:
        subject: Configuration that is measured.
        effort: Effort of the measurements.
    """

    def __init__(self, subject: Subject, *, effort: Effort) -> None:
        self._subject = subject
        self._effort = effort
        self._env: BatchedEnv | None = None
        self.shares: dict[str, dict[str, float]] = {}
        """Share of each stage in the time, by whole-learner measurement."""

    def close(self) -> None:
        """Release the environments."""
        if self._env is not None:
            self._env.close()

    @property
    def env(self) -> BatchedEnv:
        """Batch of environments; every measurement resets it."""
        if self._env is None:
            self._env = self._subject.make_env()
        return self._env

    def environment(self) -> Iterator[Stage]:
        """Measure the batched view against the bare game, or a plain loop over environments."""
        play = self._random_play(self.env)
        # A batch of PettingZoo environments has no bare game beneath it.
        if isinstance(self.env, GameBatch):
            yield self._stage("environment", play, "the bare game", self._random_game())
            return
        setup = self._subject.setup
        plain = PlainLoop(
            setup.spec,
            num_envs=self._subject.num_envs,
            launch_directory=setup.launch_directory,
        )
        with closing(plain):
            yield self._stage("environment", play, "environments stepped one by one", plain)

    def inference(self) -> Iterator[Stage]:
        """Measure one policy that decides for the whole batch: frozen, and while it learns."""
        subject = self._subject
        rows = self._first_rows(self.env)
        number, generator = len(rows.observation), self._generator()
        frozen = subject.make_frozen(subject.population, seed=SEED)
        policy = subject.make_policy()
        learning = subject.players.product_dtypes[subject.population]
        works = {
            # Frozen policies always play in float32.
            ("frozen", torch.float32): lambda: frozen.act(rows, agent="", generator=generator),
            ("learning", learning): lambda: policy.act(rows, generator=generator),
        }
        for (name, dtype), act in works.items():
            products = Products(
                subject.layer_sizes, num_rows=number, dtype=dtype, device=subject.device
            )
            yield self._stage(
                f"inference/{name}",
                _counted(act, number),
                f"products alone, {str(dtype).removeprefix('torch.')}",
                _counted(products.forward, number),
                unit="rows/s",
            )

    def update(self) -> Iterator[Stage]:
        """Measure the update on one rollout, in the precisions that the hardware has."""
        dtypes = {"float32": torch.float32}
        if has_bfloat16(self._subject.device):
            dtypes["bfloat16"] = torch.bfloat16
        # Both precisions use one rollout, because an update does not change it.
        rollout = LearnerWork(self._subject, self.env).collect()
        num_epochs, num_minibatches = (
            int(self._subject.hyperparameters.get(name, 1))
            for name in ("num_epochs", "num_minibatches")
        )
        # Minibatches are of equal size; the remaining rows are left out.
        num_rows = max(1, len(rollout) // num_minibatches)
        for precision, dtype in dtypes.items():
            # The learning rate is close to 0, so that the rollout stays on-policy in all rounds.
            policy = self._subject.make_policy(precision=precision, stands_still=True)
            products = Products(
                self._subject.layer_sizes,
                num_rows=num_rows,
                dtype=dtype,
                device=self._subject.device,
            )
            # A pass is one minibatch of one epoch.
            passes = partial(products.update, num_epochs * num_minibatches)
            yield self._stage(
                f"update/{precision}",
                _counted(
                    partial(policy.update, rollout, generator=self._generator()), len(rollout)
                ),
                f"products alone, {precision}",
                _counted(passes, num_rows * num_minibatches),
                unit="us/decision",
            )

    def learner(self) -> Iterator[Stage]:
        """Measure a whole learner: in self-play, and with half of the blocks against frozen
        policies.
        """
        yield from self._learner("learner/self_play", num_frozen=0)
        # Cooperating policies have no opponents: each trains with itself.
        if len(self._subject.setup.sides) > 1:
            yield from self._learner("learner/league", num_frozen=NUM_FROZEN)

    def _learner(self, name: str, *, num_frozen: int) -> Iterator[Stage]:
        subject, seconds = self._subject, self._effort.seconds
        # The first call allocates, so it is not part of any stage's share.
        work = LearnerWork(subject, self.env, num_frozen=num_frozen)
        work()
        # The shares are measured in a pass of their own, because timers cost time.
        self.shares[name] = stage_shares(
            work, methods=learner_methods(self.env, work.algorithm), seconds=seconds
        )
        settings = subject.loop_settings
        # Without a hand-written loop the parts are the only bound.
        if settings is not None:
            loop = HandWrittenLoop(settings)
            yield self._stage(name, work, "hand-written float32 loop", loop.iterate)
            return
        # The learner continues in its environments; the bound has environments of its own.
        with closing(subject.make_env()) as env:
            yield Stage(
                name=name,
                rate=self._rate(work),
                bound_name="environment, inference and update alone",
                bound=self._parts(env, num_frozen=num_frozen),
            )

    def _parts(self, env: BatchedEnv, *, num_frozen: int) -> Rate:
        """Measure what environment, inference and update alone allow, in trained decisions.

        Args:
            env: Batch of environments, which is reset.
            num_frozen: As for `LearnerWork`, whose frozen players decide as well.
        """
        subject = self._subject
        per_trained = LearnerWork(subject, env, num_frozen=num_frozen).decisions_per_trained()
        rollout = LearnerWork(subject, env).collect()
        # The environment's rate is measured after the rollout, because both reset the environments.
        play = self._random_play(env)
        generator = self._generator()
        policy = subject.make_policy(stands_still=True)
        rows = self._first_rows(env)
        act = partial(policy.act, rows, generator=generator)
        update = partial(policy.update, rollout, generator=generator)
        works = (play, _counted(act, len(rows.observation)), _counted(update, len(rollout)))
        measures = [self._rate(work) for work in works]

        def rate() -> float:
            environment, inference, learning = (measure() for measure in measures)
            # 1 / r = d / r_env + d / r_act + 1 / r_update, with d decisions of all players per
            # trained one
            return harmonic(environment / per_trained, inference / per_trained, learning)

        return rate

    def _stage(
        self, name: str, work: Work, bound_name: str, bound: Work, *, unit: str = "agent steps/s"
    ) -> Stage:
        return Stage(
            name=name,
            rate=self._rate(work),
            bound_name=bound_name,
            bound=self._rate(bound),
            unit=unit,
        )

    def _rate(self, work: Work) -> Rate:
        return warm_rate(self._finished(work), seconds=self._effort.seconds)

    def _first_rows(self, env: BatchedEnv) -> ActorInput:
        """Reset environments, and return the first decisions of the measured population."""
        subject = self._subject
        group = env.reset(range(subject.num_envs)).groups[subject.population]
        mask = None if group.action_mask is None else group.action_mask.flatten(0, 1).clone()
        # [B, S, F] -> [B * S, F], copied because the environments write their next turn there
        return ActorInput(observation=group.observation.flatten(0, 1).clone(), action_mask=mask)

    def _finished(self, work: Work) -> Work:
        """Return a work that waits for its own end."""
        # A GPU call returns before its work is done, so the device is synchronized.
        if self._subject.device.type != "cuda":
            return work

        def finish() -> int:
            items = work()
            torch.cuda.synchronize()
            return items

        return finish

    def _random_play(self, env: BatchedEnv) -> Work:
        actions = self._subject.players.actions
        return random_play(env, actions=actions, generator=self._generator())

    def _random_game(self) -> RandomGame:
        subject = self._subject
        setup = subject.setup
        game_class = find_game(setup.spec.id, launch_directory=setup.launch_directory)
        assert game_class is not None  # the batch is made of it
        game = game_class(subject.num_envs, device=subject.device, **setup.spec.kwargs)
        return RandomGame(game, num_games=subject.num_envs, generator=self._generator())

    def _generator(self) -> torch.Generator:
        return torch.Generator(self._subject.device).manual_seed(SEED)


def _counted(call: Callable[[], object], items: int) -> Work:
    """Return a work of so many items."""

    def work() -> int:
        call()
        return items

    return work
