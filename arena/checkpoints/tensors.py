"""Named tensors to bytes and back, and whole policies to checkpoints and back.

The only module of this package that needs torch. Tensors are float32 on the CPU, sorted by name and
without metadata, so that equal tensors have equal bytes and equal digests. Non-finite numbers pass
in neither direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import safetensors.torch
import torch
from msgspec import structs
from safetensors import SafetensorError

from arena.checkpoints.files import file_records, read_manifest, read_verified, resolve_key
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, Manifest, PolicyRecord, arena_version
from arena.checkpoints.publish import publish
from arena.errors import CheckpointCorrupt, NonFiniteError
from arena.types import CheckpointRef, WeightsRef

Tensors = dict[str, torch.Tensor]


def serialize(tensors: Mapping[str, torch.Tensor]) -> bytes:
    """Write float32 tensors; equal tensors give equal bytes, whatever their order or strides.

    Raises:
        NonFiniteError: If a tensor has a NaN or an infinity.
        ValueError: If a tensor is not float32.
    """
    plain: Tensors = {}
    # Names are sorted, because equal tensors must have equal bytes.
    for name in sorted(tensors):
        tensor = tensors[name].detach()
        if tensor.dtype != torch.float32:
            raise ValueError(f"tensor {name!r} must be float32, got {tensor.dtype}")
        if not bool(torch.isfinite(tensor).all()):
            raise NonFiniteError(f"tensor {name!r} has a NaN or an infinity")
        # A separate copy is needed, because the format refuses tensors that share memory.
        plain[name] = tensor.to("cpu", copy=True).contiguous()
    return bytes(safetensors.torch.save(plain))


def deserialize(data: bytes) -> Tensors:
    """Read the output of `serialize`.

    Raises:
        CheckpointCorrupt: If these are other bytes, or hold anything but finite float32 tensors.
    """
    try:
        tensors = safetensors.torch.load(data)
    # Bytes that match a forged manifest may have any content.
    except (SafetensorError, KeyError, ValueError, TypeError, RuntimeError) as error:
        raise CheckpointCorrupt(f"not a file of tensors: {error}") from error
    for name, tensor in tensors.items():
        if tensor.dtype != torch.float32 or not bool(torch.isfinite(tensor).all()):
            raise CheckpointCorrupt(f"tensor {name!r} is not finite float32")
    return tensors


def load_weights(root: Path, ref: WeightsRef) -> tuple[Manifest, Tensors]:
    """Load the weights of a checkpoint or ghost, whose digest must be ``ref.digest``.

    Raises:
        CheckpointMissing: If there is nothing at the key.
        CheckpointCorrupt: If it is damaged or holds other weights than the reference names.
    """
    directory = resolve_key(root, ref.key)
    manifest = read_manifest(directory)
    # This is the manifest's claim, which `read_verified` compares with the bytes.
    if manifest.weights_digest != ref.digest:
        raise CheckpointCorrupt(
            f"{directory}: weights {manifest.weights_digest} instead of {ref.digest}"
        )
    return manifest, _load(directory, manifest, WEIGHTS)


def load_checkpoint(root: Path, ref: CheckpointRef) -> tuple[Manifest, Tensors, Tensors]:
    """Load manifest, weights and optimizer state of a checkpoint, whose digest must be ``ref``'s.

    Raises:
        CheckpointMissing: If there is nothing at the key.
        CheckpointCorrupt: If it is damaged, another checkpoint, or has no optimizer (a ghost).
    """
    directory = resolve_key(root, ref.key)
    manifest = read_manifest(directory)
    if manifest.digest != ref.digest:
        raise CheckpointCorrupt(f"{directory}: digest {manifest.digest} instead of {ref.digest}")
    if OPTIMIZER not in manifest.files:
        raise CheckpointCorrupt(f"{directory}: no optimizer")
    return (
        manifest,
        _load(directory, manifest, WEIGHTS),
        _load(directory, manifest, OPTIMIZER),
    )


def publish_policy(
    root: Path,
    record: PolicyRecord,
    *,
    weights: Mapping[str, torch.Tensor],
    optimizer_state: Mapping[str, torch.Tensor],
) -> CheckpointRef:
    """Publish a policy's checkpoint.

    Raises:
        NonFiniteError: If a weight or an optimizer tensor is not finite; nothing is written.
        CheckpointError: If the disk refuses.
    """
    # Tensors are serialized before anything is written, so that a non-finite number leaves no
    # trace in the store.
    files = {WEIGHTS: serialize(weights), OPTIMIZER: serialize(optimizer_state)}
    manifest = Manifest(
        **structs.asdict(record),
        files=file_records(files),
        arena_version=arena_version(),
        created=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    return publish(root, manifest=manifest, files=files)


def _load(directory: Path, manifest: Manifest, name: str) -> Tensors:
    try:
        return deserialize(read_verified(directory, name, manifest.files[name]))
    except CheckpointCorrupt as error:
        raise CheckpointCorrupt(f"{directory / name}: {error}") from error
