"""Debian's chromium, driven by Playwright, and what a page must not do in it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, ConsoleMessage, Page, sync_playwright

from tests.kit.concurrency.patience import PATIENCE_S
from tests.kit.debian import program

_PACKAGES: Final = ("chromium", "fonts-inter")
_WATCHED: Final = """
window.reports = [];
window.arrived = location.hash;
addEventListener("hashchange", () => { window.arrived = location.hash; });
document.addEventListener("securitypolicyviolation", (event) =>
  window.reports.push(`${event.violatedDirective} ${event.blockedURI} ${event.sourceFile}`));
"""
_REFUSED: Final = "Failed to load resource: the server responded with a status of 4"
_SETTLED: Final = """
() => document.querySelector("h1") && window.arrived === location.hash
  && !document.querySelector("[aria-busy]")
  && ![...document.querySelectorAll(".state.loading")].some((each) => each.offsetParent)
"""


@contextmanager
def launched() -> Iterator[Browser]:
    """Start the browser."""
    with sync_playwright() as driver:
        # As root it has no sandbox; it opens only pages of this machine.
        browser = driver.chromium.launch(
            executable_path=program("chromium", *_PACKAGES), args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@dataclass
class Visit:
    """One page, and what it did that it must not do.

    Attributes:
        url: Of the server, without a path.
        troubles: Errors on the console, exceptions, and requests to other servers.
    """

    page: Page
    url: str
    troubles: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.page.set_default_timeout(1000 * PATIENCE_S)
        self.page.add_init_script(_WATCHED)
        self.page.on("console", self._said)
        self.page.on("pageerror", lambda error: self.troubles.append(f"exception: {error}"))
        self.page.on("request", lambda request: self._asked(request.url))
        self.page.on("dialog", lambda dialog: self.troubles.append(f"dialog: {dialog.message}"))

    def _said(self, message: ConsoleMessage) -> None:
        # What the server refuses is shown on the page; browsers name it on the console, too.
        if message.type in {"error", "warning"} and not message.text.startswith(_REFUSED):
            self.troubles.append(f"{message.type}: {message.text}")

    def _asked(self, url: str) -> None:
        if not url.startswith((self.url, "data:", "blob:")):
            self.troubles.append(f"request to {url}")

    def go(self, view: str = "") -> None:
        """Open a view, such as ``tables``, and wait until it has drawn its data."""
        self.page.goto(f"{self.url}/ui/#/{view}")
        self.settle()

    def settle(self) -> None:
        """Wait until nothing is loading."""
        self.page.wait_for_function(_SETTLED)

    def wrong(self) -> list[str]:
        """Return all that the page did and must not, and errors that it shows.

        And what assistive technology stumbles at.
        """
        reports: list[str] = self.page.evaluate("window.reports")
        found = [*self.troubles, *(f"policy: {each}" for each in reports)]
        found += [
            f"failed: {each}" for each in self.page.locator(".failed:visible").all_inner_texts()
        ]
        violations: list[dict[str, Any]] = Axe().run(self.page).response["violations"]
        for each in violations:
            where = ", ".join(str(node["target"]) for node in each["nodes"][:5])
            found.append(f"{each['id']}: {each['help']}: {where}")
        return found

    def overflow(self) -> int:
        """Return by how many pixels the page is wider than its window."""
        return self.page.evaluate("document.documentElement.scrollWidth - innerWidth")

    def drawn(self, many: int) -> None:
        """Wait until so many drawings have ink."""
        self.page.wait_for_function(_INKED, arg=many)


_INKED: Final = """
(many) => [...document.querySelectorAll(".drawing canvas")].filter((canvas) => {
  if (!canvas.width || !canvas.height) return false;
  // A copy: chromium warns of a drawing that is read again and again.
  const copy = new OffscreenCanvas(canvas.width, canvas.height).getContext("2d");
  copy.drawImage(canvas, 0, 0);
  return copy.getImageData(0, 0, canvas.width, canvas.height).data.some((value) => value > 0);
}).length >= many
"""


@contextmanager
def visiting(
    browser: Browser, url: str, *, theme: str = "light", width: int = 1280, height: int = 900
) -> Iterator[Visit]:
    """Open a window without cookies or storage of another.

    Args:
        browser: The browser.
        url: Of the server, without a path.
        theme: ``light`` or ``dark``.
        width: Of the window, in pixels.
        height: Of the window, in pixels.
    """
    size = {"width": width, "height": height}
    context = browser.new_context(viewport=size, color_scheme=theme)
    yield Visit(context.new_page(), url)
    context.close()
