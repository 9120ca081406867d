"""Take a screenshot of each explorer, and of live training, for README.md and slides: `make gallery`."""

import sys

import lab

from attention_course.explorers import EXPLORERS

IMAGES = lab.ROOT / "notebooks" / "images"
TRAINING = """\
import torch
from IPython.display import display

from attention_course.explorers import LiveTraining, explore
from attention_course.gpt import GPT, GPTConfig
from attention_course.smollm import load_smollm
from attention_course.stories import stories_entropy
from attention_course.text import Corpus, conditional_entropy, load_text
from attention_course.training import Recipe, train

text = load_text("stories")
data = Corpus.of(text)
floors = {f"{n}-gram": conditional_entropy(data.val, n) for n in (1, 2, 3)}
floors["entropy"] = stories_entropy(text)
torch.manual_seed(0)
model = GPT(GPTConfig(data.tokenizer.vocab_size))
live = LiveTraining(data.tokenizer, floors)
display(live)
_ = train(model, data, Recipe(steps=700), callback=live)
smollm, smollm_tokenizer = load_smollm()"""

LEARNT = "model=model, tokenizer=data.tokenizer, "
# Their subjects. Settings of the controls, where the defaults show less, are SETTINGS of an explorer.
SUBJECTS = {
    "sampling": LEARNT + 'prompt="\\nKind Ann gave poor "',
    "attention_over_text": LEARNT + 'text="\\n" + text.splitlines()[3]',
    "heads": "model=smollm, tokenizer=smollm_tokenizer, "
    'text="Tom found the key at the mill. Where did Tom find the key? At the"',
}


def explorer_cell(name: str) -> str:
    """Return the code that shows an explorer with its settings."""
    values = getattr(EXPLORERS[name], "SETTINGS", {})
    moves = [f"explorer.controls[{key!r}].value = {value!r}" for key, value in values.items()]
    return "\n".join([f"explorer = explore({name!r}, {SUBJECTS.get(name, '')})", *moves, "explorer"])


def main() -> None:
    """Run all explorers in JupyterLab, and save the screenshots."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    IMAGES.mkdir(exist_ok=True)
    notebook = lab.notebook_of([TRAINING, *map(explorer_cell, EXPLORERS)])
    with (
        lab.jupyter_lab({"gallery.ipynb": notebook}) as address,
        lab.browser_page(chromium, density=2) as page,
    ):
        lab.open_notebook(page, address, "notebooks/gallery.ipynb")
        lab.run_all(page, timeout=400_000)
        shown = [page.locator(".attention-live-training"), *page.locator(".attention-explorer").all()]
        for name, widget in zip(["training", *EXPLORERS], shown, strict=True):
            widget.scroll_into_view_if_needed()
            page.wait_for_timeout(300)
            area = widget.bounding_box()
            around = {"x": area["x"] - 3, "width": area["width"] + 6}
            page.screenshot(path=IMAGES / f"{name}.png", clip=area | around)


if __name__ == "__main__":
    main()
