"""The page in real Chromium: readable in each light and width, accessible, and nothing of the data acts.

Screenshots are left in target/screenshots, to be looked at.
"""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Browser, Page, expect, sync_playwright
from tests.reader.page.lake import Day, clock, event, good
from tests.reader.page.sample import make_sample
from tests.reader.page.test_page import HOSTILE

from lakeproof.settings import Settings, settings_of
from reader.page.command import write_page
from reader.page.server import serving

pytestmark = pytest.mark.long  # Chromium, three times: a minute, and it must be installed
ROOT = Path(__file__).parents[3]
SCREENSHOTS = ROOT / "target" / "screenshots"
QUIET = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking"]
QUIET += ["--disable-component-update", "--disable-sync"]
LAKES = ("small", "empty", "hostile")
DIALOGS: list[str] = []


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    chromium = shutil.which("chromium")
    assert chromium, "install Chromium (Debian: apt-get install chromium)"
    SCREENSHOTS.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=chromium, args=QUIET)
        yield opened
        opened.close()


@pytest.fixture(scope="module", params=LAKES)
def lake(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """A kind of lake, and the file of its page."""
    home = tmp_path_factory.mktemp(request.param)
    made = settings_of({"LAKE_HOME": home / "lake", "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_GOLD": ROOT / "gold"})
    if request.param == "small":
        make_sample(made)
    if request.param == "hostile":
        _make_hostile(made)
    file = home / "page.html"
    write_page(made, (), file)
    return request.param, file


def _make_hostile(settings: Settings) -> None:
    """Markup in each field, strings of a megabyte, and 300 fields that nobody announced."""
    day = Day(settings)
    long = event("long", clock(9), user_id=["a" * 1_000_000])
    named = [event(f"named-{number}", clock(9), **{f"{HOSTILE}{number}": HOSTILE}) for number in range(300)]
    day.hour(9, *good(9, 5), event(HOSTILE, clock(9), user_id=HOSTILE), long, *named, HOSTILE.encode())


def opened(browser: Browser, address: str, *, width: int = 1200, dark: bool = False) -> Page:
    """A page of a browser without a network, which notes what it asks for."""
    context = browser.new_context(
        viewport={"width": width, "height": 900}, color_scheme="dark" if dark else "light", offline=True
    )
    page = context.new_page()
    page.on("dialog", lambda dialog: (DIALOGS.append(dialog.message), dialog.dismiss()))
    page.goto(address)
    return page


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_axe_finds_nothing(browser: Browser, lake: tuple[str, Path], dark: bool) -> None:
    name, file = lake
    page = opened(browser, file.as_uri(), dark=dark)
    page.screenshot(path=SCREENSHOTS / f"{name}-{'dark' if dark else 'light'}.png", full_page=True)
    page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
    found = Axe().run(page)
    assert found.response["violations"] == [], found.generate_report()
    page.context.close()


def test_it_is_readable_at_400_pixels_and_printed(browser: Browser, lake: tuple[str, Path]) -> None:
    name, file = lake
    page = opened(browser, file.as_uri(), width=400)
    page.screenshot(path=SCREENSHOTS / f"{name}-400.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= 400
    page.pdf(path=SCREENSHOTS / f"{name}.pdf", format="A4")
    page.context.close()


def test_nothing_acts_and_nothing_is_asked_for(browser: Browser, lake: tuple[str, Path]) -> None:
    _, file = lake
    context = browser.new_context()
    page = context.new_page()
    asked, said = [], []
    page.on("request", lambda request: asked.append(request.url))
    page.on("console", lambda message: said.append(message.text))
    page.on("dialog", lambda dialog: (DIALOGS.append(dialog.message), dialog.dismiss()))
    page.goto(file.as_uri())
    assert asked == [file.as_uri()]
    assert said == DIALOGS == []
    assert page.evaluate("document.images.length") == 0
    context.close()


def test_the_live_page_follows_commits(browser: Browser, tmp_path: Path) -> None:
    made = settings_of({"LAKE_HOME": tmp_path, "LAKE_CONTRACTS": ROOT / "contracts", "LAKE_GOLD": ROOT / "gold"})
    day = Day(made)
    day.hour(9, *good(9, 7))
    with serving(made, [], "127.0.0.1", 0) as address:
        page = browser.new_page()
        page.goto(address)
        assert "7 landed units" in page.inner_text("body")
        day.hour(10, *good(10, 5))
        expect(page.locator("body")).to_contain_text("12 landed units", timeout=60_000)
        painted = page.evaluate(
            "performance.getEntriesByName('first-contentful-paint')[0].startTime"
            " - performance.getEntriesByType('navigation')[0].responseEnd"
        )
        assert painted < 2_000  # milliseconds from the answer to what is seen, on a busy machine
        page.close()
