"""Take screenshots of the notebooks from top to bottom, as a learner sees them: `make screenshots`.

They are saved in tools/screenshots. NAMES="01_bag_of_words" selects a notebook, THEME=dark the dark theme.
"""

import argparse
import sys
from pathlib import Path

import lab

from attention_course.ladder import RUNGS

SCREENSHOTS = Path(__file__).parent / "screenshots"
STEP = 640  # pixels between screenshots


def main() -> None:
    """Run each notebook in JupyterLab, scroll through it, and save a screenshot at each step."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*")
    parser.add_argument("--theme", choices=["light", "dark"], default="light")
    given = parser.parse_args()
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    names = given.names or [rung.name for rung in RUNGS]
    SCREENSHOTS.mkdir(exist_ok=True)
    with (
        lab.jupyter_lab(dark=given.theme == "dark") as address,
        lab.browser_page(chromium) as page,
    ):
        for name in names:
            for old in SCREENSHOTS.glob(f"{name}_{given.theme}_*.png"):
                old.unlink()
            lab.open_notebook(page, address, f"my_notebooks/{name}.ipynb")
            lab.run_all(page, timeout=400_000)
            panel = page.locator(".jp-WindowedPanel-outer").first
            height = panel.evaluate("(panel) => panel.scrollHeight")
            for number, top in enumerate(range(0, height, STEP)):
                panel.evaluate("(panel, top) => { panel.scrollTop = top; }", top)
                page.wait_for_timeout(100)
                page.screenshot(path=SCREENSHOTS / f"{name}_{given.theme}_{number:02}.png")
            print(f"{name}: {number + 1} screenshots")


if __name__ == "__main__":
    main()
