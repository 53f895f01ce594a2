"""Debian's Chromium, driven by playwright; what axe-core says of a page; and pictures for the docs."""

from __future__ import annotations

import os
from importlib import resources
from pathlib import Path
from typing import Any

from playwright.sync_api import Browser, Page, Playwright

CHROMIUM = "/usr/bin/chromium"
ARGUMENTS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
)  # fmt: skip
SIZES = {"light": (1_200, 800), "dark": (1_200, 800), "phone": (390, 800)}
"""Width and height by the look of a page."""
PICTURES = os.environ.get("WEB_PICTURES", "")
"""The folder for pictures of pages; empty: none are made. ``WEB_PICTURES=docs/pictures`` makes those of the docs."""
KEPT = {"groups": SIZES, "group": SIZES, "offsets": SIZES}
"""The looks of which pictures are kept, by the name of the page; of other pages the light one."""


def launch(playwright: Playwright) -> Browser:
    """A browser with a new and empty profile."""
    return playwright.chromium.launch(executable_path=CHROMIUM, args=list(ARGUMENTS))


def new_page(browser: Browser, look: str) -> tuple[Page, list[str]]:
    """A page of a new and empty context, in this look; and what goes wrong in it: errors of scripts, and what the
    page's policy refuses."""
    width, height = SIZES[look]
    context = browser.new_context(
        viewport={"width": width, "height": height}, color_scheme="dark" if look == "dark" else "light"
    )
    page, wrong = context.new_page(), []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda said: wrong.append(said.text) if said.type == "error" else None)
    return page, wrong


def violations(page: Page) -> list[str]:
    """The serious and critical rules of axe-core that the page breaks, each with the first element that does."""
    script = resources.files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
    page.evaluate(script)
    found: Any = page.evaluate("() => axe.run(document, {resultTypes: ['violations']})")
    return [
        f"{each['id']} ({each['impact']}): {each['nodes'][0]['html'][:200]}"
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


def picture(page: Page, name: str, look: str) -> None:
    """Keep a picture of the page, if pictures are made."""
    if not PICTURES or look not in KEPT.get(name, ("light",)):
        return
    from PIL import Image  # matplotlib's

    path = Path(PICTURES) / f"web-{name}-{look}.png"
    height = int(page.evaluate("document.documentElement.scrollHeight"))
    width = SIZES[look][0]
    page.screenshot(path=path, full_page=True, clip={"x": 0, "y": 0, "width": width, "height": min(height, 1_300)})
    Image.open(path).convert("RGB").quantize(256, Image.Quantize.MAXCOVERAGE).save(path, optimize=True)
