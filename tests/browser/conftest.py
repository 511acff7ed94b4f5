"""A headless Chromium for all tests of pages.

It needs Debian's packages chromium and chromium-driver; without them the tests are skipped.
"""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from selenium import webdriver
from selenium.webdriver.chrome.service import Service

CHROMEDRIVER = Path("/usr/bin/chromedriver")
CHROMIUM = Path("/usr/bin/chromium")
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    "--window-size=1200,900",
    # A name that somebody else has made to lead to this machine.
    "--host-resolver-rules=MAP evil.example 127.0.0.1",
)


@pytest.fixture(scope="module")
def chromium(tmp_path_factory: pytest.TempPathFactory) -> Iterator[webdriver.Chrome]:
    profile = tmp_path_factory.mktemp("chromium")
    options = webdriver.ChromeOptions()
    options.binary_location = str(CHROMIUM)
    if not (CHROMEDRIVER.exists() and CHROMIUM.exists()):
        pytest.skip("no Chromium: apt-get install --no-install-recommends chromium chromium-driver")
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    # Its settings and caches go into the same folder.
    service = Service(str(CHROMEDRIVER), env={**os.environ, "HOME": str(profile)})
    browser = webdriver.Chrome(options=options, service=service)
    try:
        yield browser
    finally:
        browser.quit()
        shutil.rmtree(profile, ignore_errors=True)
