"""The manifest of a checkpoint, and its digest. Torch-free.

A checkpoint is a directory with ``weights.safetensors`` (network and normalizers),
``optimizer.safetensors`` and ``manifest.json``. A directory without a valid manifest does not
exist. A ghost is a directory with the same weights and manifest, without the optimizer.

Tests: `tests/arena/checkpoints/test_files.py`, `tests/arena/checkpoints/test_publish.py`.
"""

from __future__ import annotations

import importlib.metadata
from typing import Annotated

from msgspec import Meta

from arena.config import NetworkConfig, PopulationSetup
from arena.errors import CheckpointCorrupt
from arena.types import Counters, Digest, Document, Value, canonical_digest

FORMAT_VERSION = 1
MAX_FILE_BYTES = 1 << 36
MANIFEST = "manifest.json"
WEIGHTS = "weights.safetensors"
OPTIMIZER = "optimizer.safetensors"


class FileRecord(Document, frozen=True, kw_only=True):
    """Size and sha256 of one file of a checkpoint."""

    sha256: Digest
    # The limit prevents a forged size from making a reader allocate all memory.
    size_bytes: Annotated[int, Meta(ge=0, le=MAX_FILE_BYTES)]


class PolicyRecord(Counters, frozen=True, kw_only=True):
    """Facts about a policy at one of its checkpoints.

    Attributes:
        format_version: Version of the format; a newer one is refused.
        policy: Policy that the checkpoint belongs to.
        hyperparameters: Hyperparameters in use at the time.
        parent: Digest of the checkpoint it was trained from; None at step 0.
        donor: Policy that the parent checkpoint belonged to, if it was another one (an exploit).
        environment_digest: Digest of the EnvironmentSpec.
        population_agents: Agents that the policy can play.
        network: Architecture of the network.
    """

    format_version: Annotated[int, Meta(ge=1)] = FORMAT_VERSION
    policy: str
    hyperparameters: dict[str, Value]
    parent: Digest | None
    donor: str | None
    environment_digest: Digest
    population_agents: tuple[str, ...]
    network: NetworkConfig


class Manifest(PolicyRecord, frozen=True, kw_only=True):
    """Manifest of a checkpoint.

    Attributes:
        files: Record of every file but the manifest, by name.
        arena_version: Release that wrote it.
        created: Time of writing, UTC, ISO 8601.
    """

    files: dict[str, FileRecord]
    arena_version: str
    created: str

    @property
    def digest(self) -> Digest:
        """Digest of the checkpoint: sha256 over the sorted (name, sha256) of the files."""
        # The manifest is left out, because its time of writing differs between publications.
        return canonical_digest(
            sorted((name, record.sha256) for name, record in self.files.items())
        )

    @property
    def weights_digest(self) -> Digest:
        """Sha256 of the weights file, which identifies a rated player and a ghost."""
        return self.files[WEIGHTS].sha256


def checkpoint_key(policy: str, *, agent_steps: int, digest: Digest) -> str:
    """Return the directory of a checkpoint relative to the store's root."""
    # Twelve digits sort by age as text; eight of the digest distinguish equal steps.
    return f"populations/{policy}/checkpoints/{agent_steps:012d}-{digest[:8]}"


def ghost_key(policy: str, *, agent_steps: int, digest: Digest) -> str:
    """Return the directory of a ghost relative to the store's root, by its checkpoint's digest."""
    return f"populations/{policy}/ghosts/{agent_steps:012d}-{digest[:8]}"


def check_manifest(manifest: Manifest, *, environment_digest: str, setup: PopulationSetup) -> None:
    """Refuse a checkpoint of another environment, architecture or population.

    Raises:
        CheckpointCorrupt: Saying what differs.
    """
    expected = {
        "environment_digest": environment_digest,
        "network": setup.network,
        "population_agents": setup.agents,
    }
    for name, value in expected.items():
        found = getattr(manifest, name)
        if found != value:
            raise CheckpointCorrupt(
                f"checkpoint of {manifest.policy} at {manifest.agent_steps} agent steps: its "
                f"{name} is {found}, this population's is {value}"
            )


def arena_version() -> str:
    """Return the installed version, or ``unknown`` in a bare checkout."""
    try:
        return importlib.metadata.version("arena-league")
    except importlib.metadata.PackageNotFoundError:
        return "unknown"
