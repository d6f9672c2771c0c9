from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from msgspec import structs

from arena.checkpoints.files import encode_manifest, list_directories, verify_directory
from arena.checkpoints.manifest import MANIFEST, OPTIMIZER, WEIGHTS, Manifest, ghost_key
from arena.checkpoints.publish import (
    link_ghost,
    publish,
    remove_directory,
    set_aside,
    sweep_temporary,
)
from arena.errors import CheckpointCorrupt, CheckpointError, CheckpointMissing
from arena.types import CheckpointRef

from .conftest import MakePublishable

STEPS = ("mkdir", "open", "write", "fsync", "rename", "link")


def entries(root: Path) -> list[str]:
    return [*list_directories(root, "checkpoints"), *list_directories(root, "ghosts")]


def key_of_ghost(manifest: Manifest) -> str:
    return ghost_key(manifest.policy, agent_steps=manifest.agent_steps, digest=manifest.digest)


def test_a_published_checkpoint_verifies_and_is_alone(
    root: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    reference = publish(root, manifest=manifest, files=files)
    expected = f"populations/player/p003/checkpoints/000000120000-{manifest.digest[:8]}"
    assert reference == CheckpointRef(digest=manifest.digest, key=expected)
    assert verify_directory(root / reference.key) == manifest
    assert entries(root) == [reference.key]


def test_publishing_again_changes_nothing(root: Path, make_publishable: MakePublishable) -> None:
    manifest, files = make_publishable()
    reference = publish(root, manifest=manifest, files=files)
    inode = (root / reference.key / WEIGHTS).stat().st_ino
    redo = structs.replace(manifest, created="2030-01-01T00:00:00+00:00")
    assert publish(root, manifest=redo, files=files) == reference
    assert (root / reference.key / WEIGHTS).stat().st_ino == inode
    assert verify_directory(root / reference.key).created == manifest.created


@pytest.mark.parametrize("damage", ["altered", "incomplete", "empty"])
def test_a_damaged_predecessor_is_set_aside(
    root: Path, make_publishable: MakePublishable, damage: str
) -> None:
    manifest, files = make_publishable()
    directory = root / publish(root, manifest=manifest, files=files).key
    if damage == "altered":
        (directory / WEIGHTS).write_bytes(b"W" * 999)
    elif damage == "incomplete":
        (directory / OPTIMIZER).unlink()
    else:
        shutil.rmtree(directory)
        directory.mkdir()
    publish(root, manifest=manifest, files=files)
    assert verify_directory(directory) == manifest
    (aside,) = [entry.name for entry in directory.parent.iterdir() if entry != directory]
    assert aside.startswith(f"corrupt-{directory.name}")


def test_manifest_and_files_must_belong_together(
    root: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    with pytest.raises(ValueError, match="describes"):
        publish(root, manifest=manifest, files={**files, WEIGHTS: b"other"})
    assert list(root.iterdir()) == []


def test_a_run_directory_that_is_gone_does_not_come_back(
    tmp_path: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    with pytest.raises(CheckpointError, match="root is gone"):
        publish(tmp_path / "gone", manifest=manifest, files=files)
    assert not (tmp_path / "gone").exists()


class Fault:
    """Makes the n-th call of the steps of publishing fail."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *, nth: int, code: int) -> None:
        self.calls = 0
        self._nth, self._code = nth, code
        for name in STEPS:
            monkeypatch.setattr(os, name, self._wrap(getattr(os, name)))

    def _wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: object, **options: object) -> object:
            self.calls += 1
            if self.calls == self._nth:
                raise OSError(self._code, os.strerror(self._code), "the disk")
            return real(*arguments, **options)

        return step


def faults(code: int, scenario: Callable[[], None]) -> Iterator[bool]:
    """Let the scenario run with a fault at its 1st, 2nd, ... step; True: there was one."""
    for nth in range(1, 200):
        with pytest.MonkeyPatch.context() as patch:
            fault = Fault(patch, nth=nth, code=code)
            try:
                scenario()
                failed = False
            except CheckpointError:
                failed = True
        yield failed
        if fault.calls < nth:
            return
    raise AssertionError("the scenario never ran through")


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EROFS, errno.EIO])
def test_a_disk_that_refuses_any_step_leaves_nothing_behind(
    root: Path, make_publishable: MakePublishable, code: int
) -> None:
    old, old_files = make_publishable(agent_steps=1)
    new, new_files = make_publishable(agent_steps=2)
    kept = publish(root, manifest=old, files=old_files).key

    def scenario() -> None:
        publish(root, manifest=new, files=new_files)

    outcomes = []
    for failed in faults(code, scenario):
        outcomes.append(failed)
        found = entries(root)
        if failed:
            assert found == [kept]
    assert found[0] == kept
    assert len(found) == 2
    assert verify_directory(root / found[1]) == new
    # At least the open, write and sync of three files, two directories and one rename can fail.
    assert sum(outcomes) >= 12
    assert not outcomes[-1]


def test_a_disk_that_refuses_a_link_leaves_no_ghost(
    root: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    source = publish(root, manifest=manifest, files=files).key
    ghost = key_of_ghost(manifest)
    for failed in faults(errno.ENOSPC, lambda: _link(root, source, ghost)):
        assert entries(root) == ([source] if failed else [source, ghost])


def _link(root: Path, source: str, ghost: str) -> None:
    link_ghost(root, checkpoint_key=source, ghost_key=ghost)


def test_bytes_are_on_disk_before_the_name_and_the_name_before_the_end(
    root: Path, make_publishable: MakePublishable, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What SIGKILL cannot show: after a power loss only what was synced is there."""
    manifest, files = make_publishable()
    done: list[tuple[str, str]] = []
    rename, fsync = os.rename, os.fsync

    def note_sync(descriptor: int) -> None:
        done.append(("sync", Path(os.readlink(f"/proc/self/fd/{descriptor}")).name))
        fsync(descriptor)

    def note_rename(source: Path, target: Path) -> None:
        done.append(("rename", target.name))
        rename(source, target)

    monkeypatch.setattr(os, "fsync", note_sync)
    monkeypatch.setattr(os, "rename", note_rename)
    key = publish(root, manifest=manifest, files=files).key
    made = [("sync", name) for name in ("run", "populations", "player", "p003")]
    assert done[:4] == made
    written, directory = done[4:7], done[7]
    assert sorted(written) == [("sync", name) for name in sorted((*files, MANIFEST))]
    assert directory[1].startswith(".tmp-")
    assert done[8:] == [("rename", Path(key).name), ("sync", "checkpoints")]


KILLS = """
import os, signal, sys
from pathlib import Path
from arena.checkpoints.files import decode_manifest
from arena.checkpoints.manifest import OPTIMIZER, WEIGHTS, ghost_key
from arena.checkpoints.publish import link_ghost, publish, remove_directory

base, scenario = Path(sys.argv[1]), sys.argv[2]
manifest = decode_manifest((base / "manifest").read_bytes(), source=base)
files = {WEIGHTS: (base / WEIGHTS).read_bytes(), OPTIMIZER: (base / OPTIMIZER).read_bytes()}
ghost = ghost_key(manifest.policy, agent_steps=manifest.agent_steps, digest=manifest.digest)

def run(root, nth):
    if scenario != "publish":
        key = publish(root, manifest=manifest, files=files).key
    calls = 0
    def wrap(name, real):
        def step(*arguments, **options):
            nonlocal calls
            calls += 1
            if calls == nth:
                if name == "write":
                    real(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)
            return real(*arguments, **options)
        return step
    for name in ("mkdir", "open", "write", "fsync", "rename", "link", "unlink", "rmdir"):
        setattr(os, name, wrap(name, getattr(os, name)))
    if scenario == "publish":
        publish(root, manifest=manifest, files=files)
    elif scenario == "link":
        link_ghost(root, checkpoint_key=key, ghost_key=ghost)
    else:
        remove_directory(root, key)

for nth in range(1, 200):
    root = base / f"{nth:03d}"
    root.mkdir()
    child = os.fork()
    if child == 0:
        run(root, nth)
        os._exit(0)
    _, status = os.waitpid(child, 0)
    if status == 0:
        break
    assert os.WIFSIGNALED(status) and os.WTERMSIG(status) == signal.SIGKILL, status
"""


def killed_at_each_step(base: Path, manifest: Manifest, files: dict[str, bytes], what: str) -> int:
    """Run a scenario in children that are killed at their n-th step, each in a store of its own."""
    (base / "manifest").write_bytes(encode_manifest(manifest))
    for name, data in files.items():
        (base / name).write_bytes(data)
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    command = [sys.executable, "-c", KILLS, str(base), what]
    subprocess.run(command, check=True, env=environment, timeout=60)
    return len([entry for entry in base.iterdir() if entry.is_dir()])


@pytest.mark.parametrize(("what", "least"), [("publish", 20), ("link", 6), ("remove", 6)])
def test_sigkill_at_each_step_leaves_all_or_nothing(
    tmp_path: Path, make_publishable: MakePublishable, what: str, least: int
) -> None:
    manifest, files = make_publishable()
    num_stores = killed_at_each_step(tmp_path, manifest, files, what)
    assert num_stores >= least
    ghost, num_published = key_of_ghost(manifest), 0
    for nth in range(1, num_stores + 1):
        root = tmp_path / f"{nth:03d}"
        found = [key for key in entries(root) if "/.tmp-" not in key]
        sweep_temporary(root)
        assert entries(root) == found
        for key in found:
            absent = {OPTIMIZER} if "/ghosts/" in key else set()
            assert verify_directory(root / key, without=frozenset(absent)) == manifest
        num_published += len(list(list_directories(root, "checkpoints")))
        if what == "publish":
            again = publish(root, manifest=manifest, files=files).key
            assert entries(root) == [again]
        elif what == "link":
            (source,) = list_directories(root, "checkpoints")
            assert found in ([source], [source, ghost])
            _link(root, source, ghost)
            assert entries(root) == [source, ghost]
        else:
            for key in found:
                remove_directory(root, key)
            assert entries(root) == []
    # Only linking keeps the source checkpoint in place in every case.
    assert (num_published == num_stores) == (what == "link")
    assert num_published >= 1


def test_a_ghost_outlives_its_checkpoint_and_shares_its_bytes(
    root: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    source, ghost = publish(root, manifest=manifest, files=files).key, key_of_ghost(manifest)
    link_ghost(root, checkpoint_key=source, ghost_key=ghost)
    assert os.path.samefile(root / source / WEIGHTS, root / ghost / WEIGHTS)
    remove_directory(root, source)
    assert not (root / source).exists()
    assert verify_directory(root / ghost, without=frozenset({OPTIMIZER})) == manifest
    assert (root / ghost / WEIGHTS).read_bytes() == files[WEIGHTS]
    link_ghost(root, checkpoint_key=source, ghost_key=ghost)


def test_ghosts_are_copied_where_links_are_not_possible(
    root: Path, make_publishable: MakePublishable, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, files = make_publishable()
    source, ghost = publish(root, manifest=manifest, files=files).key, key_of_ghost(manifest)

    def refuse(*_: object) -> None:
        raise OSError(errno.EPERM, "no links here")

    monkeypatch.setattr(os, "link", refuse)
    link_ghost(root, checkpoint_key=source, ghost_key=ghost)
    assert not os.path.samefile(root / source / WEIGHTS, root / ghost / WEIGHTS)
    assert verify_directory(root / ghost, without=frozenset({OPTIMIZER})) == manifest


def test_no_ghost_of_what_is_damaged_or_absent(
    root: Path, make_publishable: MakePublishable
) -> None:
    manifest, files = make_publishable()
    source, ghost = publish(root, manifest=manifest, files=files).key, key_of_ghost(manifest)
    (root / source / WEIGHTS).write_bytes(b"W" * 999)
    with pytest.raises(CheckpointCorrupt):
        _link(root, source, ghost)
    remove_directory(root, source)
    with pytest.raises(CheckpointMissing):
        _link(root, source, ghost)
    assert entries(root) == []


def test_a_damaged_ghost_is_made_again(root: Path, make_publishable: MakePublishable) -> None:
    manifest, files = make_publishable()
    source, ghost = publish(root, manifest=manifest, files=files).key, key_of_ghost(manifest)
    _link(root, source, ghost)
    (root / ghost / WEIGHTS).unlink()
    _link(root, source, ghost)
    assert verify_directory(root / ghost, without=frozenset({OPTIMIZER})) == manifest


def test_removing_and_setting_aside_what_is_not_there_is_done_already(root: Path) -> None:
    key = "populations/player/p003/checkpoints/000000120000-00000000"
    remove_directory(root, key)
    assert set_aside(root, key) is None
    assert list(root.iterdir()) == []


def test_the_sweep_takes_only_our_temporary_directories(root: Path) -> None:
    parent = root / "populations" / "player" / "p003" / "checkpoints"
    ours = parent / f".tmp-{'0' * 32}"
    others = [".tmp-x", "tmp-" + "0" * 32, "000000120000-00000000", f"corrupt-{'0' * 32}"]
    for name in (ours.name, *others):
        (parent / name / "deep").mkdir(parents=True)
    (root / ours.name).mkdir()
    link = parent / f".tmp-{'1' * 32}"
    link.symlink_to(root)
    assert sweep_temporary(root) == (ours.relative_to(root).as_posix(),)
    assert sorted(entry.name for entry in parent.iterdir()) == sorted([*others, link.name])
    assert (root / ours.name).exists()


def test_publishers_of_the_same_checkpoint_do_not_disturb_each_other(
    root: Path, make_publishable: MakePublishable, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest, files = make_publishable()
    rename = os.rename

    def be_second(source: Path, target: Path) -> None:
        monkeypatch.setattr(os, "rename", rename)
        publish(root, manifest=manifest, files=files)
        rename(source, target)

    monkeypatch.setattr(os, "rename", be_second)
    reference = publish(root, manifest=manifest, files=files)
    assert entries(root) == [reference.key]
    assert verify_directory(root / reference.key) == manifest
