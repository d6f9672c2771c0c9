"""Exports of policies in all kinds of spaces against the policies that they were made from."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any, NamedTuple

import gymnasium
import numpy as np
import numpy.typing as npt
import onnxruntime
import pytest
import torch
from gymnasium.spaces import Box, Dict, Discrete, MultiBinary, MultiDiscrete, Tuple

from arena.config import NetworkConfig
from arena.core import Actor, ActorInput
from arena.envs.spaces.observations import describe
from arena.errors import ExportError
from arena.export.actor import ExportedActor
from arena.export.card import Card
from arena.export.card_text import card_for_people
from arena.export.champion import Actions, Champion, play_game
from arena.export.graph import action_names, input_names, random_feeds
from arena.export.write import Written, write_export
from arena.spaces import AGENT_ID
from tests.arena.export.conftest import make_policy
from tests.layouts import frozen_policy

pytestmark = pytest.mark.xdist_group("exports")

Policy = tuple[Card, dict[str, torch.Tensor]]

BODY = Dict({"arm": Box(-np.inf, np.inf, (2, 2), np.float64), "mode": Discrete(3, start=-1)})
SENSES = Dict(
    {
        "eye": Box(0, 255, (8, 8), np.uint8),
        "body": BODY,
        "flags": MultiBinary(3),
        "pair": Tuple((MultiDiscrete([2, 3], start=[1, 0]), Box(-1.0, 1.0, (), np.float32))),
    }
)
DEEDS = Dict(
    {
        "go": Discrete(4, start=2),
        "steer": Box(np.array([-2.0, 0.0]), np.array([2.0, np.inf]), dtype=np.float64),
        "with": Tuple(
            (MultiBinary(2), MultiDiscrete([2, 3], start=[5, -1]), Box(0, 9, (), np.int64))
        ),
    }
)
PIXELS = Box(0, 255, (12, 12, 3), np.uint8)
LEVERS = MultiDiscrete(np.array([[3, 2], [2, 4]]), start=np.array([[1, 0], [0, 0]]))
WHEEL = Box(np.array([[-1.0, 0.1]]), np.array([[3.0, 0.2]]), dtype=np.float64)

SMALL = NetworkConfig(hidden_sizes=(16,))
WITH_ID = NetworkConfig(hidden_sizes=(16,), agent_id=True)


@pytest.fixture(scope="module")
def policies() -> dict[str, Policy]:
    numbers = Box(-np.inf, np.inf, (5,), np.float32)
    return {
        "nested": make_policy(
            SENSES, actions=DEEDS, mask="beside", network=WITH_ID, continuous="clipped"
        ),
        "pixels": make_policy(PIXELS, actions=LEVERS, mask="info", network=SMALL),
        "wheel": make_policy(numbers, actions=WHEEL, mask=None, network=WITH_ID),
    }


@pytest.fixture(scope="module")
def written(
    policies: dict[str, Policy], tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Written[Card]]:
    root = tmp_path_factory.mktemp("spaces")
    return {
        name: write_export(root / name, card=card, weights=weights)
        for name, (card, weights) in policies.items()
    }


class Case(NamedTuple):
    """A policy, its spaces, and its export."""

    name: str
    card: Card
    weights: dict[str, torch.Tensor]
    directory: Path

    def rows(self, num_rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
        return rows_and_masks(self.card, num_rows)

    def greedy(self, rows: torch.Tensor, masks: torch.Tensor | None) -> npt.NDArray[Any]:
        """What the policy itself does."""
        return acted(frozen_policy(self.card, self.weights, greedy=True), rows, masks)


def acted(actor: Actor, rows: torch.Tensor, masks: torch.Tensor | None) -> npt.NDArray[Any]:
    inputs = ActorInput(observation=rows, action_mask=masks)
    generator = torch.Generator().manual_seed(8)
    return actor.act(inputs, agent="player_0", generator=generator).action.numpy()


SPACES: dict[str, gymnasium.Space[Any]] = {
    "board": Discrete(7),
    "number": Discrete(4, start=10),
    "nested": DEEDS,
    "pixels": LEVERS,
    "wheel": WHEEL,
}


@pytest.fixture(
    scope="module",
    params=[
        *("board", "number"),
        *(pytest.param(one, marks=pytest.mark.slow) for one in ("nested", "pixels", "wheel")),
    ],
)
def case(request: pytest.FixtureRequest) -> Case:
    name = request.param
    if name in ("board", "number"):
        policy, export = (request.getfixturevalue(f"{name}_{one}") for one in ("policy", "export"))
    else:
        policy, export = (request.getfixturevalue(one)[name] for one in ("policies", "written"))
    card, weights = policy
    return Case(name, card, weights, export.directory)


def rows_and_masks(card: Card, num_rows: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Random rows as learners have them, and legal choices."""
    rng, layout, action = np.random.default_rng(4), card.observation_layout, card.action_layout
    feeds = random_feeds(layout, num_rows, rng=rng)
    rows = np.zeros((num_rows, layout.size), dtype=layout.dtype)
    for row, *parts in zip(rows, *feeds.values(), strict=True):
        for leaf, part in zip(layout.leaves, parts, strict=True):
            if leaf.keys == AGENT_ID:
                row[leaf.offset + int(part)] = 1.0
            elif leaf.choices and leaf.kind != "MultiBinary":
                first = leaf.offset
                for value, start, n in zip(
                    part.reshape(-1), leaf.starts, leaf.choices, strict=True
                ):
                    row[first + int(value) - start] = 1.0
                    first += n
            else:
                row[leaf.place] = part.reshape(-1).astype(leaf.dtype)
    if card.mask is None:
        return torch.from_numpy(rows), None
    mask = rng.random((num_rows, action.num_logits)) < 0.5
    first = 0
    for n in action.branches:
        mask[:, first + int(rng.integers(n))] = True
        first += n
    return torch.from_numpy(rows), torch.from_numpy(mask)


def as_given(
    card: Card, rows: torch.Tensor, masks: torch.Tensor | None
) -> list[tuple[Any, Any, str]]:
    """Observation, mask and agent of each row, as the environment gives them."""
    observations = card.observation_layout.to_environment(rows)
    last = card.observation_layout.leaves[-1]
    given = []
    for at in range(len(rows)):
        one = picked(observations, at)
        mask = None if masks is None else masks[at].numpy().astype(np.int8)
        place = int(rows[at, last.place].argmax()) if last.keys == AGENT_ID else 0
        if card.mask == "beside":
            one, mask = {**one, "action_mask": mask}, None
        given.append((one, mask, card.agents[place]))
    return given


def picked(values: Any, at: int) -> Any:
    if isinstance(values, dict):
        return {key: picked(part, at) for key, part in values.items()}
    return tuple(picked(v, at) for v in values) if isinstance(values, tuple) else values[at]


def assert_same(found: Any, expected: Any) -> None:
    """Equal up to rounding, of one dtype and nesting."""
    assert type(found) is type(expected)
    if isinstance(expected, dict):
        assert found.keys() == expected.keys()
        for key in expected:
            assert_same(found[key], expected[key])
    elif isinstance(expected, tuple):
        for one, other in zip(found, expected, strict=True):
            assert_same(one, other)
    elif isinstance(expected, np.ndarray):
        assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
        np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-5)
    else:
        assert found == expected


def test_the_champion_takes_and_gives_what_the_environment_does(case: Case) -> None:
    rows, masks = case.rows(24)
    expected = case.card.action_layout.actions(case.greedy(rows, masks))
    champion = Champion(case.directory)
    given = as_given(case.card, rows, masks)
    for (observation, mask, agent), action in zip(given, expected, strict=True):
        found = champion.act(observation, mask, agent=agent)
        assert_same(found, action)
        for act in (found, champion.act(observation, mask, agent=agent, sample=True)):
            if case.name != "nested":
                assert SPACES[case.name].contains(act)
    assert len({str(action) for action in expected}) > 1


def stacked(values: list[Any]) -> Any:
    """Nested values of rows as values with a leading axis."""
    if isinstance(values[0], dict):
        return {key: stacked([value[key] for value in values]) for key in values[0]}
    if isinstance(values[0], tuple):
        return tuple(stacked(list(parts)) for parts in zip(*values, strict=True))
    return np.stack(values)


def test_a_batch_is_its_rows(case: Case) -> None:
    card, layout = case.card, case.card.action_layout
    rows, masks = case.rows(60)
    given = as_given(card, rows, masks)
    own = [at for at, (_, _, agent) in enumerate(given) if agent == card.agents[0]]
    assert len(own) > 10
    rows, masks = rows[own], None if masks is None else masks[own]
    seen = observation = card.observation_layout.to_environment(rows)
    mask = None if masks is None else masks.numpy()
    given_mask = mask
    if card.mask == "beside":
        seen = observation = {**observation, "action_mask": mask}
        given_mask = None
    elif card.mask == "observation":
        observation, given_mask = {"observation": observation, "action_mask": mask}, None
    champion = Champion(case.directory)
    ones = [given[at] for at in own]
    expected = stacked([champion.act(one, m, agent=agent) for one, m, agent in ones])
    agent = card.agents[0]
    assert_same(champion.act(observation, given_mask, agent=agent), expected)
    sampled = champion.act(observation, given_mask, agent=agent, sample=True, seed=2)
    assert {str(picked(sampled, at)) for at in range(len(own))} != {str(picked(expected, 0))}
    if mask is not None and layout.is_discrete:
        assert mask[np.arange(len(own)), sampled].all()
    network = frozen_policy(card, case.weights).network
    with torch.inference_mode():
        values = network.value(rows).numpy()
        logits = network.logits(rows, masks)
    np.testing.assert_allclose(champion.value(seen, agent=agent), values, rtol=1e-4, atol=1e-5)
    assert len({round(float(value), 4) for value in values}) > 3
    one, m, _ = ones[0]
    assert champion.value(one, agent=agent) == pytest.approx(float(values[0]), rel=1e-4)
    if not layout.branches:
        with pytest.raises(ValueError, match="must have choices"):
            champion.probabilities(observation, agent=agent)
        return
    found = champion.probabilities(observation, given_mask, agent=agent)
    assert found.dtype == np.float64
    parts = [part.softmax(dim=1) for part in torch.split(logits, list(layout.branches), dim=1)]
    np.testing.assert_allclose(found, torch.cat(parts, dim=1).numpy(), rtol=1e-4, atol=1e-6)
    np.testing.assert_allclose(champion.probabilities(one, m, agent=agent), found[0], rtol=1e-5)


def test_the_graphs_action_is_in_the_environments_units_with_choices_from_0(case: Case) -> None:
    rows, masks = case.rows(24)
    greedy, action = case.greedy(rows, masks), case.card.action_layout
    actions = action.to_environment(greedy)
    session = onnxruntime.InferenceSession(case.directory / "policy.onnx")
    values = session.run(None, feeds(case.card, rows, masks))
    outputs = dict(zip([o.name for o in session.get_outputs()], values, strict=True))
    names = ["action", "action.go", "action.steer", "action.with.0", "action.with.1"]
    assert [name for name in outputs if name.startswith("action")] == (
        [*names[1:], "action.with.2"] if case.name == "nested" else names[:1]
    )
    for leaf in action.leaves:
        output = outputs[".".join(("action", *leaf.path))]
        starts = 0 if leaf.is_box else np.reshape(leaf.starts, leaf.shape)
        assert output.dtype == (np.float32 if leaf.is_box else np.int64)
        np.testing.assert_allclose(output, leaf.select(actions) - starts, rtol=1e-4, atol=1e-5)
    if masks is not None:
        assert (outputs["logits"][~masks.numpy()] == np.finfo(np.float32).min).all()
    if action.num_continuous:
        np.testing.assert_allclose(
            outputs["mean"], greedy[:, len(action.branches) :], rtol=1e-4, atol=1e-5
        )
        assert outputs["log_std"].shape == outputs["mean"].shape
        log_std = case.weights["log_std"].numpy()
        np.testing.assert_allclose(outputs["log_std"][0], log_std, rtol=1e-6)
    assert ("logits" in outputs, "mean" in outputs) == (
        bool(action.branches),
        bool(action.num_continuous),
    )


def feeds(card: Card, rows: torch.Tensor, masks: torch.Tensor | None) -> dict[str, Any]:
    """What a graph is given, from what the environment gives."""
    observations = card.observation_layout.to_environment(rows)
    fed: dict[str, Any] = {}
    for name, leaf in zip(
        input_names(card.observation_layout), card.observation_layout.leaves, strict=True
    ):
        if leaf.keys == AGENT_ID:
            fed[name] = rows[:, leaf.place].argmax(dim=1).numpy()
        else:
            fed[name] = np.asarray(leaf.select(observations), dtype=np.float32)
    if masks is not None:
        fed["action_mask"] = masks.numpy()
    return fed


@pytest.mark.slow
def test_every_part_is_an_input_of_its_own(written: dict[str, Written[Card]]) -> None:
    session = onnxruntime.InferenceSession(written["nested"].directory / "policy.onnx")
    assert {i.name: (i.type, i.shape) for i in session.get_inputs()} == {
        "observation.eye": ("tensor(float)", ["batch", 8, 8]),
        "observation.body.arm": ("tensor(float)", ["batch", 2, 2]),
        "observation.body.mode": ("tensor(float)", ["batch"]),
        "observation.flags": ("tensor(float)", ["batch", 3]),
        "observation.pair.0": ("tensor(float)", ["batch", 2]),
        "observation.pair.1": ("tensor(float)", ["batch"]),
        "agent_id": ("tensor(int64)", ["batch"]),
        "action_mask": ("tensor(bool)", ["batch", 4 + 4 + 5]),
    }
    session = onnxruntime.InferenceSession(written["wheel"].directory / "policy.onnx")
    assert {o.name: (o.type, o.shape) for o in session.get_outputs()} == {
        "mean": ("tensor(float)", ["batch", 2]),
        "log_std": ("tensor(float)", ["batch", 2]),
        "action": ("tensor(float)", ["batch", 1, 2]),
        "value": ("tensor(float)", ["batch"]),
    }


@pytest.mark.parametrize("greedy", [True, False])
def test_an_export_plays_like_its_policy_in_tournaments(greedy: bool, case: Case) -> None:
    rows, masks = case.rows(64)
    found = acted(ExportedActor(case.directory, greedy=greedy), rows, masks)
    expected = acted(frozen_policy(case.card, case.weights, greedy=greedy), rows, masks)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_samples_are_drawn_from_the_policy(
    policies: dict[str, Policy], written: dict[str, Written[Card]]
) -> None:
    num_draws = 600
    card, weights = policies["nested"]
    rows, masks = rows_and_masks(card, 1)
    network = frozen_policy(card, weights).network
    with torch.inference_mode():
        (parameters,) = network.policy(network.normalize_observation(rows)).numpy()
    assert masks is not None
    champion = Champion(written["nested"].directory, seed=3)
    ((observation, _, agent),) = as_given(card, rows, masks)
    drawn = [champion.act(observation, agent=agent, sample=True) for _ in range(num_draws)]

    # The first category is ``go``, which starts at 2.
    odds = np.where(masks[0, :4].numpy(), np.exp(parameters[:4]), 0.0)
    for choice, share in enumerate(odds / odds.sum()):
        count = sum(action["go"] == 2 + choice for action in drawn)
        assert abs(count - num_draws * share) <= 5 * math.sqrt(num_draws * share * (1 - share))

    # ``steer`` is clipped: the Gaussian's mass below -2 and above 2 sits on the bounds.
    mean, std = parameters[13], math.exp(parameters[16])
    first = np.array([action["steer"][0] for action in drawn])
    assert ((first >= -2.0) & (first <= 2.0)).all()
    for bound in (-2.0, -0.5, 0.5):
        share = 0.5 * (1 + math.erf((bound - mean) / std / math.sqrt(2)))
        count = int((first <= bound).sum())
        assert abs(count - num_draws * share) <= 5 * math.sqrt(num_draws * share * (1 - share))


@pytest.mark.slow
def test_squashed_samples_are_gaussian_before_the_bounds(
    policies: dict[str, Policy], written: dict[str, Written[Card]]
) -> None:
    num_draws = 1500
    card, weights = policies["wheel"]
    rows, _ = rows_and_masks(card, 1)
    network = frozen_policy(card, weights).network
    with torch.inference_mode():
        (parameters,) = network.policy(network.normalize_observation(rows)).numpy()
    champion = Champion(written["wheel"].directory, seed=3)
    ((observation, _, agent),) = as_given(card, rows, None)
    drawn = np.array(
        [champion.act(observation, agent=agent, sample=True) for _ in range(num_draws)]
    )
    # The bounds of WHEEL are -1 to 3 and 0.1 to 0.2.
    before = np.arctanh((drawn[:, 0] - [1.0, 0.15]) / [2.0, 0.05])
    std = np.exp(parameters[2:])
    assert (np.abs(before.mean(axis=0) - parameters[:2]) <= 5 * std / math.sqrt(num_draws)).all()
    assert (np.abs(before.std(axis=0) / std - 1) <= 5 / math.sqrt(2 * num_draws)).all()


@pytest.mark.slow
def test_masks_may_nest_as_the_space_does(written: dict[str, Written[Card]]) -> None:
    actions = Actions(describe(DEEDS), continuous="clipped")
    flat = np.array([1, 0, 0, 1, *[1, 0, 1, 1], *[0, 1], *[1, 0, 1]], dtype=np.int8)
    pairs = ([[1, 0], [1, 1]], ([0, 1], [1, 0, 1]))
    for mask in (flat, {"go": [1, 0, 0, 1], "with": pairs}, {"go": flat[:4], "with": pairs}):
        assert actions.flat_masks(mask, num_rows=None)[0].tolist() == flat.astype(bool).tolist()
    assert actions.flat_masks({"go": None, "with": None}, num_rows=None).all()
    for wrong, complaint in (
        ({"go": [1, 0]}, "4 entries, got 2"),
        ({"with": pairs}, "part 'go'"),
        ({"go": [0, 0, 0, 0], "with": None}, "a legal action"),
    ):
        with pytest.raises(ValueError, match=complaint):
            actions.flat_masks(wrong, num_rows=None)


def test_masks_of_a_batch_nest_as_the_space_does() -> None:
    actions = Actions(describe(DEEDS), continuous="clipped")
    flat = np.array(
        [
            [1, 0, 0, 1, *[1, 0, 1, 1], *[0, 1], *[1, 0, 1]],
            [0, 1, 0, 0, *[0, 1, 1, 0], *[1, 1], *[0, 0, 1]],
        ],
        dtype=np.int8,
    )
    binary, several = flat[:, 4:8].reshape(2, 2, 2), (flat[:, 8:10], flat[:, 10:])
    for mask in (flat, flat.tolist(), {"go": flat[:, :4], "with": (binary, several)}):
        found = actions.flat_masks(mask, num_rows=2)
        assert found.tolist() == flat.astype(bool).tolist()
    with pytest.raises(ValueError, match="4 entries, got"):
        actions.flat_masks({"go": flat[:1, :4], "with": None}, num_rows=2)
    flat[1, :4] = 0
    with pytest.raises(ValueError, match="a legal action"):
        actions.flat_masks(flat, num_rows=2)


def test_random_actions_are_of_the_space_and_legal() -> None:
    rng = np.random.default_rng(5)
    for space in (DEEDS, LEVERS, WHEEL, Box(-np.inf, 1.0, (3,), np.float32), Discrete(3, start=4)):
        actions = Actions(describe(space), continuous="squashed")
        for _ in range(20):
            action = actions.uniform(actions.everything[np.newaxis], rng=rng, is_one=True)
            if isinstance(space, Dict):
                action = {**action, "go": np.int64(action["go"])}
            assert space.contains(action)
    batch = Actions(describe(WHEEL), continuous="squashed").uniform(
        np.ones((500, 0), dtype=np.bool_), rng=rng, is_one=False
    )
    assert batch.shape == (500, 1, 2)
    assert all(WHEEL.contains(action) for action in batch)
    assert np.abs(batch.mean(axis=0) - [[1.0, 0.15]]).max() < 0.3
    only = Actions(describe(LEVERS), continuous="squashed")
    mask = only.flat_masks(np.array([0, 0, 1, *[1, 0], *[0, 1], *[0, 0, 0, 1]]), num_rows=None)
    assert only.uniform(mask, rng=rng, is_one=True).tolist() == [[3, 0], [1, 3]]


@pytest.mark.parametrize(
    ("name", "change", "complaint"),
    [
        ("nested", {"agent": None}, "agent is needed"),
        ("nested", {"body": {"arm": np.zeros((2, 2))}}, r"observation\.body\.mode is needed"),
        ("nested", {"flags": np.zeros(2)}, r"observation\.flags must have shape \(3,\)"),
        ("nested", {"flags": np.array([0, 2, 0])}, r"observation\.flags must be one of"),
        ("nested", {"action_mask": np.zeros(13)}, "a legal action"),
        ("wheel", {"agent": "player_2"}, "must be one of"),
    ],
)
@pytest.mark.slow
def test_what_does_not_fit_is_refused(
    name: str,
    change: dict[str, Any],
    complaint: str,
    policies: dict[str, Policy],
    written: dict[str, Written[Card]],
) -> None:
    card, _ = policies[name]
    ((observation, mask, agent),) = as_given(card, *rows_and_masks(card, 1))
    agent = change.pop("agent", agent)
    if change:
        observation = {**observation, **change}
    with pytest.raises(ValueError, match=complaint):
        Champion(written[name].directory).act(observation, mask, agent=agent)


class AtOnce:
    """A Parallel environment: two agents act three times, the second dies after two."""

    def __init__(self, card: Card) -> None:
        rows, masks = rows_and_masks(card, 2)
        self._given = as_given(card, rows, masks)
        self.acted: list[dict[str, Any]] = []

    def reset(self, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
        self.agents = ["player_0", "player_1"]
        self.acted = []
        return self._seen(), {agent: {} for agent in self.agents}

    def _seen(self) -> dict[str, Any]:
        return {agent: self._given[at][0] for at, agent in enumerate(self.agents)}

    def step(self, actions: dict[str, Any]) -> tuple[dict[str, Any], ...]:
        self.acted.append(actions)
        count, acting = len(self.acted), self.agents
        ended = {agent: count == (3 if agent == "player_0" else 2) for agent in acting}
        rewards = {agent: 1.0 if agent == "player_0" else 10.0 for agent in acting}
        self.agents = [agent for agent in acting if not ended[agent]]
        return self._seen(), rewards, ended, dict.fromkeys(acting, False), {}


@pytest.mark.parametrize("name", ["nested", "pixels"])
@pytest.mark.slow
def test_parallel_environments_are_played_as_they_are(
    name: str, policies: dict[str, Policy], written: dict[str, Written[Card]]
) -> None:
    # Masks of ``pixels`` come in infos; with empty infos everything is legal.
    env = AtOnce(policies[name][0])
    champion = Champion(written[name].directory)
    returns = play_game(
        champion, env, agents=["player_0"], seed=1, rng=np.random.default_rng(2), sample=True
    )
    assert returns == {"player_0": 3.0, "player_1": 20.0}
    assert [list(actions) for actions in env.acted] == [["player_0", "player_1"]] * 2 + [
        ["player_0"]
    ]
    for actions in env.acted:
        for action in actions.values():
            if name == "nested":
                assert DEEDS.contains({**action, "go": np.int64(action["go"])})
            else:
                assert LEVERS.contains(action)


@pytest.mark.slow
def test_the_card_says_what_is_seen_and_done(
    policies: dict[str, Policy], written: dict[str, Written[Card]]
) -> None:
    card = written["nested"].card
    assert card.observation.shape is None
    assert (card.action.num_actions, card.action.start) == (13, 0)
    assert card.environment_config.continuous_actions == "clipped"
    text = card_for_people(card)
    assert "mode: Discrete 3, from -1" in text
    assert "eye: Box [8, 8] uint8, from 0 to 255" in text
    assert "| numbers of actions are | clipped |" in text
    assert "| encoder | auto |" in text
    assert "Discrete 4, from 2" in text


def test_dots_in_keys_that_make_two_names_equal_are_refused() -> None:
    box: gymnasium.Space[Any] = Box(-1.0, 1.0, (1,), np.float32)
    space = Dict({"a.b": box, "a": Dict({"b": box})})
    card, _ = make_policy(space, actions=space, mask=None)
    with pytest.raises(ExportError, match=r"observation\.a\.b: keys must have no dots"):
        input_names(card.observation_layout)
    with pytest.raises(ExportError, match=r"action\.a\.b: keys must have no dots"):
        action_names(card.action_layout)
