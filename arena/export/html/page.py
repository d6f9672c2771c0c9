"""The page of a champion: rules, network and weights in one file, which is opened from the disk.

Its network is layers in order, which ``network.js`` computes. A layer is a list of its name and its
sizes, and takes its numbers from the weights, float32 one after the other, in this order. Shapes: F
numbers of the row that it gets, H rows and W columns of cells, C channels.

======================================  ============================  =============================
layer                                   it makes of a row             numbers
======================================  ============================  =============================
``normalize``, limit                    deviations, clipped           mean [F], deviation [F]
``planes``, C                           [H, W, C] to [C, H, W]        none
``convolution``, C, outputs, H, W       3 x 3, a border of zeros      weights [outputs, C, 3, 3],
                                                                      bias [outputs]
``dense``, outputs                      a linear layer                weights [outputs, F],
                                                                      bias [outputs]
``relu``                                numbers below 0 to 0          none
``residual``, layers                    itself plus these layers      those of the layers
======================================  ============================  =============================

Tests: `tests/arena/export/html/test_page.py`, `tests/arena/export/html/test_network.py`.
"""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from importlib import resources
from string import Template
from typing import Any

import torch
from torch import nn

from arena.config import NetworkConfig
from arena.drawings import boards
from arena.drawings.boards import CROSS, RING
from arena.drawings.games import DISCS
from arena.environment_spec import EnvironmentSpec
from arena.envs.registry import TWINS
from arena.errors import ConfigError, ExportError
from arena.export.card import POLICY, Card, CardLevel, CardRating
from arena.export.card_text import RATED, rating_text
from arena.networks.actor_critic import OBSERVATION_CLIP, ActorCritic, Critic
from arena.networks.encoders import PartsEncoder, ResidualBlock
from arena.networks.planes import Planes, convolved_parts
from arena.spaces import ObservationLayout

COLOURS = ("BLUE", "GRAIN", "INK", "MARK", "RED", "SKY", "WOOD")
"""Colours of drawings that pages use."""

ENCODERS = ("auto", "mlp", "cnn", "residual_cnn")


Layer = tuple[list[Any], list[torch.Tensor]]
"""Name and sizes of a layer, and its numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageGame:
    """Game that a page knows the rules of.

    Attributes:
        title: Name for people.
        scripts: Files of the game, in order.
        pieces: Shapes of the agents' pieces on a board, each in a square of 100 by 100.
        temperature: Temperature of a champion without levels: 0 where a position holds all that
            there is to know, 1 where play has to be mixed.
    """

    title: str
    scripts: tuple[str, ...]
    pieces: tuple[str, ...] = ()
    temperature: float = 0.0


GAMES: Mapping[str, PageGame] = {
    f"arena.envs.batched.{name}": game
    for name, game in {
        "connect_four:ConnectFour": PageGame(
            title="Connect Four",
            scripts=("board.js", "connect_four.js"),
            pieces=tuple(DISCS.values()),
        ),
        "tictactoe:TicTacToe": PageGame(
            title="Tic-tac-toe", scripts=("board.js", "tictactoe.js"), pieces=(CROSS, RING)
        ),
        "kuhn_poker:KuhnPoker": PageGame(
            title="Kuhn poker", scripts=("cards.js", "kuhn_poker.js"), temperature=1.0
        ),
        "leduc_poker:LeducPoker": PageGame(
            title="Leduc poker", scripts=("cards.js", "leduc_poker.js"), temperature=1.0
        ),
    }.items()
}
"""Games by the names of their batched games."""


def page_game(spec: EnvironmentSpec, network: NetworkConfig) -> PageGame:
    """Return the game of a page, before anything is made for it.

    Raises:
        ConfigError: If a page cannot play this environment, or this network.
    """
    game, why = GAMES.get(TWINS.get(spec.id, spec.id)), ""
    if game is None:
        known = ", ".join(one for one, twin in TWINS.items() if twin in GAMES)
        raise ConfigError(f"--html plays {known}, not {spec.id}")
    if spec.kwargs:
        why = f"{spec.id} without environment.kwargs, got {spec.kwargs}"
    elif network.encoder not in ENCODERS:
        why = f"network.encoder {', '.join(ENCODERS)}, got {network.encoder}"
    elif network.core != "none":
        why = f"networks without network.core, got {network.core}"
    elif network.agent_id:
        why = "networks without network.agent_id"
    if why:
        raise ConfigError(f"--html plays {why}")
    return game


def champion_page(card: Card, networks: Mapping[str, ActorCritic]) -> bytes:
    """Return a page with the levels of a card, or with its policy where it has none.

    Args:
        card: Card of the champion.
        networks: Networks of the policy and of the levels by their graphs, on the CPU.

    Raises:
        ConfigError: If a page cannot play this environment, or this network.
        ExportError: If a network has a layer that pages do not have.
    """
    game = page_game(card.environment.spec, card.network)
    document = {
        "networks": {
            graph: network_document(network, config=card.network, layout=card.observation_layout)
            for graph, network in networks.items()
        },
        # The weakest player comes first, so the last one is the champion.
        "players": [
            _player(one.player, one, temperature=one.temperature, network=one.graph)
            for one in card.levels
        ]
        or [_player(card.player, card.rating, temperature=game.temperature, network=POLICY)],
        "agents": [card.environment.agents.index(agent) for agent in card.agents],
        "pieces": game.pieces,
        "colours": {name: getattr(boards, name) for name in COLOURS},
        "about": f"Run {card.run}, {card.agent_steps:,} agent steps, exported {card.created[:10]}. "
        f"Ratings are in Elo, {RATED[card.rating.mode]}: bot:random is 0, 400 points are odds "
        "of 10 to 1.",
    }
    style = _file("page.css")
    script = "\n".join(map(_file, ("network.js", *game.scripts, "page.js")))
    page = Template(_file("page.html")).substitute(
        title=escape(game.title),
        # The policy allows exactly these texts, and nothing from any origin.
        policy="default-src 'none'; base-uri 'none'; form-action 'none'; "
        f"style-src {_hash(style)}; script-src {_hash(script)}",
        style=style,
        script=script,
        # An unescaped "<" in a name could end the element and be read as HTML.
        champion=json.dumps(document).replace("<", "\\u003c"),
    )
    return page.encode()


def _player(name: str, rating: CardRating | CardLevel, **facts: float | str) -> dict[str, object]:
    return {"name": name, "rating": rating_text(rating), **facts}


def _file(name: str) -> str:
    return (resources.files("arena.export.html") / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def network_document(
    network: ActorCritic, *, config: NetworkConfig, layout: ObservationLayout
) -> dict[str, object]:
    """Return what ``network.js`` computes a network from.

    Args:
        network: Network without a core and without an agent id, on the CPU.
        config: Its configuration.
        layout: Layout of its observations, of one part.

    Returns:
        ``policy`` and ``value``, layers (null: the value is the policy's last output, or there is
            none); ``actions``, the number of logits; ``unit``, the mean and the deviation of
            returns; ``weights``, little-endian float32 in base64.

    Raises:
        ExportError: If it has a layer that is not among these.
    """
    planes = convolved_parts(config, layout).get(0)
    policy = list(_layers_of(network, network, planes=planes))
    value: list[Layer] = []
    if network.has_value and network.critic is not None:
        value = list(_layers_of(network, network.critic, planes=planes))
    numbers = torch.cat([one.flatten() for _, given in (*policy, *value) for one in given])
    unit = network.return_normalizer
    return {
        "actions": network.action.num_logits,
        "policy": [layer for layer, _ in policy],
        "value": [layer for layer, _ in value] or None,
        "unit": [unit.mean.item(), unit.deviation.item()],
        "weights": base64.b64encode(numbers.detach().numpy().astype("<f4").tobytes()).decode(),
    }


def _layers_of(
    network: ActorCritic, part: ActorCritic | Critic, *, planes: Planes | None
) -> Iterator[Layer]:
    """Yield the layers from an observation to the outputs of a part with a head."""
    if network.observation_normalizer is not None:
        yield ["normalize", OBSERVATION_CLIP], [*network.observation_normalizer.by_column()]
    if planes is not None and not planes.first:
        yield ["planes", planes.channels], []
    convolutions = part.encoder.convolutions if isinstance(part.encoder, PartsEncoder) else ()
    for module in (*convolutions, part.trunk, part.head):
        yield from _inside(module, planes)


def _inside(module: nn.Module, planes: Planes | None) -> Iterator[Layer]:
    if isinstance(module, nn.Sequential):
        for inner in module:
            yield from _inside(inner, planes)
    elif isinstance(module, nn.Linear):
        # Weight and bias are in the order of their registration.
        yield ["dense", module.out_features], list(module.parameters())
    elif isinstance(module, nn.ReLU):
        yield ["relu"], []
    elif planes is not None and isinstance(module, nn.Conv2d) and _keeps_cells(module):
        channels = module.in_channels, module.out_channels
        layer = ["convolution", *channels, planes.height, planes.width]
        yield layer, list(module.parameters())
    elif isinstance(module, ResidualBlock):
        relu: Layer = ["relu"], []
        layers = [relu, *_inside(module.first, planes), relu, *_inside(module.second, planes)]
        numbers = [one for _, given in layers for one in given]
        yield ["residual", [layer for layer, _ in layers]], numbers
    elif not isinstance(module, nn.Flatten):
        # A row is flat already, so a flattening layer is left out.
        raise ExportError(f"a page has no layer for {module}")


def _keeps_cells(module: nn.Conv2d) -> bool:
    return (module.kernel_size, module.stride, module.padding) == ((3, 3), (1, 1), (1, 1))
