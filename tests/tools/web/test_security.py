from __future__ import annotations

from pathlib import Path
from urllib.parse import quote

import pytest

from tests.tools.web.conftest import ACCESS, TOKEN, Client
from tools.web.security import HEADERS, Access


@pytest.mark.parametrize(
    ("path", "headers", "status"),
    [
        ("/", {"authorization": ""}, 401),
        ("/", {"authorization": "Bearer wrong"}, 401),
        ("/", {"authorization": f"Basic {TOKEN}"}, 401),
        ("/?token=wrong", {"authorization": ""}, 401),
        ("/?token=w\u00e4hrung", {"authorization": ""}, 401),
        ("/", {"authorization": "", "cookie": f"arena_1={TOKEN}"}, 401),
        ("/", {"authorization": "", "cookie": "arena_8517=wrong"}, 401),
        ("/static/page.js", {"authorization": ""}, 401),
        ("/metrics", {"authorization": ""}, 401),
        ("/board/standings.json", {"authorization": ""}, 401),
        ("/", {"host": "evil.example"}, 403),
        ("/", {"host": "localhost.evil.example:8517"}, 403),
        ("/", {"host": "localhost@evil.example"}, 403),
        ("/", {"host": "10.0.0.7:8517"}, 403),
        ("/", {"host": ""}, 403),
        ("/", {"host": "localhost:port"}, 403),
        ("/?token=" + TOKEN, {"host": "evil.example"}, 403),
        ("/", {"origin": "http://evil.example"}, 403),
        ("/", {"origin": "null"}, 403),
        ("/", {"origin": "file://"}, 403),
        ("/", {"sec-fetch-site": "cross-site"}, 403),
        ("/", {"sec-fetch-site": "same-site"}, 403),
        ("/board/..%2f..%2fetc/passwd", {}, 404),
        ("/board/%2e%2e/run.yaml", {}, 404),
        ("/static/..%5crun.yaml", {}, 404),
        ("/static/%2fetc%2fpasswd", {}, 404),
        ("/board/run.yaml", {}, 404),
        ("/board/journal.db", {}, 404),
        ("/board/index.html%00.html", {}, 404),
        ("/static/security.py", {}, 404),
        ("/other/index.html", {}, 404),
        ("/board/nothing.html", {}, 404),
        ("/board/nothing.csv", {}, 404),
    ],
)
def test_a_request_that_is_no_readers_own_is_refused(
    client: Client, path: str, headers: dict[str, str], status: int
) -> None:
    assert client.get(path, headers=headers).status_code == status


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE"])
def test_only_get_and_head_are_answered(client: Client, method: str) -> None:
    for path in ("/", "/board/index.html", "/metrics"):
        answer = client.request(method, path)
        assert (answer.status_code, answer.headers["allow"]) == (405, "GET, HEAD")
    assert client.request("HEAD", "/board/index.html").status_code == 200


@pytest.mark.parametrize(
    "headers",
    [
        {"host": "localhost:9999"},
        {"host": "127.0.0.1"},
        {"host": "[::1]:22"},
        {"host": "LOCALHOST"},
        {"origin": "http://localhost:9999"},
        {"sec-fetch-site": "same-origin"},
        {"sec-fetch-site": "none"},
    ],
)
def test_any_port_of_this_machine_is_answered(client: Client, headers: dict[str, str]) -> None:
    assert client.get("/", headers=headers).status_code == 200


def test_the_token_becomes_a_cookie_and_leaves_the_address(client: Client) -> None:
    answer = client.get(f"/board/events.html?kind=x&token={TOKEN}", headers={"authorization": ""})
    assert answer.status_code == 303
    assert answer.headers["location"] == "/board/events.html?kind=x"
    assert answer.headers["cache-control"] == "no-store"
    cookie = answer.headers["set-cookie"]
    assert cookie.startswith(f"arena_8517={TOKEN};")
    assert {"HttpOnly", "Path=/", "SameSite=strict"} <= {part.strip() for part in cookie.split(";")}
    # The client keeps the cookie, as a browser does.
    assert client.get("/", headers={"authorization": ""}).status_code == 200


def test_a_redirect_stays_on_this_host(client: Client) -> None:
    answer = client.get(f"http://localhost:8517//evil.example/?token={TOKEN}")
    assert answer.headers["location"] == "/evil.example/"


def test_every_answer_confines_its_page(client: Client) -> None:
    for path in ("/", "/board/payoff.html", "/static/charts.js", "/nothing"):
        headers = client.get(path).headers
        assert {name: headers[name] for name in HEADERS} == HEADERS
    policy = HEADERS["content-security-policy"]
    assert "unsafe" not in policy
    assert "frame-ancestors 'none'" in policy


def test_a_server_on_all_interfaces_knows_addresses_but_no_names() -> None:
    access = Access.to("0.0.0.0", 8517, token=TOKEN)
    assert access.knows_host("10.0.0.7:8517")
    assert not access.knows_host("evil.example:8517")
    assert Access.to("lab.example", 1, token=None).knows_host("lab.example:80")


def test_each_server_has_a_token_of_its_own() -> None:
    tokens = {Access.to("127.0.0.1", 0, token=None).token for _ in range(20)}
    assert len(tokens) == 20
    assert min(map(len, tokens)) >= 32


def test_a_token_is_compared_as_a_whole() -> None:
    assert ACCESS.is_token(TOKEN)
    assert not ACCESS.is_token(TOKEN[:-1])
    assert not ACCESS.is_token(TOKEN + "x")
    assert not ACCESS.is_token("")
    assert not ACCESS.is_token(None)


@pytest.mark.parametrize("token", ["abc+def/%41", 'a b"c;d,e\\f&g=h#i?', "12345678"])
def test_any_token_is_taken_from_its_own_address_header_and_cookie(
    token: str, board_run: Path
) -> None:
    client = Client([board_run], access=Access.to("127.0.0.1", 80, token=token))
    bearer = {"authorization": f"Bearer {token}"}
    assert client.get("/", headers=bearer).status_code == 200
    nobody = {"authorization": ""}
    answer = client.get(f"/?token={quote(token, safe='')}", headers=nobody)
    assert answer.status_code == 303
    assert client.get("/", headers=nobody).status_code == 200
