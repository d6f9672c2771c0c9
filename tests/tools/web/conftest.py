"""Server of a run, without a socket."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx
import pytest

from tools.web.app import make_app
from tools.web.runs import named_runs
from tools.web.security import Access
from tools.web.site import Site

TOKEN = "a-token-of-tests"
ACCESS = Access(token=TOKEN, cookie="arena_8517", hosts=frozenset({"127.0.0.1"}))


class Client:
    """Client of runs' pages, with the token in a header."""

    def __init__(self, runs: Sequence[Path]) -> None:
        self._app: Any = make_app(Site(named_runs(runs)), ACCESS)
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
            # As a browser keeps it.
            self._cookies = client.cookies
            return answer

    def get(self, path: str, *, headers: Mapping[str, str] | None = None) -> httpx.Response:
        return self.request("GET", path, headers=headers)


@pytest.fixture(scope="session")
def board_client(board_run: Path) -> Client:
    return Client([board_run])


@pytest.fixture
def client(board_client: Client) -> Client:
    """Give a client of a run that is read once for all tests."""
    board_client.forget()
    return board_client
