"""The files of the page `/ui/`: free, typed, cached by their hash, and only what the page needs."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from fsview.store.stores import StoreOptions
from strandline.server.api.web_page import POLICY, web_page_rows
from strandline.server.http.server import ServiceServer
from strandline.server.http.server_options import ServerOptions
from strandline.server.process.composition_root import Parts
from strandline.server.process.options import PartsOptions
from strandline.settings.command_line import ServeOptions
from strandline.settings.service import EMBED_UI
from strandline.settings.setting import Settings
from tests.kit import vendor
from tests.kit.servers.live_service import TOKEN, Answered, HttpClient, running, serving

UI = Path(vendor.VENDOR).parent
ECHARTS = "/ui/vendor/echarts-6.1.0.esm.min.js"
TYPES = {
    "/ui/": "text/html; charset=utf-8",
    "/ui/app.js": "text/javascript; charset=utf-8",
    "/ui/style.css": "text/css; charset=utf-8",
    "/ui/icon.svg": "image/svg+xml",
    ECHARTS: "text/javascript; charset=utf-8",
}


@pytest.fixture(scope="module")
def client() -> Iterator[HttpClient]:
    """A client without a token, of a service that has one."""
    parts = Parts(PartsOptions(("/nowhere",), TOKEN, ui=True))
    with (
        running(ServiceServer(parts, ServerOptions())) as server,
        HttpClient(server.port, None) as found,
    ):
        yield found


def file_of(path: str) -> bytes:
    return (UI / (path.removeprefix("/ui/") or "index.html")).read_bytes()


def test_files_are_free_and_have_their_type(client: HttpClient) -> None:
    for path, content_type in TYPES.items():
        answered = client.request("GET", path)
        assert (answered.status, answered.headers["content-type"]) == (200, content_type)
        assert answered.body == file_of(path)


def test_every_file_that_a_browser_may_ask_for_is_served() -> None:
    told = {path for _, path, _ in web_page_rows()}
    names = {each.relative_to(UI).as_posix() for each in UI.rglob("*") if each.is_file()}
    licences = {name for name in names if re.search(r"\.(LICENSE|NOTICE)", name)}
    assert told == {f"/ui/{name}".replace("index.html", "") for name in names - licences}


def test_the_policy_admits_files_of_the_service_alone(client: HttpClient) -> None:
    assert POLICY == (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self';"
        " img-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    for path in TYPES:
        headers = client.request("GET", path).headers
        assert headers["content-security-policy"] == POLICY
        assert headers["x-content-type-options"] == "nosniff"
        assert headers["referrer-policy"] == "no-referrer"


def test_the_page_has_no_inline_script_or_style() -> None:
    html = (UI / "index.html").read_text("utf-8")
    assert re.search(r"<style|\sstyle=|\son\w+=|<script(?![^>]*\ssrc=)", html) is None
    for path in UI.glob("*.js"):
        text = path.read_text("utf-8")
        assert re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write", text) is None
        assert "https://" not in text


def revalidated(client: HttpClient, path: str, etag: str) -> Answered:
    return client.request("GET", path, headers={"If-None-Match": etag})


def test_the_page_asks_for_all_its_modules_at_once() -> None:
    """A browser would otherwise find each only in the one that imports it."""
    html = (UI / "index.html").read_text("utf-8")
    asked = re.findall(r'(?:"modulepreload" href|src)="(\S+\.js)"', html)
    assert sorted(asked) == sorted(each.relative_to(UI).as_posix() for each in UI.rglob("*.js"))


def test_a_file_that_the_browser_has_is_not_sent_again(client: HttpClient) -> None:
    etags = {path: client.request("GET", path).headers["etag"] for path in TYPES}
    assert len(set(etags.values())) == len(TYPES)
    for path, etag in etags.items():
        for spelled in (etag, f"W/{etag}", f'"other", {etag}'):
            answered = revalidated(client, path, spelled)
            assert (answered.status, answered.body) == (304, b"")
            assert answered.headers["etag"] == etag
        assert revalidated(client, path, '"other"').status == 200


def test_only_files_with_a_version_in_their_name_are_cached_without_asking(
    client: HttpClient,
) -> None:
    paths = (*TYPES, f"/ui/vendor/{vendor.PACKAGES}")
    cached = {path: client.request("GET", path).headers["cache-control"] for path in paths}
    assert cached.pop(ECHARTS) == "public, max-age=31536000, immutable"
    assert set(cached.values()) == {"no-cache"}


def test_files_are_compressed_for_clients_that_accept_it(client: HttpClient) -> None:
    answered = client.request("GET", ECHARTS, headers={"Accept-Encoding": "gzip"})
    assert answered.headers["content-encoding"] == "gzip"
    assert answered.headers["vary"] == "accept-encoding"
    assert answered.body == file_of(ECHARTS)
    assert len(answered.sent) < len(answered.body) / 2


def test_head_has_the_headers_of_get(client: HttpClient) -> None:
    got, head = (client.request(method, "/ui/style.css") for method in ("GET", "HEAD"))
    assert (head.status, head.body) == (200, b"")
    assert head.headers == got.headers


def test_there_is_nothing_else_below_its_path(client: HttpClient) -> None:
    for path in (
        "/ui/none.js",
        "/ui/vendor",
        "/ui/vendor/",
        "/ui/vendor/echarts.LICENSE",
        "/ui/../web_page.py",
        "/ui/%2e%2e/web_page.py",
        "/ui/..%2fweb_page.py",
        "/ui//etc/passwd",
        "/ui/%00",
        "/ui/index.html/",
    ):
        answered = client.request("GET", path)
        assert answered.status in {401, 404}, path
        assert b"import" not in answered.body
    assert client.request("POST", "/ui/").status == 404


def test_metrics_have_one_route_for_all_files() -> None:
    latencies = Parts(PartsOptions(("/nowhere",), TOKEN, ui=True)).latencies
    for path in TYPES:
        latencies.note_built(path, 0.001)
    counted = {each.route: each.cumulative[-1] for each in latencies.snapshot()}
    assert {route: count for route, count in counted.items() if count} == {"/ui": len(TYPES)}


def test_data_needs_the_token(client: HttpClient) -> None:
    assert client.request("GET", "/v1/strandline/status").status == 401


def test_an_embedded_service_has_no_page_unless_asked() -> None:
    for given, has in (({}, False), ({EMBED_UI.name: "true"}, True)):
        settings = Settings.parse(given, [EMBED_UI])
        options = PartsOptions.of(
            settings, (), None, storage_options=None, store=StoreOptions(), shown={}
        )
        assert options.ui is has
    assert ServeOptions().ui
    with serving("/nowhere") as server, HttpClient(server.port) as client:
        assert client.request("GET", "/ui/").status == 404
        assert client.request("GET", "/ui/app.js").status == 404


def test_files_of_others_are_those_that_were_checked() -> None:
    kept = {each.name for each in vendor.VENDOR.iterdir()} - {vendor.PACKAGES}
    told = {
        name: origin["sha256"]
        for package in vendor.packages().values()
        for name, origin in package["files"].items()
    }
    assert told == {name: vendor.sha256(name) for name in kept}
    for name, package in vendor.packages().items():
        scripts = [each for each in package["files"] if each.endswith(".js")]
        assert all(each.startswith(f"{name}-{package['version']}.") for each in scripts)
