"""The network of a page, in a browser, beside onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from torch import nn

from arena.config import NetworkConfig
from arena.errors import ExportError
from arena.export.champion import make_session
from arena.export.html.page import network_document
from arena.export.onnx import export_onnx
from tests.arena.export.html.conftest import CONNECT_FOUR, Open, champion
from tests.arena.export.html.random_games import random_games

pytestmark = pytest.mark.xdist_group("exports")

BOUND = 1e-4

JUDGE = """(rows) => rows.map((row) => {
  const { logits, value } = judge(CHAMPION.networks["policy.onnx"], row);
  return [...logits, value];
})"""

NETWORKS = {
    "mlp": NetworkConfig(encoder="mlp", hidden_sizes=(64, 32)),
    "mlp, plain": NetworkConfig(encoder="auto", hidden_sizes=(), normalize_observations=False),
    "mlp, apart": NetworkConfig(encoder="mlp", hidden_sizes=(16,), separate_value=True),
    "cnn": NetworkConfig(encoder="cnn", hidden_sizes=(32,)),
    "cnn, first": NetworkConfig(encoder="cnn", hidden_sizes=(8,), channels="first"),
    "residual_cnn": NetworkConfig(encoder="residual_cnn", hidden_sizes=(32,)),
    "residual_cnn, apart": NetworkConfig(
        encoder="residual_cnn", hidden_sizes=(8,), separate_value=True
    ),
}


def positions(number: int) -> npt.NDArray[Any]:
    """Return observations of random games of Connect Four. float32 [number, 84]."""
    games = random_games(CONNECT_FOUR, number // 7 + 1, seed=1)
    rows = np.array([row for game in games for row in game.seen][:number])
    # No game is over before the seventh stone.
    assert len(rows) == number
    return rows


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("number", [50, pytest.param(1_000, marks=pytest.mark.slow)])
def test_a_page_judges_positions_as_the_graph_does(open_page: Open, name: str, number: int) -> None:
    card, network = champion(network=NETWORKS[name])
    rows = positions(number)
    graph = export_onnx(network, layout=card.observation_layout, has_mask=True)
    feeds: dict[str, Any] = {
        "observation": rows.reshape(-1, 6, 7, 2),
        "action_mask": np.ones((len(rows), 7), dtype=bool),
    }
    logits, value = make_session(graph).run(["logits", "value"], feeds)
    found = np.array(open_page(network=NETWORKS[name]).evaluate(JUDGE, rows.tolist()))
    # The comparison is meaningful only if the logits differ.
    assert logits.std() > 0.01
    assert np.abs(found - np.column_stack([logits, value])).max() < BOUND


def test_probabilities_are_those_of_legal_actions(open_page: Open) -> None:
    page = open_page()
    call = "(temperature) => probabilities([1, 3, 2, 3], [true, false, true, true], temperature)"
    # e^1 / (e^1 + e^2 + e^3) = 1 / (1 + e + e^2), ...; temperature 2 halves the logits.
    for temperature in (1.0, 2.0):
        weights = np.exp(np.array([1.0, 2.0, 3.0]) / temperature)
        expected = weights / weights.sum()
        one, none, two, three = page.evaluate(call, temperature)
        assert none == 0
        assert [one, two, three] == pytest.approx(expected)
    assert page.evaluate(call, 0) == [0, 0, 0, 1]
    drawn = page.evaluate("Array.from({ length: 3000 }, () => draw([0.5, 0, 0.3, 0.2]))")
    # Three standard deviations of a share of .5 in 3,000 draws are .027.
    shares = np.bincount(drawn, minlength=4) / 3000
    assert shares == pytest.approx([0.5, 0.0, 0.3, 0.2], abs=0.04)


def test_a_layer_that_pages_do_not_have_is_refused() -> None:
    card, network = champion()
    network.trunk[1] = nn.Tanh()
    with pytest.raises(ExportError, match="no layer for Tanh"):
        network_document(network, config=card.network, layout=card.observation_layout)
