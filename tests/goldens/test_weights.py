"""Where weights, graphs, cards and answers of two checkouts part is found and named."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from safetensors.numpy import save_file

from tests.goldens import weights
from tests.goldens.forms import Document
from tests.goldens.observations import NUM_OBSERVATIONS, connect_four, observed
from tests.goldens.weights import (
    Checkout,
    Failed,
    graph_of,
    main,
    part_of_answers,
    part_of_export,
    part_of_run,
    part_of_tensors,
)

ONES = np.ones((2, 3), np.float32)


def changed(array: Any, place: tuple[int, ...], value: float) -> Any:
    other = array.copy()
    other[place] = value
    return other


@pytest.mark.parametrize(
    ("after", "words"),
    [
        ({"a": ONES}, "file: b is only before"),
        ({"a": ONES, "b": ONES, "c": ONES}, "file: c is only after"),
        (
            {"a": changed(ONES, (1, 2), 3.0), "b": 2 * ONES},
            "file: a float32[2, 3] differs in 1 of 6 numbers, first at [1, 2]: before 1.0, after",
        ),
        ({"a": ONES, "b": ONES[:1]}, "file: b is before float32[2, 3], after float32[1, 3]"),
        (
            {"a": ONES.astype(np.float64), "b": ONES},
            "file: a is before float32[2, 3], after float6",
        ),
        (
            {"a": ONES, "b": changed(ONES, (0, 1), np.nextafter(np.float32(1), np.float32(2)))},
            "file: b float32[2, 3] differs in 1 of 6 numbers, first at [0, 1]: before 1.0, after",
        ),
    ],
)
def test_the_first_tensor_that_differs_is_named(after: Any, words: str) -> None:
    (line,) = part_of_tensors("file", {"a": ONES, "b": ONES}, after)
    assert line.startswith(words)


def test_tensors_are_compared_by_their_bytes() -> None:
    undefined = np.array([np.nan, 0.0], np.float32)
    assert not [*part_of_tensors("file", {"a": undefined}, {"a": undefined.copy()})]
    (line,) = part_of_tensors("file", {"a": np.zeros(1)}, {"a": -np.zeros(1)})
    assert line == "file: a float64[1] differs in zeros' signs or in what is no number"
    assert not [*part_of_tensors("file", {"a": np.array(2.0)}, {"a": np.array(2.0)})]
    (line,) = part_of_tensors("file", {"a": np.array(2.0)}, {"a": np.array(3.0)})
    assert line.endswith("first at []: before 2.0, after 3.0")


def model(path: Path, names: Sequence[str], *, tensor: Any, added: bool = False) -> None:
    inner, stored = names
    nodes = [helper.make_node("MatMul", ["observation", stored], [inner], name=f"node_{inner}")]
    if added:
        nodes.append(helper.make_node("Clip", [inner], [f"{inner}_0"]))
    nodes.append(helper.make_node("Softmax", [nodes[-1].output[0]], ["logits"], axis=1))
    graph = helper.make_graph(
        nodes,
        "main",
        [helper.make_tensor_value_info("observation", TensorProto.FLOAT, ["batch", 2])],
        [helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", 3])],
        [numpy_helper.from_array(tensor, stored)],
    )
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)]), path)


def test_a_graph_is_what_its_nodes_do_whatever_they_are_called(tmp_path: Path) -> None:
    before, after = tmp_path / "before", tmp_path / "after"
    before.mkdir()
    after.mkdir()
    model(before / "policy.onnx", ("mul", "weight"), tensor=ONES)
    model(after / "policy.onnx", ("mul_7", "net.weight"), tensor=ONES)
    assert graph_of(before / "policy.onnx")[0] == [
        "opset ai.onnx 18",
        "input observation float32['batch', 2]",
        "output logits float32['batch', 3]",
        "matmul0 = MatMul(observation, float32[2, 3])",
        "logits = Softmax(matmul0) axis = 1",
    ]
    assert not [*part_of_export(before, after)]
    model(after / "policy.onnx", ("mul", "weight"), tensor=ONES, added=True)
    assert [
        line for line in part_of_export(before, after) if line.startswith(("p", "  +", "  -"))
    ] == [
        *("policy.onnx:", "  --- before", "  +++ after"),
        "  -logits = Softmax(matmul0) axis = 1",
        "  +clip0 = Clip(matmul0)",
        "  +logits = Softmax(clip0) axis = 1",
    ]
    model(after / "policy.onnx", ("mul", "weight"), tensor=changed(ONES, (0, 0), 2.0))
    assert [*part_of_export(before, after)] == [
        "policy.onnx:",
        "  stored tensors: input 1 of matmul0 float32[2, 3] differs in 1 of 6 numbers, "
        "first at [0, 0]: before 1.0, after 2.0",
    ]


def card(path: Path, *, run: str, agent_steps: int, version: str) -> None:
    path.mkdir()
    files = {
        name: {"sha256": f"{digest:064x}", "size_bytes": digest}
        for name, digest in {"champion.py": len(run), "policy.safetensors": 5}.items()
    }
    document = {
        "created": run,
        "run": run,
        "versions": {"torch": version},
        "files": files,
        "environment": {"id": "game", "versions": {"game": version}},
        "agent_steps": agent_steps,
    }
    (path / "card.json").write_text(json.dumps(document), encoding="utf8")
    rows = [f"| {name} | {one['size_bytes']} | {one['sha256']} |" for name, one in files.items()]
    text = [f"| run | {run} |", f"| created | {run} |", f"| agent steps | {agent_steps} |"]
    text += ["", "## Versions", "", f"| torch | {version} |", "", "## Files", "", *rows]
    (path / "card.md").write_text("\n".join(text), encoding="utf8")


def test_a_card_is_compared_without_time_run_and_versions(tmp_path: Path) -> None:
    card(tmp_path / "one", run="a", agent_steps=7, version="1.0")
    card(tmp_path / "same", run="another", agent_steps=7, version="2.0")
    card(tmp_path / "other", run="a", agent_steps=8, version="1.0")
    assert not [*part_of_export(tmp_path / "one", tmp_path / "same")]
    assert [*part_of_export(tmp_path / "one", tmp_path / "other")] == [
        *("card.json:", "  .agent_steps: before 7, after 8"),
        *("card.md:", "  --- before", "  +++ after", "  @@ -2,3 +2,3 @@", "   | created |"),
        *("  -| agent steps | 7 |", "  +| agent steps | 8 |", "   "),
    ]
    (tmp_path / "same" / "policy.onnx").touch()
    assert "  +policy.onnx" in [*part_of_export(tmp_path / "one", tmp_path / "same")]


def test_the_first_observation_that_is_answered_otherwise_is_named() -> None:
    asked = {
        "begins": np.array([True, False, True, False, False]),
        "agent": np.array(["x", "y", "x", "y", "x"]),
        "mask": np.array([[1, 1], [1, 1], [1, 1], [1, 1], [0, 1]]),
    }
    before = {"value": np.zeros(5), "action": np.ones(5, np.int64), "batch": np.zeros(2)}
    after = {**before, "value": np.full(5, 0.5), "action": np.array([1, 1, 1, 1, 0])}
    after["value"][:4] = 0.0
    assert not [*part_of_answers(asked, before, before)]
    assert [*part_of_answers(asked, before, after)] == [
        "observation 4 of 5, 2 after its episode's first:",
        "  agent x, mask [0 1]",
        "  value, 1 answers, first to 4: before 0.0, after 0.5",
        "  action, 1 answers, first to 4: before 1, after 0",
    ]
    (line,) = part_of_answers(asked, before, {"value": np.zeros(5)})
    assert line == "answers are before value, action, batch, after value"
    (line,) = part_of_answers(asked, before, {**before, "value": np.zeros((5, 2))})
    assert line == "value is before float64[5], after float64[5, 2]"


def checkout(root: Path, views: Document | None = None) -> Checkout:
    """A checkout whose `arena` prints what was written, and whose python knows its code."""
    (root / ".venv" / "bin").mkdir(parents=True)
    for name, line in {
        "arena": 'cat "$2-$3.json" 2>&- || true',
        "python": f"echo {root}/a",
    }.items():
        program = root / ".venv" / "bin" / name
        program.write_text(f"#!/bin/sh\n{line}\n", encoding="utf8")
        program.chmod(0o755)
    for name, view in (views or {}).items():
        (root / f"run-{name}.json").write_text(json.dumps(view), encoding="utf8")
    return Checkout(root, root)


@pytest.fixture
def made(tmp_path: Path) -> Callable[..., Checkout]:
    """Maker of a checkout with a run of two checkpoints and a ghost."""

    def make(name: str, *, last: float = 1.0, steps: int = 9, ghost: str = "w0") -> Checkout:
        rows, root = [], tmp_path / name
        for at, (agent_steps, value) in enumerate([(0, 1.0), (steps, last)]):
            own = root / "run" / f"c{at}"
            own.mkdir(parents=True)
            save_file({"layer.weight": value * ONES}, own / "weights.safetensors")
            save_file({"moment": ONES}, own / "optimizer.safetensors")
            row = {"player": f"player/p000@{agent_steps}", "key": own.name, "generation": 0}
            row |= {"agent_steps": agent_steps, "learner_updates": at}
            rows.append({**row, "weights_digest": f"w{value}", "time": name})
        lines = [
            {"player": "player/p000@0", "kind": "ghost", "weights": ghost},
            {"player": "player/p000", "kind": "policy", "weights": "w"},
        ]
        standings = [{**line, "generation": 0, "agent_steps": 0, "rating": 1.0} for line in lines]
        views = {"standings": {"populations": {"player": standings}}}
        return checkout(root, {"checkpoints": {"checkpoints": rows}, **views})

    return make


def test_the_first_checkpoint_and_ghost_that_differ_are_named(
    made: Callable[..., Checkout],
) -> None:
    before = made("before")
    assert not [*part_of_run("run", before, made("same"))]
    assert [*part_of_run("run", before, made("weights", last=2.0))] == [
        "checkpoint 2 of 2, player/p000@9, is the first that differs:",
        '  .weights_digest: before "w1.0", after "w2.0"',
        "  weights.safetensors: layer.weight float32[2, 3] differs in 6 of 6 numbers, "
        "first at [0, 0]: before 1.0, after 2.0",
    ]
    assert [*part_of_run("run", before, made("steps", steps=8))][1:] == [
        '  .player: before "player/p000@9", after "player/p000@8"',
        "  .agent_steps: before 9, after 8",
    ]
    assert [*part_of_run("run", before, made("ghost", ghost="w1"))] == [
        'ghosts.player/p000@0[2]: before "w0", after "w1"'
    ]
    other = made("optimizer")
    save_file({"moment": 2 * ONES}, other.scratch / "run" / "c0" / "optimizer.safetensors")
    assert [*part_of_run("run", before, other)] == [
        "checkpoint 1 of 2, player/p000@0, is the first that differs:",
        "  optimizer.safetensors: moment float32[2, 3] differs in 6 of 6 numbers, "
        "first at [0, 0]: before 1.0, after 2.0",
    ]


def test_a_run_without_what_it_is_for_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    met = {"policies": ["player/p000"], "opponents": [["player/p000", "player/p001@0"]]}
    events = [{"sequence": 1, "kind": "train_assigned", **met}]
    own = checkout(tmp_path / "own", {"events": {"events": events}})
    run = weights.Run(play=connect_four, happens=("a copy", "a ghost as opponent"), exports=())
    monkeypatch.setitem(weights.RUNS, "run", run)
    with pytest.raises(Failed, match=r"own: run.yaml must be a run with a copy$"):
        own.make("run")


def test_observations_are_legal_and_the_same_each_time() -> None:
    found = observed(connect_four, ["player_0"])
    assert {name: len(rows) for name, rows in found.items()} == dict.fromkeys(
        ("begins", "agent", "observation", "mask"), NUM_OBSERVATIONS
    )
    assert {*found["agent"]} == {"player_0"}
    # A column is legal while its topmost cell is empty.
    assert (found["mask"] == (found["observation"][:, 0].sum(axis=-1) == 0)).all()
    again = observed(connect_four, ["player_0"])
    assert not [*part_of_tensors("asked", found, again)]


@pytest.mark.slow
@pytest.mark.long
@pytest.mark.integration
@pytest.mark.timeout(600)
@pytest.mark.xdist_group("processes")
def test_a_run_of_this_checkout_is_made_twice_alike(capsys: pytest.CaptureFixture[str]) -> None:
    main([str(weights.CHECKOUT), "--runs", "memory"])
    assert capsys.readouterr().out.startswith("memory: equal (")
