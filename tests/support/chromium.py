"""Chromium, driven by playwright: the page of `sharegroup web` in it, signing in, what axe-core says of a page, and
pictures for the docs."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from importlib import resources
from pathlib import Path
from types import MappingProxyType
from typing import Any

from playwright.sync_api import Browser, Page, expect, sync_playwright

from coordinator.protocol.rights import Tokens
from sharegroup.web.app import create_app
from sharegroup.web.command import site_of
from sharegroup.web.history import History
from sharegroup.web.server import Address, Server
from tests.support.left_out import CHROMIUM

ACTOR, LOOKER = "a" * 20, "l" * 20
TOKENS = Tokens.parse(f"admin ada:{ACTOR}\nread lo:{LOOKER}", "the test")
WAIT_MS = 60_000
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIZES = {"light": (1_200, 800), "dark": (1_200, 800), "phone": (390, 800)}
"""Width and height of the window by the name of the look."""
PICTURES = os.environ.get("WEB_PICTURES", "")
"""The folder for pictures of pages; empty: none are made. ``WEB_PICTURES=docs/pictures`` makes those of the docs."""
KEPT = {name: tuple(SIZES) for name in ("groups", "group", "offsets", "history")}
KEPT |= {"members": ("phone",), "actions": ("phone",), "away": (), "form": (), "groups-at-night": ()}
KEPT |= dict.fromkeys(("query-keeps-ending", "groups-ending", "group-mended"), ())
"""The looks of which pictures are kept, by the name of the page; of others the light one."""
TALLEST, TALLEST_OF = 1_300, {"group": 2_600}
"""A picture is at most this number of pixels high; the second by the name of the page."""
expect.set_options(timeout=WAIT_MS)


@contextmanager
def browser() -> Iterator[Browser]:
    """A browser with a new and empty profile."""
    assert shutil.which(CHROMIUM), (
        f"Chromium is missing at {CHROMIUM}: install it (Debian: apt-get install chromium), or name a Chromium or "
        "Chrome with the environment variable CHROMIUM"
    )
    with (
        sync_playwright() as playwright,
        closing(playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))) as found,
    ):
        yield found


@contextmanager
def page_server(config: Mapping[str, str], hours: Mapping[str, History] = MappingProxyType({})) -> Iterator[str]:
    """The page over the cluster of these properties; its address. ``hours``: the last hour of groups, by their ids."""
    with (
        site_of(config, TOKENS, 1.0, is_tls=False) as site,
        closing(Server(create_app(site), Address(host="127.0.0.1", port=0))) as server,
    ):
        site.watch._histories.update(hours)
        server.start()
        yield server.url


def signed_in(url: str, browser: Browser, token: str = ACTOR) -> tuple[Page, list[str]]:
    """A page that shows all groups; and what goes wrong in it, as of :func:`new_page`."""
    page, wrong = new_page(browser)
    page.goto(url)
    page.get_by_label("Token").fill(token)
    page.get_by_role("button", name="Sign in").click()
    expect(page.get_by_role("heading", name="Share groups")).to_be_visible()
    return page, wrong


def new_page(browser: Browser) -> tuple[Page, list[str]]:
    """A page of a new and empty context; and what goes wrong in it: errors of scripts, and what the page's policy
    refuses."""
    context = browser.new_context()
    context.set_default_timeout(WAIT_MS)
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    return page, wrong


def faults(page: Page, name: str) -> list[str]:
    """Returns what is wrong with the page in each look: serious rules that it breaks, and a width beyond the screen's.
    Pictures are kept of it, if pictures are made."""
    found = []
    for look, (width, height) in SIZES.items():
        page.set_viewport_size({"width": width, "height": height})
        page.emulate_media(color_scheme="dark" if look == "dark" else "light")
        found += [f"{look}: {each}" for each in violations(page)]
        if page.evaluate("document.documentElement.scrollWidth > window.innerWidth"):
            found.append(f"{look}: wider than the screen")
        picture(page, name, look)
    return found


def violations(page: Page) -> list[str]:
    """The serious and critical rules of axe-core that the page breaks, each with the first element that does."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8"))
    found: Any = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def picture(page: Page, name: str, look: str, top: float = 0.0) -> None:
    """Keep a picture of the page from ``top`` on, in pixels, if pictures are made."""
    if not PICTURES or look not in KEPT.get(name, ("light",)):
        return
    from PIL import Image  # matplotlib's

    path = Path(PICTURES) / f"web-{name}-{look}.png"
    height = page.evaluate("document.documentElement.scrollHeight") - top
    width = SIZES[look][0]
    page.screenshot(
        path=path,
        full_page=True,
        clip={"x": 0, "y": top, "width": width, "height": min(height, TALLEST_OF.get(name, TALLEST))},
    )
    Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
