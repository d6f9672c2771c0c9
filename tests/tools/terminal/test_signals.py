"""A command that is inside of a library when it is told to end."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
import typer
from onnx import TensorProto, helper

from arena.errors import CheckpointMissing, ConfigError
from populations.errors import ResumeRefused, RunFailed, RunInUse, StorageError
from populations.views.texts import one_line, plain
from tools.terminal.exit_codes import exit_code
from tools.terminal.options import Overrides, TakesKeys
from tools.terminal.output import paragraphs
from tools.terminal.screen import Screen, discard

TIMEOUT_S = 60.0

PROGRAM = """
import os, sys
import numpy as np
import onnxruntime
from tools.terminal.signals import leave_on_signals
session = onnxruntime.InferenceSession(sys.argv[1])
with leave_on_signals():
    if os.fork() == 0:
        # A child's signals are its own: the parent goes on.
        try:
            os.kill(os.getpid(), 15)
        finally:
            os._exit(7)
    os.wait()
    sys.stdout.write("begun\\n")
    sys.stdout.flush()
    session.run(None, {"rounds": np.array(1 << 62), "first": np.array(0)})
"""


def endless() -> onnx.ModelProto:
    """A graph whose loop has as many rounds as it is told."""

    def number(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.INT64, [])

    def truth(name: str) -> onnx.ValueInfoProto:
        return helper.make_tensor_value_info(name, TensorProto.BOOL, [])

    nodes = [
        helper.make_node("Identity", ["on"], ["on_again"]),
        helper.make_node("Add", ["value", "round"], ["sum"]),
    ]
    body = helper.make_graph(
        nodes,
        "body",
        [number("round"), truth("on"), number("value")],
        [truth("on_again"), number("sum")],
    )
    loop = helper.make_node("Loop", ["rounds", "", "first"], ["last"], body=body)
    inputs = [number("rounds"), number("first")]
    graph = helper.make_graph([loop], "endless", inputs, [number("last")])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


@pytest.mark.slow
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_an_endless_graph_ends_with_the_command(number: int, code: int, tmp_path: Path) -> None:
    path = tmp_path / "endless.onnx"
    onnx.save(endless(), path)
    root = Path(__file__).parents[3]
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=root,
        env={**os.environ, "PYTHONPATH": str(root)},
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "begun\n"
            process.send_signal(number)
            _, error = process.communicate(timeout=TIMEOUT_S)
        finally:
            process.kill()
    assert (process.returncode, error.strip().splitlines()[-1]) == (
        code,
        f"arena: interrupted by {signal.Signals(number).name}",
    )


def run(*arguments: str) -> None:
    app = typer.Typer()

    @app.command(cls=TakesKeys)
    def launch(overrides: Overrides = None) -> None:
        """Launch."""

    app(args=list(arguments), standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "hint"),
    [
        (("--seed", "3"), "seed=3"),
        (("--seed=3",), "seed=3"),
        (("--seed",), "seed=VALUE"),
        (("--num-envs", "8"), "environment.num_envs=8"),
        (("--stop.duration-s", "60"), "stop.duration_s=60"),
        (("--seed", "--learners", "3"), "seed=VALUE"),
    ],
)
def test_the_key_is_named(arguments: tuple[str, ...], hint: str) -> None:
    with pytest.raises(ConfigError, match="there is no option") as error_info:
        run(*arguments)
    assert str(error_info.value).endswith(hint)


def test_other_options_are_left_to_the_parser() -> None:
    with pytest.raises(Exception, match="No such option") as error_info:
        run("--no-such-key")
    assert not isinstance(error_info.value, ConfigError)


def test_keys_are_taken() -> None:
    run("seed=3", "learners=2")


def test_a_closed_pipe_is_known_to_every_screen_on_it() -> None:
    reader, writer = os.pipe()
    with os.fdopen(writer, "w") as stream:
        first, second = Screen(stream), Screen(stream)
        os.close(reader)
        assert not first.is_gone
        second.print("nobody reads this")
        assert second.is_gone
        assert first.is_gone
        first.print("nor this, and it is no error")


@pytest.mark.slow
def test_a_full_disk_is_no_reader_that_has_gone() -> None:
    with Path("/dev/full").open("w") as stream:
        screen = Screen(stream)
        for _ in range(3):
            screen.print("x" * 10_000)
        assert not screen.is_gone
        # As at the end of a command, output that could not be written is discarded.
        discard(stream)


def test_a_character_that_the_encoding_lacks_ends_no_command() -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii", write_through=True)
    Screen(stream).print("pläyer…")
    assert isinstance(stream.buffer, io.BytesIO)
    assert stream.buffer.getvalue() == b"pl?yer?\n"


@pytest.mark.parametrize(
    ("text", "shown"),
    [("café", "café"), ("a\x1b[31m", "a\\x1b[31m"), ("a\u202eb", "a\\u202eb"), ("a\nb", "a\\nb")],
)
def test_characters_that_control_a_terminal_are_written_out(text: str, shown: str) -> None:
    assert plain(text) == shown


def test_some_characters_may_stay() -> None:
    assert plain("a\tb\x1b\n", keep="\t\n") == "a\tb\\x1b\n"


def test_white_space_becomes_one_blank() -> None:
    assert one_line(" a\n\n b\tc ") == "a b c"
    assert one_line("abcdef", max_chars=3) == "abc..."
    assert one_line("abc", max_chars=3) == "abc"


def test_each_paragraph_is_one_line() -> None:
    def command() -> None:
        """Do something
        long.

        And
        more.
        """

    assert paragraphs(command) == "Do something long.\n\nAnd more."


def test_no_docstring_is_no_help() -> None:
    def command() -> None: ...

    assert paragraphs(command) == ""


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConfigError("wrong"), 2),
        (ResumeRefused("another seed"), 2),
        (RunFailed("no learner"), 3),
        (ZeroDivisionError(), 3),
        (RunInUse("run", pid=1), 4),
        (StorageError("full"), 5),
        (CheckpointMissing("gone"), 5),
    ],
)
def test_errors_have_their_code(error: Exception, code: int) -> None:
    assert exit_code(error) == code
