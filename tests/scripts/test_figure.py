"""The figure of an explorer: which picture it shows when, and what pointers and keys read, pin and drag."""

import pytest
import torch

from attention_course.plots import Bars, Heatmap
from attention_course.plots.render import written

MODELS = """
class Model {
  listeners = [];
  constructor(values) {
    this.values = values;
  }
  get(name) {
    return this.values[name];
  }
  set(name, value) {
    this.values[name] = value;
  }
  on(names, listen) {
    this.listeners.push(listen);
  }
  off(names, listen) {
    this.listeners = this.listeners.filter((one) => one !== listen);
  }
  save_changes() {
    this.saved = (this.saved ?? 0) + 1;
  }
  change(values) {
    Object.assign(this.values, values);
    this.listeners.forEach((listen) => listen());
  }
}
"""


class Figure:
    """A figure of panels on a page, followed by two sliders, a from -1 to 1 and b from 0 to 4."""

    def __init__(self, page, *panels):
        self.page, self.do, self.get = page, page.do, page.get
        page.do(MODELS)
        page.do(
            f"""
            const sliders = {{
              a: new Model({{ value: 0, min: -1, max: 1, step: 0.1 }}),
              b: new Model({{ value: 2, min: 0, max: 4, step: 1 }}),
            }};
            const kernel = new Model({{
              panels: {written([panel.state() for panel in panels])},
              caption: "first", error: "", controls: {{ a: "a", b: "b" }}, settings: [0, 2],
            }});
            kernel.widget_manager = {{ get_model: async (id) => sliders[id] }};
            const el = new Node("div");
            const leave = exported.render({{ model: kernel, el }});
            const [row, readout, caption, error] = el.children[0].children;
            const canvas = (panel) => row.children[panel].children[1];
            """
        )

    def point_at(self, panel: int, x: float, y: float, kind: str = "pointermove") -> None:
        self.do(f"canvas({panel}).fire('{kind}', {{ offsetX: {x}, offsetY: {y} }})")

    def press(self, key: str, panel: int = 0) -> bool:
        return self.get(f"canvas({panel}).fire('keydown', {{ key: '{key}' }})")

    @property
    def words(self) -> str:
        return self.get("readout.textContent")


@pytest.fixture
def page(page_of):
    return page_of("plots/panels.js", "explorers/figure.js")


@pytest.fixture
def figure(page):
    """Weights times values."""
    weights, values = torch.tensor([[1.0, 0], [0.5, 0.5]]), torch.tensor([[2.0, 4], [0, 1]])
    return Figure(
        page,
        Heatmap("weights", weights, "t", "s"),
        Heatmap("values", values, "s", "c"),
        Heatmap("output", weights @ values, "t", "c"),
    )


@pytest.fixture
def bars(page):
    """Bars of two sliders, and one that none moves."""
    heights = torch.tensor([0.0, 2, 1])
    return Figure(page, Bars("bars", heights, ["a", "b", "c"], "bar", (-4, 4), controls=["a", "b", ""]))


def box(figure, panel: int, cell: int) -> list[float]:
    """Left edge, top, width and height of a cell."""
    return figure.get(
        f"((panel) => KINDS[panel.kind].cells(panel, themeOf(document.body)).box({cell}))"
        f"(kernel.get('panels')[{panel}])"
    )


def centre(figure, panel: int, cell: int) -> tuple[float, float]:
    left, top, width, height = box(figure, panel, cell)
    return left + width / 2, top + height / 2


def test_a_point_on_an_edge_belongs_to_one_cell(page):
    page.do("const cells = { count: 2, box: (index) => [10 * index, 5, 10, 20] }")
    points = "[[0, 5], [9.9, 24.9], [10, 5], [20, 5], [5, 25], [-0.1, 5]]"
    assert page.get(f"{points}.map((point) => cellAt(cells, point))") == [0, 0, 1, -1, -1, -1]


def test_it_shows_what_the_kernel_says_and_an_error_until_the_next_picture(figure):
    shown = "[row.children.map((box) => box.children[0].textContent), caption.textContent]"
    assert figure.get(shown) == [["weights", "values", "output"], "first"]
    figure.do("kernel.change({ panels: kernel.get('panels').slice(1), caption: 'second' })")
    assert figure.get(shown) == [["values", "output"], "second"]
    sentence = "This could not be drawn. No text. Move a control to go on."
    for said, expected in (("No text.", [sentence, 0.35]), ("", ["", 1])):
        figure.do(f"kernel.change({{ error: '{said}' }})")
        assert figure.get("[error.textContent, row.style.opacity]") == expected


def move(figure, value: int) -> None:
    """Move the second slider; the kernel has not answered yet."""
    figure.do(f"sliders.b.change({{ value: {value} }})")


def answer(figure, value: int, caption: str) -> None:
    """Let the kernel answer for a place of the second slider."""
    figure.do(f"kernel.change({{ settings: [0, {value}], caption: '{caption}' }})")


def test_a_picture_that_was_there_is_drawn_at_once_and_the_kernel_has_the_last_word(figure):
    move(figure, 3)
    assert figure.get("caption.textContent") == "first", "nothing is known of 3 yet"
    answer(figure, 3, "third")
    move(figure, 2)
    assert figure.get("caption.textContent") == "first"
    answer(figure, 2, "another")
    assert figure.get("caption.textContent") == "another"


def test_an_answer_that_comes_late_is_kept_and_not_shown(figure):
    answer(figure, 2, "second")
    move(figure, 3)
    move(figure, 2)
    answer(figure, 3, "late")
    assert figure.get("caption.textContent") == "second"
    move(figure, 3)
    assert figure.get("caption.textContent") == "late"


def test_the_oldest_pictures_are_forgotten(figure):
    remembered = figure.get("REMEMBERED")
    for value in range(3, 3 + remembered):
        answer(figure, value, str(value))
    answer(figure, 2, "again")
    move(figure, 3)
    assert figure.get("caption.textContent") == "again", "that of 3 is forgotten, so the kernel is waited for"
    move(figure, 4)
    assert figure.get("caption.textContent") == "4"


def test_the_pointer_reads_a_cell_and_what_belongs_to_it(figure):
    invitation = figure.words
    assert invitation.startswith("Point at a cell")
    figure.point_at(0, *centre(figure, 0, 3))
    assert figure.words == (
        "t = 1, s = 1: 0.50. Its row: 0.50  0.50. 0.50 × (0  1) is its part of t = 1: (1.00  2.50)."
    )
    figure.do("canvas(0).fire('pointerleave')")
    assert figure.words == invitation


def test_a_pinned_cell_stays_until_it_is_let_go(figure):
    here, there = centre(figure, 0, 3), centre(figure, 0, 0)
    figure.point_at(0, *here, "click")
    figure.point_at(0, *there)
    assert figure.words.startswith("Pinned: t = 1, s = 1")
    figure.point_at(0, *there, "click")
    assert figure.words.startswith("Pinned: t = 0, s = 0")
    figure.point_at(0, *there, "click")
    assert figure.words.startswith("t = 0, s = 0"), "the same again lets go"
    assert figure.press("Enter")
    figure.do("canvas(0).fire('pointerleave')")
    assert figure.words.startswith("Pinned: t = 0, s = 0")
    assert figure.press("Escape")
    assert figure.words.startswith("t = 0, s = 0")


def test_arrow_keys_go_from_cell_to_cell_and_stop_at_the_edge(figure):
    figure.do("canvas(1).fire('focus')")
    assert figure.words.startswith("s = 0, c = 0")
    for key, place in [
        ("ArrowRight", "s = 0, c = 1"),
        ("ArrowRight", "s = 0, c = 1"),
        ("ArrowDown", "s = 1, c = 1"),
        ("ArrowLeft", "s = 1, c = 0"),
        ("ArrowUp", "s = 0, c = 0"),
    ]:
        assert figure.press(key, panel=1), "the page does not scroll"
        assert figure.words.startswith(place)
    assert not figure.press("Tab", panel=1)


def test_a_bar_is_dragged_in_steps_and_within_the_limits(bars):
    """Its slider goes from -1 to 1 in steps of 0.1, the axis from -4 to 4."""
    x, _ = centre(bars, 0, 0)
    top, bottom = bars.get("[KINDS.Bars.top, 175 - KINDS.Bars.bottom(kernel.get('panels')[0])]")
    at = {value: top + (4 - value) / 8 * (bottom - top) for value in (0, 0.52, -0.77, 3)}
    bars.point_at(0, x, at[0], "pointerdown")
    for value, expected in ((0.52, 0.5), (-0.77, -0.8), (3, 1)):
        bars.point_at(0, x, at[value])
        assert bars.get("sliders.a.get('value')") == expected
    bars.do("canvas(0).fire('pointerup')")
    bars.point_at(0, x, at[0])
    assert bars.get("[sliders.a.get('value'), sliders.a.saved]") == [1, 4], "nobody drags it"
    assert bars.get("sliders.b.saved ?? 0") == 0


def test_arrow_keys_choose_a_bar_and_move_it(bars):
    bars.do("canvas(0).fire('focus')")
    bars.press("ArrowRight")
    for key, value in (("ArrowUp", 3), ("ArrowUp", 3), ("ArrowDown", 1)):
        bars.press(key)
        assert bars.get("sliders.b.get('value')") == value, (
            "from where the bar stands, until the kernel answers"
        )
    bars.press("ArrowRight")
    bars.press("ArrowUp")
    assert bars.get("sliders.b.saved") == 3, "the third bar follows no slider"


def test_a_figure_that_is_removed_leaves_no_listener(figure):
    counts = "[kernel, sliders.a, sliders.b, window].map(({ listeners }) => listeners.length)"
    assert figure.get(counts) == [1, 1, 1, 2]
    figure.do("leave()")
    assert figure.get(counts) == [0, 0, 0, 0]
