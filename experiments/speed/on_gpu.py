"""Measure what a learner reaches on a GPU, and what the device would allow.

    python -m experiments.speed.on_gpu --out FILE                  # all parts
    python -m experiments.speed.on_gpu --out FILE stages idle      # some
    python -m experiments.speed.on_gpu --out FILE --device cpu --scale 0.01 stages

Each part is a process of its own and lasts at most four minutes, so that one that hangs or fails
costs no other; every figure is a line of JSON in FILE as soon as it is there.

Tests: `tests/experiments/speed/test_on_gpu.py`.
"""

from __future__ import annotations

import argparse
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import torch

from experiments.commands import COMMAND, TACTICAL, arena, match_counts
from experiments.harness import add_result, parser_of, say
from tools.bench.learner import LearnerWork
from tools.bench.subject import load_subject

PART_S = 240.0
"""Seconds after which a part is ended."""

Line = dict[str, object]
PLAYER = "populations.player"


@dataclass(frozen=True, slots=True, kw_only=True)
class Where:
    """Place and extent of a measurement.

    Attributes:
        device: Device.
        scale: Factor of seconds and of numbers of games; 1 is the measurement, less a trial.
    """

    device: torch.device
    scale: float

    def seconds(self, seconds: float) -> float:
        """Return how long something is measured."""
        return seconds * self.scale

    def games(self, games: int) -> int:
        """Return a number of games."""
        return max(8, int(games * self.scale))

    def finish(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            torch.cuda.synchronize(self.device)

    def rate(self, work: Callable[[], int], *, seconds: float) -> float:
        """Return the items per second of a work, whose first calls do not count."""
        for _ in range(2):
            work()
        self.finish()
        items, started = 0, time.perf_counter()
        while True:
            items += work()
            self.finish()
            elapsed = time.perf_counter() - started
            if elapsed >= self.seconds(seconds):
                return items / elapsed


def device(where: Where) -> Iterator[Line]:
    """Measure what the card does at most: products and copies."""
    yield {"torch": torch.__version__, "cuda": torch.version.cuda, "python": sys.version.split()[0]}
    if where.device.type == "cuda":
        query = "name,clocks.sm,clocks.max.sm,memory.total,driver_version"
        command = ["nvidia-smi", f"--query-gpu={query}", "--format=csv,noheader"]
        yield {"card": subprocess.run(command, check=True, capture_output=True, text=True).stdout}
    size = max(64, int(8192 * where.scale))
    for dtype in (torch.float32, torch.bfloat16):
        for tf32 in (False, True) if dtype == torch.float32 else (False,):
            torch.backends.cuda.matmul.allow_tf32 = tf32
            a, b = (torch.randn(size, size, device=where.device).to(dtype) for _ in range(2))
            rate = where.rate(partial(_multiply, a, b), seconds=0.5)
            name = "tf32" if tf32 else str(dtype).removeprefix("torch.")
            yield {"products": name, "flops_per_s": 2.0 * size**3 * rate}
    a = torch.zeros(int(2**29 * where.scale), device=where.device)
    b = torch.zeros_like(a)
    rate = where.rate(partial(_copy, a, b), seconds=0.5)
    yield {"copy_bytes_per_s": rate * 2 * a.nbytes}


def _multiply(a: torch.Tensor, b: torch.Tensor) -> int:
    torch.mm(a, b)
    return 1


def _copy(a: torch.Tensor, b: torch.Tensor) -> int:
    b.copy_(a)
    return 1


def stages(where: Where) -> Iterator[Line]:
    """Measure the product's stages on Connect Four, as ``arena bench`` has them."""
    stages_of = {"[128, 128]": "environment inference update learner", "[1024, 1024]": "update"}
    for hidden, only in stages_of.items():
        words = f"bench --json --rounds 3 --learners 1 --seconds {max(0.01, where.seconds(0.5))}"
        text = arena(
            *words.split(),
            *(word for stage in only.split() for word in ("--only", stage)),
            f"device={where.device}",
            f"environment.num_envs={where.games(2048)}",
            f"{PLAYER}.network.hidden_sizes={hidden}",
        )
        for row in json.loads(text)["measurements"]:
            yield {"hidden": hidden, **row}


def idle(where: Where) -> Iterator[Line]:
    """Measure the share of the device's time in which no kernel runs, and kernels per rollout."""
    for hidden, games in (("[128, 128]", 2048), ("[128, 128]", 8192), ("[1024, 1024]", 2048)):
        subject = load_subject(
            None,
            [
                f"device={where.device}",
                f"environment.num_envs={where.games(games)}",
                f"{PLAYER}.network.hidden_sizes={hidden}",
            ],
        )
        with closing(subject.make_env()) as env:
            for num_frozen in (0, 8):
                work = LearnerWork(subject, env, num_frozen=num_frozen)
                rate = where.rate(work, seconds=2.0)
                yield {
                    "hidden": hidden,
                    "games": where.games(games),
                    "frozen": num_frozen,
                    "agent_steps_per_s": round(rate),
                    **_profiled(where, work, rate=rate),
                }


def _profiled(where: Where, work: Callable[[], int], *, rate: float) -> Line:
    if where.device.type != "cuda":
        return {}
    kinds = [torch.profiler.ProfilerActivity.CUDA]
    with torch.profiler.profile(activities=kinds) as profile:
        decisions = work()
        where.finish()
    kernels = profile.key_averages()
    busy_s = sum(event.self_device_time_total for event in kernels) / 1e6
    return {
        "kernels": sum(event.count for event in kernels),
        "busy_s": busy_s,
        # The time per decision was measured without the profiler, which slows down launches.
        "idle_share": 1.0 - busy_s / (decisions / rate),
        "longest": {
            event.key[:60]: [event.count, round(event.self_device_time_total)]
            for event in sorted(kernels, key=lambda e: -e.self_device_time_total)[:8]
        },
    }


def league(where: Where) -> Iterator[Line]:
    """Measure whole runs, of one policy and of 32 on four learners."""
    for size, learners in ((1, 1), (32, 4)):
        with tempfile.TemporaryDirectory() as scratch:
            run = Path(scratch) / "run"
            duration = max(5.0, where.seconds(25.0))
            arena(
                *("launch", "connect_four", "--run-dir", run, f"device={where.device}"),
                *(f"{PLAYER}.size={size}", f"learners={learners}", "pbt.share=even"),
                *(f"stop.duration_s={duration}", "seed=1"),
                *(f"environment.num_envs={where.games(2048)}",),
                f"{PLAYER}.network.hidden_sizes=[128, 128]",
            )
            yield {
                "policies": size,
                "learners": learners,
                "seconds": duration,
                **_status(run),
                "verify": _verified(run),
            }


def _status(run: Path) -> Line:
    document = json.loads(arena("league", run, "status", "--json"))
    names = ("agent_steps", "matches", "ghosts", "elapsed_s", "alerts", "pbt", "state")
    return {name: document[name] for name in names}


def _verified(run: Path) -> str:
    return arena("verify", run).strip().splitlines()[-1]


def digests(where: Where) -> Iterator[Line]:
    """Compare the weights of two deterministic runs."""
    for preset, extra in (("connect_four", ()), ("tictactoe", (f"{PLAYER}.network.core=lstm",))):
        found: list[dict[str, str]] = []
        for _ in range(2):
            with tempfile.TemporaryDirectory() as scratch:
                run = Path(scratch) / "run"
                steps = max(2000, int(100_000 * where.scale))
                arena(
                    *("launch", preset, "--run-dir", run, f"device={where.device}"),
                    *("deterministic=true", "learners=2", "seed=3", "stop.duration_s=null"),
                    *(f"stop.agent_steps_per_policy={steps}", f"{PLAYER}.size=2", *extra),
                )
                rows = json.loads(arena("league", run, "checkpoints", "--json"))["checkpoints"]
                found.append({row["player"]: row["weights_digest"] for row in rows})
        both = found[0].keys() & found[1].keys()
        yield {
            "preset": preset,
            "in_both": len(both),
            "equal": sum(found[0][key] == found[1][key] for key in both),
        }


def killed(where: Where) -> Iterator[Line]:
    """Kill controller and learners of a run, resume it, and verify its invariants."""
    with tempfile.TemporaryDirectory() as scratch:
        run = Path(scratch) / "run"
        words = ["launch", "connect_four", "--run-dir", run, f"device={where.device}"]
        words += ["learners=2", "seed=1", f"stop.duration_s={max(10.0, where.seconds(40.0))}"]
        process = subprocess.Popen(
            [*COMMAND, *map(str, words)], stdout=subprocess.DEVNULL, start_new_session=True
        )
        try:
            process.wait(timeout=max(8.0, where.seconds(25.0)))
        except subprocess.TimeoutExpired:
            # The controller is a child of this process, and learners end with the controller.
            for pid in _tree(process.pid):
                subprocess.run(["kill", f"-{int(signal.SIGKILL)}", str(pid)], check=False)
            process.wait()
        before = _status(run)
        arena("launch", "--resume", "--run-dir", run)
        yield {"before": before, "after": _status(run), "verify": _verified(run)}


def _tree(pid: int) -> list[int]:
    text = subprocess.run(
        ["ps", "-o", "pid=", "--ppid", str(pid)], check=False, capture_output=True, text=True
    ).stdout
    children = [int(word) for word in text.split()]
    return [pid, *(found for child in children for found in _tree(child))]


def strength(where: Where) -> Iterator[Line]:
    """Train the demo's preset for 30 and 180 s, and let its champion meet a tactical bot."""
    for seconds in (30.0, 180.0):
        with tempfile.TemporaryDirectory() as scratch:
            run = Path(scratch) / "run"
            arena(
                *("launch", "connect_four", "--run-dir", run, f"device={where.device}", "seed=1"),
                *("learners=4", f"stop.duration_s={max(5.0, where.seconds(seconds))}"),
            )
            counts = match_counts(run, TACTICAL, matches=200)
            yield {"seconds": seconds, **_status(run), "against_tactical": counts}


PARTS: dict[str, Callable[[Where], Iterator[Line]]] = {
    part.__name__: part
    for part in (
        device,
        stages,
        idle,
        league,
        digests,
        killed,
        strength,
    )
}


def main(argv: list[str] | None = None) -> None:
    """Measure the parts, each in a process of its own."""
    parser = parser_of(__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help="default: all")
    parser.add_argument("--out", type=Path, required=True, help="file that lines are added to")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--scale", type=float, default=1.0, help="of seconds and games, for trials")
    parser.add_argument("--here", action="store_true", help="one part, in this process")
    options = parser.parse_args(argv)
    names = options.parts or list(PARTS)
    if unknown := set(names) - PARTS.keys():
        parser.error(f"parts are {', '.join(PARTS)}, got {', '.join(sorted(unknown))}")
    if options.here:
        _measure(names[0], options)
        return
    for name in names:
        command = [sys.executable, "-m", "experiments.speed.on_gpu", "--here", name]
        for key in ("out", "device", "scale"):
            command += [f"--{key}", str(getattr(options, key))]
        started = time.perf_counter()
        try:
            code: object = subprocess.run(command, timeout=PART_S, check=False).returncode
        except subprocess.TimeoutExpired:
            code = f"ended after {PART_S:.0f} s"
        _write(options.out, {"part": name, "s": round(time.perf_counter() - started), "end": code})


def _measure(name: str, options: argparse.Namespace) -> None:
    where = Where(device=torch.device(options.device), scale=options.scale)
    if where.device.type == "cpu":
        torch.set_num_threads(1)
    for line in PARTS[name](where):
        _write(options.out, {"part": name, **line})


def _write(out: Path, line: Line) -> None:
    add_result(out, line)
    say(line)


if __name__ == "__main__":
    main()
