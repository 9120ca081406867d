"""How an explorer answers: from key press to changed picture, and after a held key: `make bench-explorers`.

Each explorer is compared with the same picture made by `interact` and pyplot. Both stand in one notebook of
their own; presses take turns, so that a busy machine slows both. A picture counts as
changed when the browser has painted the frame that follows the drawing on the canvas, or the decoding of
the new image. Keys walk the first slider up and down, so that most values come more than once, as they do
under a hand. The explorers of rung 8 look at a GPT that was trained.
"""

import statistics
import sys

import lab

from attention_course.explorers import EXPLORERS

PRESSES = 50
SETTLE = 150  # ms after each press, so that no press waits for the kernel to finish the one before
HELD, REPEAT = 5000, 33  # ms: for how long a key is held, and how often it then repeats
RUNG_8 = ("sampling", "attention_over_text")  # look at a GPT that was trained
LATEST = 2000  # ms until the last picture has surely come

SET_UP = """\
from types import SimpleNamespace

from ipywidgets import interact
from matplotlib import pyplot

from attention_course.explorers import EXPLORERS, explore

subjects = {}


def ours(name):
    return explore(name, **subjects.get(name, {}))


def with_interact(name):
    module = EXPLORERS[name]
    subject = subjects.get(name, {})

    def show(**values):
        shown = []
        figure = SimpleNamespace(show=lambda *panels, caption: shown.extend(panels))
        module.draw(figure, **module.compute(**values, **subject))
        _, axes = pyplot.subplots(1, len(shown), figsize=(3.4 * len(shown), 3.4), squeeze=False)
        for panel, ax in zip(shown, axes[0]):
            panel.plot(ax)
            ax.set_title(panel.title)
        pyplot.show()

    interact(show, **module.controls(**subject))"""

TRAINED = """\
import torch

from attention_course.gpt import GPT, GPTConfig
from attention_course.text import Data, load_text
from attention_course.training import Recipe, train

text = load_text("stories")
data = Data.of(text)
torch.manual_seed(0)
model = GPT(GPTConfig(data.tokenizer.vocab_size))
_ = train(model, data, Recipe(steps=300))
learnt = {"model": model, "tokenizer": data.tokenizer}
subjects = {
    "sampling": learnt | {"prompt": "\\nKind Ann gave poor "},
    "attention_over_text": learnt | {"text": "\\n" + text.splitlines()[3]},
}"""

WATCH = """(output) => {
    let resolve;
    const painted = () => requestAnimationFrame(() => setTimeout(() => {
        output.paintedAt = performance.now();
        output.pictures += 1;
        resolve?.(output.paintedAt - output.pressedAt);
    }));
    output.pictures = 0;
    output.addEventListener("keydown", () => { output.pressedAt = performance.now(); }, true);
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


class Walk:
    """Walks a slider up and down, a key at a time."""

    def __init__(self, output):
        self.handle = output.locator(".noUi-handle").first
        self.key = "ArrowRight"

    def next_key(self) -> str:
        """Return the key of the next step, turning round at the ends."""
        now, low, high = (self.handle.get_attribute(f"aria-value{which}") for which in ("now", "min", "max"))
        self.key = {low: "ArrowRight", high: "ArrowLeft"}.get(now, self.key)
        return self.key


def press(page, outputs: list, presses: int = PRESSES) -> list[list[float]]:
    """Press arrow keys on the first slider of each output in turn; return milliseconds per press."""
    walks = [Walk(output) for output in outputs]
    times = [[] for _ in outputs]
    for _ in range(presses):
        for output, taken, walk in zip(outputs, times, walks, strict=True):
            key = walk.next_key()
            walk.handle.focus()
            output.evaluate("(output) => { output.change = output.nextChange(); }")
            page.keyboard.press(key)
            taken.append(output.evaluate("(output) => output.change"))
            page.wait_for_timeout(SETTLE)
    return times


def hold(page, output) -> tuple[float, float]:
    """Hold a key on the first slider; return pictures a second, and ms from its last repeat to the last."""
    walk = Walk(output)
    walk.handle.focus()
    output.evaluate("(output) => { output.pictures = 0; }")
    for _ in range(HELD // REPEAT):
        key = walk.next_key()
        page.keyboard.down(key)
        page.wait_for_timeout(REPEAT - 8)  # what a look at the slider and a key take
    page.keyboard.up(key)
    pictures = output.evaluate("(output) => output.pictures")
    page.wait_for_timeout(LATEST)
    return pictures / (HELD / 1000), output.evaluate("(output) => output.paintedAt - output.pressedAt")


def quantile(times: list[float], share: float) -> float:
    """Return the smallest time that `share` of the times do not exceed."""
    return sorted(times)[min(len(times) - 1, int(share * len(times)))]


def main() -> None:
    """Print one line an explorer: both ways with median and 95th percentile, their ratio, and a held key."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    notebooks = {
        f"{name}.ipynb": lab.notebook_of(
            [SET_UP, *[TRAINED] * (name in RUNG_8), f"ours({name!r})", f"with_interact({name!r})"]
        )
        for name in EXPLORERS
    }
    print(f"{PRESSES} presses each     explorer ms (p95)   interact ms (p95)   ratio   held: a second, last")
    with lab.jupyter_lab(notebooks) as address, lab.browser_page(chromium) as page:
        for name in EXPLORERS:
            lab.open_notebook(page, address, f"notebooks/{name}.ipynb")
            lab.run_all(page, timeout=400_000)
            page.wait_for_timeout(2000)
            outputs = page.locator(".jp-CodeCell").all()[-2:]
            for output in outputs:
                output.evaluate(WATCH)
            ours, theirs = press(page, outputs)
            ratio = statistics.median(ours) / statistics.median(theirs)
            pictures, last = hold(page, outputs[0])
            print(
                f"{name:20} {statistics.median(ours):10.0f} ({quantile(ours, 0.95):3.0f})"
                f" {statistics.median(theirs):12.0f} ({quantile(theirs, 0.95):3.0f}) {ratio:11.2f}"
                f" {pictures:15.0f} {last:12.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
