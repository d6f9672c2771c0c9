from __future__ import annotations

import errno
import hashlib
import json
import os
import shutil
import tempfile
import tracemalloc
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from msgspec import structs

from arena.checkpoints.files import (
    STORE_ID,
    _check_bytes,
    decode_manifest,
    encode_manifest,
    list_directories,
    make_store_id,
    read_manifest,
    read_verified,
    resolve_key,
    sha256_bytes,
    sha256_file,
    store_digest,
    verify_directory,
)
from arena.checkpoints.manifest import MANIFEST, MAX_FILE_BYTES, OPTIMIZER, WEIGHTS, FileRecord
from arena.checkpoints.publish import publish
from arena.codec import to_json
from arena.errors import (
    CheckpointCorrupt,
    CheckpointError,
    CheckpointMissing,
    DecodeError,
    DiskRefused,
)
from arena.types import Digest
from tests.arena.checkpoints.sealed import sealed

from .conftest import MakePublishable

FILES = (WEIGHTS, OPTIMIZER, MANIFEST)


@pytest.mark.parametrize(
    "key",
    [
        "",
        "/etc/passwd",
        "a//b",
        "a/",
        "../x",
        "a/../../x",
        "a/./b",
        "a/.hidden",
        ".tmp-0",
        "a\\b",
        "a b",
        "a\nb",
        "a\x00b",
        "<script>",
        "\u202eevil",
        "\x1b[31m",
        "~root",
        "ä",
        "a/" * 300 + "b",
        "x" * 10_000,
    ],
)
def test_hostile_keys_are_refused(tmp_path: Path, key: str) -> None:
    with pytest.raises(CheckpointError):
        resolve_key(tmp_path, key)


def test_keys_stay_below_the_root_and_links_are_refused(tmp_path: Path) -> None:
    root, outside = tmp_path / "root", tmp_path / "outside"
    (root / "populations").mkdir(parents=True)
    (outside / "p000").mkdir(parents=True)
    key = "populations/player/p003@000000120000"
    assert resolve_key(root, key) == root.resolve() / key
    (root / "populations" / "player").symlink_to(outside)
    with pytest.raises(CheckpointError, match="symbolic link"):
        resolve_key(root, "populations/player/p000")


def test_a_linked_root_is_a_root(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert resolve_key(tmp_path / "link", "a/b") == (tmp_path / "real").resolve() / "a" / "b"


def test_sha256_file_is_sha256(tmp_path: Path) -> None:
    data = os.urandom(300_000)
    (tmp_path / "x").write_bytes(data)
    assert sha256_file(tmp_path / "x") == hashlib.sha256(data).hexdigest()


def test_the_manifest_is_json_that_people_and_programs_read(
    make_publishable: MakePublishable,
) -> None:
    manifest, _ = make_publishable()
    data = encode_manifest(manifest)
    document = json.loads(data)
    assert document.pop("sha256")
    assert document == json.loads(to_json(manifest))
    assert decode_manifest(data, source=Path("x")) == manifest


def test_a_newer_format_is_refused(make_publishable: MakePublishable) -> None:
    manifest, _ = make_publishable()
    newer = structs.replace(manifest, format_version=2)
    body = encode_manifest(newer).partition(b",")[2].replace(b'"files"', b'"parts"')
    unknown = b'{\n  "sha256": "%s",' % sha256_bytes(body).encode() + body
    for data in (encode_manifest(newer), unknown):
        with pytest.raises(CheckpointError, match="format version 2; this release reads 1") as info:
            decode_manifest(data, source=Path("x"))
        # A full disk must not look like a damaged checkpoint, which would be set aside.
        assert not isinstance(info.value, CheckpointCorrupt)


@pytest.mark.parametrize("names", [{"../x"}, {WEIGHTS, "evil.py"}, {OPTIMIZER}])
def test_a_manifest_names_no_other_files(
    make_publishable: MakePublishable, names: set[str]
) -> None:
    manifest, _ = make_publishable()
    record = manifest.files[WEIGHTS]
    other = structs.replace(manifest, files=dict.fromkeys(names, record))
    with pytest.raises(CheckpointCorrupt, match="unexpected files"):
        decode_manifest(encode_manifest(other), source=Path("x"))


def test_what_is_not_there_is_missing(tmp_path: Path) -> None:
    for read in (read_manifest, verify_directory):
        with pytest.raises(CheckpointMissing):
            read(tmp_path / "nothing")


def test_without_a_manifest_nothing_exists(root: Path, make_publishable: MakePublishable) -> None:
    manifest, files = make_publishable()
    directory = root / publish(root, manifest=manifest, files=files).key
    (directory / MANIFEST).unlink()
    with pytest.raises(CheckpointCorrupt):
        verify_directory(directory)


@pytest.mark.parametrize("name", FILES)
def test_truncation_at_sixteen_lengths_is_noticed(
    root: Path, make_publishable: MakePublishable, name: str
) -> None:
    manifest, files = make_publishable()
    path = root / publish(root, manifest=manifest, files=files).key / name
    data = path.read_bytes()
    for sixteenth in range(16):
        path.write_bytes(data[: len(data) * sixteenth // 16])
        with pytest.raises(CheckpointCorrupt):
            verify_directory(path.parent)
    path.write_bytes(data + b"\0")
    with pytest.raises(CheckpointCorrupt):
        verify_directory(path.parent)
    path.write_bytes(data)
    assert verify_directory(path.parent) == manifest


def test_only_named_files_may_be_absent_and_none_may_be_added(
    root: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    directory = root / publish(root, manifest=manifest, files=files).key
    (directory / OPTIMIZER).unlink()
    assert verify_directory(directory, without=frozenset({OPTIMIZER})) == manifest
    with pytest.raises(CheckpointCorrupt, match="missing"):
        verify_directory(directory)
    (directory / "extra").touch()
    with pytest.raises(CheckpointCorrupt, match="not in the manifest"):
        verify_directory(directory, without=frozenset({OPTIMIZER}))


@pytest.mark.parametrize("kind", ["symlink", "directory", "fifo"])
def test_a_file_of_another_kind_is_corrupt(
    root: Path, make_publishable: MakePublishable, kind: str
) -> None:
    manifest, files = make_publishable()
    path = root / publish(root, manifest=manifest, files=files).key / WEIGHTS
    path.rename(root / "elsewhere")
    if kind == "symlink":
        path.symlink_to(root / "elsewhere")
    elif kind == "directory":
        path.mkdir()
    else:
        os.mkfifo(path)
    with pytest.raises(CheckpointCorrupt):
        read_verified(path.parent, WEIGHTS, manifest.files[WEIGHTS])


def test_a_machine_without_descriptors_does_not_make_a_checkpoint_corrupt(
    root: Path, make_publishable: MakePublishable, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, files = make_publishable()
    directory = root / publish(root, manifest=manifest, files=files).key

    def refuse(*_: object, **__: object) -> int:
        raise OSError(errno.EMFILE, "too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(os, "open", refuse)
        with pytest.raises(CheckpointError) as caught:
            read_manifest(directory)
    assert not isinstance(caught.value, CheckpointCorrupt)


def test_directories_are_listed_by_policy_and_strangers_are_not(
    root: Path, make_publishable: MakePublishable
) -> None:
    keys = []
    for policy in ("player/p003", "prey/p1000"):
        manifest, files = make_publishable(policy=policy)
        keys.append(publish(root, manifest=manifest, files=files).key)
    (root / "populations" / "player" / "notes").mkdir()
    (root / "populations" / "NOT" / "p000" / "checkpoints" / "x").mkdir(parents=True)
    shutil.copytree(root / keys[0], root / "elsewhere")
    assert list(list_directories(root, "checkpoints")) == keys
    assert list(list_directories(root, "ghosts")) == []


def test_a_file_of_any_size_is_checked_in_little_memory(tmp_path: Path) -> None:
    path, size = tmp_path / WEIGHTS, 64 * 2**20
    with path.open("wb") as file:
        file.truncate(size)
    digest = hashlib.sha256(bytes(size)).hexdigest()
    tracemalloc.start()
    try:
        _check_bytes(path, FileRecord(sha256=Digest(digest), size_bytes=size))
        peak = tracemalloc.get_traced_memory()[1]
        with pytest.raises(CheckpointCorrupt, match=f"{size} bytes instead of {MAX_FILE_BYTES}"):
            _check_bytes(path, FileRecord(sha256=Digest(digest), size_bytes=MAX_FILE_BYTES))
    finally:
        tracemalloc.stop()
    assert peak < 4 * 2**20


def test_a_manifest_with_an_unbelievable_size_is_corrupt(make_publishable: MakePublishable) -> None:
    manifest, _ = make_publishable()
    record = structs.replace(manifest.files[WEIGHTS], size_bytes=MAX_FILE_BYTES + 1)
    document = json.loads(encode_manifest(manifest))
    document["files"][WEIGHTS]["size_bytes"] = record.size_bytes
    forged = sealed(document)
    other = structs.replace(manifest, files={**manifest.files, WEIGHTS: record})
    with pytest.raises(DecodeError, match="bytes"):
        encode_manifest(other)
    with pytest.raises(CheckpointCorrupt, match="bytes"):
        decode_manifest(forged, source=Path("x"))


def test_a_store_keeps_its_id_and_nobody_else_has_it(tmp_path: Path) -> None:
    roots = [tmp_path / "one", tmp_path / "other"]
    for root in roots:
        root.mkdir()
        assert store_digest(root) is None
        make_store_id(root)
    digests = [store_digest(root) for root in roots]
    assert None not in digests
    assert len(set(digests)) == 2
    make_store_id(roots[0])
    assert store_digest(roots[0]) == digests[0]


@pytest.mark.parametrize(
    ("number", "kind"), [(errno.EMFILE, DiskRefused), (errno.EIO, CheckpointCorrupt)]
)
def test_a_directory_that_cannot_be_looked_at_is_no_raw_error(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    number: int,
    kind: type[CheckpointError],
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patch:
        patch.setattr(Path, "is_dir", refuse)
        with pytest.raises(kind):
            read_manifest(tmp_path)
    monkeypatch.setattr("arena.checkpoints.files.read_manifest", lambda _: None)
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(kind):
        verify_directory(tmp_path)


def test_an_id_that_cannot_be_read_is_kept_and_an_empty_one_replaced(tmp_path: Path) -> None:
    path = tmp_path / STORE_ID
    path.write_text("of a later release")
    make_store_id(tmp_path)
    assert path.read_text() == "of a later release"
    assert store_digest(tmp_path) is None
    path.write_text("")
    assert store_digest(tmp_path) is None, "it would be equal in every store that has lost its own"
    make_store_id(tmp_path)
    assert store_digest(tmp_path) is not None


@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(name=st.sampled_from(FILES), place=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
@pytest.mark.slow
def test_any_flipped_bit_is_noticed(
    make_publishable: MakePublishable, name: str, place: float, bit: int
) -> None:
    manifest, files = make_publishable()
    with tempfile.TemporaryDirectory() as directory:
        path = Path(directory, publish(Path(directory), manifest=manifest, files=files).key, name)
        data = bytearray(path.read_bytes())
        data[int(place * len(data))] ^= 1 << bit
        path.write_bytes(data)
        with pytest.raises(CheckpointCorrupt):
            verify_directory(path.parent)
