"""The stories are what their entropy claims, and answer_accuracy counts right answers."""

import hashlib
import math
import random
import re
from collections import Counter

import pytest
import torch
import torch.nn as nn
import torch.nn.functional as F

from attention_course.gpt import GPT, GPTConfig
from attention_course.stories import (
    NAMES,
    ORDERS,
    PLACES,
    THINGS,
    Story,
    answer_accuracy,
    answers,
    draw_story,
    read_story,
    stories_entropy,
    write_stories,
)
from attention_course.text import CharTokenizer, load_text

A_STORY = "Kind Ann gave poor Ben a cup at the cave. Who got it? Poor Ben. Where? At the cave. What? A cup."


@pytest.fixture(scope="module")
def stories():
    return write_stories()


# The stories


@pytest.mark.slow
def test_default_text_is_the_same_everywhere(stories):
    assert hashlib.sha256(stories.encode("ascii")).hexdigest() == (
        "fc6c25084c44fcb3592670763fae3567f1d7ebcdd171b83fd9f27af34c3ca7bd"
    )
    assert load_text("stories") == stories == write_stories(seed=0)
    assert write_stories(seed=1, characters=1000) != write_stories(characters=1000)


def test_text_ends_with_the_story_that_reaches_the_length(stories):
    for characters in (1, 98, 99, 5000):
        text = write_stories(characters=characters)
        assert stories.startswith(text)
        assert text.endswith("\n")
        assert len(text) >= characters
        assert text[:-1].rfind("\n") + 1 < characters


def test_words_can_be_told_apart_by_their_first_letter():
    for words, lengths in ((NAMES, {3}), (THINGS, {3, 4}), (PLACES, {4})):
        assert len(words) == len({word[0] for word in words}) == 8
        assert {len(word) for word in words} <= lengths
    assert not any(thing[0] in "aeiou" for thing in THINGS)  # "a", never "an"
    longest = [max(words, key=len) for words in (NAMES, NAMES, THINGS, PLACES)]
    assert len(Story(*longest, ORDERS[0]).text + "\n") <= 128  # a block


def test_a_story_by_hand():
    story = Story("Ann", "Ben", "cup", "cave", ("receiver", "place", "thing"))
    assert story.text == A_STORY
    assert read_story(A_STORY) == read_story(A_STORY + "\n") == story
    with pytest.raises(ValueError, match="is not a story") as caught:
        read_story("hello")
    example = re.search(r"as in '(.*)'\.$", str(caught.value))[1]
    assert read_story(example).text == example


def test_a_line_is_a_story_only_with_every_character():
    without_one = [A_STORY[:i] + A_STORY[i + 1 :] for i in range(len(A_STORY))]
    with_one = [A_STORY[:i] + " " + A_STORY[i:] for i in range(len(A_STORY) + 1)]
    replaced = [
        A_STORY.replace("Ben", "Ann"),  # giver and receiver are one
        A_STORY.replace("it? Poor Ben", "it? Poor Dan"),  # a false answer
        A_STORY.replace(" What? A cup.", ""),
        A_STORY.replace("What? A cup.", "Who got it? Poor Ben."),
        A_STORY + "\n\n",
        A_STORY + " What? A cup.",
        "",
    ]
    for line in (*without_one, *with_one, *replaced):
        with pytest.raises(ValueError, match="is not a story"):
            read_story(line)


def test_reading_and_writing_a_whole_text_changes_nothing(stories):
    read = [read_story(line) for line in stories.splitlines()]
    assert "".join(story.text + "\n" for story in read) == stories
    rng = random.Random(0)
    assert read == [draw_story(rng) for _ in read]


@pytest.mark.slow
def test_every_choice_is_uniform_and_takes_no_side():
    rng = random.Random(5)
    drawn = [draw_story(rng) for _ in range(6000)]
    parts = [
        (Counter((story.giver, story.receiver) for story in drawn), 56),
        (Counter(story.order for story in drawn), 6),
        (Counter((story.thing, story.place) for story in drawn), 64),
        (Counter((story.giver, story.thing) for story in drawn), 64),
        (Counter((story.place, story.order[0]) for story in drawn), 24),
    ]
    for counts, expected in parts:
        assert len(counts) == expected
        share = 1 / expected
        sigma = math.sqrt(len(drawn) * share * (1 - share))
        assert all(abs(count - len(drawn) * share) < 5 * sigma for count in counts.values())


def test_entropy_of_the_default_text(stories):
    count = stories.count("\n")
    surprise = count * (math.log(8) + math.log(7) + 2 * math.log(8) + math.log(6))
    assert stories_entropy(stories) == pytest.approx(surprise / len(stories))
    assert round(stories_entropy(stories), 3) == 0.102
    for start, stop, advice in (
        (0, 3000, 'text[: text.rindex("\\n") + 1]'),
        (3000, None, 'text[text.index("\\n") + 1 :]'),
    ):
        part = stories[start:stop]
        with pytest.raises(ValueError, match=re.escape(advice)):
            stories_entropy(part)
        assert stories_entropy(eval(advice, {"text": part})) == pytest.approx(0.102, abs=2e-3)
    with pytest.raises(ValueError, match=r"line 2 is not a story\. read_story: 'hello'"):
        stories_entropy(f"{A_STORY}\nhello\n{A_STORY}\n")


def test_answers_are_the_words_that_were_told(stories):
    found = iter(stories[start:end] for start, end in answers(stories))
    for line in stories.splitlines():
        story = read_story(line)
        assert [next(found) for _ in story.order] == [getattr(story, key) for key in story.order]
    assert next(found, None) is None
    starts = [A_STORY.rindex(word) for word in ("Ben", "cave", "cup")]
    assert [start for start, _ in answers(A_STORY)] == starts


def test_answers_of_a_stretch():
    text = A_STORY[10 : A_STORY.index(" A cup.") + 5]  # the thing's answer is cut short
    assert [text[start:end] for start, end in answers(text)] == ["Ben", "cave"]
    assert answers("Is it? No.") == []


# Answer accuracy


TEXT = write_stories(seed=1, characters=1500)
LETTERS = CharTokenizer(TEXT)


class Oracle(nn.Module):
    """Knows some stretches of ids by heart, and says nothing about others."""

    def __init__(self, stretches, block_size):
        super().__init__()
        self.block_size = block_size
        self.follows = {tuple(ids[:-1].tolist()): ids[1:] for ids in stretches}
        self.asked = []
        self.bias = nn.Parameter(torch.zeros(()))

    def forward(self, ids):
        rows = [tuple(row) for row in ids.tolist()]
        self.asked += rows
        nothing = torch.full((self.block_size,), LETTERS.vocab_size)
        told = torch.stack([self.follows.get(row, nothing) for row in rows])
        return F.one_hot(told, LETTERS.vocab_size + 1).float() + self.bias


def test_accuracy_asks_for_the_first_thousand_answers_with_block_size_characters_before_them():
    text = write_stories(seed=2, characters=80_000)
    ids = LETTERS.encode(text)
    spans = [(start, end) for start, end in answers(text) if end > 160]
    oracle = Oracle([ids[end - 161 : end].clone() for _, end in spans[:900]], block_size=160)
    start, end = spans[0]
    next(iter(oracle.follows.values()))[start - end] += 1  # one wrong letter is a wrong answer
    assert answer_accuracy(oracle, text, LETTERS) == 0.899
    assert len(oracle.asked) == 1000 < len(spans)
    knows_all = Oracle([ids[:end].clone()], block_size=end - 1)
    assert answer_accuracy(knows_all, text[: end + 1], LETTERS) == 1
    with pytest.raises(ValueError, match="no answer"):
        answer_accuracy(Oracle([], block_size=end), text[: end + 1], LETTERS)


def test_accuracy_is_without_dropout():
    torch.manual_seed(0)
    config = GPTConfig(LETTERS.vocab_size, block_size=7, n_layer=1, n_head=2, n_embd=6, dropout=0.9)
    model, modes = GPT(config).train(), set()
    model.register_forward_pre_hook(lambda model, _: modes.add(model.training))
    answer_accuracy(model, TEXT, LETTERS)
    assert modes == {False}
    assert model.training
