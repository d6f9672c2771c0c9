from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import torch

from arena.config import NetworkConfig
from arena.core import Actor, ActorInput
from arena.errors import CheckpointCorrupt
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.spaces import ActionLayout
from tests.layouts import branching, discrete, flat_observation, squashed


def make(*, seed: int = 3, normalize: bool = True, hidden: tuple[int, ...] = (8, 6)) -> ActorCritic:
    network = NetworkConfig(hidden_sizes=hidden, normalize_observations=normalize)
    return make_actor_critic(
        network, observation=flat_observation(5), action=discrete(4), seed=seed
    )


def test_weights_are_a_function_of_the_seed_and_touch_no_global_state() -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    first = make().state_dict()
    assert torch.equal(state, torch.get_rng_state())
    torch.manual_seed(2)
    second = make().state_dict()
    assert list(first) == list(second)
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert not torch.equal(first["trunk.0.weight"], make(seed=4).state_dict()["trunk.0.weight"])


def test_names_are_those_of_the_checkpoint_format() -> None:
    normalizer = ["mean", "variance", "count"]
    layers = ["trunk.0.weight", "trunk.0.bias", "trunk.2.weight", "trunk.2.bias"]
    assert set(make().state_dict()) == {
        *(f"observation_normalizer.{name}" for name in normalizer),
        *(f"return_normalizer.{name}" for name in normalizer),
        *layers,
        "head.weight",
        "head.bias",
    }
    assert not any("observation" in name for name in make(normalize=False).state_dict())


def test_initialisation_is_orthogonal_with_the_right_gains() -> None:
    weights = make().state_dict()
    first, head = weights["trunk.0.weight"], weights["head.weight"]
    # 8 x 5 has orthonormal columns times sqrt(2); 5 x 6 has orthonormal rows times 0.01.
    torch.testing.assert_close(first.T @ first, 2.0 * torch.eye(5))
    torch.testing.assert_close(head @ head.T, 1e-4 * torch.eye(5), rtol=0, atol=1e-9)
    assert not weights["head.bias"].any()


def test_fresh_weights_are_those_of_earlier_releases() -> None:
    network = make_actor_critic(
        NetworkConfig(), observation=flat_observation(84), action=discrete(7), seed=0
    )
    found = {name: tensor.flatten()[:3].tolist() for name, tensor in network.state_dict().items()}
    # The values were recorded when the MLP was the only encoder.
    recorded = {
        "trunk.0.weight": [-0.144916370511055, -0.1442420780658722, -0.06594054400920868],
        "trunk.2.weight": [0.0850924625992775, 0.050508905202150345, -0.08761182427406311],
        "head.weight": [0.0012724685948342085, 0.0005139601998962462, 0.001789871254004538],
    }
    for name, numbers in recorded.items():
        assert found[name] == pytest.approx(numbers, rel=1e-3)


def test_fresh_weights_are_drawn_layer_after_layer_and_nothing_else_is() -> None:
    weights = make(seed=3).state_dict()
    generator = torch.Generator().manual_seed(3)
    gain = 2.0**0.5
    for name, shape, scale in (
        ("trunk.0.weight", (8, 5), gain),
        ("trunk.2.weight", (6, 8), gain),
        ("head.weight", (5, 6), 0.01),
    ):
        expected = torch.nn.init.orthogonal_(torch.empty(shape), scale, generator=generator)
        assert torch.equal(weights[name], expected)


@pytest.mark.parametrize("action", [squashed(-1.0, 1.0, size=3), branching(2, 3)])
def test_parameters_are_what_the_distribution_takes(action: ActionLayout) -> None:
    network = make_actor_critic(
        NetworkConfig(hidden_sizes=(8,)), observation=flat_observation(5), action=action, seed=1
    )
    rows = torch.randn(7, 5, generator=torch.Generator().manual_seed(0))
    parameters, value = network(network.normalize_observation(rows))
    assert parameters.shape == (7, network.distribution.num_parameters)
    assert value.shape == (7,)
    assert torch.equal(network.policy(rows), parameters)
    assert network.logits(rows).shape == (7, action.num_logits)
    distribution = network.distribution(parameters, None)
    actions = distribution.sample(torch.Generator().manual_seed(0))
    assert actions.shape == (7, *action.row_shape)
    distribution.log_prob(actions).sum().backward()  # type: ignore[no-untyped-call]
    if action.num_continuous:
        assert network.log_std is not None
        # Standard deviations start at 1 and do not depend on the observation.
        assert not parameters[:, 3:].any()
        assert network.log_std.grad is not None
        assert network.log_std.grad.shape == (3,)
    else:
        assert network.log_std is None


@pytest.mark.parametrize("hidden", [(), (7,), (8, 6)])
@pytest.mark.parametrize("normalize", [False, True])
def test_forward_agrees_with_numpy(hidden: tuple[int, ...], normalize: bool) -> None:
    network = make(hidden=hidden, normalize=normalize)
    generator = torch.Generator().manual_seed(0)
    observation = 3.0 * torch.randn(20, 5, generator=generator) + 1.0
    if network.observation_normalizer is not None:
        network.observation_normalizer.update(observation)
    network.return_normalizer.update(torch.tensor([[1.0], [5.0]]))  # mean 3, deviation 2
    features = observation.double().numpy()
    if normalize:
        features = (features - features.mean(0)) / np.sqrt(features.var(0) + 1e-8)
    weights = {name: tensor.double().numpy() for name, tensor in network.state_dict().items()}
    for layer in range(len(hidden)):
        features = np.maximum(
            features @ weights[f"trunk.{2 * layer}.weight"].T + weights[f"trunk.{2 * layer}.bias"],
            0.0,
        )
    outputs = features @ weights["head.weight"].T + weights["head.bias"]
    mask = torch.rand(20, 4, generator=generator) < 0.5
    logits = network.logits(observation, mask).detach()
    np.testing.assert_allclose(logits[mask], outputs[:, :4][mask.numpy()], atol=1e-5)
    assert (logits[~mask] == torch.finfo(torch.float32).min).all()
    value = network.value(observation).detach()
    np.testing.assert_allclose(value, outputs[:, 4] * 2.0 + 3.0, atol=1e-5)


def test_observations_are_clipped_after_normalization() -> None:
    network = make()
    far = torch.tensor([[1e6, -1e6, 0.0, 0.0, 0.0]])
    assert network.normalize_observation(far).tolist() == [[10.0, -10.0, 0.0, 0.0, 0.0]]


def test_outputs_are_float32_under_autocast() -> None:
    network = make()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits, value = network(torch.zeros(2, 5))
    assert logits.dtype == value.dtype == torch.float32


CPU = torch.device("cpu")
NETWORK = NetworkConfig(hidden_sizes=(8,))
OBSERVATION, ACTION = flat_observation(3), discrete(4)
Weights = dict[str, torch.Tensor]


def make_unfrozen(*, seed: int) -> ActorCritic:
    return make_actor_critic(NETWORK, observation=OBSERVATION, action=ACTION, seed=seed)


def freeze(weights: Weights, *, greedy: bool = False) -> FrozenPolicy:
    return FrozenPolicy.from_weights(
        NETWORK, weights, observation=OBSERVATION, action=ACTION, device=CPU, greedy=greedy
    )


def make_weights() -> Weights:
    network = make_unfrozen(seed=5)
    assert network.observation_normalizer is not None
    network.observation_normalizer.update(torch.tensor([[1.0, 2.0, 3.0], [5.0, 2.0, 1.0]]))
    network.head.weight.data.mul_(100.0)
    return network.state_dict()


def test_plays_like_the_network_it_was_made_from() -> None:
    weights = make_weights()
    live = make_unfrozen(seed=6)
    live.load_state_dict(weights)
    frozen = freeze(weights)
    observation = torch.randn(9, 3, generator=torch.Generator().manual_seed(0))
    mask = torch.tensor([[True, False, True, True]]).expand(9, 4)
    assert torch.equal(frozen.logits(observation, mask), live.logits(observation, mask))
    assert frozen.network.action == ACTION


def test_samples_from_its_logits_and_greedy_takes_the_likeliest() -> None:
    weights = make_weights()
    actor: Actor = freeze(weights)
    observation = torch.tensor([[0.5, 1.0, 2.0]]).expand(50_000, 3)
    mask = torch.tensor([[True, True, False, True]]).expand(50_000, 4)
    action = actor.act(
        ActorInput(observation=observation, action_mask=mask),
        agent="anyone",
        generator=torch.Generator().manual_seed(0),
    ).action
    greedy = freeze(weights, greedy=True)
    probabilities = greedy.logits(observation[:1], mask[:1])[0].softmax(0)
    torch.testing.assert_close(
        torch.bincount(action, minlength=4) / 50_000, probabilities, rtol=0, atol=0.01
    )
    best = greedy.act(
        ActorInput(observation=observation[:7], action_mask=mask[:7]),
        agent="anyone",
        generator=torch.Generator(),
    ).action
    assert best.tolist() == [int(probabilities.argmax())] * 7


def test_shares_no_memory_with_the_weights_it_was_given() -> None:
    weights = make_weights()
    frozen = freeze(weights)
    observation = torch.ones(2, 3)
    before = frozen.logits(observation).clone()
    for tensor in weights.values():
        tensor.fill_(9.0)
    assert torch.equal(frozen.logits(observation), before)


def test_playing_moves_nothing() -> None:
    weights = make_weights()
    frozen = freeze(weights)
    observation = torch.randn(64, 3, generator=torch.Generator().manual_seed(0))
    before = frozen.logits(observation).clone()
    generator = torch.Generator().manual_seed(1)
    for _ in range(5):
        frozen.act(ActorInput(observation=100.0 * observation), agent="anyone", generator=generator)
    assert torch.equal(frozen.logits(observation), before)


@pytest.mark.parametrize(
    ("spoil", "text"),
    [
        (lambda weights: weights.pop("trunk.0.bias"), "missing \\['trunk.0.bias'\\]"),
        (lambda weights: weights.update(extra=torch.zeros(1)), "unknown \\['extra'\\]"),
        (
            lambda weights: weights.update({"trunk.0.bias": torch.zeros(9)}),
            "trunk.0.bias must have shape \\[8\\], got \\[9\\]",
        ),
        (
            lambda weights: weights.update({"head.bias": torch.zeros(5).double()}),
            "head.bias must be float32",
        ),
        (
            lambda weights: weights.update({"head.bias": torch.full((5,), torch.nan)}),
            "head.bias must be finite",
        ),
        (lambda weights: weights.clear(), "weights must have the names of this architecture"),
    ],
)
def test_refuses_weights_of_another_architecture(
    spoil: Callable[[Weights], object], text: str
) -> None:
    weights = dict(make_weights())
    spoil(weights)
    with pytest.raises(CheckpointCorrupt, match=text):
        freeze(weights)
