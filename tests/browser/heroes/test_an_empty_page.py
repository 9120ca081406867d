"""What the examiner finds in a GPT with lines left out, and the page that one writes them on."""

import pytest
import record_heroes
from record_heroes import FINDINGS, LINES

from attention_course.examine import QUESTIONS
from attention_course.heroes import hero

DATA = hero("an_empty_page").data
T = 8
BUILT = [LINES[:count] for count in range(len(LINES) + 1)]
LEFT_OUT = [[each for each in LINES if each != line] for line in LINES]
FIRST_WRONG = {  # what finds that a line is missing; nothing does of feed-forward and norm
    "embedding": "It answers ids with logits",
    "logits": "It answers ids with logits",
    "attention": "The past is used",
    "mask": "No leak from the future",
    "position": "The order of tokens matters",
    "residual": "A token's own output depends most on itself",
}


def recorded(lines) -> tuple[str, list[list[int]]]:
    """Return the verdicts, and the table with a row for each output; no rows if there is none."""
    page = DATA["pages"]["".join(str(int(line in lines)) for line in LINES)]
    levels = [int(digit) for digit in page[len(FINDINGS) :]]
    return page[: len(FINDINGS)], [levels[row * T : (row + 1) * T] for row in range(len(levels) // T)]


def wrong(lines) -> list[str]:
    return [name for name, verdict in zip(FINDINGS, recorded(lines)[0], strict=True) if verdict == "w"]


def test_lines_and_findings_are_those_that_were_recorded():
    assert DATA["lines"] == list(LINES)
    assert DATA["findings"] == list(FINDINGS)
    assert set(FINDINGS) <= {question.name for question in QUESTIONS if not question.train}
    assert len(DATA["pages"]) == 2 ** len(LINES)
    table = {"0": 0, "1": T * T}  # without vectors for tokens there is none
    assert all(len(page) == len(FINDINGS) + table[there[0]] for there, page in DATA["pages"].items())


@pytest.mark.parametrize("lines", [*BUILT, *LEFT_OUT], ids="+".join)
def test_the_examiner_finds_it_again(lines):
    page = record_heroes.page(set(lines))
    verdicts, table = recorded(lines)
    assert page[: len(FINDINGS)] == verdicts
    levels = [level for row in table for level in row]
    assert [int(digit) for digit in page[len(FINDINGS) :]] == pytest.approx(levels, abs=1)
    assert [digit == "0" for digit in page[len(FINDINGS) :]] == [level == 0 for level in levels]


def test_the_page_is_right_once_all_lines_are_there_and_each_line_mends_what_was_wrong_first():
    assert wrong(LINES) == []
    for line, missing in zip(LINES, LEFT_OUT, strict=True):
        assert wrong(missing)[:1] == ([FIRST_WRONG[line]] if line in FIRST_WRONG else []), line
    first = [wrong(lines)[0] for lines in BUILT[:-3]]
    assert first == list(FIRST_WRONG.values())


def test_the_table_is_a_diagonal_a_square_a_triangle():
    for lines, reads in [
        (BUILT[2], lambda output, token: output == token),
        (BUILT[3], lambda output, token: True),
        (BUILT[4], lambda output, token: token <= output),
        (LINES, lambda output, token: token <= output),
        (LEFT_OUT[LINES.index("mask")], lambda output, token: True),
        (LEFT_OUT[LINES.index("attention")], lambda output, token: output == token),
    ]:
        _, table = recorded(lines)
        assert [[level > 0 for level in row] for row in table] == [
            [reads(output, token) for token in range(T)] for output in range(T)
        ]


def assert_shows(page, lines) -> None:
    values = page.values
    verdicts, table = recorded(lines)
    assert set(values["on"]) == set(lines)
    assert values["verdicts"] == verdicts
    assert values["levels"] == ([level for row in table for level in row] or [0] * T * T)
    switches = page.figure.get_by_role("switch")
    assert [each.get_attribute("aria-checked") for each in switches.all()] == [
        str(line in lines).lower() for line in LINES
    ]
    signs = [
        page.figure.get_by_text(name).evaluate("(n) => n.previousSibling.textContent") for name in FINDINGS
    ]
    assert signs == [{"w": "✗", "f": "✗", "r": "✓", "n": "–"}[verdict] for verdict in verdicts]


@pytest.mark.slow
def test_each_step_writes_a_line(show):
    page = show("an_empty_page", reduced_motion="reduce")
    for lines in BUILT:
        assert_shows(page, lines)
        if lines != LINES:
            page.press("Step")
            page.wait_for_words(f"Written: {LINES[len(lines)]}. " if len(lines) < 7 else "All ✓: a GPT")
    page.press("Start over")
    assert_shows(page, [])


@pytest.mark.slow
def test_mouse_and_keys_write_a_line_and_leave_it_out(show):
    page = show("an_empty_page", reduced_motion="reduce")
    for _ in LINES:
        page.press("Step")
    for at, line in enumerate(LINES):
        switch = page.figure.get_by_role("switch").nth(at)
        switch.click()
        assert_shows(page, LEFT_OUT[at])
        page.wait_for_words(f"Left out: {line}. ")
        page.wait_for_words("✗" if line in FIRST_WRONG else "these five questions cannot tell")
        switch.focus()
        page.page.keyboard.press("Enter" if at % 2 else " ")
        assert_shows(page, LINES)


@pytest.mark.slow
def test_a_finger_writes_a_line(show):
    page = show("an_empty_page", reduced_motion="reduce", has_touch=True)
    for at in (6, 0, 2):
        page.figure.get_by_role("switch").nth(at).tap()
    assert_shows(page, [LINES[0], LINES[2], LINES[6]])


@pytest.mark.slow
def test_only_a_leak_is_crossed(show):
    page = show("an_empty_page", reduced_motion="reduce")
    crosses = page.figure.locator("svg g[opacity='1'] text", has_text="✗")
    for _ in BUILT[3]:
        page.press("Step")
    assert crosses.count() == T * (T - 1) // 2
    page.press("Step")
    assert crosses.count() == 0
