"""Server of a run, without a socket."""

from __future__ import annotations

import asyncio
import html
import itertools
import json
import re
import shutil
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import httpx
import pytest
import yaml

from arena.types import RANDOM_BOT, Entrant, PlayerId, PolicyId, SeatOpenings
from populations.records.aggregates import Row
from populations.records.rows import GameRow, PolicyRow, TallyRow
from populations.storage.journal import Journal
from tests.populations.rows import make_event, make_generation, make_tally, make_tally_row
from tests.support import record_run_file
from tools.league.documents import view_document
from tools.show.html import Block, Cells, Links
from tools.web.app import make_app
from tools.web.pages.page_request import PageRequest
from tools.web.runs import Run, named_runs
from tools.web.security import Access
from tools.web.site import Site

TOKEN = "a-token-of-tests"
ACCESS = Access(token=TOKEN, cookie="arena_8517", hosts=frozenset({"127.0.0.1"}))


class Client:
    """Client of runs' pages, with the token in a header."""

    def __init__(
        self, runs: Sequence[Path] | Mapping[str, Run], *, access: Access = ACCESS, **how: Any
    ) -> None:
        named = runs if isinstance(runs, Mapping) else named_runs(runs, **how)
        self._app: Any = make_app(Site(named), access)
        self._cookies = httpx.Cookies()

    def forget(self) -> None:
        self._cookies = httpx.Cookies()

    def request(
        self, method: str, path: str, *, headers: Mapping[str, str] | None = None
    ) -> httpx.Response:
        return asyncio.run(self._request(method, path, headers or {}))

    async def _request(self, method: str, path: str, headers: Mapping[str, str]) -> httpx.Response:
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(self._app),
            base_url="http://localhost:8517",
            cookies=self._cookies,
        ) as client:
            given = {"authorization": f"Bearer {TOKEN}", **headers}
            answer = await client.request(method, path, headers=given)
            # The client keeps the cookie, as a browser does.
            self._cookies = client.cookies
            return answer

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers=headers)


HOSTILE = (
    "<script>alert(1)</script>",
    "</script><img src=x onerror=alert(1)>",
    "<a href='javascript:alert(1)'>x</a>",
    "\"' onmouseover=alert(1) x='",
    "\u202egnp.exe\u2066",
    "\x1b[31mred\x07",
    "{{ 7 * 7 }}",
    "%0d%0a#?&=/../",
    "x" * 1_000_000,
)
"""Texts that an environment, a learner or a hook could have written into a run."""


def hostile_run(source: Path, target: Path, texts: Sequence[str]) -> Path:
    """Copy a run, and put texts wherever names and messages are; give the copy.

    They are names of policies, hyperparameters, metrics, hosts and learners, arguments of the
    environment, and in events of each kind that names players. Four matches of p000 have openings:
    actions 3 and 1.
    """
    (line, *_) = cast("Any", view_document(source, "standings"))["populations"]["player"]
    shutil.copytree(source, target)
    run_file = yaml.safe_load((target / "run.yaml").read_text())
    run_file["config"]["environment"]["kwargs"] = {text[:1000]: text[:10_000] for text in texts}
    (target / "run.yaml").write_text(yaml.safe_dump(run_file))
    record_run_file(target)
    lines = [
        {"policy": policy, "agent_steps": 10, "policy/kl": 0.5, f"policy/{text}": 1.0, text: 2.0}
        for text in texts
        for policy in (f"player/{text}", "player/p000")
    ]
    (target / "metrics.jsonl").write_text("".join(f"{json.dumps(line)}\n" for line in lines))
    with Journal.open(target / "journal.db") as journal:
        journal.commit([*_hostile_rows(texts), _openings(Entrant(line["weights"]))])
    return target


def _openings(entrant: Entrant) -> TallyRow:
    first = SeatOpenings(actions=(3, 1), matches=(3, 1), points=(2.0, 1.0))
    openings = (first, SeatOpenings(actions=(2,), matches=(4,), points=(1.0,)))
    sums = {"return_sum": (2.0, -2.0), "return_sum_of_squares": (4.0, 4.0), "length_sum": 36}
    tally = make_tally((entrant, RANDOM_BOT), (0, 1, 3, 0, 1), openings=openings, **sums)
    return make_tally_row(tally, 100)


def _hostile_rows(texts: Sequence[str]) -> Iterator[Row]:
    kinds = (
        "exploited",
        "quarantined",
        "policy_created",
        "champion",
        "learner_joined",
        "hook_failed",
    )
    numbers = itertools.count(1)
    for index, text in enumerate(texts, 10):
        policy = PolicyId(f"player/{text}")
        yield GameRow(
            game=f"{index}.0",
            time=text,
            seats=(0, 1),
            players=(PlayerId(policy), PlayerId(text)),
            entrants=(Entrant(policy), Entrant(text)),
            keys=("", ""),
            seed=index,
            steps=1,
            points=(1.0, 0.0),
            returns=(1.0, -1.0),
            actions=b"",
            shown=b"",
            pairing=0,
        )
        yield PolicyRow(
            policy=policy, population="player", index=index, hyperparameters={text: 0.5}
        )
        for entrant, name in ((policy, policy), (PolicyId("player/p000"), PolicyId("player/p000"))):
            yield make_generation(
                name,
                index,
                entrant=f"{entrant}#{index}",
                population="player",
                cause="exploit",
                parent=f"{policy}#0",
                hyperparameters={text: 0.5 + index},
                agent_steps_begin=index,
            )
        for kind in kinds:
            for subject in (text, policy, "player/p000"):
                data: dict[str, Any] = {
                    **{key: text for key in ("reason", "donor", "host", "player", "previous")},
                    "population": "player",
                    text: text,
                }
                yield make_event(kind, subject, sequence=next(numbers), time=text, **data)


def asked_for(page: str, *, number: int = 1, **documents: Any) -> PageRequest:
    """Return the request for a page of documents that a test has made."""
    names = {"player/p000": "player-p000", "player/p001": "player-p001"}
    return PageRequest(
        documents=documents,
        links=Links(names=names),
        page=page,
        number=number,
        populations=("player",),
    )


def words(block: Block) -> list[list[str]]:
    """Return the texts of the cells of a block's rows."""
    return [["".join(one.text for one in cells) for cells in row.cells] for row in block.rows]


def text_of(page: str) -> str:
    """Return a page without its elements."""
    return html.unescape(re.sub(r"<[^>]*>", "", page))


def said(lines: Sequence[Cells]) -> list[str]:
    """Return lines as text."""
    return ["".join(one.text for one in line) for line in lines]


@pytest.fixture(scope="session")
def board_client(board_run: Path) -> Client:
    return Client([board_run])


@pytest.fixture
def client(board_client: Client) -> Client:
    """Give a client of a run that is read once for all tests."""
    board_client.forget()
    return board_client
