"""The explorers of the site, without a browser: how their pictures are stored, and their controls in HTML."""

import gzip
import html
import json
import re
from html.parser import HTMLParser
from itertools import product
from math import prod

import nbformat
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from website import explorers

from attention_course.explorers import EXPLORERS, explore
from attention_course.ladder import RUNGS
from attention_course.plots.style import format_numbers

MOST = 160_000  # bytes of an explorer, compressed
ALL = 650_000  # and of all

each_explorer = pytest.mark.parametrize("name", EXPLORERS)
pytestmark = pytest.mark.usefixtures("pictures_of_explorers")
OF_MODELS = [name for name in EXPLORERS if explorers.of_a_model(name)]


def leaves(tree):
    """Yield the leaves of factored pictures."""
    if "of" in tree:
        yield tree
    else:
        for part in tree.values() if isinstance(tree, dict) else tree:
            yield from leaves(part)


@st.composite
def grids(draw):
    """Draw pictures of a grid of settings, some parts of which depend on some controls."""
    shape = draw(st.lists(st.integers(1, 3), min_size=1, max_size=3))
    picks = draw(st.lists(st.sets(st.integers(0, len(shape) - 1)), min_size=2, max_size=2))

    def of(setting, pick):
        return [setting[control] for control in sorted(pick)]

    settings = list(product(*map(range, shape)))
    return (
        shape,
        picks,
        [{"panels": [{"x": of(one, picks[0])}], "caption": {0: f"{of(one, picks[1])}"}} for one in settings],
    )


@given(grids())
def test_factored_pictures_give_each_picture_back(grid):
    shape, picks, pictures = grid
    tree = explorers.factorize(pictures, tuple(shape))
    for setting, picture in zip(product(*map(range, shape)), pictures, strict=True):
        assert explorers.lookup(tree, setting, shape) == picture
    for leaf, pick in zip(leaves(tree), picks, strict=True):
        assert leaf["on"] == [control for control in sorted(pick) if shape[control] > 1]
        assert len(leaf["of"]) == len(leaf["at"]) == prod(shape[control] for control in leaf["on"])


def test_a_caption_may_have_more_parts_for_some_settings():
    pictures = [{"caption": {0: "one "}}, {"caption": {0: "one ", 1: "two"}}]
    tree = explorers.factorize(pictures, (2,))
    assert explorers.lookup(tree, [0], [2]) == {"caption": {0: "one ", 1: ""}}
    assert explorers.lookup(tree, [1], [2]) == {"caption": {0: "one ", 1: "two"}}


@given(st.lists(st.floats(width=32, allow_nan=False), max_size=5))
def test_numbers_come_back_from_json_as_they_were_and_rounded_ones_read_the_same(values):
    exact = np.array(values, dtype=np.float32)
    kept = json.loads(json.dumps(explorers.shortest(exact.tobytes(), None), allow_nan=False))
    assert np.array([float(value) for value in kept], dtype=np.float32).tobytes() == exact.tobytes()
    few = [float(value) for value in explorers.shortest(exact.tobytes(), 3)]
    assert format_numbers(few) == format_numbers([float(str(value)) for value in exact])


def test_the_files_are_small():
    sizes = [len(gzip.compress(explorers.load(name).encode())) for name in EXPLORERS]
    assert max(sizes) < MOST
    assert sum(sizes) < ALL
    assert (explorers.DUMPED / explorers.MODEL).stat().st_size < 225_000


def test_pictures_are_kept_until_the_code_changes(monkeypatch, tmp_path):
    worked = []
    monkeypatch.setattr(explorers, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(
        explorers, "pictures", lambda name, explorer: worked.append(name) or {"a": len(worked)}
    )
    for digest in ("one", "one", "other"):
        monkeypatch.setattr(explorers, "digest", lambda digest=digest: digest)
        explorers.load.cache_clear()
        explorers.load("bag_of_words")
    explorers.load.cache_clear()
    assert worked == ["bag_of_words", "bag_of_words"]
    assert [file.name for file in explorers.KEPT.iterdir()] == ["bag_of_words.other.json"]


@pytest.mark.parametrize("name", OF_MODELS)
def test_pictures_of_a_model_are_those_of_its_notebook(name):
    """The caption of the first picture is the alt text of the one in the notebook."""
    (rung,) = [rung for rung in RUNGS if name in rung.explorers]
    notebook = nbformat.read(explorers.ROOT / "notebooks" / f"{rung.name}.ipynb", as_version=4)
    (cell,) = [cell for cell in notebook.cells if f'explore("{name}"' in cell.source and cell.get("outputs")]
    alt = html.unescape(re.search(r'<img alt="(.*?)"', cell.outputs[-1].data["text/html"], re.S)[1])
    data = json.loads(explorers.load(name))
    sizes = [len(control["labels"]) for control in data["controls"]]
    start = [control["start"] for control in data["controls"]]
    assert "".join(explorers.lookup(data["caption"], start, sizes).values()) == alt


def test_of_the_outputs_of_a_notebook_explorers_with_a_subject_are_dumped(tmp_path):
    with_subject = explore("attention_over_text", text="Ann")
    explorers.dump([explore("bag_of_words"), 3, explore("sampling"), with_subject], tmp_path / "pictures")
    file, model = sorted((tmp_path / "pictures").iterdir())
    assert (file.name, model.name) == ("attention_over_text.json", explorers.MODEL)
    assert json.loads(file.read_text())["panels"][0]["rows"]["of"] == [["Ann"]]


class Tags(HTMLParser):
    """All tags of a page, and whether each is closed."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.open = [], []
        self.feed(text)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        self.open += [tag] * (tag not in ("input", "img", "source"))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


@each_explorer
def test_controls_are_native_and_have_labels(name):
    page = Tags(explorers.markup(name))
    assert page.open == []
    inputs = [attributes for tag, attributes in page.tags if tag in ("input", "select", "textarea")]
    labels = [attributes["for"] for tag, attributes in page.tags if tag == "label"]
    assert labels == [attributes["id"] for attributes in inputs]
    data = json.loads(explorers.load(name))
    names = ["text"] * ("text" in data) + [control["name"] for control in data["controls"]]
    assert [attributes["name"] for attributes in inputs] == names
    assert ("fieldset", {"class": "controls", "aria-label": "Controls", "disabled": None}) in page.tags
