"""Latency of explorers, from key press to redrawn figure, and with a key held down: `make bench-explorers`.

Each explorer is compared with the same tensors drawn by `interact` and pyplot, and with a lower bound: a
slider whose value the kernel sends back as one number. All three are in one notebook, and presses alternate,
so that other load affects all. A figure counts as redrawn when the browser has painted the frame after
drawing on the canvas, or after decoding the new image. Keys move the first slider up and down, so most values
occur more than once, as with a real user; first occurrences, which need the kernel, are also reported
separately. A model that an explorer shows is trained before; that of "heads" is SmolLM2.
"""

import statistics
import sys
from inspect import signature

import lab

from attention_course.explorers import EXPLORERS

PRESSES = 50
SETTLE = 150  # ms after each press, so that the kernel is idle at the next one
HELD, REPEAT = 5000, 33  # ms: duration of a held key, and its repeat interval
LATEST = 2000  # ms after which the last figure is certainly drawn

SET_UP = '''\
from types import SimpleNamespace

import anywidget
import traitlets
from ipywidgets import IntSlider, VBox, interact
from matplotlib import pyplot

from attention_course.explorers import EXPLORERS, explore

subjects = {}


plots = {
    "Heatmap": lambda axes, panel: axes.imshow(panel.values),
    "Bars": lambda axes, panel: axes.bar(range(len(panel.heights)), panel.heights.nan_to_num(neginf=0)),
    "Comparison": lambda axes, panel: axes.barh(range(len(panel.values)), panel.values[:, 0]),
    "Histogram": lambda axes, panel: axes.stairs(panel.density, fill=True),
    "Scatter": lambda axes, panel: axes.scatter(*panel.points.T),
    "Arrows": lambda axes, panel: axes.quiver(*(0 * panel.arrows[:, 0]).T, *panel.arrows[:, 0].T),
    "Lines": lambda axes, panel: [axes.plot(panel.x, curve) for curve in panel.curves.values()],
    "Text": lambda axes, panel: axes.text(0, 0, "".join(panel.text), parse_math=False),
}


def ours(name):
    return explore(name, **subjects.get(name, {}))


def with_interact(name):
    module = EXPLORERS[name]
    subject = subjects.get(name, {})

    def show(**values):
        shown = []
        figure = SimpleNamespace(show=lambda *panels, caption: shown.extend(panels))
        module.draw(figure, **module.compute(**subject | values))
        _, axes = pyplot.subplots(1, len(shown), figsize=(3.4 * len(shown), 3.4), squeeze=False)
        for panel, ax in zip(shown, axes[0]):
            plots[type(panel).__name__](ax, panel)
            ax.set_title(panel.title)
        pyplot.show()

    interact(show, **module.controls(**subject))


class Number(anywidget.AnyWidget):
    _esm = """
    export default { render({ model, el }) {
        const show = () => { el.textContent = el.dataset.painted = model.get("value"); };
        show();
        model.on("change", show);
    } };
    """
    value = traitlets.Int().tag(sync=True)


def least():
    slider, number = IntSlider(50, 0, 100), Number()
    slider.observe(lambda change: number.set_trait("value", change.new), "value")
    return VBox([slider, number])'''

TRAINED = """\
import torch

from attention_course.gpt import GPT, GPTConfig
from attention_course.text import Corpus, load_text
from attention_course.training import Recipe, train

text = load_text("stories")
data = Corpus.of(text)
torch.manual_seed(0)
model = GPT(GPTConfig(data.tokenizer.vocab_size))
_ = train(model, data, Recipe(steps=300))
learnt = {"model": model, "tokenizer": data.tokenizer}
subjects = {
    "sampling": learnt | {"prompt": "\\nKind Ann gave poor "},
    "attention_over_text": learnt | {"text": "\\n" + text.splitlines()[3]},
}"""
SMOLLM = """\
from attention_course.smollm import load_smollm

model, tokenizer = load_smollm()
text = "Tom found the key at the mill. Where did Tom find the key? At the"
subjects = {"heads": {"model": model, "tokenizer": tokenizer, "text": text}}"""

WATCH = """(output) => {
    let resolve;
    const painted = () => requestAnimationFrame(() => setTimeout(() => {
        output.paintedAt = performance.now();
        const label = output.querySelector("[role=group]")?.getAttribute("aria-label");
        output.pictures += label !== output.label;
        output.label = label;
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
    """Moves a slider up and down, one key press at a time.

    Attributes:
        seen: values so far.
    """

    def __init__(self, output):
        self.handle = output.locator(".noUi-handle").first
        self.key = "ArrowRight"
        self.seen = {self.value()}

    def value(self, which: str = "now") -> str:
        """Return the value of the slider, or its "min" or "max"."""
        return self.handle.get_attribute(f"aria-value{which}")

    def next_key(self) -> str:
        """Return the key of the next step, reversing at the ends."""
        self.key = {self.value("min"): "ArrowRight", self.value("max"): "ArrowLeft"}.get(
            self.value(), self.key
        )
        return self.key

    def is_new(self) -> bool:
        """Return whether the slider's value is new, and record it."""
        new = self.value() not in self.seen
        self.seen.add(self.value())
        return new


def press(page, outputs: list) -> list[list[tuple[float, bool]]]:
    """Press arrow keys on the first slider of each output in turn; return ms and newness of each press."""
    walks = [Walk(output) for output in outputs]
    times = [[] for _ in outputs]
    for _ in range(PRESSES):
        for output, taken, walk in zip(outputs, times, walks, strict=True):
            key = walk.next_key()
            walk.handle.focus()
            output.evaluate("(output) => { output.change = output.nextChange(); }")
            page.keyboard.press(key)
            taken.append((output.evaluate("(output) => output.change"), walk.is_new()))
            page.wait_for_timeout(SETTLE)
    return times


def hold(page, output) -> tuple[float, float]:
    """Hold a key on the first slider; return figures per second, and ms until the last figure."""
    walk = Walk(output)
    walk.handle.focus()
    output.evaluate("(output) => { output.pictures = 0; }")
    for _ in range(HELD // REPEAT):
        key = walk.next_key()
        page.keyboard.down(key)
        page.wait_for_timeout(REPEAT - 8)  # reading the slider and pressing a key take about 8 ms
    page.keyboard.up(key)
    pictures = output.evaluate("(output) => output.pictures")
    page.wait_for_timeout(LATEST)
    return pictures / (HELD / 1000), output.evaluate("(output) => output.paintedAt - output.pressedAt")


def summary(times: list[float]) -> str:
    """Format median and 95th percentile; `-` if there are no times."""
    if not times:
        return "-"
    return f"{statistics.median(times):.0f} ({sorted(times)[int(0.95 * len(times))]:.0f})"


def cells_of(name: str) -> list[str]:
    """Return the cells that show an explorer in three ways, after its model was trained or loaded."""
    looks_at_model = "model" in signature(EXPLORERS[name].controls).parameters
    subject = [SMOLLM if name == "heads" else TRAINED] if looks_at_model else []
    return [SET_UP, *subject, f"ours({name!r})", f"with_interact({name!r})", "least()"]


def main() -> None:
    """Print one line per explorer: medians with 95th percentiles of all three, and a held key."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    names = sys.argv[1:] or list(EXPLORERS)
    notebooks = {f"{name}.ipynb": lab.notebook_of(cells_of(name)) for name in names}
    columns = ("explorer", "first time", "interact", "ratio", "least", "a second", "last")
    print(f"ms (p95), {PRESSES} presses".ljust(22) + "".join(f"{column:>12}" for column in columns))
    with lab.jupyter_lab(notebooks) as address, lab.browser_page(chromium) as page:
        for name in names:
            lab.open_notebook(page, address, f"notebooks/{name}.ipynb")
            lab.run_all(page, timeout=400_000)
            page.wait_for_timeout(2000)
            outputs = page.locator(".jp-CodeCell").all()[-3:]
            for output in outputs:
                output.evaluate(WATCH)
            pressed = press(page, outputs)
            ours, theirs, least = ([time for time, _ in times] for times in pressed)
            pictures, last = hold(page, outputs[0])
            cells = (
                summary(ours),
                summary([time for time, new in pressed[0] if new]),
                summary(theirs),
                f"{statistics.median(ours) / statistics.median(theirs):.2f}",
                summary(least),
                f"{pictures:.0f}",
                f"{last:.0f}",
            )
            print(name.ljust(22) + "".join(f"{cell:>12}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
