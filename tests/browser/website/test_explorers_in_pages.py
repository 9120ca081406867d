"""The explorers of the site, without a kernel: figure.js is given what Python shows, for any setting."""

import json
import random
import re
import shutil
from itertools import product

import numpy as np
import pytest
from playwright.sync_api import expect
from safetensors import safe_open
from safetensors.torch import load_file
from website import explorers

from attention_course.explorers import EXPLORERS, explore
from attention_course.gpt import GPT, GPTConfig, generate
from attention_course.plots import Text
from attention_course.stories import write_stories
from attention_course.text import CharTokenizer

RANDOM = 400  # settings of an explorer that has more
SHADE = 0.5001 * 10**-explorers.SHADES  # how far one may be off
STATIC = explorers.Path(explorers.__file__).parent / "static"
ALERT = "[role=alert]:not(:empty)"
PAGE = """<!doctype html><html lang="en"><meta charset="utf-8"><title>Explorers</title>
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="stylesheet" href="explorers/figure.css"><link rel="stylesheet" href="static/explorer.css">
<body data-jp-theme-light="true">{}<script type="module" src="static/explorer.js"></script>"""
LOGITS = """async ([name, texts]) => {
    const model = await (await import("./static/explorer.js")).modelAt(name);
    return texts.map((text) => model.read(model.encode(text)).logits.map((row) => [...row]));
}"""
PICTURES = """async ([data, settings]) => {
    const { load, modelAt, pictureOf } = await import("./static/explorer.js");
    const loaded = await load(data);
    const model = loaded.model && (await modelAt(loaded.model));
    const draw = ([setting, dragged, text]) => pictureOf(loaded, setting, dragged, model, text);
    const pictures = settings.map(draw);
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


def compare(page, name, explorer, count=RANDOM):
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
    pictures = json.loads(page.evaluate(PICTURES, [name, wanted]))
    for drawn, (setting, scores) in zip(pictures, wanted, strict=True):
        chosen = {key: values[key][at] for key, at in zip(keys, setting, strict=True)}
        explorer.draw(explorer.figure, **explorer.compute(**chosen, **scores))
        if explorers.of_a_model(name):  # processors round otherwise
            alike_in_words(drawn["caption"], explorer.figure.caption)
        else:
            assert drawn["caption"] == explorer.figure.caption
        for one, panel in zip(drawn["panels"], explorer.figure.panels, strict=True):
            computed = 1e-5 if explorers.of_a_model(name) else 1e-6 if dragged else 0
            alike(one, panel.state(), SHADE if one["kind"] == "Text" else computed)


COMPLETE = [name for name in EXPLORERS if not explorers.of_a_model(name)]


@pytest.mark.parametrize("name", COMPLETE)
def test_the_page_shows_what_python_shows(name, page):
    compare(page, name, explore(name))


@pytest.fixture(scope="module")
def trained():
    """Return the model that runs in the page, in Python, with its tokenizer."""
    path = explorers.DUMPED / explorers.MODEL
    state = {key: value.float() for key, value in load_file(path).items()}
    with safe_open(path, "pt") as file:
        about = json.loads(file.metadata()["gpt"])
    model = GPT(GPTConfig(**about["config"])).eval()
    model.load_state_dict(state | {"lm_head.weight": state["transformer.wte.weight"]})
    return model, CharTokenizer(about["characters"])


def test_logits_in_the_page_are_those_of_python(page, trained):
    """On stories that it has not read, and on text that is none: at each position."""
    model, tokenizer = trained
    story = write_stories(seed=5, characters=1000)
    texts = [story[:128], story[300:428], tokenizer.characters[::-1], "\n", "Who " * 32]
    page.open("sampling")
    found = page.evaluate(LOGITS, [explorers.MODEL, texts])
    for text, logits in zip(texts, found, strict=True):
        expected = model(tokenizer.encode(text)[None])[0]
        np.testing.assert_allclose(logits, expected.detach(), rtol=0, atol=1e-3)


def alike_in_words(page, python):
    """Compare captions, whose last digits a rounding may move."""
    one, other = (re.split(r"(\d+(?:\.\d+)?)", caption) for caption in (page, python))
    assert one[::2] == other[::2]
    for found, expected in zip(one[1::2], other[1::2], strict=True):
        assert float(found) == pytest.approx(
            float(expected), abs=1.01 * 10 ** -len(expected.partition(".")[2])
        )


@pytest.mark.parametrize(
    "text", ["", "Sam", "Kind Eve gave poor Kim a book at the pond. What? A book. Who got it? Poor "]
)
@pytest.mark.parametrize("name", ["sampling", "attention_over_text"])
def test_the_page_shows_what_python_shows_of_a_text(name, text, page, trained):
    """But for a sample, unless the best character is always taken: the draws of the page are others."""
    model, tokenizer = trained
    told = {EXPLORERS[name].TYPED: f"\n{text}"}
    explorer = explore(name, model=model, tokenizer=tokenizer, **told)
    values = explorers.site_values(name, explorer)
    rng = random.Random(0)
    settings = [{key: rng.randrange(len(those)) for key, those in values.items()} for _ in range(60)]
    page.open(name)
    found = page.evaluate(PICTURES, [name, [([*setting.values()], {}, f"\n{text}") for setting in settings]])
    compared = 0
    for drawn, setting in zip(json.loads(found), settings, strict=True):
        chosen = {key: those[setting[key]] for key, those in values.items()}
        explorer.draw(explorer.figure, **explorer.compute(**chosen))
        wanted = [panel.state() for panel in explorer.figure.panels]
        bars = next(state for state in wanted if state["kind"] == "Bars")
        heights = np.frombuffer(bars["heights"], np.float32)
        if name == "attention_over_text" and len(heights) > 1 and -np.diff(heights).max() < 1e-4:
            continue  # a rounding may choose the order of the bars
        compared += 1
        alike_in_words(drawn["caption"], explorer.figure.caption)
        for state, panel in zip(drawn["panels"], wanted, strict=True):
            state["texts"] = panel["texts"] = []  # the heights are compared
            if name == "sampling" and chosen["temperature"] > 0 and chosen["top_k"] > 1 and panel is not bars:
                state["rows"] = panel["rows"] = []
            alike(state, panel, 1e-4)
    assert compared > 10


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


@pytest.fixture
def writing(page):
    """Open the explorer that writes; `asked` has the files that it has asked for."""
    page.asked = []
    page.on("request", lambda request: page.asked.append(request.url.rpartition("/")[2]))
    explorer = live(page, "sampling")
    return explorer


def test_a_typed_text_is_read_and_continued_by_a_model_that_is_loaded_only_then(page, writing, trained):
    model, tokenizer = trained
    page.wait_for_load_state("networkidle")
    assert explorers.MODEL not in page.asked
    for key in ("Home", "ArrowRight"):
        writing.get_by_label("temperature").press(key)
    writing.get_by_label("top_k").press("Home")
    text = "\nPoor Ben got a ball"
    writing.get_by_label("your text").fill("")
    writing.get_by_label("your text").press_sequentially(text.strip())
    expect(writing.locator(".attention-caption")).to_contain_text(f"After “↵{text.strip()}”")
    ids = generate(model, tokenizer.encode(text)[None], Text.COLUMNS, temperature=0)[0]
    rows = Text("", tokenizer.decode(ids)).rows()
    expect(writing.locator("canvas").last).to_have_attribute(
        "aria-label", re.compile(re.escape("\n".join(rows)))
    )
    assert page.asked.count(explorers.MODEL) == 1


def test_unknown_characters_get_a_sentence_and_are_left_out(writing):
    area = writing.get_by_label("your text")
    area.fill("Süß Sam 7")
    said = writing.locator(".said")
    expect(said).to_contain_text("Left out: “ü”, “ß”, “7”.")
    expect(writing.locator(".attention-caption")).to_contain_text("After “↵S Sam ”")
    area.fill("Sam")
    expect(said).to_be_empty()


def test_the_query_goes_along_with_the_text(page):
    explorer = live(page, "attention_over_text")
    query, caption = explorer.locator("[name=position]"), explorer.locator(".attention-caption")
    explorer.get_by_label("your text").fill("Sam")
    expect(caption).to_contain_text("query 3 “m”: ")
    query.press("ArrowLeft")
    expect(caption).to_contain_text("query 2 “a”: ")
    explorer.get_by_label("your text").press_sequentially("ra")
    expect(caption).to_contain_text("query 5 “a”: ")
    expect(query).to_have_attribute("max", "5")
    explorer.get_by_label("your text").fill("")
    expect(caption).to_contain_text("query 0 “↵”: 100 % on character 0 “↵”. ")


def test_a_model_that_does_not_come_is_told_and_asked_for_again(page, writing):
    page.route(f"**/{explorers.MODEL}", lambda route: route.fulfill(status=404))
    before = writing.locator(".attention-caption").inner_text()
    writing.get_by_label("your text").fill("Sam")
    expect(page.locator(ALERT)).to_contain_text("could not be loaded: 404 ")
    expect(writing.locator(".attention-caption")).to_have_text(before)
    expect(writing.locator(".said")).to_be_empty()
    page.unroute(f"**/{explorers.MODEL}")
    writing.get_by_label("your text").fill("Ben")
    expect(writing.locator(".attention-caption")).to_contain_text("After “↵Ben”")
    expect(page.locator(ALERT)).to_have_count(0)
