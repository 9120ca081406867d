"""The stage of heroes: its arithmetic, the way from one state to the next, and what pointers and keys do."""

import math

import pytest
import torch


@pytest.fixture
def page(page_of):
    """A stage, whose paint keeps what it was called with."""
    page = page_of("heroes/stage.js")
    page.do(
        "const stage = new Stage(new Node('figure'), 200, 'a picture'); const painted = [];"
        "stage.paint = (state, before) => painted.push([state, before]);"
    )
    return page


def test_arithmetic_is_that_of_the_course(page):
    assert page.get("[3, -2, 0.5, -1 / 3].map((value) => number(value))") == ["3", "−2", "0.50", "−0.33"]
    assert page.get("number(0.125, 1)") == "0.1"
    assert page.get("[sum([]), sum([1, 2, 4]), dot([1, 2], [3, 5])]") == [0, 7, 13]
    for scores in ([0.0], [1.0, -2.5, 3.0], [900.0, 901.0], [-math.inf, 0.0, 1.0]):
        written = str(scores).replace("inf", "Infinity")
        assert page.get(f"softmax({written})") == pytest.approx(torch.tensor(scores).softmax(0).tolist())
    assert page.get("softmax([-Infinity, -Infinity])") == [0, 0], "a row that is hidden whole"


def test_numbers_lie_between_and_all_else_jumps(page):
    first, second = "{ x: 0, at: [4, 8], word: 'a' }", "{ x: 1, at: [0, 8], word: 'b', late: 3 }"
    expected = {"x": 0.25, "at": [3, 8], "word": "b", "late": 3}
    assert page.get(f"between({first}, {second}, 0.25)") == expected
    assert page.get("[between(null, 2, 0.5), between(2, null, 0.5), between([1], [2, 5], 0.5)]") == [
        2,
        None,
        [1.5, 5],
    ]
    assert page.get("between(1e16, 0.3, 1)") == 0.3, "the end is exact"


def test_a_move_begins_where_it_was_and_ends_where_it_should(page):
    page.do("stage.show({ x: 0 }); let arrived = 0; stage.show({ x: 8 }, 100).then(() => arrived++)")
    page.wait(50)
    assert page.get("painted.at(-1)") == [{"x": 4}, {"x": 0}]
    assert page.get("arrived") == 0
    page.wait(50)
    assert page.get("painted.at(-1)") == [{"x": 8}, {"x": 0}]
    assert page.get("arrived") == 1
    drawn = [state["x"] for state, _ in page.get("painted")]
    assert drawn == sorted(drawn)
    assert drawn[0] == 0
    page.wait(100)
    assert page.get("painted.length") == len(drawn), "nothing is painted on a picture that stands"


def test_a_new_move_takes_over_from_where_the_picture_is(page):
    page.do("stage.show({ x: 0 }); let arrived = 0; stage.show({ x: 8 }, 100).then(() => arrived++)")
    page.wait(50)
    page.do("stage.show({ x: 0 }, 100)")
    assert page.get("arrived") == 1, "who waited for the first goes on"
    assert page.get("painted.at(-1)") == [{"x": 4}, {"x": 8}]
    page.wait(100)
    assert page.get("painted.at(-1)[0]") == {"x": 0}
    assert max(state["x"] for state, _ in page.get("painted")) == 4, "the first has stopped"


@pytest.mark.parametrize(("motion", "ms"), [("false", 100), ("true", 0)])
def test_without_motion_the_end_is_there_at_once(page, motion, ms):
    page.do(f"motion.matches = {motion}; stage.show({{ x: 0 }}); stage.show({{ x: 8 }}, {ms})")
    assert page.get("painted.at(-1)[0]") == {"x": 8}


@pytest.fixture
def player(page):
    """A player of four steps, 0 to 3, and the steps it has shown."""
    page.do(
        "const steps = []; const player = stage.player(3, (step) => { steps.push(step); }, 100);"
        "const [back, next, play] = stage.controls.children"
    )
    return page


def test_a_player_steps_to_its_end_and_back(player):
    assert player.get("[back.disabled, !!next.disabled]") == [True, False]
    for _ in range(4):
        player.do("next.fire('click')")
    assert player.get("steps") == [1, 2, 3, 3]
    assert player.get("[back.disabled, next.disabled]") == [False, True]
    player.do("back.fire('click')")
    assert player.get("steps.at(-1)") == 0


def test_a_player_plays_to_its_end_and_pauses(player):
    player.do("play.fire('click')")
    assert player.get("play.textContent") == "❚❚ Pause"
    player.wait(150)
    player.do("play.fire('click')")
    assert player.get("steps") == [1, 2]
    player.wait(500)
    assert player.get("steps") == [1, 2], "a pause lasts"
    player.do("play.fire('click')")
    player.wait(500)
    assert player.get("steps") == [1, 2, 3]
    assert player.get("play.textContent") == "▶ Play"
    player.do("play.fire('click')")
    player.wait(500)
    assert player.get("steps") == [1, 2, 3, 0, 1, 2, 3], "from the end it plays all again"


@pytest.mark.parametrize(
    ("then", "steps"), [("next.fire('click')", [1, 2]), ("stage.svg.isConnected = false", [1])]
)
def test_a_step_ends_the_play_and_so_does_the_end_of_the_picture(player, then, steps):
    player.do(f"play.fire('click'); {then}")
    player.wait(500)
    assert player.get("steps") == steps


def test_a_guess_plays_the_picture_and_is_answered_when_it_has_played(player):
    player.do("stage.ask({ question: 'Which?', choices: ['a', 'b'], right: 1, then: 'So it is.' })")
    player.do("guesses = stage.guess.children.filter(({ tag }) => tag === 'button')")
    assert player.get("stage.controls.hidden") is True
    player.do("guesses[0].fire('click')")
    assert player.get("stage.controls.hidden") is False
    assert player.get("guesses.map(({ disabled }) => disabled)") == [True, True]
    assert "So it is." not in player.get("stage.guess.textContent")
    player.wait(500)
    assert player.get("steps") == [1, 2, 3]
    assert player.get("stage.guess.lastChild.textContent") == "Here the answer is “b”. So it is."


def test_an_answer_with_quotes_has_single_ones_within_the_double_ones(player):
    player.do("stage.ask({ question: 'Which?', choices: ['a', '“b”, not c'], right: 1, then: 'So it is.' })")
    player.do("stage.guess.children.find(({ tag }) => tag === 'button').fire('click')")
    player.wait(500)
    assert player.get("stage.guess.lastChild.textContent") == "Here the answer is “‘b’, not c”. So it is."


def test_a_second_play_ends_the_first(player):
    player.do("play.fire('click')")
    player.wait(50)
    player.do("play.fire('click'); play.fire('click')")
    player.wait(80)
    assert player.get("steps") == [1, 2], "the next step of the first would have been due"
    player.wait(500)
    assert player.get("steps") == [1, 2, 3]


@pytest.fixture
def handle(page):
    page.do(
        "const place = [30, 40]; const handle = new Node('rect');"
        "const move = (x, y) => { place[0] = x; place[1] = y; };"
        "const options = { at: () => place, move, tell: () => place.join(), step: 5 };"
        "stage.drag(handle, 'a handle', options)"
    )
    return page


def test_a_handle_is_held_where_it_was_taken(handle):
    """The drawing's left top corner is at (100, 50) of the window."""
    handle.do("handle.fire('pointermove', { clientX: 0, clientY: 0 })")
    assert handle.get("place") == [30, 40], "nobody holds it"
    handle.do("handle.fire('pointerdown', { clientX: 133, clientY: 94 })")
    handle.do("handle.fire('pointermove', { clientX: 143, clientY: 74 })")
    assert handle.get("place") == [40, 20]
    assert handle.get("handle.attributes['aria-valuetext']") == "40,20"
    handle.do("handle.fire('pointerup'); handle.fire('pointermove', { clientX: 0, clientY: 0 })")
    assert handle.get("place") == [40, 20]


def test_arrow_keys_move_a_handle_by_its_step(handle):
    places = {"ArrowRight": [35, 40], "ArrowDown": [35, 45], "ArrowLeft": [30, 45], "ArrowUp": [30, 40]}
    for key, place in places.items():
        assert handle.get(f"handle.fire('keydown', {{ key: '{key}' }})"), "the page does not scroll"
        assert handle.get("place") == place
    handle.do("options.step = () => 7; const other = new Node('rect'); stage.drag(other, 'other', options)")
    assert handle.get("other.fire('keydown', { key: 'ArrowRight' })")
    assert handle.get("place") == [37, 40]
    assert not handle.get("handle.fire('keydown', { key: 'Tab' })")


@pytest.fixture
def points(page):
    page.do(
        "const seen = []; const [one, two] = [1, 2].map((key) => {"
        "const node = new Node('g'); stage.point(node, key, 'a part', (found) => seen.push(found));"
        "return node; });"
        "const pressed = () => [one, two].map((node) => node.getAttribute('aria-pressed'))"
    )
    return page


def test_what_is_pinned_stays_seen_until_it_is_let_go(points):
    points.do("one.fire('pointerenter'); one.fire('pointerleave')")
    assert points.get("seen.splice(0)") == [1, None]
    points.do("one.fire('click'); two.fire('pointerenter'); two.fire('pointerleave')")
    assert points.get("seen.splice(0)") == [1, 2, 1]
    assert points.get("pressed()") == ["true", "false"]
    points.do("two.fire('click')")
    assert points.get("pressed()") == ["false", "true"]
    points.do("two.fire('click')")
    assert points.get("[seen.splice(0), pressed()]") == [[2, None], ["false", "false"]]


@pytest.mark.parametrize("let_go", ["one.fire('keydown', { key: 'Escape' })", "stage.release()"])
def test_keys_pin_and_let_go(points, let_go):
    assert points.get("one.fire('keydown', { key: 'Enter' })")
    assert points.get("pressed()") == ["true", "false"]
    points.do(let_go)
    assert points.get("[seen, pressed()]") == [[1, None], ["false", "false"]]
    points.do("two.fire('blur')")
    assert points.get("seen.at(-1)") is None


def test_keys_that_a_hero_uses_are_kept_from_the_notebook(page):
    page.do(
        "const inner = stage.button('a button', () => {}); const field = html(stage.figure, 'input');"
        "const kept = (target, key, modifiers = {}) => {"
        "window.fire('keydown', { target, key, ...modifiers });"
        "return 'data-lm-suppress-shortcuts' in target.attributes; }"
    )
    assert page.get("[kept(inner, 'ArrowUp'), kept(inner, 'Enter'), kept(field, 'a')]") == [True] * 3
    assert not page.get("kept(inner, 'Enter', { shiftKey: true })"), "Shift+Enter runs the cell"
    assert not page.get("kept(inner, 'a')")
    assert not page.get("kept(new Node('button'), 'Enter')"), "another part of the page"


def test_a_toggle_goes_on_and_off(page):
    page.do("const turns = []; const toggle = stage.toggle('a toggle', true, (on) => turns.push(on))")
    page.do("toggle.fire('click'); toggle.fire('click')")
    assert page.get("[turns, toggle.attributes['aria-pressed']]") == [[False, True], "true"]
