"""The page in headless Chromium: built once, opened afresh for each test, and watched for errors and requests."""

import os
import random
import secrets
import shutil

import pytest

from attnjax.show import page as figures

CHROMIUM = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")


@pytest.fixture(scope="session")
def page_url(tmp_path_factory):
    """A page with heads set by hand, before any test draws its numbers."""
    folder = tmp_path_factory.mktemp("site")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)  # so that no trained model lies at hand
        return figures.write(folder).as_uri()


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright

    assert CHROMIUM, "no Chromium found: apt-get install chromium, or name one in CHROMIUM"
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def open_page(chromium, page_url):
    """Opens the page; afterwards nothing may have failed, been logged as an error or been fetched."""
    contexts, faults = [], []

    def opened(**options):
        context = chromium.new_context(**{"viewport": {"width": 1000, "height": 900}, **options})
        contexts.append(context)
        page = context.new_page()
        page.on("console", lambda message: faults.append(f"console: {message.text}"))
        page.on("pageerror", lambda error: faults.append(f"error: {error}"))
        page.on("request", lambda request: request.url == page_url or faults.append(f"request: {request.url}"))
        page.goto(page_url)
        page.wait_for_selector("#computed canvas")
        return page

    yield opened
    for context in contexts:
        context.close()
    assert faults == []


@pytest.fixture
def rng():
    """Random numbers drawn at test time; ATTNJAX_PAGE_SEED repeats a run."""
    seed = int(os.environ.get("ATTNJAX_PAGE_SEED") or secrets.randbelow(2**32))
    print(f"ATTNJAX_PAGE_SEED={seed}")  # pytest shows it where a test fails
    return random.Random(seed)
