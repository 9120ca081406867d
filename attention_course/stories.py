"""Rung 8: the stories that a model learns to tell, how much of them is chance, and what it recalls of them.

They are written by a small grammar in which every story is equally likely. So their entropy is known
exactly: no model can expect a lower loss.
"""

import math
import random
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import permutations
from typing import Protocol, TypeVar, runtime_checkable

import torch
from jaxtyping import Int
from torch import Tensor, nn

from attention_course.checks import check_sizes, check_type
from attention_course.gpt import autocast, block_size_of, evaluating

Option = TypeVar("Option")

NAMES = ("Ann", "Ben", "Dan", "Eve", "Joe", "Kim", "Sam", "Tom")
THINGS = ("bell", "cup", "drum", "fork", "hat", "kite", "map", "ring")
PLACES = ("barn", "cave", "dock", "farm", "gate", "lake", "mill", "park")
QUESTIONS = {
    "receiver": "Who got it? Poor ",
    "thing": "What? A ",
    "place": "Where? At the ",
}
ORDERS = tuple(permutations(QUESTIONS))
STORIES = len(NAMES) * (len(NAMES) - 1) * len(THINGS) * len(PLACES) * len(ORDERS)


@dataclass(frozen=True)
class Story:
    """The choices that make a story; `order` holds the keys of QUESTIONS as they are asked."""

    giver: str
    receiver: str
    thing: str
    place: str
    order: tuple[str, ...]

    @property
    def text(self) -> str:
        """The story as one line, without the newline at its end."""
        asked = " ".join(f"{QUESTIONS[key]}{getattr(self, key)}." for key in self.order)
        fact = f"Kind {self.giver} gave poor {self.receiver} a {self.thing} at the {self.place}."
        return f"{fact} {asked}"


def draw_story(rng: random.Random) -> Story:
    """Draw one of the STORIES stories, each with the same probability.

    Only `rng.random()` is called: its numbers are the same on every Python, those of `choice` need not be.

    Raises:
        TypeError: `rng` has no such method.
    """

    def pick(options: Sequence[Option]) -> Option:
        return options[int(rng.random() * len(options))]

    if not hasattr(rng, "random"):
        raise TypeError(f"draw_story: rng is {type(rng).__name__}, expected random.Random(seed).")
    giver = pick(NAMES)
    receiver = pick([name for name in NAMES if name != giver])
    return Story(giver, receiver, pick(THINGS), pick(PLACES), pick(ORDERS))


def write_stories(seed: int = 0, characters: int = 400_000) -> str:
    """Write stories, one a line, the same ones on every machine.

    Args:
        seed: another seed gives other stories.
        characters: at least so many; the text ends with the first story that reaches them.

    Raises:
        TypeError: a number is no integer.
        ValueError: `characters` is below 1, or `seed` is negative.
    """
    check_sizes("write_stories", 0, seed=seed)
    check_sizes("write_stories", 1, characters=characters)
    rng = random.Random(int(seed))
    lines, length = [], 0
    while length < characters:
        lines.append(draw_story(rng).text + "\n")
        length += len(lines[-1])
    return "".join(lines)


def any_of(words: Iterable[str]) -> str:
    """Write a regular expression that fits each of the words and nothing else."""
    return "|".join(re.escape(word) for word in words)


FACT = re.compile(
    rf"Kind (?P<giver>{any_of(NAMES)}) gave poor (?P<receiver>{any_of(NAMES)}) "
    rf"a (?P<thing>{any_of(THINGS)}) at the (?P<place>{any_of(PLACES)})\. "
)
ANSWER = re.compile(rf"(?:{any_of(QUESTIONS.values())})(\w+)\.")


def read_story(line: str) -> Story:
    """Recover the choices from a line, with or without its newline.

    Raises:
        TypeError: the line is no str.
        ValueError: the line is no story.
    """
    check_type(line, str, "read_story", "line")
    line = line.removesuffix("\n")
    if fact := FACT.match(line):
        choices = fact.groupdict()
        starts = {key: line.find(f"{QUESTIONS[key]}{choices[key]}.") for key in QUESTIONS}
        story = Story(**choices, order=tuple(sorted(starts, key=lambda key: starts[key])))
        if story.text == line and story.giver != story.receiver:
            return story
    example = Story("Ann", "Ben", "cup", "cave", ORDERS[0]).text
    raise ValueError(
        f"read_story: {line[:150]!r} is no story. Expected a fact about two people, then three questions, "
        f"each once and with its true answer, as in {example!r}."
    )


def stories_entropy(text: str) -> float:
    r"""Measure the entropy of a text of whole stories, in nats per character, newlines included.

    A story has the probability 1 / STORIES; its surprise, ln STORIES, is spread over its characters. A model
    that never saw the text cannot expect a lower mean loss. A text that was split begins within a story: cut
    it first, text[text.index("\n") + 1 :].

    Raises:
        TypeError: the text is no str.
        ValueError: the text is empty, or holds something other than whole stories, each with its newline.
    """
    check_type(text, str, "stories_entropy", "text")
    *lines, rest = text.split("\n")
    if rest or not lines:
        raise ValueError(
            f"stories_entropy: the text ends with {text[-40:]!r}, expected whole stories, each on a line. "
            'Cut after the last newline: text[: text.rindex("\\n") + 1].'
        )
    for number, line in enumerate(lines, start=1):
        try:
            read_story(line)
        except ValueError as error:
            advice = 'Cut after it: text[text.index("\\n") + 1 :]. ' if number == 1 else ""
            raise ValueError(f"stories_entropy: line {number} is no whole story. {advice}{error}") from None
    return len(lines) * math.log(STORIES) / len(text)


def answers(text: str) -> list[tuple[int, int]]:
    """Find the words that answer the questions, in the order of the text: text[start:end] is one.

    Any stretch of stories will do. Of a story that is cut off, the answers that are left are listed.

    Raises:
        TypeError: the text is no str.
    """
    check_type(text, str, "answers", "text")
    return [found.span(1) for found in ANSWER.finditer(text)]


@runtime_checkable
class Tokenizer(Protocol):
    """Gives each character of a text an id, as `attention_course.text.CharTokenizer` does."""

    def encode(self, text: str) -> Int[Tensor, " T"]:
        """Turn a text of T characters into ids."""
        ...

    def decode(self, ids: Int[Tensor, " T"]) -> str:
        """Turn ids back into their text."""
        ...


def recall(model: nn.Module, text: str, tokenizer: Tokenizer, precision: str = "auto") -> float:
    """Return the share of answers in a text of stories that the model completes right.

    A model completes an answer right if, at each of its characters, what it finds most probable is what
    stands there; it sees the block_size characters before. Answers with less text before them do not count,
    nor do those after the first thousand.

    Raises:
        TypeError: an argument is of the wrong kind.
        ValueError: the text has no answer that counts, or there is no such precision.
    """
    check_type(model, nn.Module, "recall", "model")
    check_type(tokenizer, Tokenizer, "recall", "tokenizer")
    ids, block_size = tokenizer.encode(text), block_size_of(model)
    spans = [(start, end) for start, end in answers(text) if end > block_size][:1000]
    if not spans:
        raise ValueError(
            f"recall: no answer in this text of {len(text)} characters has block_size = {block_size} before "
            "it. Pass a longer stretch of stories, as write_stories() makes them."
        )
    right, device = 0, next(model.parameters()).device
    with evaluating(model), autocast(precision, device):
        for i in range(0, len(spans), 64):
            some = spans[i : i + 64]
            pieces = torch.stack([ids[end - block_size - 1 : end] for _, end in some]).to(device)
            hits = model(pieces[:, :-1]).argmax(dim=-1) == pieces[:, 1:]
            right += sum(bool(row[start - end :].all()) for row, (start, end) in zip(hits, some, strict=True))
    return right / len(spans)
