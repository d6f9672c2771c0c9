"""Weights and exports of three deterministic runs, made by two checkouts on this machine.

    python -m tests.goldens.weights BEFORE [AFTER]              # roots of checkouts with a .venv
    python -m tests.goldens.weights BEFORE --runs memory        # one run, AFTER is this checkout
    python -m tests.goldens.weights BEFORE --into DIR           # runs and exports stay there

Nothing is stored: each checkout launches `weights/*.yaml` with its own `arena`, and exports the
champions. Compared are checkpoints and ghosts in the order of training, tensor by tensor; graphs,
weights and cards of exports; and what each `champion.py` answers to 2,000 observations of random
play. Where they part, the first checkpoint, tensor, line or observation that differs is printed.
"""

from __future__ import annotations

import argparse
import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx
import onnx.numpy_helper
from safetensors.numpy import load_file

from tests.goldens.decisions import differences
from tests.goldens.forms import Document
from tests.goldens.observations import Seen, connect_four, leduc_poker, observed, simple_tag

HERE = Path(__file__).parent
CHECKOUT = HERE.parents[1]
SIDES = ("before", "after")
MOST_LINES = 20
"""Lines that are printed of one difference."""

Tensors = Mapping[str, npt.NDArray[Any]]


class Failed(Exception):
    """A command of a checkout that failed, or a run without what it is for."""


def _trained(events: Sequence[Document]) -> list[Document]:
    return [event for event in events if event["kind"] == "train_assigned"]


def _met(event: Document) -> set[str]:
    return {player for seats in event["opponents"] for player in seats} - {*event["policies"]}


def _has(kind: str) -> Callable[[Sequence[Document]], bool]:
    return lambda events: any(event["kind"] == kind for event in events)


HAPPENS: dict[str, Callable[[Sequence[Document]], bool]] = {
    "a copy": _has("exploited"),
    "an exploration without a copy": _has("explored"),
    "evaluation in training": lambda events: _has("evaluation_assigned")(
        [event for event in events if event["sequence"] < _trained(events)[-1]["sequence"]]
    ),
    "a ghost as opponent": lambda events: any(
        "@" in player for event in _trained(events) for player in _met(event)
    ),
    "another policy as opponent": lambda events: any(
        "@" not in player for event in _trained(events) for player in _met(event)
    ),
    "two policies that learn at once": lambda events: any(
        len(event["policies"]) == 2 for event in _trained(events)
    ),
}
"""What a run may be for, as its events show it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A run that is made twice.

    Attributes:
        play: Random play of its game.
        happens: Names in `HAPPENS`: without these it would show too little.
        exports: Arguments of each `arena export`.
    """

    play: Callable[[int], Iterator[Seen]]
    happens: tuple[str, ...]
    exports: tuple[tuple[str, ...], ...] = ((), ("--mixture",))


RUNS = {
    "competition": Run(
        play=connect_four,
        happens=(
            *("a copy", "an exploration without a copy", "evaluation in training"),
            *("a ghost as opponent", "another policy as opponent"),
        ),
    ),
    "memory": Run(play=leduc_poker, happens=("a copy", "a ghost as opponent")),
    "chase": Run(
        play=simple_tag,
        happens=("a copy", "a ghost as opponent", "two policies that learn at once"),
        exports=((),),
    ),
}


@dataclass(frozen=True, slots=True)
class Checkout:
    """A checkout, and the directory in which its runs are made."""

    root: Path
    scratch: Path

    def command(self, program: str, *arguments: object) -> str:
        """Run a program of its virtual environment, and return its output."""
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        ran = subprocess.run(
            [str(self.root / ".venv" / "bin" / program), *map(str, arguments)],
            check=False,
            cwd=self.scratch,
            env=environment,
            capture_output=True,
            text=True,
        )
        if ran.returncode:
            words = " ".join(map(str, (program, *arguments)))
            last = "\n".join(ran.stderr.splitlines()[-MOST_LINES:])
            raise Failed(f"{self.root}: {words}: exit code {ran.returncode}\n{last}")
        return ran.stdout

    def view(self, run: str, view: str) -> Document:
        """Return a view of a run as JSON."""
        document: Document = json.loads(self.command("arena", "league", run, view, "--json"))
        return document

    def make(self, name: str) -> None:
        """Make a run and its exports, and ask the players of these."""
        run = RUNS[name]
        self.command("arena", "launch", HERE / "weights" / f"{name}.yaml", "--run-dir", name)
        events = self.view(name, "events")["events"]
        if missing := [what for what in run.happens if not HAPPENS[what](events)]:
            raise Failed(f"{self.root}: {name}.yaml must be a run with {', '.join(missing)}")
        for at, arguments in enumerate(run.exports):
            into = f"{name}-exports/{at}"
            self.command("arena", "export", name, "--to", into, "--matches", 10, *arguments)
        for file in sorted(self.scratch.glob(f"{name}-exports/**/champion.py")):
            if "members" not in file.parts:
                self._ask(run, file.parent)

    def _ask(self, run: Run, export: Path) -> None:
        asked = export / "asked.npz"
        card = json.loads((export / "card.json").read_text(encoding="utf8"))
        np.savez(asked, **observed(run.play, card["agents"]))
        program = HERE / "champion_answers.py"
        self.command("python", "-P", program, export, asked, export / "answers.npz")


def part_of_run(name: str, before: Checkout, after: Checkout) -> Iterator[str]:
    """Yield where the weights of two runs part: the first checkpoint, in the order of training."""
    both = [side.view(name, "checkpoints")["checkpoints"] for side in (before, after)]
    for at, pair in enumerate(zip_longest(*both, fillvalue={})):
        names = ("player", "generation", "agent_steps", "learner_updates", "weights_digest")
        one, other = ({key: row.get(key) for key in names} for row in pair)
        lines = list(part_of_documents(one, other))
        if all(pair):
            for file in ("weights.safetensors", "optimizer.safetensors"):
                paths = [
                    side.scratch / name / row["key"] / file
                    for side, row in zip((before, after), pair, strict=True)
                ]
                lines += part_of_tensors(file, load_file(paths[0]), load_file(paths[1]))
        if lines:
            row = pair[0] or pair[1]
            place = f"checkpoint {at + 1} of {len(both[0])}, {row['player']}"
            yield f"{place}, is the first that differs:"
            yield from (f"  {line}" for line in lines)
            return
    ghosts, others = (_ghosts(side.view(name, "standings")) for side in (before, after))
    yield from (f"ghosts{line}" for line in islice(part_of_documents(ghosts, others), 1))


def _ghosts(standings: Document) -> Document:
    lines = chain.from_iterable(standings["populations"].values())
    return {
        line["player"]: [line["generation"], line["agent_steps"], line["weights"]]
        for line in lines
        if line["kind"] == "ghost"
    }


def part_of_tensors(what: str, before: Tensors, after: Tensors) -> Iterator[str]:
    """Yield the first tensor in which two files differ, exactly."""
    for name in dict.fromkeys([*before, *after]):
        if name not in before or name not in after:
            yield f"{what}: {name} is only {'before' if name in before else 'after'}"
            return
        if line := part_of_tensor(before[name], after[name]):
            yield f"{what}: {name} {line}"
            return


def part_of_tensor(before: npt.NDArray[Any], after: npt.NDArray[Any]) -> str:
    """Say how two arrays differ; nothing where all their bytes are equal."""
    kinds = [f"{one.dtype}{list(one.shape)}" for one in (before, after)]
    if kinds[0] != kinds[1]:
        return f"is before {kinds[0]}, after {kinds[1]}"
    if before.tobytes() == after.tobytes():
        return ""
    differs = before != after
    if not differs.any():
        return f"{kinds[0]} differs in zeros' signs or in what is no number"
    first = tuple(int(place) for place in np.argwhere(differs)[0]) if before.ndim else ()
    values = f"before {before[first]}, after {after[first]}"
    counted = f"{differs.sum()} of {differs.size} numbers"
    return f"{kinds[0]} differs in {counted}, first at {list(first)}: {values}"


def graph_of(path: Path) -> tuple[list[str], Tensors]:
    """Return a graph as lines, and the stored tensor of each use of one.

    Values within it are named by their operator and its how-manieth use: their own names are
    private, and one node more renames few others.
    """
    model = onnx.load(path)
    graph = model.graph
    stored = {one.name: onnx.numpy_helper.to_array(one) for one in graph.initializer}
    names = {one.name: one.name for one in (*graph.input, *graph.output)}
    used: dict[str, npt.NDArray[Any]] = {}
    lines = [f"opset {one.domain or 'ai.onnx'} {one.version}" for one in model.opset_import]
    for side in ("input", "output"):
        for one in getattr(graph, side):
            kind = one.type.tensor_type
            sizes = [dim.dim_param or dim.dim_value for dim in kind.shape.dim]
            dtype = onnx.helper.tensor_dtype_to_np_dtype(kind.elem_type)
            lines.append(f"{side} {one.name} {dtype}{sizes}")
    uses = Counter[str]()
    for node in graph.node:
        own = f"{node.op_type.lower()}{uses[node.op_type]}"
        uses[node.op_type] += 1
        for at, name in enumerate(node.output):
            names.setdefault(name, f"{own}.{at}" if at else own)
        inputs = []
        for at, name in enumerate(node.input):
            if name in stored:
                used[f"input {at} of {own}"] = tensor = stored[name]
                inputs.append(f"{tensor.dtype}{list(tensor.shape)}")
            else:
                inputs.append(names.get(name, ""))
        made = ", ".join(names[name] for name in node.output)
        settings = sorted(onnx.helper.printable_attribute(one) for one in node.attribute)
        lines.append(f"{made} = {node.op_type}({', '.join(inputs)}) {' '.join(settings)}".rstrip())
    return lines, used


def card_of(path: Path) -> Document:
    """Return a card without run, time and versions, and of digests with those of weights alone."""
    card: Document = json.loads(path.read_text(encoding="utf8"))
    for key in ("created", "run", "versions"):
        del card[key]
    del card["environment"]["versions"]
    files = card["files"]
    card["files"] = {name: files[name] if name.endswith(".safetensors") else {} for name in files}
    return card


def card_text_of(path: Path) -> list[str]:
    """Return the lines of a card, without what `card_of` leaves out."""
    text = path.read_text(encoding="utf8")
    text = re.sub(r"^## Versions$.*?(?=^## )", "", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^\| (created|run) \| .*$", r"| \1 |", text, flags=re.MULTILINE)
    text = re.sub(
        r"^(\| \S+(?<!safetensors)) \| \d+ \| [0-9a-f]{64} \|$", r"\1 |", text, flags=re.M
    )
    return text.splitlines()


def part_of_documents(before: Document, after: Document) -> Iterator[str]:
    """Yield where two documents differ, numbers of fits but for their last digits."""
    yield from differences(before, after, sides=SIDES)


def part_of_text(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    """Yield a diff of two texts."""
    yield from difflib.unified_diff(before, after, *SIDES, n=1, lineterm="")


def part_of_answers(asked: Tensors, before: Tensors, after: Tensors) -> Iterator[str]:
    """Yield the first observation whose answers differ, with these; or which kind is missing."""
    if before.keys() != after.keys():
        yield f"answers are before {', '.join(before)}, after {', '.join(after)}"
        return
    firsts = {}
    for name in before:
        if before[name].shape != after[name].shape or before[name].dtype != after[name].dtype:
            yield f"{name} {part_of_tensor(before[name], after[name])}"
            return
        pairs = zip(before[name], after[name], strict=True)
        rows = [at for at, (one, other) in enumerate(pairs) if one.tobytes() != other.tobytes()]
        if rows:
            firsts[name] = (rows[0], len(rows))
    if not firsts:
        return
    at = min(first for first, _ in firsts.values())
    begin = int(np.flatnonzero(asked["begins"][: at + 1])[-1])
    yield f"observation {at} of {len(asked['begins'])}, {at - begin} after its episode's first:"
    mask = f", mask {asked['mask'][at]}" if "mask" in asked else ""
    yield f"  agent {asked['agent'][at]}{mask}"
    for name, (first, num) in firsts.items():
        one, other = (" ".join(str(side[name][first]).split()) for side in (before, after))
        yield f"  {name}, {num} answers, first to {first}: before {one}, after {other}"


def part_of_export(before: Path, after: Path) -> Iterator[str]:
    """Yield where the exports below two directories part, at most once for each file."""
    files = [
        sorted(str(file.relative_to(side)) for file in side.rglob("*") if file.is_file())
        for side in (before, after)
    ]
    if missing := list(part_of_text(*files)):
        yield from ("files:", *(f"  {line}" for line in missing))
    for name in sorted({*files[0]} & {*files[1]}):
        lines = list(islice(_part_of_file(before / name, after / name), MOST_LINES))
        if lines:
            yield f"{name}:"
            yield from (f"  {line}" for line in lines)


def _part_of_file(before: Path, after: Path) -> Iterator[str]:
    if before.name == "answers.npz":
        asked = [dict(np.load(path.with_name("asked.npz"))) for path in (before, after)]
        yield from part_of_tensors("asked.npz", *asked)
        yield from part_of_answers(asked[0], dict(np.load(before)), dict(np.load(after)))
    elif before.suffix == ".safetensors":
        yield from part_of_tensors("weights", load_file(before), load_file(after))
    elif before.suffix == ".onnx":
        (lines, tensors), (other_lines, other_tensors) = graph_of(before), graph_of(after)
        yield from part_of_text(lines, other_lines)
        yield from part_of_tensors("stored tensors", tensors, other_tensors)
    elif before.suffix == ".json":
        yield from part_of_documents(card_of(before), card_of(after))
    elif before.suffix == ".md":
        yield from part_of_text(card_text_of(before), card_text_of(after))


def compare(name: str, before: Checkout, after: Checkout) -> tuple[str, list[str]]:
    """Make a run with two checkouts; return its size and time, and the lines in which they part."""
    took = []
    for side in (before, after):
        began = time.perf_counter()
        side.make(name)
        took.append(time.perf_counter() - began)
    exports = [side.scratch / f"{name}-exports" for side in (before, after)]
    lines, exported = list(part_of_run(name, before, after)), list(part_of_export(*exports))
    if lines:
        # Other weights give other exports, so only the names of the exports are compared.
        lines += [f"exports: {' '.join(line for line in exported if not line.startswith(' '))}"]
    else:
        lines = exported
    if lines:
        versions, others = (_versions(path) for path in exports)
        lines += [f"versions{line}" for line in part_of_documents(versions, others)]
    num_checkpoints = len(before.view(name, "checkpoints")["checkpoints"])
    num_players = len([*exports[0].rglob("answers.npz")])
    size = f"{num_checkpoints} checkpoints, {num_players} players asked"
    return f"{size}; {took[0]:.0f} s and {took[1]:.0f} s", lines


def _versions(exports: Path) -> Document:
    """Return the versions of the packages that a run was made with."""
    path = sorted(exports.rglob("card.json"))[0]
    versions: Document = json.loads(path.read_text(encoding="utf8"))["versions"]
    return versions


def _checkout(root: Path, scratch: Path) -> Checkout:
    """Return a checkout whose virtual environment has its own code.

    Raises:
        ValueError: If it is none.
    """
    if not (root / ".venv" / "bin" / "arena").is_file():
        raise ValueError(f"a checkout must have .venv/bin/arena (make setup), got {root}")
    scratch.mkdir(parents=True)
    checkout = Checkout(root.resolve(), scratch.resolve())
    code = checkout.command("python", "-c", "import arena; print(arena.__file__)").strip()
    if not Path(code).resolve().is_relative_to(checkout.root):
        raise ValueError(f"the .venv of a checkout must have its code, that of {root} has {code}")
    return checkout


def main(argv: Sequence[str] | None = None) -> None:
    """Make the runs with both checkouts, and compare them."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path, nargs="?", default=CHECKOUT)
    parser.add_argument("--runs", nargs="+", choices=RUNS, default=list(RUNS), metavar="RUN")
    parser.add_argument("--into", type=Path, metavar="DIR", help="new directory for the runs")
    options = parser.parse_args(argv)
    parted = False
    with tempfile.TemporaryDirectory() as scratch:
        into = options.into or Path(scratch)
        try:
            sides = [
                _checkout(root, into / side)
                for side, root in zip(SIDES, (options.before, options.after), strict=True)
            ]
        except (ValueError, OSError) as error:
            parser.error(str(error))
        for name in options.runs:
            try:
                size, lines = compare(name, *sides)
            except Failed as error:
                size, lines = "failed", str(error).splitlines()
            parted |= bool(lines)
            head = f"{name}: {'parted' if lines else 'equal'} ({size})"
            sys.stdout.write("\n".join([head, *(f"  {line}" for line in lines)]) + "\n")
            sys.stdout.flush()
    if parted:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
