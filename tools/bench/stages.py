"""The stages of a learner, each against its bound.

Everything runs in this process, on one thread where it runs on the CPU.

Tests: `tests/tools/bench/test_command.py`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager

import torch

from arena.core import ActorInput, Algorithm
from arena.envs.base import BatchedEnv
from arena.envs.batched.batch import GameBatch
from arena.envs.batched.find import find_game

from .learner import NUM_FROZEN, LearnerWork, decisions_per_trained
from .loop import HandWrittenLoop
from .measure import Effort, Measurement, Rate, Work, compare, harmonic, warm_rate
from .play import PlainLoop, RandomGame, RandomPlay
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
            # Variance 1/columns: products neither overflow nor become denormal, at any width.
            values = torch.randn(rows, columns).mul_(columns**-0.5)
            return values.to(device=device, dtype=dtype)

        layers = range(len(sizes) - 1)
        self._weights = [normal(sizes[i + 1], sizes[i]) for i in layers]
        self._weight_gradients = [torch.empty_like(weight) for weight in self._weights]
        self._rows = [normal(num_rows, size) for size in sizes]
        # One for each row tensor, so that indices agree; the first is not used.
        self._row_gradients = [normal(num_rows, size) for size in sizes]

    def forward(self) -> None:
        """Compute x[i + 1] = x[i] W[i]^T."""
        for i, weight in enumerate(self._weights):
            # x_{i+1} = x_i W_i^T
            torch.mm(self._rows[i], weight.t(), out=self._rows[i + 1])

    def forward_rows(self) -> int:
        """Compute the same, and return the number of rows."""
        self.forward()
        return len(self._rows[0])

    def backward(self) -> None:
        """Compute dW[i] = dx[i + 1]^T x[i], and dx[i] = dx[i + 1] W[i] but for the observation."""
        for i in reversed(range(len(self._weights))):
            gradient = self._row_gradients[i + 1]
            # dW_i = dx_{i+1}^T x_i
            torch.mm(gradient.t(), self._rows[i], out=self._weight_gradients[i])
            # The observation needs no gradient.
            if i > 0:
                torch.mm(gradient, self._weights[i], out=self._row_gradients[i])


class UpdateProducts:
    """The products of all epochs and minibatches of one update.

    Args:
        sizes: Widths of layers, as for `Products`.
        num_decisions: Number of decisions in the rollout.
        num_epochs: Passes over it.
        num_minibatches: Equal parts of a pass, their rest left out.
        dtype: Precision of all products.
        device: Device of all products.
    """

    def __init__(
        self,
        sizes: Sequence[int],
        *,
        num_decisions: int,
        num_epochs: int,
        num_minibatches: int,
        dtype: torch.dtype,
        device: torch.device | None = None,
    ) -> None:
        num_rows = max(1, num_decisions // num_minibatches)
        self._products = Products(sizes, num_rows=num_rows, dtype=dtype, device=device)
        # A pass is one minibatch of one epoch.
        self._num_passes = num_epochs * num_minibatches
        self._num_decisions = num_rows * num_minibatches

    def __call__(self) -> int:
        """Multiply, and return the number of decisions."""
        for _ in range(self._num_passes):
            self._products.forward()
            self._products.backward()
        return self._num_decisions


AGENT_STEPS = "agent steps/s"


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread, as a learner process does."""
    # The setting is the process's: whatever runs after this block gets its threads back.
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

    def environment(self) -> list[Measurement]:
        """Measure the batched view against the bare game, or a plain loop over environments."""
        # A batch of PettingZoo environments has no bare game beneath it.
        if not isinstance(self.env, GameBatch):
            setup = self._subject.setup
            plain = PlainLoop(
                setup.spec,
                num_envs=self._subject.num_envs,
                launch_directory=setup.launch_directory,
            )
            with closing(plain):
                return [self._environment("environments stepped one by one", plain)]
        return [self._environment("the bare game", self._random_game())]

    def _environment(self, bound_name: str, bound: Work) -> Measurement:
        return self._compare(
            "environment", AGENT_STEPS, self._random_play(), bound_name=bound_name, bound=bound
        )

    def inference(self) -> list[Measurement]:
        """Measure one policy that decides for the whole batch: frozen, and while it learns."""
        subject = self._subject
        rows = self._first_rows(self.env)
        generator = self._generator()
        frozen = subject.make_frozen(subject.population, seed=SEED)
        policy = subject.make_policy()

        def play() -> int:
            frozen.act(rows, agent="", generator=generator)
            return len(rows.observation)

        def explore() -> int:
            policy.act(rows, generator=generator)
            return len(rows.observation)

        # Frozen policies always play in float32.
        dtypes = {"inference/frozen": torch.float32, "inference/learning": subject.product_dtype}
        found = []
        for name, work in {"inference/frozen": play, "inference/learning": explore}.items():
            products = Products(
                subject.layer_sizes,
                num_rows=len(rows.observation),
                dtype=dtypes[name],
                device=subject.device,
            )
            bound_name = f"products alone, {str(dtypes[name]).removeprefix('torch.')}"
            found.append(
                self._compare(
                    name, "rows/s", work, bound_name=bound_name, bound=products.forward_rows
                )
            )
        return found

    def update(self) -> list[Measurement]:
        """Measure the update on one rollout, in the precisions that the hardware has."""
        dtypes = {"float32": torch.float32}
        if has_bfloat16(self._subject.device):
            dtypes["bfloat16"] = torch.bfloat16
        # One rollout for both precisions: an update does not change it.
        rollout = LearnerWork(self._subject, self.env).collect()
        generator = self._generator()
        found = []
        for precision, dtype in dtypes.items():
            # Standing still: the same rollout stays on-policy through all rounds.
            policy = self._subject.make_policy(precision=precision, stands_still=True)

            def update(policy: Algorithm = policy) -> int:
                policy.update(rollout, generator=generator)
                return len(rollout)

            hyperparameters = self._subject.hyperparameters
            bound = UpdateProducts(
                self._subject.layer_sizes,
                num_decisions=len(rollout),
                num_epochs=int(hyperparameters.get("num_epochs", 1)),
                num_minibatches=int(hyperparameters.get("num_minibatches", 1)),
                dtype=dtype,
                device=self._subject.device,
            )
            found.append(
                self._compare(
                    f"update/{precision}",
                    "us/decision",
                    update,
                    bound_name=f"products alone, {precision}",
                    bound=bound,
                )
            )
        return found

    def learner(self) -> list[Measurement]:
        """Measure a whole learner: in self-play, and with half of the blocks against frozen
        policies.
        """
        found = [self._learner("learner/self_play", num_frozen=0)]
        # In cooperation a policy has no opponents: it trains with itself.
        if len(self._subject.setup.sides) > 1:
            found.append(self._learner("learner/league", num_frozen=NUM_FROZEN))
        return found

    def _learner(self, name: str, *, num_frozen: int) -> Measurement:
        subject, seconds = self._subject, self._effort.seconds
        # The first call allocates: it is in no stage's share.
        work = LearnerWork(subject, self.env, num_frozen=num_frozen)
        work()
        # A pass of its own: timers cost time, too.
        self.shares[name] = stage_shares(
            work, methods=learner_methods(self.env, work.algorithm), seconds=seconds
        )
        settings = subject.loop_settings
        # Without such a loop the parts alone are the bound.
        if settings is not None:
            loop = HandWrittenLoop(settings)
            return self._compare(
                name, AGENT_STEPS, work, bound_name="hand-written float32 loop", bound=loop.iterate
            )
        per_trained = decisions_per_trained(subject, num_frozen=num_frozen)
        # The learner goes on from where its environments are; what bounds it has its own.
        with closing(subject.make_env()) as env:
            return compare(
                name,
                unit=AGENT_STEPS,
                rate=self._rate(work),
                bound_name="environment, inference and update alone",
                bound=self._parts(env, decisions_per_trained=per_trained),
                rounds=self._effort.rounds,
            )

    def _parts(self, env: BatchedEnv, *, decisions_per_trained: float) -> Rate:
        """Measure what environment, inference and update alone allow, in trained decisions.

        Args:
            env: Batch of environments, which is reset.
            decisions_per_trained: Decisions of all players per decision that is trained on.
        """
        subject = self._subject
        rollout = LearnerWork(subject, env).collect()
        # After the rollout, because both reset the environments.
        play = self._random_play(env)
        generator = self._generator()
        policy = subject.make_policy(stands_still=True)
        rows = self._first_rows(env)

        def act() -> int:
            policy.act(rows, generator=generator)
            return len(rows.observation)

        def update() -> int:
            policy.update(rollout, generator=generator)
            return len(rollout)

        measures = [self._rate(part) for part in (play, act, update)]

        def rate() -> float:
            environment, inference, learning = (measure() for measure in measures)
            # 1 / r = d / r_env + d / r_act + 1 / r_update, with d decisions of all players per
            # trained one
            return harmonic(
                environment / decisions_per_trained, inference / decisions_per_trained, learning
            )

        return rate

    def _compare(
        self, name: str, unit: str, work: Work, *, bound_name: str, bound: Work
    ) -> Measurement:
        return compare(
            name,
            unit=unit,
            rate=self._rate(work),
            bound_name=bound_name,
            bound=self._rate(bound),
            rounds=self._effort.rounds,
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
        # On a GPU a call returns before it is done.
        if self._subject.device.type != "cuda":
            return work

        def finish() -> int:
            items = work()
            torch.cuda.synchronize()
            return items

        return finish

    def _random_play(self, env: BatchedEnv | None = None) -> RandomPlay:
        subject = self._subject
        return RandomPlay(
            self.env if env is None else env,
            actions=subject.actions,
            generator=self._generator(),
        )

    def _random_game(self) -> RandomGame:
        subject = self._subject
        setup = subject.setup
        game_class = find_game(setup.spec.id, launch_directory=setup.launch_directory)
        assert game_class is not None  # the batch is made of it
        game = game_class(subject.num_envs, device=subject.device, **setup.spec.kwargs)
        return RandomGame(game, num_games=subject.num_envs, generator=self._generator())

    def _generator(self) -> torch.Generator:
        return torch.Generator(self._subject.device).manual_seed(SEED)
