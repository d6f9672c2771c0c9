"""The contract of `arena.core.Algorithm`.

Shapes: N rows, D decisions of a rollout, H numbers of a recurrent state, G of a critic's input.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

import torch

from arena.config import NetworkConfig, PopulationSetup
from arena.contracts.contract import Subject, name_of, reference_of
from arena.contracts.sample import SampleGame, are_equal, sample_game
from arena.core import ActorInput, Algorithm, AlgorithmOutput
from arena.errors import CheckpointCorrupt
from arena.experience import Rollout, Sequences, Transitions
from arena.learning.algorithms import AlgorithmClass, make_algorithm
from arena.networks.frozen import FrozenPolicy
from arena.spaces import ObservationLayout
from arena.users_code import pass_interrupt

CPU = torch.device("cpu")
LENGTH = 2
"""Decisions of an episode of the rollouts; the rows of the second follow those of all first."""


NUM_ROWS = 96

NUM_ALONE = 16

TOLERANCE = 1e-3

TRAINED = ("encoder.", "trunk.", "core.", "head.", "critic.")
"""Names of weights that decide, and so must be trained."""

Weights = Mapping[str, torch.Tensor]


@dataclass(frozen=True, slots=True, kw_only=True)
class Case(Subject):
    """Everything that a suite makes algorithms and rollouts of."""

    setup: PopulationSetup
    game: SampleGame
    population: str
    hyperparameters: Mapping[str, float]
    rows: ActorInput
    launch_directory: str

    @property
    def critic(self) -> ObservationLayout | None:
        """Layout of a centralized critic's input, pairs of observations; None: it has no such."""
        if self.setup.network.critic == "own":
            return None
        seen = self.game.facts(self.population).observation
        return ObservationLayout.from_json({"kind": "Tuple", "spaces": [seen, seen]})

    def make(self, *, seed: int) -> Algorithm:
        """Make one policy."""
        with self.obeying("it must be made as arena.learning.algorithms.AlgorithmClass"):
            return make_algorithm(
                self.setup,
                observation=self.game.observation(self.population),
                action=self.game.actions[self.population],
                hyperparameters=self.hyperparameters,
                device=CPU,
                precision="float32",
                seed=seed,
                launch_directory=self.launch_directory,
                critic_input=self.critic,
            )

    def inputs(self, algorithm: Algorithm, rows: slice = slice(None)) -> ActorInput:
        """Return decisions to be made."""
        everything, mask = self.rows.observation, self.rows.action_mask
        observation = everything[rows].clone()
        state = torch.zeros(len(observation), algorithm.state_size)
        return ActorInput(
            observation=observation,
            action_mask=None if mask is None else mask[rows].clone(),
            recurrent_state=state if algorithm.state_size else None,
            # The critic input is each row's observation and that of the previous row.
            critic_input=None
            if self.critic is None
            else torch.cat((everything, everything.roll(1, dims=0)), dim=1)[rows],
        )

    def act(self, algorithm: Algorithm, *, seed: int) -> AlgorithmOutput:
        """Let an algorithm decide about all rows."""
        generator = torch.Generator().manual_seed(seed)
        rule = "act must take ActorInput and a generator"
        with self.answering(rule, draws="act must draw from generator alone"):
            return algorithm.act(self.inputs(algorithm), generator=generator)

    def update(self, algorithm: Algorithm, *, seed: int) -> Mapping[str, float]:
        """Let it learn from a rollout of its own."""
        rollout = self._rollout(algorithm, seed=seed)
        generator = torch.Generator().manual_seed(seed)
        rule = "update must learn from a Rollout"
        with self.answering(rule, draws="update must draw from generator alone"):
            return algorithm.update(rollout, generator=generator)

    def _rollout(self, algorithm: Algorithm, *, seed: int) -> Rollout:
        """Return episodes of two decisions, with random rewards."""
        output = self.act(algorithm, seed=seed)
        number = len(self.rows.observation)
        generator = torch.Generator().manual_seed(seed + 1)
        reward = torch.randn(number, generator=generator)
        advantage = torch.randn(number, generator=generator)
        index, half = torch.arange(number), number // LENGTH
        inputs = self.inputs(algorithm)
        value = output.value.detach().clone()
        return Rollout(
            observation=inputs.observation,
            action_mask=inputs.action_mask,
            critic_input=inputs.critic_input,
            action=output.action.clone(),
            log_prob=output.log_prob.detach().clone(),
            value=value,
            advantage=advantage,
            return_=value + advantage,
            agent_steps=number,
            num_decisions=number,
            transitions=Transitions(
                reward=reward,
                successor=torch.where(index < half, index + half, -1),
                next_value=torch.where(index < half, value[(index + half) % number], 0.0),
            ),
            sequences=Sequences(
                rows=torch.stack((index[:half], index[:half] + half), dim=1),
                state=torch.zeros(half, algorithm.state_size),
            )
            if algorithm.state_size
            else None,
        )


def check_algorithm(
    algorithm: AlgorithmClass | Callable[..., Algorithm] | str,
    *,
    environment: str,
    kwargs: Mapping[str, object] | None = None,
    agent: str | None = None,
    hyperparameters: Mapping[str, float] | None = None,
    settings: Mapping[str, object] | None = None,
    network: NetworkConfig | None = None,
    launch_directory: str = "",
) -> None:
    """Check that an algorithm decides, learns, and goes on from a checkpoint as it must.

    Args:
        algorithm: Class, or ``populations.NAME.algorithm``: ``package.module:Class`` or ``ppo``.
        environment: Id of an environment that it can train in.
        kwargs: Arguments of the environment's factory.
        agent: Agent that it trains; None: the first.
        hyperparameters: Values by name; others have their defaults.
        settings: ``algorithm_settings`` by name; others have their defaults.
        network: Architecture; None: hidden layers of 16 and 16, observations as they are. A
            centralized ``critic`` is given pairs of observations.
        launch_directory: Directory where ``package`` is looked for first; empty: where the process
            is.

    Raises:
        ContractBroken: With the first rule that it breaks.
    """
    subject = Subject(name_of(algorithm))
    reference = reference_of(algorithm) if algorithm != "ppo" else "ppo"
    game = sample_game(subject, environment, kwargs=kwargs, launch_directory=launch_directory)
    population = game.population_of(agent)
    case = Case(
        name=subject.name,
        setup=PopulationSetup(
            agents=game.populations[population],
            network=network or NetworkConfig(hidden_sizes=(16, 16), normalize_observations=False),
            algorithm=reference,
            algorithm_settings=dict(settings or {}),
        ),
        game=game,
        population=population,
        hyperparameters=hyperparameters or {},
        rows=game.rows(population, number=NUM_ROWS),
        launch_directory=launch_directory,
    )
    fresh = case.make(seed=7)
    _check_numbers(case, fresh)
    _check_seed(case, fresh)
    _check_copies(case, case.make(seed=7))
    _check_decisions(case, fresh)
    _check_values(case, fresh)
    _check_learning(case)
    _check_checkpoint(case)


def _check_numbers(case: Case, algorithm: Algorithm) -> None:
    must = case.must
    length: object = algorithm.rollout_length
    is_length = isinstance(length, int) and length >= 1
    must("rollout_length must be a whole number, at least 1", is_length, got=length)
    for name in ("gamma", "gae_lambda"):
        number: object = getattr(algorithm, name)
        is_share = isinstance(number, int | float) and 0.0 <= number <= 1.0
        must(f"{name} must be in [0, 1]", is_share, got=number)
    updates = algorithm.learner_updates
    must("learner_updates must be 0 at first", updates == 0, got=updates)


def _check_seed(case: Case, algorithm: Algorithm) -> None:
    weights = algorithm.weights()
    again, other = case.make(seed=7).weights(), case.make(seed=8).weights()
    rule = "weights must be a function of the seed"
    case.must(rule, are_equal(weights, again), found="unequal weights of one seed")
    case.must(rule, not are_equal(weights, other), found="equal weights of two seeds")


def _check_decisions(case: Case, algorithm: Algorithm) -> None:
    number = len(case.rows.observation)
    layout = case.game.actions[case.population]
    for seed in range(4):
        answer = case.act(algorithm, seed=seed)
        output = case.must_be("act must return arena.core.AlgorithmOutput", AlgorithmOutput, answer)
        shape = (number, *layout.row_shape)
        dtype = torch.int64 if layout.is_discrete else torch.float32
        is_right = output.action.shape == shape and output.action.dtype == dtype
        rule = f"action must be {dtype} [N{', K' if layout.row_shape else ''}]"
        case.must(rule, is_right, found=f"{output.action.dtype} {list(output.action.shape)}")
        for name in ("log_prob", "value"):
            _check_column(case, name, getattr(output, name), number=number)
        mask = case.rows.action_mask
        legal = layout.are_legal(output.action.numpy(), None if mask is None else mask.numpy())
        illegal = output.action[torch.from_numpy(~legal)].tolist()
        case.must("act must choose legal actions", legal.all(), got=illegal[:1])
        again = case.act(algorithm, seed=seed)
        rule = "act must be a function of its inputs and generator"
        case.must(rule, torch.equal(output.action, again.action))
    if not algorithm.state_size:
        _check_what_plays(case, algorithm, output)
    elif output.recurrent_state is not None:
        shape = (number, algorithm.state_size)
        found = output.recurrent_state.shape
        case.must("recurrent_state must be [N, state_size]", found == shape, got=list(found))


def _check_column(case: Case, name: str, column: torch.Tensor, *, number: int) -> None:
    is_right = column.shape == (number,) and column.dtype == torch.float32
    rule = f"{name} must be float32 [N]"
    case.must(rule, is_right, found=f"{column.dtype} {list(column.shape)}")
    case.must(f"{name} must be finite", bool(torch.isfinite(column).all()))
    case.must(f"{name} must have no gradient (torch.inference_mode)", not column.requires_grad)


def _check_what_plays(case: Case, algorithm: Algorithm, output: AlgorithmOutput) -> None:
    """Compare with the network that plays in matches: `make_actor_critic` with ``weights``."""
    rule = "weights must be the state_dict of the population's network (make_actor_critic)"
    with case.obeying(rule):
        frozen = FrozenPolicy.from_weights(
            case.setup.network,
            algorithm.weights(),
            observation=case.game.observation(case.population),
            action=case.game.actions[case.population],
            device=CPU,
        )
    policy = frozen.distribution(case.rows.observation, case.rows.action_mask)
    log_prob = policy.log_prob(output.action)
    rule = "log_prob must be that of the network that plays in matches"
    is_close = torch.allclose(log_prob, output.log_prob, rtol=TOLERANCE, atol=TOLERANCE)
    case.must(rule, is_close, found=f"{output.log_prob[0]} instead of {log_prob[0]}")


def _check_values(case: Case, algorithm: Algorithm) -> None:
    number = len(case.rows.observation)
    with case.obeying("value must take ActorInput"):
        values = algorithm.value(case.inputs(algorithm))
    _check_column(case, "value", values, number=number)
    alone = torch.cat(
        [algorithm.value(case.inputs(algorithm, slice(row, row + 1))) for row in range(NUM_ALONE)]
    )
    rule = "the value of a row must not depend on the other rows"
    is_close = torch.allclose(alone, values[:NUM_ALONE], rtol=TOLERANCE, atol=TOLERANCE)
    case.must(rule, is_close)
    inputs = case.inputs(algorithm)
    if inputs.critic_input is not None:
        other = replace(inputs, critic_input=torch.zeros_like(inputs.critic_input))
        rule = "values must be of critic_input, where the network has a centralized critic"
        case.must(rule, not torch.equal(algorithm.value(other), values))


def _check_learning(case: Case) -> None:
    one, other = case.make(seed=7), case.make(seed=7)
    before = one.weights()
    for seed in range(3):
        metrics = case.update(one, seed=seed)
        case.update(other, seed=seed)
        _check_metrics(case, metrics)
    updates: object = one.learner_updates
    rule = "learner_updates must count optimizer steps"
    case.must(rule, isinstance(updates, int) and updates >= 1, got=updates)
    after = one.weights()
    still = [
        name
        for name in before
        if name.startswith(TRAINED) and torch.equal(before[name], after[name])
    ]
    case.must("update must train every weight of the network", not still, got=still)
    is_finite = all(bool(torch.isfinite(tensor).all()) for tensor in after.values())
    case.must("weights must be finite after an update", is_finite)
    rule = "update must be a function of the weights, the rollout and the generator"
    case.must(rule, are_equal(after, other.weights()), found="unequal weights")


def _check_metrics(case: Case, metrics: object) -> None:
    rule = "update must return finite numbers by group/name"
    is_right = isinstance(metrics, Mapping) and all(
        isinstance(name, str)
        and "/" in name
        and isinstance(value, int | float)
        and math.isfinite(value)
        for name, value in metrics.items()
    )
    case.must(rule, is_right, got=metrics)


def _check_checkpoint(case: Case) -> None:
    learned = case.make(seed=7)
    for seed in range(2):
        case.update(learned, seed=seed)
    weights, state = learned.weights(), learned.optimizer_state()
    for name, tensors in (("weights", weights), ("optimizer_state", state)):
        _check_tensors(case, name, tensors)
    fresh, used, unused = case.make(seed=8), case.make(seed=9), case.make(seed=8)
    case.update(used, seed=5)
    for algorithm in (fresh, used):
        with case.obeying("load must take its own weights and optimizer_state"):
            algorithm.load(
                _clones(weights), _clones(state), learner_updates=learned.learner_updates
            )
    for name, expected in (("weights", weights), ("optimizer_state", state)):
        found: Weights = getattr(fresh, name)()
        unequal = [
            key
            for key in expected
            if key not in found or not torch.equal(expected[key], found[key])
        ]
        case.must(f"load must give back the {name}", not unequal, got=unequal[:3])
    number = fresh.learner_updates
    rule = "load must take over learner_updates"
    case.must(rule, number == learned.learner_updates, got=number)
    rule = "load must leave a policy as if it had just been made and loaded"
    _check_same_learning(case, fresh, used, rule=rule)
    for algorithm in (fresh, unused):
        algorithm.load(_clones(weights), None, learner_updates=0)
    rule = "load without an optimizer_state must begin with a fresh optimizer"
    _check_same_learning(case, fresh, unused, rule=rule)
    _check_refusals(case, weights, state)


def _check_tensors(case: Case, name: str, tensors: Weights) -> None:
    wrong = [
        f"{key}: {tensor.dtype} on {tensor.device}"
        for key, tensor in tensors.items()
        if tensor.dtype != torch.float32 or tensor.device.type != "cpu"
    ]
    case.must(f"{name} must be float32 tensors on the CPU", not wrong, got=wrong[:1])


def _check_same_learning(case: Case, one: Algorithm, other: Algorithm, *, rule: str) -> None:
    for algorithm in (one, other):
        case.update(algorithm, seed=11)
    is_equal = are_equal(one.weights(), other.weights())
    case.must(rule, is_equal, found="unequal weights after the next update")


def _check_copies(case: Case, algorithm: Algorithm) -> None:
    before = _clones(algorithm.weights())
    for tensors in (algorithm.weights(), algorithm.optimizer_state()):
        for tensor in tensors.values():
            tensor.zero_()
    rule = "weights and optimizer_state must be copies, which a later update does not change"
    case.must(rule, are_equal(before, algorithm.weights()))


def _check_refusals(case: Case, weights: Weights, state: Weights) -> None:
    rule = "load must raise CheckpointCorrupt for weights of another architecture"
    name = next(iter(weights))
    for wrong in (
        {key: tensor for key, tensor in weights.items() if key != name},
        {**weights, name: torch.zeros(1, 2, 3)},
    ):
        algorithm = case.make(seed=7)
        try:
            algorithm.load(wrong, _clones(state), learner_updates=1)
        except CheckpointCorrupt:
            continue
        except BaseException as error:
            pass_interrupt(error)
            case.must(rule, False, got=error)
        case.must(rule, False, found=f"no error for a wrong {name}")


def _clones(tensors: Weights) -> dict[str, torch.Tensor]:
    return {name: tensor.clone() for name, tensor in tensors.items()}
