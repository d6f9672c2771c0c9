from __future__ import annotations

import errno
import importlib
import json
import logging
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from pettingzoo.classic import connect_four_v3

from arena.envs.registry import TWINS
from arena.errors import ArenaError, ConfigError, DiskRefused, EnvironmentFault, NotTrusted
from arena.resolve import NO_CODE, OWN, put_first_on_path, resolve
from arena.users_code import (
    MAX_FRAMES,
    Interrupt,
    chain_of,
    is_exhaustion,
    is_of_users,
    own_lines,
    raised,
    split_lines,
    users_code,
)

CODE = """import json


def outer(value):
    return inner(value)


def inner(value):
    return 1 / value


def parse():
    return json.loads("{")


def deep(number):
    return deep(number - 1) if number else 1 / 0


class Untold(Exception):
    def __str__(self):
        raise RuntimeError


def untold():
    raise Untold
"""


@pytest.fixture
def users_module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    (tmp_path / "code_of_a_user.py").write_text(CODE)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("code_of_a_user", None)
    return importlib.import_module("code_of_a_user")


def test_one_message_has_the_users_frames_alone(
    users_module: ModuleType, caplog: pytest.LogCaptureFixture
) -> None:
    with (
        caplog.at_level(logging.INFO),
        pytest.raises(ConfigError) as caught,
        users_code("bot:x:Y in act"),
    ):
        users_module.outer(0)
    path = users_module.__file__
    # This file is not installed either, so the test counts as user code.
    first, lines = split_lines(str(caught.value))
    assert first == "bot:x:Y in act raised ZeroDivisionError: division by zero"
    assert lines.endswith(
        f'\n  File "{path}", line 5, in outer\n    return inner(value)'
        f'\n  File "{path}", line 9, in inner\n    return 1 / value'
    )
    # The full traceback is in the log, once.
    (record,) = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[1] is caught.value.__cause__


def test_frames_of_libraries_are_left_out(users_module: ModuleType) -> None:
    with pytest.raises(json.JSONDecodeError) as caught:
        users_module.parse()
    lines = own_lines(caught.value)
    assert "in parse" in lines
    assert "json/decoder.py" not in lines


def test_frames_of_an_installed_package_are_shown_where_all_of_it_was_there() -> None:
    env = connect_four_v3.raw_env()
    with pytest.raises(AttributeError) as caught:
        env.step(0)
    # The traceback starts inside an installed package that Arena called.
    caught.value.__traceback__ = caught.value.__traceback__ and caught.value.__traceback__.tb_next
    lines = own_lines(caught.value)
    assert "connect_four.py" in lines
    assert "in step" in lines


def test_frames_of_arena_are_left_out(tmp_path: Path) -> None:
    (tmp_path / "broken_module_of_a_user.py").write_text("x = 1\ny = x / 0\n")
    with pytest.raises(ConfigError) as caught:
        resolve("broken_module_of_a_user:Bot", launch_directory=str(tmp_path))
    first, lines = split_lines(str(caught.value))
    assert first.endswith(
        "importing broken_module_of_a_user raised ZeroDivisionError: division by zero"
    )
    assert lines.count("File") == 1
    assert lines.endswith("line 2, in <module>\n    y = x / 0")


def test_a_syntax_error_shows_its_line(tmp_path: Path) -> None:
    (tmp_path / "unreadable_module_of_a_user.py").write_text("x = 1\ny = = 2\n")
    with pytest.raises(ConfigError) as caught:
        resolve("unreadable_module_of_a_user:Bot", launch_directory=str(tmp_path))
    assert "line 2, in <module>\n    y = = 2" in str(caught.value)


def test_a_recursion_shows_its_end(users_module: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        users_module.deep(500)
    assert own_lines(caught.value).count("File") <= MAX_FRAMES


def test_an_exception_without_a_text_is_told(users_module: ModuleType) -> None:
    told = r"it raised Untold: \(its text cannot be read\)"
    with pytest.raises(ConfigError, match=told), users_code("it"):
        users_module.untold()


def test_a_long_text_is_cut_and_brought_into_one_line() -> None:
    text = raised("it", ValueError("a\n" * 5000))
    assert len(text) < 1200
    assert "\n" not in text


@pytest.mark.parametrize("error", [ConfigError("as it is"), EnvironmentFault("as it is")])
def test_errors_of_arena_pass(error: ArenaError) -> None:
    with pytest.raises(type(error), match=r"^as it is$"), users_code("it"):
        raise error


def test_another_error_can_be_wanted() -> None:
    wanted = users_code("it", raises=EnvironmentFault)
    with pytest.raises(EnvironmentFault, match="it raised KeyError"), wanted:
        raise KeyError("x")


@pytest.fixture
def own_handler() -> Iterator[None]:
    """Handle Ctrl-C as learners do, so that none of its exceptions can be Python's."""
    before = signal.signal(signal.SIGINT, lambda number, frame: None)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("own_handler")
@pytest.mark.parametrize(
    "error", [SystemExit(0), KeyboardInterrupt(), GeneratorExit(), BaseException("bye")]
)
def test_whatever_users_code_raises_is_an_error_of_it(error: BaseException) -> None:
    with pytest.raises(ConfigError, match=f"it raised {type(error).__name__}"), users_code("it"):
        raise error


class Stopped(SystemExit, Interrupt):
    """What a handler of a signal raises."""


def test_an_interrupt_of_the_process_passes() -> None:
    with pytest.raises(Stopped), users_code("it"):
        raise Stopped(130)
    # Python's own handler is installed here, so this may be a real Ctrl-C.
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler
    with pytest.raises(KeyboardInterrupt), users_code("it"):
        raise KeyboardInterrupt


def test_a_module_that_exits_cannot_be_imported(tmp_path: Path) -> None:
    (tmp_path / "module_that_exits.py").write_text("exit()\n")
    with pytest.raises(ConfigError, match="importing module_that_exits raised SystemExit"):
        resolve("module_that_exits:Bot", launch_directory=str(tmp_path))


def led_to(error: BaseException, cause: BaseException) -> BaseException:
    error.__cause__ = cause
    return error


def raised_while(error: BaseException, context: BaseException) -> BaseException:
    error.__context__ = context
    return error


def circle() -> BaseException:
    error = RuntimeError("boom")
    return led_to(error, led_to(ValueError("x"), error))


def test_a_chain_of_errors_is_that_of_a_traceback_and_ends() -> None:
    error = circle()
    assert list(chain_of(error)) == [error, error.__cause__]
    assert list(chain_of(None)) == []
    alone = raised_while(RuntimeError("boom"), MemoryError())
    # ``from None`` sets this flag, by which the author hides the context.
    alone.__suppress_context__ = True
    assert list(chain_of(alone)) == [alone]


FULL = OSError(errno.ENOSPC, "no space")


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (MemoryError(), True),
        (torch.OutOfMemoryError("CUDA out of memory"), True),
        (RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried 10"), True),
        (OSError(errno.EMFILE, "too many open files"), True),
        (FULL, True),
        (led_to(EnvironmentFault("x"), FULL), True),
        (raised_while(RuntimeError("cannot go on"), MemoryError()), True),
        (circle(), False),
        # A full disk of the run is not the learner's fault, but its descriptors are.
        (led_to(DiskRefused("x"), FULL), False),
        (led_to(DiskRefused("x"), OSError(errno.EMFILE, "too many open files")), True),
        (OSError(errno.EACCES, "no"), False),
        (RuntimeError("boom"), False),
    ],
)
def test_what_a_machine_lacks_is_known_by_its_error(error: BaseException, is_one: bool) -> None:
    assert is_exhaustion(error) == is_one


def test_errors_of_users_files_are_known(users_module: ModuleType) -> None:
    with pytest.raises(ZeroDivisionError) as caught:
        users_module.outer(0)
    # The traceback starts where Arena called the code.
    caught.value.__traceback__ = caught.value.__traceback__ and caught.value.__traceback__.tb_next
    assert is_of_users(caught.value)
    assert not is_of_users(ValueError("never raised"))


LAZY = """import torch


def __getattr__(name):
    torch.set_default_dtype(torch.float64)
    if name == "Thing":
        return dict
    if name == "Gone":
        raise ImportError("libthing.so is not there")
    if name == "Needy":
        import package_that_is_not_there
    raise AttributeError(name)
"""


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setattr(sys, "path", list(sys.path))
    package = tmp_path / "resolved_package"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "things.py").write_text("class Outer:\n    class Inner:\n        mark = 41\n")
    (package / "broken.py").write_text("raise ZeroDivisionError('of course')\n")
    (package / "lazy.py").write_text(LAZY)
    (package / "needy.py").write_text("import package_that_is_not_there\n")
    return str(tmp_path)


def test_finds_dotted_names(directory: str) -> None:
    found = resolve("resolved_package.things:Outer.Inner", launch_directory=directory)
    assert getattr(found, "mark", None) == 41


def test_the_launch_directory_is_first_and_there_once(directory: str) -> None:
    sys.path.append(directory)
    for _ in range(3):
        resolve("resolved_package.things:Outer", launch_directory=directory)
    assert sys.path[0] == directory
    assert sys.path.count(directory) == 1


@pytest.mark.parametrize(
    ("reference", "text"),
    [
        (
            "resolved_package.things:Nope",
            "resolved_package.things has no 'Nope' in /",
        ),
        ("resolved_package.things:Outer.Nope", "has no 'Outer.Nope'"),
        (
            "__main__:Nope",
            "has no 'Nope', which is another file in each process: put it into a module",
        ),
        (
            "resolved_package.nope:Name",
            "there is no module 'resolved_package.nope' in {},",
        ),
        ("resolved_package.needy:Name", "no module 'package_that_is_not_there'"),
        ("resolved_package.broken:Name", "ZeroDivisionError: of course"),
        ("resolved_package.lazy:Gone", "raised ImportError: libthing.so is not there"),
        ("resolved_package.lazy:Needy", "no module 'package_that_is_not_there'"),
        ("resolved_package.lazy:Nope", "resolved_package.lazy has no 'Nope'"),
        ("resolved_package", "must be package.module:Name"),
        (":Name", "must be package.module:Name"),
        ("resolved_package.things:", "must be package.module:Name"),
        ("resolved_package..things:Outer", "must be package.module:Name"),
    ],
)
def test_says_what_is_missing(directory: str, reference: str, text: str) -> None:
    with pytest.raises(ConfigError) as caught:
        resolve(reference, launch_directory=directory)
    assert text.format(directory) in str(caught.value)
    assert reference in str(caught.value)


def test_a_lazy_module_has_the_settings_of_users(directory: str) -> None:
    assert resolve("resolved_package.lazy:Thing", launch_directory=directory) is dict
    assert torch.get_default_dtype() is torch.float32


def test_without_the_users_word_nothing_is_imported(directory: str) -> None:
    put_first_on_path(directory)
    with pytest.raises(NotTrusted, match=r"resolved_package.things:Outer.*--trust"):
        resolve("resolved_package.things:Outer", launch_directory=NO_CODE)
    before = list(sys.path)
    # Arena's own games are not user code, so no directory is searched.
    resolve("arena.envs.batched.connect_four:ConnectFour", launch_directory=NO_CODE)
    assert sys.path == before


def test_arenas_own_code_is_the_twins_and_its_bot() -> None:
    assert {*TWINS.values(), "arena.bots.connect_four:Tactical"} == OWN
