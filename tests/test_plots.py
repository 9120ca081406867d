"""Every panel can be drawn; pictures carry their words."""

import base64
import json
import math
import re
from dataclasses import replace
from itertools import combinations
from xml.etree import ElementTree

import pytest
import torch
from matplotlib.figure import Figure

from attention_course.plots import (
    BLUE,
    Arrows,
    Bars,
    Comparison,
    Heatmap,
    Histogram,
    Lines,
    Picture,
    Scatter,
    Text,
    picture,
)
from attention_course.plots.render import script

CONTEXT = script()
SVG = "{http://www.w3.org/2000/svg}"
ANCHORS = {"start": 0, "middle": 0.5, "end": 1}  # the part of a text that is left of its x
PANELS = [
    Heatmap("a heatmap", torch.tensor([[1.0, -2.0], [math.nan, -math.inf]]), "row", "column"),
    Heatmap("long names", torch.randn(4, 4), "question", "friend", ["Ann, Bob", "Bob, Ann", "Cem", "Dia"]),
    Bars("some bars", torch.tensor([1.0, -math.inf, -0.5]), ["a", "b", "c"], "bar", (-1, 1)),
    Bars("alike", torch.full((12,), -12.34), list("abcdefghijkl"), "bar", (-20, 1)),
    Heatmap("a map", torch.eye(2), "row", "column", framed=(0, 1), crossed_out=[(1, 1), (0, 0)]),
    Comparison("a comparison", torch.tensor([[0.5, 0.1], [0.2, 0]]), ["a", "b"], ["before", "after"], 1),
    Comparison("one series", torch.tensor([[0.5], [0.2]]), ["a", "b"], ["before"], 1),
    Comparison("nothing to compare", torch.zeros(0, 2), [], ["before", "after"], 1),
    Arrows("arrows", torch.tensor([[[1.0, 0], [0, 1]], [[0, -1], [0, 0]]]), ["a", "b"], ["q", "k"]),
    Arrows("no arrows", torch.zeros(0, 2, 2), [], ["q", "k"]),
    Histogram("a histogram", torch.tensor([0.2, 0.3]), (-1, 1), "value", torch.tensor([0.1, 0.4, 0.1])),
    Histogram("another", torch.tensor([0.2, 0.3]), (-1, 1), "value"),
    Scatter("points", torch.zeros(2, 2), ["a", "b"], (-1, 1), torch.tensor([True, False]), torch.zeros(1, 2)),
    Scatter("more points", torch.zeros(2, 2), ["a", "b"], (-1, 1)),
    Lines("curves", torch.tensor([1.0, 2.0]), {"a": torch.tensor([1.0, 2.0])}, "x", "y"),
    Lines(
        "far",
        torch.tensor([1.0, 2.0]),
        {"a": torch.tensor([2e-5, 5e4])},
        "x",
        "numbers kept for backpropagation",
    ),
    Lines("no curves", torch.zeros(0), {"a": torch.zeros(0)}, "x", "y", log=False),
    Lines("a level", torch.zeros(0), {}, "x", "y", levels={"floor": 1.5}, x_limits=(1, 9)),
    Text("a text", "one\ntwo", torch.linspace(0, 1, 7), framed=3),
    Text("another text", ""),
]


def image_of(shown: Picture) -> ElementTree.Element:
    """Return the SVG that the page is given."""
    (source,) = re.findall(
        r'src="data:image/svg\+xml;base64,([^"]+)"', shown._repr_mimebundle_()["text/html"]
    )
    return ElementTree.fromstring(base64.b64decode(source))


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_every_panel_is_drawn_with_its_title_and_its_labels(panel):
    image = image_of(picture(panel, alt="words"))
    texts = ["".join(text.itertext()) for text in image.iter(f"{SVG}text")]
    labels = ("row_label", "column_label", "x_label", "y_label")
    assert texts[0] == panel.title
    assert {getattr(panel, name) for name in labels if hasattr(panel, name)} <= set(texts)


def boxes_of(image: ElementTree.Element) -> dict[str, tuple[float, ...]]:
    """Return the left, top, right and bottom edge of each text of a picture, as if none were bold."""
    boxes = {}
    for group in image.iter(f"{SVG}g"):
        left, top = map(float, re.findall(r"[\d.]+", group.get("transform")))
        for index, text in enumerate(group.iter(f"{SVG}text")):
            size, x, y = (float(text.get(name)) for name in ("font-size", "x", "y"))
            length = CONTEXT.eval(f"widthOf({json.dumps(text.text or '')}, {size})")
            start = x - ANCHORS[text.get("text-anchor")] * length
            box = (start, y - size / 2, start + length, y + size / 2)
            if text.get("transform"):  # from bottom to top
                x, y = map(
                    float, re.match(r"translate\((\S+) (\S+)\)rotate\(-90\)", text.get("transform")).groups()
                )
                box = (x + box[1], y - box[2], x + box[3], y - box[0])
            boxes[f"{index} {text.text}"] = (left + box[0], top + box[1], left + box[2], top + box[3])
    return boxes


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: panel.title)
def test_letters_can_be_read_and_lie_within_the_picture(panel):
    image = image_of(picture(panel, alt="words"))
    width, height = (float(image.get(side)) for side in ("width", "height"))
    for left, top, right, bottom in boxes_of(image).values():
        assert 0 <= left <= right <= width
        assert 0 <= top <= bottom <= height
    assert min(float(text.get("font-size")) for text in image.iter(f"{SVG}text")) >= 11


@pytest.mark.parametrize("panel", [panel for panel in PANELS if not isinstance(panel, Scatter | Text)])
def test_no_text_stands_on_another(panel):
    boxes = boxes_of(image_of(picture(panel, alt="words")))
    for (one, a), (other, b) in combinations(boxes.items(), 2):
        apart = max(a[0] - b[2], b[0] - a[2], a[1] - b[3], b[1] - a[3])
        assert apart >= 0, (one, other)


def test_a_title_that_is_wider_than_its_panel_is_broken_between_words():
    title = "weights: what is left of exp when it is divided by its sum"
    bars = Bars(title, torch.ones(3), ["a", "b", "c"], "key", (0, 1))
    one, short = (image_of(picture(panel, alt="")) for panel in (bars, replace(bars, title="weights")))
    lines = [text for text in one.iter(f"{SVG}text") if text.get("font-weight")]
    assert len(lines) > 2
    assert "".join(line.text for line in lines) == title
    heights = [float(line.get("y")) for line in lines]
    assert heights == sorted(set(heights))
    assert float(one.get("width")) < float(short.get("width")) + 20


def test_signs_of_svg_and_letters_that_no_font_has_are_text():
    title = "a < b & $c_$ \ue000 🙂 "
    image = image_of(picture(Text(title + "\0\ud800", "<&>"), alt=""))
    assert [text.text for text in image.iter(f"{SVG}text")] == [f"{title}��", "<", "&", ">"]


def test_what_the_browser_keeps_for_dragging_is_not_in_a_picture():
    bars = Bars("bars", torch.ones(2), ["a", "b"], "bar", (0, 1))
    dragged = replace(bars, reserved=9, controls=["one", "two"])
    assert picture(dragged, alt="").svg == picture(bars, alt="").svg


def test_panels_stand_side_by_side_until_the_page_ends():
    one, nine = (image_of(picture(*count * PANELS[:1], alt="")) for count in (1, 9))
    assert float(one.get("width")) < float(nine.get("width")) <= 840
    assert float(nine.get("height")) > float(one.get("height"))


def test_a_picture_has_the_colours_of_both_schemes():
    bars = Bars("bars", torch.ones(2), ["a", "b"], "bar", (0, 1))
    style = image_of(picture(bars, alt="")).find(f"{SVG}style").text
    light, dark = style.split("@media (prefers-color-scheme:dark)")
    assert set(re.findall(r"\.c\d+", light)) == set(re.findall(r"\.c\d+", dark))
    assert BLUE.lower() in light
    assert not set(re.findall(r":(#\w+)", light)) & set(re.findall(r":(#\w+)", dark))


def test_a_figure_of_matplotlib_becomes_a_picture_with_its_words():
    figure = Figure(figsize=(2, 1))
    figure.subplots().set_title("a title")
    shown = Picture.of(figure, alt='one, "minus" two')
    data = shown._repr_mimebundle_()
    assert data["text/plain"] == repr(shown) == 'one, "minus" two'
    assert '<img alt="one, &quot;minus&quot; two" ' in data["text/html"]
    assert len(list(image_of(shown).iter(f"{SVG}path"))) > 2
    assert "prefers-color-scheme" in shown.svg


def test_the_same_picture_twice_is_the_same_file():
    assert picture(*PANELS, alt="").svg == picture(*PANELS, alt="").svg
    figures = [Figure(), Figure()]
    for figure in figures:
        figure.subplots().plot([0, 1], [1, 0], "o")
    one, two = (Picture.of(figure, alt="").svg for figure in figures)
    assert one == two
