"""The explorers of the site, without a kernel: figure.js is given what Python shows, for any setting."""

import json
import random
import shutil
from itertools import product

import numpy as np
import pytest
from playwright.sync_api import expect
from website import explorers

from attention_course.explorers import EXPLORERS, explore

RANDOM = 400  # settings of an explorer that has more
SHADE = 0.5001 * 10**-explorers.SHADES  # how far one may be off
STATIC = explorers.Path(explorers.__file__).parent / "static"
ALERT = "[role=alert]:not(:empty)"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Explorers</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="explorers/figure.css"><link rel="stylesheet" href="static/explorer.css">
<body data-jp-theme-light="true">{}<script type="module" src="static/explorer.js"></script>"""
PICTURES = """async ([name, data, settings]) => {
    const { load, pictureOf } = await import("./static/explorer.js");
    const loaded = await load(data);
    const pictures = settings.map(([setting, dragged]) => pictureOf(loaded, setting, dragged));
    return JSON.stringify(pictures, (_, value) => (Math.abs(value) === Infinity ? String(value) : value));
}"""


@pytest.fixture(scope="module")
def site(tmp_path_factory, pictures_of_explorers, serve):
    """Write a page with all explorers, and one for each; return the folder and its address."""
    folder = tmp_path_factory.mktemp("site")
    explorers.write(folder / "explorers")
    shutil.copytree(STATIC, folder / "static")
    markups = {name: explorers.markup(name) for name in EXPLORERS}
    for name, markup in (markups | {"index": "".join(markups.values())}).items():
        (folder / f"{name}.html").write_text(PAGE.format(markup), encoding="utf-8")
    return folder, serve(folder)


@pytest.fixture
def page(chromium, site):
    """Open an empty page of the site, on which nothing may fail unseen."""
    page = chromium.new_page(viewport={"width": 1000, "height": 800})
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.errors = errors
    page.open = lambda name: page.goto(f"{site[1]}/{name}.html")
    yield page
    page.close()
    assert not errors


def shown(explorer, setting):
    """Return the states of the panels and the caption, as Python shows them."""
    for key, value in setting.items():
        explorer.controls[key].value = value
    return [panel.state() for panel in explorer.figure.panels], explorer.figure.caption


def alike(page, python, tolerance):
    """Compare the state of a panel in the page, or a part of it, with Python's."""
    if isinstance(python, bytes):
        numbers = np.array([float(value) for value in page], dtype=np.float32)
        np.testing.assert_allclose(numbers, np.frombuffer(python, np.float32), rtol=0, atol=tolerance)
    elif isinstance(python, dict):
        assert page.keys() == python.keys()
        for key in python:
            alike(page[key], python[key], tolerance)
    elif isinstance(python, list | tuple):
        assert len(page) == len(python)
        for one, other in zip(page, python, strict=True):
            alike(one, other, tolerance)
    else:
        assert page == python


def compare(page, name, explorer, count=RANDOM, data=None):
    """Compare what the page shows with what Python does, for all settings, or for `count` of them."""
    page.open(name)
    page.wait_for_selector("[data-painted]")
    values = explorers.site_values(name, explorer)
    dragged = [key for panel in explorer.figure.panels for key in getattr(panel, "controls", ())]
    keys = [key for key in values if key not in dragged]
    settings = list(product(*(range(len(values[key])) for key in keys)))
    rng = random.Random(0)
    if len(settings) > count or dragged:
        settings = rng.choices(settings, k=count)
    wanted = [(setting, {key: rng.choice(values[key]) for key in dragged}) for setting in settings]
    pictures = json.loads(page.evaluate(PICTURES, [name, data or name, wanted]))
    for drawn, (setting, scores) in zip(pictures, wanted, strict=True):
        chosen = {key: values[key][at] for key, at in zip(keys, setting, strict=True)}
        explorer.draw(explorer.figure, **explorer.compute(**chosen, **scores))
        assert drawn["caption"] == explorer.figure.caption
        for one, panel in zip(drawn["panels"], explorer.figure.panels, strict=True):
            computed = 1e-6 if dragged or explorers.of_a_model(name) else 0
            alike(one, panel.state(), SHADE if one["kind"] == "Text" else computed)


COMPLETE = [name for name in EXPLORERS if not explorers.of_a_model(name)]


@pytest.mark.parametrize("name", COMPLETE)
def test_the_page_shows_what_python_shows(name, page):
    compare(page, name, explore(name))


@pytest.mark.parametrize("name", ["sampling", "attention_over_text"])
def test_the_page_shows_what_python_shows_of_a_model(name, page, site, short_samples):
    """Here of the untrained one: the one in the notebook is not kept."""
    explorer = explore(name)
    pictures = explorers.text_of(explorers.pictures(name, explorer))
    (site[0] / "explorers" / f"{name}.untrained.json").write_text(pictures, encoding="utf-8")
    compare(page, name, explorer, count=200, data=f"{name}.untrained")


def test_the_page_shows_what_python_shows_of_the_real_model(page, smollm):
    model, tokenizer = smollm
    text = EXPLORERS["heads"].SITE_VALUES["text"][0]
    compare(page, "heads", explore("heads", model=model, tokenizer=tokenizer, text=text), count=40)


def live(page, name):
    """Open the page of an explorer and return where it is, once it is alive."""
    page.open(name)
    page.wait_for_selector("[data-painted]")
    return page.locator(".explorer")


def expect_alike(explorer, python, setting):
    """Expect the caption that Python writes after these values were set."""
    expect(explorer.locator(".attention-caption")).to_have_text(shown(python, setting)[1])


@pytest.mark.parametrize("name", COMPLETE)
def test_keys_and_mouse_reach_all_values_of_each_control(name, page):
    """Of a slider the last but one as well as both ends."""
    explorer, python = live(page, name), explore(name)
    values = explorers.site_values(name, python)
    for control in json.loads(explorers.load(name))["controls"]:
        key, labels = control["name"], control["labels"]
        handle, those = explorer.locator(f"[name={key}]"), values[key]
        if control["kind"] == "checkbox":
            handle.press("Space")
            expect_alike(explorer, python, {key: not python.controls[key].value})
        elif control["kind"] == "select":
            for label, value in zip(labels, those, strict=True):
                handle.select_option(label)
                expect_alike(explorer, python, {key: value})
        else:
            for press, end in {"Home": 0, "End": -1, "ArrowLeft": -2}.items():
                handle.press(press)
                expect_alike(explorer, python, {key: those[end]})
                expect(handle).to_have_attribute("aria-valuetext", labels[end])
                expect(explorer.locator(f"output[for={name}-{key}]")).to_have_text(labels[end])
            box = handle.bounding_box()
            for across, end in ((1, 0), (box["width"] - 1, -1)):
                page.mouse.click(box["x"] + across, box["y"] + box["height"] / 2)
                expect_alike(explorer, python, {key: those[end]})


def test_scores_are_dragged_by_their_bars_with_mouse_and_keys(page):
    explorer = live(page, "masked_softmax")
    canvas = explorer.locator("canvas").first
    box = canvas.bounding_box()
    page.mouse.move(box["x"] + 30, box["y"] + 60)
    page.mouse.down()
    page.mouse.move(box["x"] + 30, box["y"] + 5, steps=5)
    page.mouse.up()
    python = explore("masked_softmax")
    expect_alike(explorer, python, {"score_0": 5.0})
    canvas.focus()
    page.mouse.move(0, 0)
    page.keyboard.press("Escape")
    canvas.press("ArrowDown")
    expect_alike(explorer, python, {"score_0": 4.9})


def test_a_file_that_does_not_come_is_told_and_the_still_picture_stays(page):
    page.route("**/tril_matmul.json", lambda route: route.fulfill(status=404))
    page.open("tril_matmul")
    expect(page.locator(ALERT)).to_contain_text("could not be loaded: 404 ")
    assert page.locator(".explorer img").count() == 3
    assert page.get_by_label("decay per step").is_disabled()


def test_a_broken_picture_says_so_and_the_next_one_is_drawn(page):
    data = json.loads(explorers.load("tril_matmul"))
    broken = data["panels"][0]["values"]
    others = len(broken["at"]) // len(
        data["controls"][0]["labels"]
    )  # for each decay, the first of these is broken
    broken["at"] = [at if setting % others else -1 for setting, at in enumerate(broken["at"])]
    page.route("**/tril_matmul.json", lambda route: route.fulfill(json=data))
    explorer = live(page, "tril_matmul")
    window = explorer.get_by_label("letters in the window")
    window.press("Home")
    expect(page.locator(ALERT)).to_contain_text("This could not be drawn. TypeError: ")
    window.press("ArrowRight")
    expect(page.locator(ALERT)).to_have_count(0)
    expect_alike(explorer, explore("tril_matmul"), {"window": "4"})


@pytest.mark.parametrize(("chromium", "width"), [(0.85, 1000), (1.15, 360)], indirect=["chromium"])
def test_nothing_moves_when_an_explorer_comes_alive(width, page):
    """Whatever fonts the reader has."""
    page.set_viewport_size({"width": width, "height": 800})
    parts = ".explorer, .attention-panels > div, .attention-readout, .attention-caption"
    places = f"""() => [...document.querySelectorAll("{parts}")].map((part) =>
        ["Left", "Top", "Width", "Height"].map((side) => part[`offset${{side}}`])
    )"""
    page.route("**/explorer.js", lambda route: route.abort())
    page.open("index")
    before = page.evaluate(places)
    page.unroute("**/explorer.js")
    page.open("index")
    for explorer in page.locator(".explorer").all():
        explorer.scroll_into_view_if_needed()
        explorer.locator("[data-painted]").wait_for()
    assert page.evaluate(places) == before
    assert page.evaluate("document.documentElement.scrollWidth") == width


def test_an_explorer_far_below_is_not_loaded_before_it_comes_near(page):
    asked = []
    page.on("request", lambda request: asked.append(request.url.rpartition("/")[2]))
    page.open("index")
    page.wait_for_selector("[data-painted]")
    page.wait_for_load_state("networkidle")
    last = list(EXPLORERS)[-1]
    assert f"{last}.json" not in asked
    page.locator(".explorer").last.scroll_into_view_if_needed()
    page.locator(".explorer").last.locator("[data-painted]").wait_for()
    assert f"{last}.json" in asked
