"""Writing of exports: graph, weights, card and player, verified before any file is in place."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Generic, TypeVar

import torch
from msgspec import structs

from arena.checkpoints.files import file_records
from arena.checkpoints.tensors import serialize
from arena.errors import ExportError
from arena.export.card import (
    CARD,
    CARD_FOR_PEOPLE,
    CHESS,
    ENGINE,
    PAGE,
    PLAYER,
    POLICY,
    WEIGHTS,
    AnyCard,
    Card,
    MixtureCard,
)
from arena.export.card_text import card_for_people, mixture_card_for_people
from arena.export.directory import check_target, replace_directory
from arena.export.engines import Engine, for_engine
from arena.export.html.page import champion_page
from arena.export.onnx import LEAST_ONNXRUNTIME, OPSET, check_onnx, export_onnx
from arena.networks.actor_critic import ActorCritic, make_actor_critic
from arena.networks.weights import load_tensors, without_critic
from arena.spaces import ObservationLayout

SPACES_MARK = "# --- arena/spaces.py ---\n"
"""Line before and after the import of `arena.spaces` in ``champion.py``."""

CardT = TypeVar("CardT", Card, MixtureCard)


@dataclass(frozen=True, slots=True, kw_only=True)
class Written(Generic[CardT]):
    """Finished export.

    Attributes:
        directory: Directory of the export.
        card: Card as it was written.
        differences: Largest difference of the policy's graph from it (`check_onnx`), or of that of
            each member of a mixture.
    """

    directory: Path
    card: CardT
    differences: tuple[float, ...]


def write_export(
    directory: Path,
    *,
    card: Card,
    weights: Mapping[str, torch.Tensor],
    levels: Mapping[str, Mapping[str, torch.Tensor]] | None = None,
    engine: Engine | None = None,
    force: bool = False,
    html: bool = False,
) -> Written[Card]:
    """Write an export and verify it.

    Args:
        directory: Target directory; made with its parents.
        card: Card without ``files`` and the versions of the exporter, which are added here.
        weights: Weights of the policy.
        levels: Weights of the card's levels by their graphs, but for those of the policy.
        engine: Game engine that gets a graph of its own, ``unity.onnx`` or ``godot.onnx``, after
            `arena.export.engines.check_engine`.
        force: Whether to replace an existing export.
        html: Whether to write a page to play against it, too.

    Raises:
        ConfigError: If an export is there and ``force`` is not given, or anything else is there, or
            a page cannot play this.
        ExportError: If the graph does not reproduce the policy, or the disk refuses.
        CheckpointCorrupt: If the weights are not those of ``card.network``.
    """
    # Links are resolved, so that a link's target is replaced and not the link. This check is
    # early, because an export takes seconds.
    directory = directory.resolve()
    check_target(directory, force=force)
    files, written_card, difference = _contents(card, weights, levels or {}, engine, html=html)
    _put(directory, files)
    return Written(directory=directory, card=written_card, differences=(difference,))


def write_mixture(
    directory: Path,
    *,
    card: MixtureCard,
    members: Iterable[tuple[Card, Mapping[str, torch.Tensor]]],
    force: bool = False,
) -> Written[MixtureCard]:
    """Write an export of a mixture, its members as exports of their own inside, and verify it.

    Args:
        directory: Target directory; made with its parents.
        card: Card, as for `write_export`.
        members: Card and weights of each member, in the order of ``card.members``.
        force: Whether to replace an existing export.

    Raises:
        ConfigError: As for `write_export`; so are the others.
        ExportError: If a graph does not reproduce its policy, or the disk refuses.
        CheckpointCorrupt: If the weights of a member are not those of its architecture.
    """
    directory = directory.resolve()
    check_target(directory, force=force)
    files = _players(card)
    differences: list[float] = []
    versions = dict(card.versions)
    for member, (member_card, weights) in zip(card.members, members, strict=True):
        contents, written_member, difference = _contents(member_card, weights)
        # A member's own card is among its files, so each member is an export by itself.
        files |= {f"{member.directory}/{name}": data for name, data in contents.items()}
        versions |= written_member.versions
        differences.append(difference)
    # The card is made twice, as in `_contents`: the text shows the card, and the card records the
    # text's file.
    written = structs.replace(card, versions=versions, files=file_records(files))
    files[CARD_FOR_PEOPLE] = mixture_card_for_people(written).encode()
    written = structs.replace(written, files=file_records(files))
    _put(directory, files | {CARD: written.to_json()})
    return Written(directory=directory, card=written, differences=tuple(differences))


def _put(directory: Path, files: Mapping[str, bytes]) -> None:
    try:
        replace_directory(directory, files)
    except OSError as error:
        where = error.filename or directory
        raise ExportError(f"cannot write {where}: {error.strerror or error}") from error


def _players(card: AnyCard) -> dict[str, bytes]:
    files = {PLAYER: player_source().encode()}
    if card.environment.id.startswith(CHESS):
        files[ENGINE] = (resources.files("arena.export") / ENGINE).read_bytes()
    return files


def player_source() -> str:
    """Return ``champion.py`` of an export: `arena.spaces` stands where the module imports it."""
    player, spaces = (
        (resources.files(package) / name).read_text(encoding="utf-8")
        for package, name in (("arena.export", PLAYER), ("arena", "spaces.py"))
    )
    before, _, after = player.split(SPACES_MARK)
    # The docstring and the `__future__` import are cut, because they may stand only at a file's
    # head.
    spaces = spaces.partition("from __future__ import annotations\n")[2]
    return SPACES_MARK.join([before, spaces, after])


def _contents(
    card: Card,
    weights: Mapping[str, torch.Tensor],
    levels: Mapping[str, Mapping[str, torch.Tensor]] | None = None,
    engine: Engine | None = None,
    *,
    html: bool = False,
) -> tuple[dict[str, bytes], Card, float]:
    network, layout = _network(card, weights)
    model, difference = _graph(card, network, layout)
    # The card records every file but itself. The text for people shows the card, so it is written
    # from a card without its own record.
    files = {POLICY: model, WEIGHTS: serialize(weights), **_players(card)}
    if engine is not None:
        files[f"{engine}.onnx"] = for_engine(engine, model, card)
    networks = {POLICY: network}
    for level in card.levels:
        # Levels may share a graph, also with the policy.
        if level.graph not in files:
            tensors = (levels or {})[level.graph]
            networks[level.graph], _ = _network(card, tensors)
            files[level.graph], _ = _graph(card, networks[level.graph], layout)
            files[level.weights] = serialize(tensors)
    if html:
        files[PAGE] = champion_page(card, networks)
    versions = card.versions | {
        "torch": str(torch.__version__),
        "opset": str(OPSET),
        "onnxruntime_at_least": LEAST_ONNXRUNTIME,
    }
    written = structs.replace(
        card, value=network.has_value, versions=versions, files=file_records(files)
    )
    files[CARD_FOR_PEOPLE] = card_for_people(written).encode()
    written = structs.replace(written, files=file_records(files))
    return files | {CARD: written.to_json()}, written, difference


def _graph(card: Card, network: ActorCritic, layout: ObservationLayout) -> tuple[bytes, float]:
    has_mask = card.mask is not None
    model = export_onnx(network, layout=layout, has_mask=has_mask)
    # The check runs before anything is written, so that no wrong graph reaches the disk.
    return model, check_onnx(model, network=network, layout=layout, has_mask=has_mask)


def _network(
    card: Card, weights: Mapping[str, torch.Tensor]
) -> tuple[ActorCritic, ObservationLayout]:
    network = make_actor_critic(
        card.network, observation=card.observation_layout, action=card.action_layout, seed=0
    )
    # A centralized critic has no part in play.
    load_tensors(network.state_dict(), without_critic(card.network, weights), what=WEIGHTS)
    return network.eval().requires_grad_(False), card.observation_layout
