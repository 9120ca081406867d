"""A GPT that trains in a page: its steps are PyTorch's, and the button of rung 8 starts and stops it."""

import os
from dataclasses import replace

import pytest
import torch
import torch.nn.functional as F
from playwright.sync_api import expect
from website import training
from website.judge import NPM, registry

from attention_course.gpt import GPT, GPTConfig
from attention_course.training import Recipe, parameter_groups

LONG = 180_000  # milliseconds until a step is done, on a machine that does much else
LOSSES = """async ([config, recipe, state, batches]) => {
    const { trainer } = await import("./train/train.js");
    const { step } = await trainer(config, recipe, state);
    return batches.map(([x, y]) => step(x, y));
}"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory, serve):
    """Serve the files of the training, beside an empty page; return its address."""
    if not (files := training.files()):
        reason = "There is no training in the page: jax-js could not be fetched."
        if os.environ.get("CI") and registry() != NPM:
            pytest.fail(f"{reason} In CI no test of it may be skipped.")
        pytest.skip(reason)
    made = tmp_path_factory.mktemp("training")
    for path, content in (files | {"index.html": b"<!doctype html><title>Training</title>"}).items():
        (made / path).parent.mkdir(parents=True, exist_ok=True)
        (made / path).write_bytes(content)
    return serve(made)


def losses(model, recipe, batches):
    """Train as the loop of rung 8 does; return the loss of each step."""
    optimizer = torch.optim.AdamW(parameter_groups(model, recipe.weight_decay), betas=(0.9, recipe.beta2))
    found = []
    for step, (x, y) in enumerate(batches):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate_at(step)
        loss = F.cross_entropy(model(x).flatten(0, 1), y.flatten())
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), recipe.clip)
        optimizer.step()
        found.append(loss.item())
    return found


@pytest.fixture
def page(chromium, folder):
    page = chromium.new_page()
    page.goto(f"{folder}/index.html")
    yield page
    page.close()


def test_steps_are_those_of_pytorch(page):
    torch.manual_seed(0)
    model = GPT(GPTConfig(7, 6, n_layer=2, n_head=2, n_embd=8))
    recipe = Recipe(steps=6, batch_size=3, learning_rate=0.05, warmup=2, weight_decay=0.5)
    parameters = model.named_parameters()
    given = {name: {"data": one.flatten().tolist(), "shape": list(one.shape)} for name, one in parameters}
    batches = torch.randint(7, (5, 2, 3, 6))
    python = torch.tensor(losses(model, recipe, batches))

    def in_page(recipe):
        sent = [vars(model.config), vars(recipe), given, batches.flatten(2).tolist()]
        return torch.tensor(page.evaluate(LOSSES, sent))

    torch.testing.assert_close(in_page(recipe), python, rtol=0, atol=1e-3)
    others = {"learning_rate": 0.055, "weight_decay": 0.0, "clip": 9.0, "warmup": 3, "steps": 9}
    for name, value in others.items():
        off = in_page(replace(recipe, **{name: value})) - python
        assert off.abs().max() > 2e-3, name


def test_the_button_trains_and_stops(visit, folder):
    page = visit("08_bigram_to_gpt/")
    page.locator("[data-question=how_it_learns_to_answer] .attention-corner").click()
    place = page.locator(".trainer")
    loaded = page.evaluate("() => performance.getEntriesByType('resource').map(({ name }) => name)")
    assert loaded
    assert not any("/train/" in name for name in loaded)
    place.get_by_role("button", name="Train it here").click()
    expect(place.locator("canvas")).to_be_visible(timeout=LONG)
    expect(place.locator("pre")).to_contain_text("step  50  Poor ", timeout=LONG)
    place.get_by_role("button", name="Stop").click()
    expect(place.locator(".state")).to_have_text("Stopped.")
    stood = place.locator("progress").evaluate("(bar) => bar.value")
    assert 50 <= stood < training.RECIPE.steps
    used = "async () => Object.keys((await import('../static/explorer.js')).models)"
    assert page.evaluate(used) == ["gpt.safetensors"], "the explorers below show this one"
