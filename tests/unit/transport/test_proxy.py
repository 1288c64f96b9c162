"""What HTTPS_PROXY and NO_PROXY say, and a proxy that says strange things."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import httpx
import pytest
from tacit_services.transport.proxy import DIRECT, HttpProxy, Proxies

from tacit.errors import ConfigError
from tests.helpers.servers import HOST, PATIENCE
from tests.helpers.slow_server import WAYS, slow_server


class TestSettings:
    @pytest.mark.parametrize(
        ("value", "proxy"),
        [
            ("", None),
            ("http://p.org:3128", HttpProxy("p.org", 3128)),
            ("p.org:8080", HttpProxy("p.org", 8080)),
            ("http://p.org/", HttpProxy("p.org", 3128)),
            ("http://u:a%20b%40c@p.org:1", HttpProxy("p.org", 1, "u", "a b@c")),
            ("http://u@[::1]:9", HttpProxy("::1", 9, "u")),
        ],
    )
    def test_an_address_is_read_as_it_is_meant(self, value: str, proxy: HttpProxy | None) -> None:
        assert Proxies.parsed(value).https == proxy
        if proxy is not None:  # and httpx reads it as the same
            url = httpx.URL(proxy.url)
            assert (url.host, url.port, url.username) == (proxy.host, proxy.port, proxy.user or "")
            assert url.password == proxy.password

    @pytest.mark.parametrize(
        "value",
        [
            "https://u:secret@p.org:1",
            "socks5://u:secret@p",
            "http://u:secret@p:x",
            "http://u:secret",  # somebody forgot @ and the proxy
            "http://u:secret/x@p:1",  # or wrote a password as it is
            "http://u:secret?x@p:1",
            "http://u:secret#x@p:1",
            "http://",
        ],
    )
    def test_another_kind_is_refused_without_its_password(self, value: str) -> None:
        with pytest.raises(ConfigError, match=r"^proxy ") as refused:
            Proxies.parsed(value)
        assert "secret" not in str(refused.value)
        assert "secret" not in repr(HttpProxy("p", 1, "u", "secret"))

    @pytest.mark.parametrize(
        ("exempt", "host", "port", "direct"),
        [
            ("", "h.org", 443, False),
            ("*", "h.org", 443, True),
            ("h.org", "h.org", 443, True),
            ("H.org, x", "h.ORG", 443, True),
            ("h.org", "a.h.org", 443, True),
            (".h.org", "a.h.org", 443, True),
            ("*.h.org", "a.h.org", 443, True),
            ("h.org", "oh.org", 443, False),
            ("org:8883", "h.org", 443, False),
            ("org:443", "h.org", 443, True),
            ("10.0.0.0/8", "10.1.2.3", 443, True),
            ("10.0.0.0/8", "11.1.2.3", 443, False),
            ("10.0.0.1", "10.0.0.1", 443, True),
            ("10.0.0.0/8", "h.org", 443, False),
            ("::1", "[::1]", 443, True),
            ("[::1]:443", "::1", 443, True),
            ("fd00::/8", "fd00::9", 443, True),
            (",, ,", "h.org", 443, False),
        ],
    )
    def test_what_needs_no_proxy_goes_directly(
        self, exempt: str, host: str, port: int, direct: bool
    ) -> None:
        proxies = Proxies.parsed("p:1", exempt)
        assert (proxies.between(host, port) is None) == direct
        url = f"https://[{host.strip('[]')}]:{port}/x" if ":" in host else f"https://{host}:{port}"
        assert (proxies.before(url) is None) == direct

    def test_the_environment_is_read_as_others_read_it(self) -> None:
        variables = {"HTTPS_PROXY": "p:1", "https_proxy": "q:2", "NO_PROXY": "h", "HTTP_PROXY": "x"}
        read = Proxies.of_environment(variables)
        assert read.between("i", 1) == HttpProxy("q", 2)
        assert read.between("h", 1) is None
        assert Proxies.of_environment({}) == DIRECT


@contextmanager
def answering(*pieces: bytes) -> Iterator[HttpProxy]:
    """Yield a proxy that answers the first request with `pieces`, each in a packet of its own."""
    listener = socket.create_server((HOST, 0))
    written = threading.Event()

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            while not connection.recv(1 << 16).endswith(b"\r\n\r\n"):
                pass
            for piece in pieces:
                connection.sendall(piece)
            written.wait(PATIENCE)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield HttpProxy(*listener.getsockname())
    finally:
        written.set()
        thread.join(PATIENCE)
        listener.close()


class TestTunnel:
    def test_what_a_proxy_says_behind_its_first_line_is_not_the_servers(self) -> None:
        pieces = (b"HTTP/1.1 200 OK\r\n", b"Via: somebody\r\n", b"\r", b"\n")
        with answering(*pieces) as proxy, closing(proxy.tunnel("h.org", 443, PATIENCE)) as tunnel:
            tunnel.settimeout(0.2)
            with pytest.raises(TimeoutError):
                tunnel.recv(1)

    @pytest.mark.parametrize(
        "answer",
        [
            b"",
            b"SSH-2.0-OpenSSH_9\r\n",
            b"HTTP/1.1 403 Forbidden\r\n\r\n",
            b"HTTP/1.1 407 Who\x1b[31m are you\r\n\r\n",
            b"HTTP/1.1 \xff\r\n\r\n",
            b"HTTP/1.1 500 " + b"x" * 9_000 + b"\r\n\r\n",
        ],
    )
    def test_a_refusal_is_one_line_that_names_the_proxy(self, answer: bytes) -> None:
        with answering(answer) as proxy:
            with pytest.raises(OSError, match=f"^proxy {proxy.address}: ") as refused:
                proxy.tunnel("h.org", 443, 1.0)
            assert len(str(refused.value)) < 300
            assert str(refused.value).isprintable()

    @pytest.mark.parametrize("way", WAYS)
    def test_one_that_answers_byte_by_byte_is_not_waited_for(self, way: str) -> None:
        with slow_server(way) as server:
            proxy = HttpProxy(HOST, server.port)
            if way == "a body":  # its status is the answer
                proxy.tunnel("h.org", 443, 1.0).close()
                return
            with pytest.raises(OSError, match=f"^proxy {proxy.address}: "):
                proxy.tunnel("h.org", 443, 1.0)

    def test_the_first_bytes_of_the_server_are_not_the_proxys(self) -> None:
        with (
            answering(b"HTTP/1.1 200 OK\r\n\r\nhello") as proxy,
            closing(proxy.tunnel("h.org", 443, PATIENCE)) as tunnel,
        ):
            assert tunnel.recv(5) == b"hello"
