from __future__ import annotations

import gc
import logging
import os
import resource
import signal
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from arena.processes import settings as process_settings
from arena.processes.settings import SETTINGS, KeptSettings, UsersSettings
from arena.users_code import is_exhaustion
from tests.arena.learners.conftest import finished, mirror, train
from tests.faults.workers import first_checkpoint, make_worker

ROOT = Path(__file__).parents[3]


@pytest.fixture(autouse=True)
def whole() -> Iterator[None]:
    """Undo what a test leaves changed where the code under test does not."""
    kept = KeptSettings()
    yield
    kept.restore()
    kept.close()


def test_each_side_has_its_own_settings() -> None:
    users, seen = UsersSettings(), []

    def code() -> None:
        seen.append((torch.get_default_dtype(), torch.is_grad_enabled(), np.geterr()["over"]))
        torch.set_default_dtype(torch.float64)
        torch.set_grad_enabled(False)
        np.seterr(over="raise")

    ours = (torch.float32, True, np.geterr()["over"])
    for _ in range(2):
        users.run(code)
        assert (torch.get_default_dtype(), torch.is_grad_enabled(), np.geterr()["over"]) == ours
    # The user's settings are restored when user code is called again.
    assert seen == [ours, (torch.float64, False, "raise")]


def test_they_are_ours_again_where_it_raises_and_within_another_mode() -> None:
    users = UsersSettings()

    def code() -> None:
        torch.set_default_dtype(torch.float64)
        raise SystemExit

    with pytest.raises(SystemExit):
        users.run(code)
    assert torch.get_default_dtype() is torch.float32
    with torch.no_grad():
        users.run(lambda: None)
        assert not torch.is_grad_enabled()
    # The mode of Arena's own torch context is not a user setting.
    assert users.run(torch.is_grad_enabled)


def test_a_command_keeps_its_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(process_settings, "_keeps_directory", True)
    users = UsersSettings()
    users.run(os.chdir, "/")
    assert Path.cwd() == tmp_path
    assert users.run(os.getcwd) == "/"


def test_all_others_are_changed_back_and_named(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The module is not imported a second time by itself.
    monkeypatch.setitem(sys.modules, "module_of_this_test", ModuleType("module_of_this_test"))
    kept = KeptSettings()
    process_settings._noted.clear()
    threads, umask = torch.get_num_threads(), os.umask(0o22)
    os.umask(umask)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    sys.modules.pop("module_of_this_test")
    torch.set_num_threads(threads + 1)
    torch.use_deterministic_algorithms(True)
    torch.set_anomaly_enabled(True)
    torch.set_default_device("meta")
    np.seterr(all="raise")
    gc.disable()
    os.umask(0o777)
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft - 1, hard))
    warnings.filterwarnings("error", message="of a user")
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM})
    with caplog.at_level(logging.WARNING):
        kept.restore()
        kept.restore()
    assert "module_of_this_test" in sys.modules
    assert torch.get_num_threads() == threads
    assert not torch.are_deterministic_algorithms_enabled()
    assert not torch.is_anomaly_enabled()
    assert torch.zeros(1).device.type == "cpu"
    assert np.geterr()["over"] != "raise"
    assert gc.isenabled()
    assert os.umask(umask) == umask
    assert resource.getrlimit(resource.RLIMIT_NOFILE) == (soft, hard)
    assert not [one for one in warnings.filters if one[1] and "of a user" in str(one[1])]
    assert signal.getsignal(signal.SIGTERM) is not signal.SIG_IGN
    assert signal.SIGTERM not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
    # Each warning is logged once.
    assert len(caplog.messages) == len(set(caplog.messages)) == 12
    kept.close()


def test_a_closed_standard_stream_is_open_again(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as log:
        before = os.dup(2)
        os.dup2(log.fileno(), 2)
    kept = KeptSettings()
    try:
        os.close(2)
        kept.restore()
        os.write(2, b"heard")
    finally:
        os.dup2(before, 2)
        os.close(before)
        kept.close()
    assert (tmp_path / "log").read_text() == "heard"


def test_threads_do_not_share_them() -> None:
    users, seen = UsersSettings(), []
    users.run(torch.set_grad_enabled, False)
    thread = threading.Thread(target=lambda: seen.append(users.run(torch.is_grad_enabled)))
    thread.start()
    thread.join()
    assert seen == [True]


def weights_after(root: Path, **kwargs: Any) -> str:
    """Return the digest of the weights after some training in an environment."""
    root.mkdir()
    worker = make_worker(root, "changing:Changing", **kwargs)
    message = train(first_checkpoint(worker), mirror(), agent_steps=200)
    (published,) = finished(worker.carry_out(message)).checkpoints
    worker.close()
    return published.checkpoint.digest


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> str:
    return weights_after(tmp_path_factory.mktemp("plain") / "run")


@pytest.mark.parametrize(
    ("what", "when"),
    [
        *((what, "making") for what in ("dtype", "gradients", "device", "numpy", "random")),
        *((what, "reset") for what in ("dtype", "umask", "modules", "warnings", "directory")),
        *((what, "step") for what in ("dtype", "gradients", "numpy", "recursion", "random")),
    ],
)
def test_training_gives_the_same_bits_whatever_an_environment_changes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain: str, what: str, when: str
) -> None:
    # Both runs must happen in the same working directory.
    monkeypatch.chdir(tmp_path)
    assert weights_after(tmp_path / "run", what=what, when=when) == plain


def test_a_module_that_another_thread_is_importing_is_not_read_yet(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    half = ModuleType("torch")
    half.__spec__ = ModuleSpec("torch", None)
    vars(half.__spec__)["_initializing"] = True
    monkeypatch.setitem(sys.modules, "torch", half)
    assert SETTINGS.run(lambda: "done") == "done"
    assert not is_exhaustion(ValueError())


LOADS_TORCH = """
import sys
from arena.processes.settings import UsersSettings
users, seen = UsersSettings(), []
def code():
    import torch
    seen.append((torch.get_default_dtype(), torch.is_grad_enabled()))
    torch.set_default_dtype(torch.float64)
    torch.set_grad_enabled(False)
assert "torch" not in sys.modules
for _ in range(2):
    users.run(code)
    import torch
    assert (torch.get_default_dtype(), torch.is_grad_enabled()) == (torch.float32, True)
assert seen == [(torch.float32, True), (torch.float64, False)]
"""


@pytest.mark.slow
def test_torch_that_users_code_is_the_first_to_load_is_as_it_was_made() -> None:
    subprocess.run([sys.executable, "-c", LOADS_TORCH], check=True, cwd=ROOT)
