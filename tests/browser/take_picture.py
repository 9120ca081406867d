"""Take the pictures in README.md: `make picture`. A GPT in training; the explorer of rung 2 at decay 0.6."""

import sys

import lab
from nbformat import v4 as nbf
from nbformat import writes

IMAGES = lab.ROOT / "notebooks" / "images"
EXPLORER = 'from attention_course.explorers import explore\n\nexplore("tril_matmul")'
TRAINING = """\
import torch
from IPython.display import display

from attention_course.explorers import LiveTraining
from attention_course.gpt import GPT, GPTConfig
from attention_course.text import Data, load_text, ngram_floor, stories_entropy
from attention_course.training import Recipe, train

text = load_text("stories")
data = Data.of(text)
floors = {f"{n}-gram": ngram_floor(data.val, n) for n in (1, 2, 3)} | {"entropy": stories_entropy(text)}
torch.manual_seed(0)
watch = LiveTraining(data.tokenizer, floors)
display(watch)
_ = train(GPT(GPTConfig(data.tokenizer.vocab_size)), data, Recipe(steps=700), watch=watch)"""


def main() -> None:
    """Run both in JupyterLab, move the slider, and save what a learner sees."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    notebook = nbf.new_notebook(cells=[nbf.new_code_cell(cell) for cell in (EXPLORER, TRAINING)])
    notebook.metadata.kernelspec = {"name": "python3", "display_name": "Python 3"}
    IMAGES.mkdir(exist_ok=True)
    with (
        lab.jupyter_lab({"picture.ipynb": writes(notebook)}) as address,
        lab.browser_page(chromium, density=2) as page,
    ):
        lab.open_notebook(page, address, "notebooks/picture.ipynb")
        lab.run_all(page, timeout=400_000)
        explorer = page.locator(".attention-explorer")
        explorer.locator(".noUi-handle").nth(1).focus()
        for _ in range(8):
            page.keyboard.press("ArrowLeft")
            page.wait_for_timeout(100)
        page.evaluate("document.activeElement.blur()")
        page.screenshot(path=IMAGES / "explorer.png", clip=explorer.bounding_box() | {"width": 620})
        training = page.locator(".attention-live-training")
        training.scroll_into_view_if_needed()
        page.wait_for_timeout(500)
        page.screenshot(path=IMAGES / "training.png", clip=training.bounding_box() | {"width": 840})


if __name__ == "__main__":
    main()
