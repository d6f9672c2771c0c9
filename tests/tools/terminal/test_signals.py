"""A command that is inside of a library when it is told to end."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import onnx
import pytest
from onnx import TensorProto, helper

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
