"""A GPT that trains in the page of rung 8, with jax-js, of npm: nothing of it is loaded before a press.

Where jax-js cannot be fetched the site is built without the button.
"""

import math
from dataclasses import replace

import torch

from attention_course.gpt import GPT, GPTConfig
from attention_course.plots import Lines
from attention_course.stories import stories_entropy, write_stories
from attention_course.text import Corpus, conditional_entropy, get_batch
from attention_course.training import MODEL_CONFIGS, RECIPES
from website import explorers
from website.judge import HERE, package

CELL = "your_loop"  # the button stands below the cell of rung 8 with this name
VERSION = "0.1.25"  # of jax-js
INTEGRITY = (
    "g6PxWa6ZLjeQdDAM0ImBSqpdYnC6InCUTCCbMLxhMHMsMNu+JbHRjIQZ/anjBcP69of6hiqfGmTl+3gBn1qu/A=="  # sha512
)
TAKEN = ("LICENSE", "dist/index.js", "dist/backend-CnjgxpXq.js", "dist/rolldown-runtime-D7D4PA-g.js")
RECIPE = replace(RECIPES["stories"], steps=400)  # as in that cell
ASKED = "\nKind Ben gave poor Sam a drum at the farm. Who got it? Poor "


def first(config: GPTConfig) -> dict[str, dict]:
    """Return the parameters with which the loop of rung 8 begins, in four digits."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        named = list(GPT(config).named_parameters())
    few = {name: [float(f"{value:.4g}") for value in one.flatten().tolist()] for name, one in named}
    return {name: {"shape": list(one.shape), "data": few[name]} for name, one in named}


def given() -> dict:
    """Return what a page needs: text, sizes, recipe, parameters and batches of rung 8, and the floors."""
    text = write_stories()
    data = Corpus.of(text)
    floors = {f"{n}-gram": conditional_entropy(data.val, n) for n in (1, 2, 3)}
    floors["entropy"] = stories_entropy(text[: text.rindex("\n") + 1])
    V, steps = data.tokenizer.vocab_size, RECIPE.steps
    config = GPTConfig(V, **MODEL_CONFIGS["stories"])
    generator = torch.Generator().manual_seed(0)
    places = torch.arange(len(data.train))  # the ids of this text are their own places
    batches = [get_batch(places, config.block_size, RECIPE.batch_size, generator) for _ in range(steps)]
    highest = torch.full((2,), math.log(V) + 1)  # of the curve, which the page draws
    ends = torch.tensor([1, steps])
    panel = Lines("Loss", ends, {"loss": highest}, "step", "nats per character", levels=floors)
    return {
        "text": data.tokenizer.decode(data.train),
        "characters": data.tokenizer.characters,
        "config": vars(config),
        "recipe": vars(RECIPE),
        "parameters": first(config),
        "starts": [x[:, 0].tolist() for x, _ in batches],
        "asked": ASKED,
        "model": explorers.MODEL,
        "panel": explorers.plain(panel.state()),
    }


def files() -> dict[str, bytes]:
    """Return the files of the training, by their paths in the site; none if jax-js cannot be had."""
    if not (found := package("@jax-js/jax", VERSION, INTEGRITY, TAKEN, "training in the page")):
        return {}
    made = {f"train/jax/{name.removeprefix('dist/')}": content for name, content in found.items()}
    made["train/train.js"] = (HERE / "train.js").read_bytes()
    return made | {"train/given.json": explorers.text_of(given()).encode()}


def markup(size: int) -> str:
    """Return the HTML of the button, given how many bytes it loads."""
    return (
        '<div class="trainer"><p class="solve">'
        '<button type="button" class="check" disabled>Train it here</button> '
        f'<progress max="{RECIPE.steps}" value="0" aria-label="Steps of the training"></progress> '
        '<span role="status" class="state"></span></p>'
        '<p class="note">The loop above, in your browser, from the same parameters, with the same batches. '
        f"It loads {size / 1e6:.1f} MB, nothing before you press. jax-js computes the gradients.</p>"
        '<div class="figure"></div><pre class="text" hidden></pre></div>'
        '<script type="module" src="../static/trainer.js"></script>'
    )
