"""The processes that a configuration asks for, and where they begin."""

from __future__ import annotations

from pathlib import Path

import pytest

from populations.config.run_config import RunConfig, validate_config
from populations.hooks.calls import Place, read_place, write_place
from populations.hooks.make import make_hook_processes
from populations.hooks.process import HookSettings
from populations.hooks.supervisor import HookProcess


def config_of(**sections: object) -> RunConfig:
    return validate_config({"environment": {"id": "a:b"}, **sections})


def made(config: RunConfig, run: Path, *, is_new: bool = False) -> list[HookProcess]:
    return make_hook_processes(
        config,
        run,
        launch_directory="/launch",
        command=("python",),
        num_events=40,
        is_new=is_new,
    )


HOOKED = config_of(hooks={"on_end": ["a:b", ["c"]], "time_limit_s": 7})
EXPORTING = config_of(checkpoints={"export_every_agent_steps": 10})


@pytest.mark.parametrize("every", [None, 0])
def test_without_hooks_and_exports_there_is_no_process(tmp_path: Path, every: int | None) -> None:
    config = config_of(checkpoints={"export_every_agent_steps": every})
    assert made(config, tmp_path) == []
    assert list(tmp_path.iterdir()) == []


def test_the_end_waits_one_limit_for_the_backlog_and_one_for_each_hook(tmp_path: Path) -> None:
    (process,) = made(HOOKED, tmp_path)
    assert process.end_s == 21.0
    assert isinstance(process.settings, HookSettings)
    assert process.settings.hooks == {"on_end": ("a:b", ("c",))}
    assert process.settings.launch_directory == "/launch"


def test_an_export_has_a_process_and_an_alert_of_its_own(tmp_path: Path) -> None:
    (process,) = made(EXPORTING, tmp_path)
    assert process.alert == "export_failed"
    assert isinstance(process.settings, HookSettings)
    ((command,),) = process.settings.hooks.values()
    assert command[:3] == ("python", "export", "--trust")
    assert "{run}/exports/{to}" in command
    # Nothing is played for it.
    assert command[command.index("--matches") + 1] == "0"


def test_hooks_begin_with_the_run_or_with_the_resume_that_brings_them(tmp_path: Path) -> None:
    path = tmp_path / "hooks.json"
    made(HOOKED, tmp_path, is_new=True)
    assert read_place(path) == Place(after=0)
    path.unlink()
    made(HOOKED, tmp_path)
    assert read_place(path) == Place(after=40)
    # Later resumes go on from what is known to be done.
    write_place(path, Place(after=17))
    made(HOOKED, tmp_path)
    assert read_place(path) == Place(after=17)
    # Without hooks nothing waits for them: what comes back begins anew.
    made(EXPORTING, tmp_path)
    assert read_place(path) is None
    assert read_place(tmp_path / "exports.json") == Place(after=40)
