"""Writes an export: every file beside its place, then one rename. There is never half an export."""

from __future__ import annotations

import contextlib
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

import torch

from arena.checkpoints.files import file_records
from arena.checkpoints.tensors import serialize
from arena.envs.spaces import ObservationLayout
from arena.errors import ConfigError, ExportError
from arena.export.card import CARD, CARD_FOR_PEOPLE, PLAYER, POLICY, WEIGHTS, Card
from arena.export.card_text import card_for_people
from arena.export.observation import observation_input
from arena.export.onnx import OnnxCheck, check_onnx, export_onnx, opset_version
from arena.networks.actor_critic import ActorCritic
from arena.networks.make import make_actor_critic
from arena.networks.weights import load_tensors


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """A finished export.

    Attributes:
        directory: Where it is.
        card: As it was written.
        check: How well the graph reproduces the policy.
    """

    directory: Path
    card: Card
    check: OnnxCheck


def write_export(
    directory: Path, *, card: Card, weights: Mapping[str, torch.Tensor], force: bool = False
) -> Written:
    """Write an export and verify it.

    Args:
        directory: Where; made with its parents.
        card: Without ``files`` and the versions of the exporter, which are added here.
        weights: The policy's.
        force: Replace an export that is there.

    Raises:
        ConfigError: If something is there and ``force`` is not given, or it is no export.
        ExportError: If the graph does not reproduce the policy, or the disk refuses.
        CheckpointCorrupt: If the weights are not those of ``card.network``.
    """
    directory = directory.resolve()
    check_target(directory, force=force)
    files, written_card, check = _contents(card, weights)
    try:
        _replace_directory(directory, files)
    except OSError as error:
        where = error.filename or directory
        raise ExportError(f"cannot write {where}: {error.strerror or error}") from error
    return Written(directory=directory, card=written_card, check=check)


def check_target(directory: Path, *, force: bool) -> None:
    """Say early that an export cannot go somewhere.

    Raises:
        ConfigError: As `write_export`.
    """
    if not directory.exists():
        return
    if not directory.is_dir():
        raise ConfigError(f"{directory} must be a directory")
    if not any(directory.iterdir()):
        return
    if not (directory / CARD).is_file():
        raise ConfigError(f"{directory} must be empty or an export: it has no {CARD}")
    if not force:
        raise ConfigError(f"{directory} exists: --force replaces it")


def _contents(
    card: Card, weights: Mapping[str, torch.Tensor]
) -> tuple[dict[str, bytes], Card, OnnxCheck]:
    observation = observation_input(card.observation.space)
    num_actions, has_mask = card.action.num_actions, card.mask is not None
    network = _network(card, weights)
    model = export_onnx(
        network, observation=observation, num_actions=num_actions, has_mask=has_mask
    )
    check = check_onnx(
        model,
        network=network,
        observation=observation,
        num_actions=num_actions,
        has_mask=has_mask,
    )
    files = {
        POLICY: model,
        WEIGHTS: serialize(weights),
        PLAYER: (resources.files("arena.export") / PLAYER).read_bytes(),
    }
    versions = card.versions | {"torch": torch.__version__, "opset": str(opset_version(model))}
    written = card.model_copy(update={"versions": versions, "files": file_records(files)})
    files[CARD_FOR_PEOPLE] = card_for_people(written).encode()
    written = written.model_copy(update={"files": file_records(files)})
    return files | {CARD: written.to_json()}, written, check


def _network(card: Card, weights: Mapping[str, torch.Tensor]) -> ActorCritic:
    network = make_actor_critic(
        card.network,
        observation_size=ObservationLayout.from_json(card.observation.space).size,
        num_actions=card.action.num_actions,
        seed=0,
    )
    load_tensors(network.state_dict(), weights, what=WEIGHTS)
    return network.eval().requires_grad_(False)


def _replace_directory(directory: Path, files: Mapping[str, bytes]) -> None:
    """Put files into a directory, all at once; what was there goes away afterwards."""
    directory.parent.mkdir(parents=True, exist_ok=True)
    with _temporary_beside(directory, "new") as new, _temporary_beside(directory, "old") as old:
        new.mkdir()
        for name, data in files.items():
            _write_durably(new / name, data)
        _sync_directory(new)
        if directory.exists():
            os.rename(directory, old)
        try:
            os.rename(new, directory)
        except OSError:
            if old.exists():
                os.rename(old, directory)
            raise
        _sync_directory(directory.parent)


@contextlib.contextmanager
def _temporary_beside(directory: Path, what: str) -> Iterator[Path]:
    """A free name beside a directory; whatever has it at the end is removed."""
    path = directory.parent / f".{directory.name}.{what}-{secrets.token_hex(8)}"
    try:
        yield path
    finally:
        shutil.rmtree(path, ignore_errors=True)


def _write_durably(path: Path, data: bytes) -> None:
    with path.open("xb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def _sync_directory(directory: Path) -> None:
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
