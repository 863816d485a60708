"""Make tutorial-page.png, the picture of nmt-serve's page in README.md and in the tutorial.

    nmt-train recipes/quickstart.yaml && python docs/figures/tutorial_page.py runs/quickstart

It needs Chromium, its driver and ``pip install selenium``. tutorial-page.txt has the SHA-256 of
what the picture shows: a test fails if the page or the text has changed since.
"""

from __future__ import annotations

import hashlib
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

FOLDER = Path(__file__).parent
PICTURE, DIGEST = FOLDER / "tutorial-page.png", FOLDER / "tutorial-page.txt"
PAGE = FOLDER.parents[1] / "nmt/apps/serve/static/index.html"
COMMAND = "python docs/figures/tutorial_page.py RUN"
WIDTH = 900  # of the window
TEXT = """\
Nastaví dátum a čas na paneli alarmu.
Zariadenie je už nakonfigurované.
Nepodarilo sa pripojiť k zariadeniu."""


def digest() -> str:
    """Return the SHA-256 of the page and the text."""
    return hashlib.sha256(PAGE.read_bytes() + TEXT.encode()).hexdigest()


def main(run: str) -> None:
    """Serve a run, type the text, and write the picture and its SHA-256."""
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or shutil.which("google-chrome") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", f"--window-size={WIDTH},900"):
        options.add_argument(flag)
    service = webdriver.ChromeService(shutil.which("chromedriver"))
    serve = [sys.executable, "-m", "nmt", "serve", run, "--port", "0"]
    server = subprocess.Popen(serve, stderr=subprocess.PIPE, text=True)
    driver = webdriver.Chrome(options=options, service=service)
    try:
        assert server.stderr
        for line in server.stderr:
            if address := re.search(r"http://[\d.]+:\d+", line):
                break
        driver.get(address[0])
        for _ in range(2):  # the second time, the model is in memory
            shown = write(driver)
        driver.find_element("tag name", "body").screenshot(str(PICTURE))
    finally:
        driver.quit()
        server.terminate()
    DIGEST.write_text(f"{digest()}  {COMMAND}\n", encoding="utf-8")
    print("\n".join(shown))


def write(driver: object) -> list[str]:
    """Type the text into the empty page; return its lines when they no longer change."""
    driver.find_element("id", "clear").click()
    driver.find_element("id", "text").send_keys(TEXT)
    shown: list[str] = []
    while True:
        time.sleep(2)
        before, shown = shown, [e.text for e in driver.find_elements("css selector", ".line")]
        if len(shown) == len(TEXT.splitlines()) and all(shown) and before == shown:
            return shown


if __name__ == "__main__":
    main(sys.argv[1])
