"""Take the picture in README.md, of the explorer of rung 2 with its decay at 0.6: `make picture`."""

import sys

import lab
from nbformat import v4 as nbf
from nbformat import writes

PICTURE = lab.ROOT / "notebooks" / "images" / "explorer.png"
CELL = 'from attention_course.explorers import explore\n\nexplore("tril_matmul")'


def main() -> None:
    """Open the explorer in JupyterLab, move its slider, and save what a learner sees."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    notebook = nbf.new_notebook(cells=[nbf.new_code_cell(CELL)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    with (
        lab.jupyter_lab({"picture.ipynb": writes(notebook)}) as address,
        lab.browser_page(chromium, density=2) as page,
    ):
        lab.open_notebook(page, address, "notebooks/picture.ipynb")
        lab.run_all(page)
        explorer = page.locator(".attention-explorer")
        explorer.locator(".noUi-handle").nth(1).focus()
        for _ in range(8):
            page.keyboard.press("ArrowLeft")
            page.wait_for_timeout(100)
        page.evaluate("document.activeElement.blur()")
        PICTURE.parent.mkdir(exist_ok=True)
        box = explorer.bounding_box()
        page.screenshot(path=PICTURE, clip=box | {"width": 620})


if __name__ == "__main__":
    main()
