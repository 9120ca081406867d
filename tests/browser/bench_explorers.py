"""Time from key press to changed picture: `make bench-explorers`.

Each explorer is compared with the same picture made by `interact` and pyplot. Both stand in one notebook,
in one run, in one browser; presses take turns, so that a busy machine slows both. A picture counts as
changed when the browser has painted the frame that follows the drawing on the canvas, or the decoding of
the new image.
"""

import statistics
import sys

import lab
import nbformat.v4 as nbf
from nbformat import writes

from attention_course.explorers import EXPLORERS

PRESSES = 50
SETTLE = 150  # ms after each press, so that no press waits for the kernel to finish the one before

WITH_INTERACT = """\
from types import SimpleNamespace

from ipywidgets import interact
from matplotlib import pyplot

from attention_course.explorers import EXPLORERS, explore


def with_interact(name):
    module = EXPLORERS[name]

    def show(**values):
        shown = []
        figure = SimpleNamespace(show=lambda *panels, caption: shown.extend(panels))
        module.draw(figure, **module.compute(**values))
        _, axes = pyplot.subplots(1, len(shown), figsize=(3.4 * len(shown), 3.4), squeeze=False)
        for panel, ax in zip(shown, axes[0]):
            panel.plot(ax)
            ax.set_title(panel.title)
        pyplot.show()

    interact(show, **module.controls())
"""

WATCH = """(output) => {
    let resolve;
    let start;
    const painted = () => requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - start)));
    output.addEventListener("keydown", () => { start = performance.now(); }, true);
    new MutationObserver((changes) => {
        for (const change of changes) {
            if (change.attributeName === "data-painted") painted();
            for (const node of change.addedNodes) {
                const image = node.querySelector?.("img") ?? (node.tagName === "IMG" ? node : null);
                if (image) image.decode().then(painted);
            }
        }
    }).observe(output, { subtree: true, childList: true, attributeFilter: ["data-painted"] });
    output.nextChange = () => new Promise((done) => { resolve = done; });
}"""


def measure(page, outputs: list, presses: int = PRESSES) -> list[list[float]]:
    """Press arrow keys on the first slider of each output in turn; return milliseconds per press."""
    away = []
    for output in outputs:
        output.evaluate(WATCH)
        handle = output.locator(".noUi-handle").first
        at_the_end = handle.get_attribute("aria-valuenow") == handle.get_attribute("aria-valuemax")
        away.append(("ArrowLeft", "ArrowRight") if at_the_end else ("ArrowRight", "ArrowLeft"))
    times = [[] for _ in outputs]
    for press in range(presses):
        for output, taken, keys in zip(outputs, times, away, strict=True):
            output.locator(".noUi-handle").first.focus()
            output.evaluate("(output) => { output.change = output.nextChange(); }")
            page.keyboard.press(keys[press % 2])
            taken.append(output.evaluate("(output) => output.change"))
            page.wait_for_timeout(SETTLE)
    return times


def quantile(times: list[float], share: float) -> float:
    """Return the smallest time that `share` of the times do not exceed."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    """Print one line an explorer: median and 95th percentile of both ways, and the ratio of the medians."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    cells = [WITH_INTERACT]
    for name in EXPLORERS:
        cells += [f"explore({name!r})", f"with_interact({name!r})"]
    notebook = nbf.new_notebook(cells=[nbf.new_code_cell(cell) for cell in cells])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    with lab.jupyter_lab({"bench.ipynb": writes(notebook)}) as address, lab.browser_page(chromium) as page:
        lab.open_notebook(page, address, "notebooks/bench.ipynb")
        lab.run_all(page)
        page.wait_for_timeout(2000)
        print(f"{PRESSES} presses each     explorer ms (p95)   interact ms (p95)   ratio")
        for index, name in enumerate(EXPLORERS):
            outputs = [page.locator(".jp-CodeCell").nth(1 + 2 * index + way) for way in (0, 1)]
            ours, theirs = measure(page, outputs)
            ratio = statistics.median(ours) / statistics.median(theirs)
            print(
                f"{name:20} {statistics.median(ours):10.0f} ({quantile(ours, 0.95):3.0f})"
                f" {statistics.median(theirs):12.0f} ({quantile(theirs, 0.95):3.0f}) {ratio:11.2f}"
            )


if __name__ == "__main__":
    main()
