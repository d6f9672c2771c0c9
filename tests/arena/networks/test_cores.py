from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from arena.config import NetworkConfig
from arena.core import ActorInput
from arena.experience import Sequences
from arena.learning.sequences import pack
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.frozen import FrozenPolicy
from arena.networks.stack import PolicyStack
from tests.layouts import discrete, flat_observation

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
