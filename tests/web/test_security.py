"""Who the server answers, and what it answers them."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import closing

import httpx
import pytest

from tokpress.errors import UsageError
from tokpress.web.server import TOKEN_VARIABLE, ViewServer
from tokpress.web.session import Session

from .serving import token_of


@pytest.fixture
def stranger(server: ViewServer) -> Iterator[httpx.Client]:
    """Without the token."""
    with httpx.Client(base_url=f"http://127.0.0.1:{server.port}", trust_env=False) as opened:
        yield opened


class TestToken:
    @pytest.mark.parametrize("path", ["/", "/store", "/api/contents", "/api/document?doc=0", "/static/main.js"])
    def test_nothing_is_told_without_it(self, stranger: httpx.Client, path: str) -> None:
        answer = stranger.get(path)
        assert answer.status_code == 403
        assert "Document" not in answer.text

    def test_programs_and_people_are_told_in_their_own_form(self, stranger: httpx.Client) -> None:
        assert stranger.get("/api/contents").json() == {
            "error": "the token is missing. Open the address that tokpress view printed."
        }
        assert stranger.get("/store").headers["content-type"].startswith("text/html")

    def test_a_wrong_one_is_refused(self, stranger: httpx.Client) -> None:
        assert stranger.get("/?token=wrong").status_code == 403
        assert stranger.get("/api/contents", headers={"Authorization": "Bearer wrong"}).status_code == 403
        assert stranger.get("/api/contents", headers={b"Authorization": "Bearer ü".encode()}).status_code == 403

    def test_moves_from_the_address_into_a_cookie(self, server: ViewServer, stranger: httpx.Client) -> None:
        answer = stranger.get(f"/document?doc=3&token={token_of(server)}&ws=1")
        assert (answer.status_code, answer.headers["location"]) == (303, "/document?doc=3&ws=1")
        cookie = answer.headers["set-cookie"].lower()
        assert "httponly" in cookie
        assert "samesite=lax" in cookie
        assert stranger.get("/api/contents").status_code == 200  # the client keeps the cookie

    def test_a_redirect_stays_here(self, server: ViewServer, stranger: httpx.Client) -> None:
        for path in ("//evil.example/", "/\\evil.example/", "///evil.example"):
            answer = stranger.get(httpx.URL(f"http://127.0.0.1:{server.port}{path}?token={token_of(server)}"))
            assert answer.headers.get("location", "/")[:2] not in ("//", "/\\")

    def test_can_be_given_if_it_is_long_enough(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv(TOKEN_VARIABLE, "x" * 20)
        with closing(ViewServer(Session())) as server:
            assert server.address.endswith("?token=" + "x" * 20)
        monkeypatch.setenv(TOKEN_VARIABLE, "short")
        with pytest.raises(UsageError, match="16 letters"):
            ViewServer(Session())


class TestWhoAsks:
    @pytest.mark.parametrize(
        "host", ["evil.example", "evil.example:80", "127.0.0.1", "127.0.0.1.nip.io", "", "0.0.0.0"]
    )
    def test_a_foreign_host_is_refused(self, client: httpx.Client, host: str) -> None:
        assert client.get("/api/contents", headers={"Host": host}).status_code in (400, 421)

    def test_two_hosts_are_refused(self, server: ViewServer) -> None:
        with socket.create_connection(("127.0.0.1", server.port), 10) as raw:
            own = f"127.0.0.1:{server.port}"
            token = token_of(server)
            raw.sendall(
                f"GET /api/contents HTTP/1.1\r\nHost: {own}\r\nHost: evil\r\nAuthorization: Bearer {token}\r\n\r\n".encode()
            )
            assert raw.recv(100).split()[1] in (b"400", b"421")

    @pytest.mark.parametrize("origin", ["http://evil.example", "null", "http://127.0.0.1:1", "https://localhost"])
    def test_a_page_of_another_origin_is_refused(self, client: httpx.Client, origin: str) -> None:
        assert client.get("/api/contents", headers={"Origin": origin}).status_code == 403

    def test_its_own_page_is_answered(self, server: ViewServer, client: httpx.Client) -> None:
        assert client.get("/api/contents", headers={"Origin": f"http://127.0.0.1:{server.port}"}).status_code == 200

    @pytest.mark.parametrize("site", ["cross-site", "same-site"])
    def test_a_request_that_another_page_makes_is_refused(self, client: httpx.Client, site: str) -> None:
        frame = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "no-cors", "Sec-Fetch-Dest": "script"}
        assert client.get("/static/main.js", headers=frame).status_code == 403
        opened = {"Sec-Fetch-Site": site, "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
        assert client.get("/api/contents", headers=opened).status_code == 403
        assert client.get("/store", headers=opened).status_code == 200  # a link that somebody clicked

    @pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "PROPFIND"])
    def test_nothing_but_reading(self, client: httpx.Client, method: str) -> None:
        assert client.request(method, "/api/contents").status_code == 405


class TestPaths:
    @pytest.mark.parametrize(
        "path",
        [
            "/static/../security.py",
            "/static/..%2fsecurity.py",
            "/static/%2e%2e/%2e%2e/session.py",
            "/static//etc/passwd",
            "/static/views/../../app.py",
            "/static/%00",
            "/api/../static/main.js",
            "/etc/passwd",
            "/api/store?store=../../etc",
            "/api/store?store=-1",
            "/api/store?split=../../..",
        ],
    )
    def test_nothing_outside_is_reached(self, server: ViewServer, path: str) -> None:
        with socket.create_connection(("127.0.0.1", server.port), 10) as raw:  # a client would tidy the path up
            token = token_of(server)
            asked = f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{server.port}\r\nAuthorization: Bearer {token}\r\n"
            raw.sendall(f"{asked}Connection: close\r\n\r\n".encode())
            said = b"".join(iter(lambda: raw.recv(65536), b""))
        assert said.split()[1] in (b"400", b"404")
        assert b"import" not in said
        assert b"root:" not in said


class TestHeaders:
    @pytest.mark.parametrize(
        "path", ["/", "/store", "/static/main.js", "/api/contents", "/nothing", "/api/document?doc=x"]
    )
    def test_every_answer_is_locked_down(self, client: httpx.Client, path: str) -> None:
        headers = client.get(path).headers
        policy = headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert "http" not in policy
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["cross-origin-resource-policy"] == "same-origin"
        assert headers["referrer-policy"] == "no-referrer"

    def test_the_page_has_no_inline_script_or_style(self, client: httpx.Client) -> None:
        page = client.get("/").text
        assert "<style" not in page
        assert " style=" not in page
        assert " on" not in page.replace(" on each", "").split("<body>")[0]
        assert all("src=" in part.split(">")[0] for part in page.split("<script")[1:])


class TestBounds:
    @pytest.mark.parametrize(
        "query",
        [
            "document?doc=99999999999999999999999",
            "document?count=100000",
            "document?doc=1e9",
            "document?doc=0&first=-1",
            "store/packings?seq_len=99999999",
            "find?by=text&value=" + "x" * 20_000,
            "find?by=nothing&value=1",
            "find?by=token&value=abc",
        ],
    )
    def test_more_work_than_that_is_refused(self, client: httpx.Client, query: str) -> None:
        answer = client.get(f"/api/{query}")
        assert answer.status_code == 400
        assert answer.json()["error"]
