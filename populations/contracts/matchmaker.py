"""Contract of `populations.core.Matchmaker`: checks that every implementation must pass."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import numpy as np

from arena.contracts.contract import Subject, name_of
from arena.users_code import pass_interrupt
from populations.contracts.leagues import LEAGUES, NOBODY, columns_of
from populations.core import Matchmaker, OpponentRequest, Opponents
from populations.matchmaking.make import UsersMatchmaker, make_matchmaker
from populations.matchmaking.settings import MatchmakingConfig
from populations.matchmaking.window import WindowRule

FUNCTION = "draw must be a function of its arguments: equal requests and generators, equal answers"


def check_matchmaker(
    matchmaker: Matchmaker | type[Matchmaker] | str,
    *,
    options: Mapping[str, object] | None = None,
    launch_directory: str = "",
) -> None:
    """Check that a matchmaker obeys in any league the rules on which the controller relies.

    Args:
        matchmaker: Object, class, or value of ``matchmaking.kind``: ``package.module:Class`` or a
            built-in kind.
        options: Keyword arguments of a class, ``matchmaking.options``; for a built-in kind, further
            keys of the section ``matchmaking``.
        launch_directory: Directory that is searched first for ``package``; empty: the working
            directory.

    Raises:
        ContractBroken: If a rule is broken; it names the first one.
    """
    subject = Subject(name_of(matchmaker))
    given = dict(options or {})
    drawing = subject.given(
        matchmaker,
        "it must be made with matchmaking.options as keyword arguments",
        lambda kind: _of_kind(kind, given, launch_directory),
        **given,
    )
    subject.takes(drawing, "draw", None, rng=None)
    subject.repeats(FUNCTION, lambda name: _draw(subject, drawing, name), LEAGUES, told=_told)
    try:
        drawn = drawing.draw(NOBODY(), rng=np.random.default_rng(0))
    except BaseException as error:
        pass_interrupt(error)
        return
    subject.must("draw must raise where there is nobody to draw", False, got=_told(drawn))


def _of_kind(kind: str, options: Mapping[str, object], launch_directory: str) -> Matchmaker:
    keys = {"options": options} if ":" in kind else options
    section = MatchmakingConfig.model_validate({"kind": kind, **keys})
    made = make_matchmaker(section, window=WindowRule().window, launch_directory=launch_directory)
    # Without its guard the user's class raises its own errors, which the checks report.
    return made.matchmaker if isinstance(made, UsersMatchmaker) else made


def _draw(subject: Subject, matchmaker: Matchmaker, name: str) -> Opponents:
    request = LEAGUES[name]()
    before = dict(columns_of(request))
    with subject.answering(f"draw must answer {name}", draws="draw must draw from rng alone"):
        answer: object = matchmaker.draw(request, rng=np.random.default_rng(3))
    after = dict(columns_of(request))
    changed = [column for column in before if before[column] != after[column]]
    subject.must("draw must not change its request", not changed, got=changed)
    drawn = subject.must_be("draw must return populations.core.Opponents", Opponents, answer)
    _check_numbers(subject, drawn, request, name)
    offered = {
        # Candidates are compared by all of their fields, so that an invented one is found.
        *(request.ghosts[index] for index in range(len(request.ghosts))),
        *(request.latest[index] for index in range(len(request.latest))),
    }
    strange = [player for player in drawn.players if player not in offered]
    rule = "players must be candidates of request.ghosts and request.latest"
    subject.must(rule, not strange, got=strange[:1])
    return drawn


def _check_numbers(subject: Subject, drawn: Opponents, request: OpponentRequest, name: str) -> None:
    mirrors = cast("object", drawn.num_mirrors)
    is_number = isinstance(mirrors, int | np.integer) and mirrors >= 0
    subject.must("num_mirrors must be a whole number, at least 0", is_number, got=mirrors)
    subject.must("players must be a tuple", isinstance(drawn.players, tuple), got=drawn.players)
    if not request.is_own_population:
        rule = "num_mirrors must be 0 where the opponents are of another population"
        subject.must(rule, drawn.num_mirrors == 0, got=drawn.num_mirrors)
    number = drawn.num_mirrors + len(drawn.players)
    subject.must(
        "num_mirrors and players must sum to request.num_opponents",
        number == request.num_opponents,
        found=f"{number} of {request.num_opponents} in {name}",
    )


def _told(drawn: object) -> object:
    if not isinstance(drawn, Opponents):
        return drawn
    names = [*["the trainee"] * drawn.num_mirrors, *(one.player for one in drawn.players)]
    return ", ".join(names)
