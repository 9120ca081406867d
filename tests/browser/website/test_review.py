"""What is missed in a page comes back after 1, 7 and 30 days; notebooks read and write the same file."""

import json
import re
from datetime import date, timedelta

import pytest
from playwright.sync_api import expect

from attention_course.fills import fills
from attention_course.ladder import RUNGS
from attention_course.progress import DAYS, read
from attention_course.questions import QUESTIONS, below

MOVE = """(days) => {
    for (const key of Object.keys(localStorage)) {
        if (!key.startsWith("attention-review ")) continue;
        const [due, step] = JSON.parse(localStorage.getItem(key));
        const date = new Date(due);
        date.setUTCDate(date.getUTCDate() - days);
        localStorage.setItem(key, JSON.stringify([date.toISOString().slice(0, 10), step]));
    }
}"""


def choose(question, right: bool) -> None:
    question.locator(
        f".attention-choices button{'[data-right]' if right else ':not([data-right])'}"
    ).first.click()


def things(page):
    expect(page.locator("#due")).not_to_be_empty()
    return page.locator("#things > *")


def miss_a_question(visit):
    page = visit("01_bag_of_words/")
    choose(page.locator("[data-question=mean_at_one]"), False)
    return page


def miss_a_fill(visit):
    page = visit("01_bag_of_words/")
    fill_in(page, "causal_mean_loop", False)
    return page


def fill_in(page, name, right: bool) -> None:
    """Choose in each gap, or make one mistake and then choose what is right."""
    shown, gaps = page.locator(f"[data-fill={name}]"), fills()[name]["gaps"]
    shown.scroll_into_view_if_needed()
    picks = [(i, pick) for i, pick in enumerate(gaps["right"])]
    for i, pick in ([] if right else [(0, (gaps["right"][0] + 1) % len(gaps["choices"][0]))]) + picks:
        shown.locator(".attention-gap").nth(i).click()
        shown.locator("fieldset").nth(i).locator("label").nth(pick).click()
    expect(shown.locator("[role=status]")).to_contain_text("✓ Right. ")


KINDS = {
    "question mean_at_one": (miss_a_question, lambda page, right: choose(things(page), right)),
    "fill causal_mean_loop": (miss_a_fill, lambda page, right: fill_in(page, "causal_mean_loop", right)),
}


@pytest.mark.parametrize("item", KINDS)
def test_what_was_missed_comes_back_after_1_7_and_30_days(visit, item):
    miss, again = KINDS[item]
    page = miss(visit)
    for days in DAYS:
        page = visit("review/")
        assert things(page).count() == 0
        expect(page.locator("#due")).to_contain_text("Nothing to review today. The next thing comes back on ")
        page.evaluate(MOVE, days - 1)
        page = visit("review/")
        assert things(page).count() == 0, "a day too early"
        page.evaluate(MOVE, 1)
        front = visit("")
        expect(front.locator(".doors")).to_contain_text("Review: 1 due")
        page = visit("review/")
        expect(things(page)).to_have_count(1)
        again(page, True)
    page = visit("review/")
    expect(page.locator("#due")).to_contain_text("What you miss in a rung comes back here")
    expect(visit("").locator(".doors")).not_to_contain_text("due")


@pytest.mark.parametrize("item", KINDS)
def test_missed_again_it_comes_back_tomorrow(visit, item):
    miss, again = KINDS[item]
    page = miss(visit)
    for days, right in ((1, True), (7, False), (1, True)):
        page.evaluate(MOVE, days)
        page = visit("review/")
        expect(things(page)).to_have_count(1)
        again(page, right)
        expect(visit("review/").locator("#due")).to_contain_text("Nothing to review today")
    expect(visit("review/").locator("#things > *")).to_have_count(0)


def test_a_question_comes_back_with_other_numbers(visit):
    page = miss_a_question(visit)
    page.evaluate(MOVE, 1)
    page = visit("review/")
    question = things(page)
    expect(question).to_have_count(1)
    assert QUESTIONS["mean_at_one"]["question"] not in question.inner_text()
    assert "From rung 1" in question.inner_text()
    choose(question, True)
    expect(question.get_by_role("status")).to_contain_text("Right. ")


def test_only_the_first_answer_counts_whichever_tab_it_is_given_in(visit):
    one, other = (visit("01_bag_of_words/").locator("[data-question=mean_at_one]") for _ in range(2))
    choose(other, True)
    choose(one, False)
    expect(visit("review/").locator("#due")).to_contain_text("What you miss in a rung comes back here")


@pytest.mark.parametrize("rung", [RUNGS[1], RUNGS[12]], ids=lambda rung: rung.stem)
def test_a_rung_begins_with_two_questions_from_below(visit, rung):
    page = visit(f"{rung.name}/", width=360)
    place = page.locator("[data-warm-up]")
    place.scroll_into_view_if_needed()
    questions = place.locator(".attention-question")
    expect(questions).to_have_count(2)
    names = [each.get_attribute("data-question") for each in questions.all()]
    assert {*names} <= {*below(rung)}
    assert len({*names}) == 2
    choose(questions.first, False)
    expect(questions.first.get_by_role("status")).to_contain_text("Not this one. ")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    page.evaluate(MOVE, 1)
    expect(things(visit("review/", width=360))).to_have_count(1)


def test_an_exercise_is_done_again_from_the_beginning(visit, site):
    page = visit("practice/")
    if not page.locator("#solved").count():
        pytest.skip("The site has no judge.")
    day = (date.today() - timedelta(3)).isoformat()
    page.evaluate(
        """(day) => {
            localStorage.setItem("attention-review exercise windowed_mean", JSON.stringify([day, "1"]));
            localStorage.setItem("attention-answer windowed_mean", '["solved"]');
        }""",
        day,
    )
    page = visit("review/")
    expect(things(page)).to_have_count(1)
    editor = page.get_by_role("textbox")
    expect(editor).to_have_value(re.compile("raise NotImplementedError"))
    assert page.get_by_role("button", name="Check").is_visible()
    editor.fill("written in the review")
    page.once("dialog", lambda asked: asked.accept())
    page.get_by_role("button", name="Reset").click()
    expect(editor).to_have_value(re.compile("raise NotImplementedError"))
    editor.fill("and again")
    rung = visit("practice/").locator("[data-task=windowed_mean]")
    rung.locator("summary").first.click()
    expect(rung.get_by_role("textbox")).to_have_value("solved")


def test_dates_go_into_the_file_and_come_from_it_and_what_is_unknown_stays(visit, tmp_path):
    page = visit("practice/")
    if not page.locator("#solved").count():
        pytest.skip("The site has no judge.")
    file = tmp_path / "progress.json"
    content = {
        "questions": {},
        "exercises": {},
        "review": {
            "question mean_at_one": {"due": "2020-01-01", "days": 7},
            "question of_a_newer_edition": {"due": "2020-01-03", "days": 1},
        },
        "notes": ["mine"],
    }
    file.write_text(json.dumps(content))
    page.locator("#import").set_input_files(file)
    expect(page.locator("#taken")).to_contain_text("2 review dates")
    expect(things(visit("review/"))).to_have_count(1)
    with page.expect_download() as loading:
        page.locator("#export").click()
    loading.value.save_as(file)
    record = read(file)
    assert record.review.keys() == {"question mean_at_one", "question of_a_newer_edition"}
    assert record.review["question mean_at_one"].days == 7
    assert record.others == {"notes": ["mine"]}


def test_a_rung_is_done_by_its_hardest_exercise(visit):
    page = visit("")
    expect(page.locator(".rungs .mark").first).to_be_empty()
    key = f"attention-try {RUNGS[0].hardest}"
    page.evaluate('(key) => localStorage.setItem(key, \'["1", "passed"]\')', key)
    marks = visit("").locator(".rungs .mark")
    expect(marks.first).to_have_text("✓ done")
    expect(marks.last).to_be_empty()
    page = visit("01_bag_of_words/")
    page.get_by_role("link", name="A mean that forgets").first.click()
    assert page.evaluate("document.querySelector(':target')?.textContent").startswith(
        "3. A mean that forgets"
    )
