"""Takes docs/images/figure_*.png from the page in headless Chromium: `make page-pictures`."""

import argparse
import os
import pathlib
import shutil
import tempfile

from playwright.sync_api import sync_playwright

from attnjax.show import page

IMAGES = pathlib.Path(__file__).parent / "images"
FIGURES = {"looks": "light", "steps": "light", "computed": "dark"}  # article -> colours


def main(model: str | None) -> None:
    """One picture of each figure, at twice the size for sharp screens."""
    browser = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as driver:
        url = page.write(folder, model=model).as_uri()
        chromium = driver.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        for name, scheme in FIGURES.items():
            options = {"color_scheme": scheme, "device_scale_factor": 2, "reduced_motion": "reduce"}
            tab = chromium.new_page(viewport={"width": 912, "height": 900}, **options)
            tab.goto(url)
            if name == "steps":
                tab.get_by_role("button", name="Step 8").click()  # the scores, with a cell's sum worked out
            if name == "computed":
                tab.get_by_role("radio", name="Tiles").check()
            tab.locator(f"#{name}").screenshot(path=IMAGES / f"figure_{name}.png")
            tab.close()
        chromium.close()


if __name__ == "__main__":
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--model", help="a GGUF file, for the heads of the first figure")
    main(options.parse_args().model)
