from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import example, given
from hypothesis import strategies as st
from scipy import stats

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.experience import Sequences
from arena.learning.sequences import pack
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.networks.stack import PolicyStack, stack_key
from arena.spaces import ActionLayout, ObservationLayout, with_agent_id
from tests.layouts import branching, discrete, flat_observation, squashed

NUM_FEATURES, NUM_ACTIONS = 5, 4
DISCRETE = discrete(NUM_ACTIONS)


def make_policy(
    seed: int,
    *,
    hidden_sizes: tuple[int, ...] = (32,),
    normalized: bool = True,
    greedy: bool = False,
    action: ActionLayout = DISCRETE,
    separate_value: bool = False,
) -> FrozenPolicy:
    network = make_actor_critic(
        NetworkConfig(
            hidden_sizes=hidden_sizes,
            normalize_observations=normalized,
            separate_value=separate_value,
        ),
        observation=flat_observation(NUM_FEATURES),
        action=action,
        seed=seed,
    )
    generator = torch.Generator().manual_seed(seed)
    # The initial weights are shifted, because their logits are nearly equal and their biases zero.
    for parameter in network.parameters():
        parameter.data += 0.3 * torch.randn(parameter.shape, generator=generator)
    if network.observation_normalizer is not None:
        rows = 1.0 + seed + 2.0 * torch.randn(50, NUM_FEATURES, generator=generator)
        network.observation_normalizer.update(rows)
    return FrozenPolicy(network, greedy=greedy)


def make_rows(
    counts: Sequence[int], *, seed: int, shuffled: bool = True
) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Observations, some of which are far out, masks with a legal action, and players."""
    generator = torch.Generator().manual_seed(seed)
    player = torch.arange(len(counts)).repeat_interleave(torch.tensor(counts))
    if shuffled:
        player = player[torch.randperm(len(player), generator=generator)]
    observation = 3.0 * torch.randn(len(player), NUM_FEATURES, generator=generator)
    observation[::7] *= 10.0
    mask = torch.rand(len(player), NUM_ACTIONS, generator=generator) < 0.6
    mask[:, 2] = True
    return observation, mask, player


def one_by_one(
    policies: Sequence[FrozenPolicy],
    observation: torch.Tensor,
    mask: torch.Tensor | None,
    player: torch.Tensor,
) -> torch.Tensor:
    logits = [
        policies[k].logits(observation[i : i + 1], None if mask is None else mask[i : i + 1])
        for i, k in enumerate(player.tolist())
    ]
    return torch.cat(logits) if logits else torch.empty(0, NUM_ACTIONS)


@pytest.mark.parametrize("normalized", [True, False])
@pytest.mark.parametrize("hidden_sizes", [(), (32,), (64, 64)])
@pytest.mark.parametrize(
    "counts",
    [
        [5],
        [3, 3, 3],
        [2, 1, 3],
        [4, 0, 7, 1],
        [0, 0, 0],
        [0, 6, 0, 0, 0],
        [1] * 32,
        [200, 1, 2, 3, 40, 1, 1, 1],
        [600, 600, 600],
        [0, 1, 2, 3] * 8,
    ],
)
@pytest.mark.slow
def test_logits_are_those_of_each_policy(
    counts: list[int], hidden_sizes: tuple[int, ...], normalized: bool
) -> None:
    policies = [
        make_policy(seed, hidden_sizes=hidden_sizes, normalized=normalized)
        for seed in range(len(counts))
    ]
    stack = PolicyStack(policies)
    assert len(stack) == len(counts)
    for shuffled in (True, False):
        observation, mask, player = make_rows(counts, seed=1, shuffled=shuffled)
        for legal in (mask, None):
            expected = one_by_one(policies, observation, legal, player)
            found = stack.logits(observation, legal, player=player)
            torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-3)


def box(*shape: int, dtype: str = "float32") -> ObservationLayout:
    low, high = ("-inf", "inf") if dtype == "float32" else (0, 255)
    return ObservationLayout.from_json(
        {"kind": "Box", "shape": list(shape), "dtype": dtype, "low": low, "high": high}
    )


DISCRETE_OBSERVATION = ObservationLayout.from_json({"kind": "Discrete", "n": 4, "start": 0})


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize(
    "layout",
    [
        box(6),
        box(6, dtype="uint8"),
        DISCRETE_OBSERVATION,
        with_agent_id(box(6), num_agents=3),
        # A single number to normalize would broadcast over the row.
        with_agent_id(box(1), num_agents=3),
        with_agent_id(box(6, dtype="uint8"), num_agents=2),
        with_agent_id(DISCRETE_OBSERVATION, num_agents=2),
        # The observation is only the id of the deciding agent.
        with_agent_id(box(0), num_agents=3),
        # The observation is empty, as in matching pennies.
        box(0),
    ],
    ids=["box", "bytes", "discrete", "id", "one+id", "bytes+id", "discrete+id", "only id", "none"],
)
def test_any_row_is_normalized_in_the_stack_as_alone(layout: ObservationLayout) -> None:
    generator = torch.Generator().manual_seed(3)

    def rows(count: int) -> torch.Tensor:
        drawn = 5.0 + 30.0 * torch.rand(count, layout.size, generator=generator)
        for leaf in layout.leaves:
            if leaf.kind == "Discrete":
                chosen = torch.randint(leaf.size, (count,), generator=generator)
                drawn[:, leaf.place] = torch.nn.functional.one_hot(chosen, leaf.size).float()
        return drawn.to(torch.uint8) if layout.dtype == np.uint8 else drawn

    policies = []
    for seed in range(3):
        network = make_actor_critic(
            NetworkConfig(hidden_sizes=(16,)), observation=layout, action=DISCRETE, seed=seed
        )
        network.head.weight.data.mul_(100.0)
        if network.observation_normalizer is not None:
            network.observation_normalizer.update(rows(50))
        policies.append(FrozenPolicy(network))
    observation, player = rows(13), torch.arange(13) % 3
    found = PolicyStack(policies).logits(observation, player=player)
    alone = torch.cat(
        [policies[k].logits(observation[i : i + 1]) for i, k in enumerate(player.tolist())]
    )
    torch.testing.assert_close(found, alone, rtol=1e-4, atol=1e-4)


def test_bfloat16_rounds_logits_and_changes_no_choice_that_is_clear() -> None:
    counts = [40, 3, 7, 0, 12, 5, 9, 20]
    policies = [make_policy(seed, hidden_sizes=(32, 16)) for seed in range(len(counts))]
    observation, mask, player = make_rows(counts, seed=1)
    exact = PolicyStack(policies).logits(observation, None, player=player)
    rounded_stack = PolicyStack(policies, product_dtype=torch.bfloat16)
    rounded = rounded_stack.logits(observation, None, player=player)
    assert rounded.dtype == torch.float32
    # Three layers with eight bits of mantissa give an error of about 1/100 of the largest logit.
    scale = float(exact.abs().max())
    difference = (rounded - exact).abs()
    assert 0.0 < float(difference.max()) < 0.03 * scale
    best_two = exact.topk(2, dim=1).values
    clear = best_two[:, 0] - best_two[:, 1] > 2.0 * float(difference.max())
    assert int(clear.sum()) > len(clear) // 2
    assert bool((rounded.argmax(dim=1) == exact.argmax(dim=1))[clear].all())
    legal = rounded_stack.logits(observation, mask, player=player)
    assert bool((legal[~mask] < -1e8).all())


def test_few_policies_are_not_rounded() -> None:
    policies = [make_policy(seed) for seed in range(7)]
    observation, mask, player = make_rows([4] * 7, seed=1)
    exact = PolicyStack(policies).logits(observation, mask, player=player)
    found = PolicyStack(policies, product_dtype=torch.bfloat16)
    torch.testing.assert_close(found.logits(observation, mask, player=player), exact)


@given(counts=st.lists(st.sampled_from([0, 1, 2, 5, 40, 300]), min_size=1, max_size=32))
@example(counts=[300, 40, *[1] * 14])
@pytest.mark.slow
def test_padding_at_most_triples_the_rows(counts: list[int]) -> None:
    policies = [make_policy(k, hidden_sizes=()) for k in range(len(counts))]
    observation, _, player = make_rows(counts, seed=1)
    rows: list[int] = []
    product = PolicyStack._product

    def counted(self: PolicyStack, observation: torch.Tensor, policies: slice) -> torch.Tensor:
        rows.append(observation.shape[0] * observation.shape[1])
        return product(self, observation, policies)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PolicyStack, "_product", counted)
        PolicyStack(policies).logits(observation, player=player)
    assert sum(counts) <= sum(rows) <= 3 * sum(counts)
    # A policy acts separately only if padding would cost more.
    if len(counts) * max(counts) <= 3 * sum(counts):
        assert sum(rows) == len(counts) * max(counts)


@given(
    counts=st.lists(st.integers(0, 40), min_size=1, max_size=32),
    seed=st.integers(0, 1000),
    hidden_sizes=st.sampled_from([(), (32,)]),
)
@pytest.mark.slow
def test_greedy_actions_are_those_of_each_policy(
    counts: list[int], seed: int, hidden_sizes: tuple[int, ...]
) -> None:
    policies = [make_policy(k, hidden_sizes=hidden_sizes, greedy=True) for k in range(len(counts))]
    observation, mask, player = make_rows(counts, seed=seed)
    found = PolicyStack(policies).act(
        observation, mask, player=player, generator=torch.Generator().manual_seed(1)
    )
    logits = one_by_one(policies, observation, mask, player)
    assert found.shape == player.shape
    assert found.dtype == torch.int64
    # Rounding may only decide between logits that are nearly equal.
    chosen = logits.gather(1, found[:, None])[:, 0]
    assert (chosen >= logits.max(dim=1).values - 1e-3).all() if len(player) else True


@pytest.mark.parametrize("counts", [[30_000, 30_000], [50_000, 9_000, 20, 0, 980, 0, 0, 0]])
def test_samples_follow_each_policys_own_distribution(counts: list[int]) -> None:
    policies = [make_policy(seed) for seed in range(len(counts))]
    for policy in policies:
        policy.network.head.weight.mul_(0.1)
    _, _, player = make_rows(counts, seed=4)
    observation = torch.tensor([[0.5, -1.0, 2.0, 0.0, 1.0]]).expand(len(player), -1)
    mask = torch.tensor([[True, False, True, True]]).expand(len(player), -1)
    action = PolicyStack(policies).act(
        observation, mask, player=player, generator=torch.Generator().manual_seed(3)
    )
    for k, count in enumerate(counts):
        observed = torch.bincount(action[player == k], minlength=NUM_ACTIONS)
        assert observed[1] == 0
        if count < 900:
            continue
        expected = policies[k].logits(observation[:1], mask[:1])[0].double().softmax(0) * count
        legal = mask[0]
        assert expected[legal].min() > 5
        assert stats.chisquare(observed[legal], expected[legal]).pvalue > 0.001


def test_actions_are_a_function_of_the_generator() -> None:
    stack = PolicyStack([make_policy(seed) for seed in range(6)])
    observation, mask, player = make_rows([9, 2, 0, 14, 5, 5], seed=2)
    torch.manual_seed(0)
    state = torch.get_rng_state()

    def act(seed: int) -> list[int]:
        generator = torch.Generator().manual_seed(seed)
        return stack.act(observation, mask, player=player, generator=generator).tolist()

    assert act(5) == act(5) != act(6)
    assert torch.equal(state, torch.get_rng_state())


def test_stack_and_policies_share_no_memory() -> None:
    policies = [make_policy(seed) for seed in range(3)]
    stack = PolicyStack(policies)
    observation, _, player = make_rows([4, 4, 4], seed=3, shuffled=False)
    of_stack = stack.logits(observation, player=player).clone()
    for policy in policies:
        for tensor in policy.network.state_dict().values():
            tensor.add_(1.0)
    assert torch.equal(stack.logits(observation, player=player), of_stack)
    assert not torch.allclose(one_by_one(policies, observation, None, player), of_stack)


def test_acting_changes_no_policy_and_no_observation() -> None:
    policies = [make_policy(seed) for seed in range(3)]
    before = [
        {name: tensor.clone() for name, tensor in policy.network.state_dict().items()}
        for policy in policies
    ]
    stack = PolicyStack(policies)
    for counts in ([4, 4, 4], [9, 1, 0], [300, 1, 1]):
        observation, mask, player = make_rows(counts, seed=3, shuffled=False)
        seen = observation.clone(), mask.clone(), player.clone()
        stack.act(observation, mask, player=player, generator=torch.Generator())
        assert all(map(torch.equal, seen, (observation, mask, player)))
    for policy, tensors in zip(policies, before, strict=True):
        for name, tensor in policy.network.state_dict().items():
            assert torch.equal(tensor, tensors[name])


@pytest.mark.parametrize("separate_value", [False, True])
@pytest.mark.parametrize(
    "action", [branching(2, 1, 3), squashed(-2.0, 1.0, size=2), discrete(NUM_ACTIONS)]
)
@pytest.mark.parametrize("counts", [[3, 3, 3], [40, 1, 2, 0, 1, 1]])
def test_any_actions_are_those_of_each_policy(
    counts: list[int], action: ActionLayout, separate_value: bool
) -> None:
    policies = [
        make_policy(k, action=action, separate_value=separate_value, greedy=True)
        for k in range(len(counts))
    ]
    observation, _, player = make_rows(counts, seed=5)
    mask = None
    if action.branches:
        mask = torch.ones(len(player), action.num_logits, dtype=torch.bool)
        mask[::2, 0] = False
    generator = torch.Generator()
    found = PolicyStack(policies).act(observation, mask, player=player, generator=generator)
    for row, k in enumerate(player.tolist()):
        at = slice(row, row + 1)
        legal = None if mask is None else mask[at]
        alone = (
            policies[k]
            .act(
                ActorInput(observation=observation[at], action_mask=legal),
                agent="anyone",
                generator=generator,
            )
            .action
        )
        torch.testing.assert_close(found[at], alone, rtol=1e-4, atol=1e-3)


def test_samples_have_each_policys_own_deviation() -> None:
    policies = [make_policy(k, action=squashed(-1.0, 1.0, size=1)) for k in range(2)]
    for policy, log_std in zip(policies, (-3.0, 0.5), strict=True):
        assert policy.network.log_std is not None
        policy.network.log_std.fill_(log_std)
    player = torch.arange(2).repeat(4000)
    observation = torch.ones(8000, NUM_FEATURES)
    found = PolicyStack(policies).act(
        observation, None, player=player, generator=torch.Generator().manual_seed(0)
    )
    for k, log_std in enumerate((-3.0, 0.5)):
        deviation = found[player == k].std().log().item()
        assert deviation == pytest.approx(log_std, abs=0.05)


def test_a_policy_with_an_encoder_plays_by_itself() -> None:
    space = {"kind": "Box", "shape": [8, 8, 1], "dtype": "uint8", "low": 0, "high": 255}
    policies = [
        FrozenPolicy(
            make_actor_critic(
                NetworkConfig(hidden_sizes=(8,)),
                observation=ObservationLayout.from_json(space),
                action=discrete(NUM_ACTIONS),
                seed=0,
            )
        )
        for _ in range(2)
    ]
    assert stack_key(policies[0]) != stack_key(policies[1])
    with pytest.raises(ValueError, match="without an encoder"):
        PolicyStack(policies[:1])


def test_only_policies_of_one_kind_fit_together() -> None:
    kinds = [
        make_policy(0),
        make_policy(0, greedy=True),
        make_policy(0, hidden_sizes=(16,)),
        make_policy(0, hidden_sizes=(32, 32)),
        make_policy(0, hidden_sizes=()),
        make_policy(0, normalized=False),
        make_policy(0, action=discrete(3)),
        make_policy(0, separate_value=True),
        # The policies have equally many outputs, but other branches.
        make_policy(0, action=branching(2, 2)),
        make_policy(0, action=branching(1, 3)),
        make_policy(0, action=squashed(0.0, 1.0, size=4)),
        make_policy(0, action=squashed(0.0, 2.0, size=4)),
    ]
    assert len({stack_key(policy) for policy in kinds}) == len(kinds)
    assert stack_key(kinds[0]) == stack_key(make_policy(9))
    for policy in kinds[1:]:
        with pytest.raises(ValueError, match="one architecture"):
            PolicyStack([kinds[0], policy])
    with pytest.raises(ValueError, match="one architecture"):
        PolicyStack([])


SIZE, WIDTH = 5, 6
LENGTHS = (3, 7, 1, 7, 4)


def make(core: Any, **settings: Any) -> ActorCritic:
    network = NetworkConfig(hidden_sizes=(8,), core=core, core_size=WIDTH, **settings)
    return make_actor_critic(
        network, observation=flat_observation(SIZE), action=discrete(4), seed=3
    )


def sequences_of(lengths: Sequence[int], *, state_size: int) -> Sequences:
    """Rows are numbered sequence after sequence."""
    rows = torch.full((len(lengths), max(lengths)), -1)
    for index, length in enumerate(lengths):
        first = sum(lengths[:index])
        rows[index, :length] = torch.arange(first, first + length)
    generator = torch.Generator().manual_seed(9)
    return Sequences(rows=rows, state=torch.randn(len(lengths), state_size, generator=generator))


@pytest.mark.parametrize("separate_value", [False, True])
@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_an_unroll_is_what_steps_give(core: str, separate_value: bool) -> None:
    network = make(core, separate_value=separate_value)
    assert network.state_size == (WIDTH if core == "gru" else 2 * WIDTH)
    sequences = sequences_of(LENGTHS, state_size=network.state_size)
    observation = torch.randn(sum(LENGTHS), SIZE, generator=torch.Generator().manual_seed(1))
    packed = pack(sequences)
    assert sorted(packed.rows.tolist()) == list(range(sum(LENGTHS)))
    parameters, value = network.unroll(
        observation[packed.rows], batch_sizes=packed.batch_sizes, state=packed.state
    )
    place = packed.rows.argsort()
    found = torch.cat([parameters, value[:, None]], dim=1)[place]
    for rows, state in zip(sequences.rows, sequences.state, strict=True):
        before = state[None]
        for row in rows[rows >= 0].tolist():
            expected, expected_value, before = network.step(observation[row : row + 1], before)
            step = torch.cat([expected, expected_value[:, None]], dim=1)[0]
            torch.testing.assert_close(found[row], step, rtol=0, atol=1e-6)


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_the_cell_is_the_one_of_the_papers(core: str) -> None:
    network = make(core)
    assert network.core is not None
    layer = network.core.recurrent
    w, u, b, c = (
        layer.get_parameter(name).double()
        for name in ("weight_ih_l0", "weight_hh_l0", "bias_ih_l0", "bias_hh_l0")
    )
    generator = torch.Generator().manual_seed(2)
    x = torch.randn(2, 8, generator=generator)
    state = torch.randn(2, network.state_size, generator=generator)
    out, after = network.core.step(x, state)
    h = state.double()[:, :WIDTH]
    given, own = x.double() @ w.T + b, h @ u.T + c
    if core == "gru":
        r, z = torch.sigmoid(given + own)[:, : 2 * WIDTH].chunk(2, dim=1)
        n = torch.tanh(given[:, 2 * WIDTH :] + r * own[:, 2 * WIDTH :])
        expected = (1 - z) * n + z * h
        expected_state = expected
    else:
        i, f, g, o = (given + own).chunk(4, dim=1)
        cell = f.sigmoid() * state.double()[:, WIDTH:] + i.sigmoid() * g.tanh()
        expected = o.sigmoid() * cell.tanh()
        expected_state = torch.cat([expected, cell], dim=1)
    torch.testing.assert_close(out.double(), expected, rtol=0, atol=1e-6)
    torch.testing.assert_close(after.double(), expected_state, rtol=0, atol=1e-6)


@pytest.mark.parametrize("core", ["gru", "lstm"])
def test_first_weights_are_orthogonal_by_gate_and_of_the_seed(core: str) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    weights = make(core).state_dict()
    assert torch.equal(before, torch.get_rng_state())
    gates = weights["core.recurrent.weight_hh_l0"].split(WIDTH)
    assert len(gates) == (3 if core == "gru" else 4)
    for gate in gates:
        torch.testing.assert_close(gate @ gate.T, torch.eye(WIDTH))
    bias = weights["core.recurrent.bias_ih_l0"] + weights["core.recurrent.bias_hh_l0"]
    open_gate = torch.zeros(len(bias))
    if core == "lstm":
        open_gate[WIDTH : 2 * WIDTH] = 1.0
    assert torch.equal(bias, open_gate)
    again = make(core).state_dict()
    assert all(torch.equal(again[name], weight) for name, weight in weights.items())


def test_a_core_computes_in_float32_where_products_are_rounded() -> None:
    network = make("gru")
    state = torch.zeros(3, network.state_size)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        parameters, value, after = network.step(torch.randn(3, SIZE), state)
        unrolled, _ = network.unroll(
            torch.randn(3, SIZE).bfloat16(), batch_sizes=torch.tensor([3]), state=state
        )
    assert {t.dtype for t in (parameters, value, after, unrolled)} == {torch.float32}
    assert not torch.equal(after, after.bfloat16().float())


def test_a_value_of_its_own_reads_the_memory_and_does_not_train_it() -> None:
    network = make("gru", separate_value=True)
    _, value, _ = network.step(torch.randn(3, SIZE), torch.randn(3, WIDTH))
    value.sum().backward()  # type: ignore[no-untyped-call]
    assert network.core is not None
    assert all(parameter.grad is None for parameter in network.core.parameters())
    one, other = (
        network.step(torch.ones(1, SIZE), before)[1]
        for before in (torch.zeros(1, WIDTH), torch.ones(1, WIDTH))
    )
    assert not torch.equal(one, other)


def test_whoever_does_not_know_of_a_state_is_told() -> None:
    network = make("lstm")
    rows = torch.zeros(2, SIZE)
    policy = FrozenPolicy(network)
    with pytest.raises(ValueError, match="needs the state"):
        network(rows)
    with pytest.raises(ValueError, match="needs the state"):
        policy.act(ActorInput(observation=rows), agent="a", generator=torch.Generator())
    with pytest.raises(ValueError, match="has no state"):
        make("none").step(rows, torch.zeros(2, 0))
    with pytest.raises(ValueError, match="without an encoder and a memory"):
        PolicyStack([policy])
