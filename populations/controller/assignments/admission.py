"""Admission of a learner by what it proves: versions of packages, results, and its device.

Tests: `tests/populations/controller/assignments/test_admission.py`.
"""

from __future__ import annotations

from dataclasses import replace

from arena.learners.versions import Differences, differences, pip_command, told
from arena.types import Digest, LearnerId
from arena.wire.messages import Hello
from populations.controller.state.state import ControllerState
from populations.controller.state.transaction import Transaction

DEVICES = frozenset({"cpu", "cuda", "mps"})
"""Kinds of devices that are told apart; all others are ``other``."""


def other_versions(state: ControllerState, hello: Hello) -> Differences:
    """Return the packages that a learner has in other versions than the run records."""
    # Learners of a run that no other machine can join do not say.
    return {} if hello.versions is None else differences(state.versions, hello.versions)


def advice(state: ControllerState, hello: Hello) -> str:
    """Return the end of a refusal: which versions differ, and the command that mends it."""
    different = other_versions(state, hello)
    if different:
        versions = told(different, place="the learner has")
        return f"; packages of other versions: {versions}: {pip_command(different)}"
    return "" if hello.versions is None else "; its packages have the versions of the run"


def group_refusal(state: ControllerState, hello: Hello) -> str | None:
    """Return why a learner's results cannot be the run's; None: they can."""
    group = state.tables.run.proof
    # Other runs have none (`record_group`).
    if not group or hello.proof == group:
        return None
    theirs = "this one has none" if hello.proof is None else f"this one's has {hello.proof[:8]}"
    return (
        f"results differ: the proof of the run's learners has digest {group[:8]}, {theirs}, and "
        "where deterministic is true all must agree bit by bit; usually the CPU type or the "
        f"version of torch differs, or the environment ignores its seed{advice(state, hello)}"
    )


def record_group(state: ControllerState, tx: Transaction, proof: Digest | None) -> None:
    """Keep the group of a deterministic run: that of the first learner with a proof."""
    if state.config.deterministic and proof is not None and not state.tables.run.proof:
        tx.put(replace(state.tables.run, proof=proof))


def record_device(
    state: ControllerState, tx: Transaction, learner: LearnerId, hello: Hello
) -> None:
    """Keep the kind of a learner's device; a kind that is new at a resume is an event."""
    # Of several GPUs, which one it is decides nothing.
    kind, run = hello.device.partition(":")[0], state.tables.run
    # A learner's words: others than these would let it write as many kinds as it likes.
    kind = kind if kind in DEVICES else "other"
    if kind in run.devices:
        return
    tx.put(replace(run, devices=(*run.devices, kind)))
    # Runs of earlier releases have none yet.
    if run.epoch > 1 and run.devices:
        tx.add_event("device_differs", learner, device=kind, before=list(run.devices))
