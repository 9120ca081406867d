"""A synthetic corpus of stories, its entropy, and how many of its questions a model answers.

A small grammar generates the stories, all equally likely. So their entropy is known exactly, and no model has
a lower expected loss.
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
    """The choices that make a story; `order` holds the keys of QUESTIONS in the order of the text."""

    giver: str
    receiver: str
    thing: str
    place: str
    order: tuple[str, ...]

    @property
    def fact(self) -> str:
        """Who gave what to whom, and where: the line up to its questions."""
        return f"Kind {self.giver} gave poor {self.receiver} a {self.thing} at the {self.place}."

    @property
    def text(self) -> str:
        """The story as one line, without its newline."""
        return " ".join([self.fact, *(f"{QUESTIONS[key]}{getattr(self, key)}." for key in self.order)])


def draw_story(rng: random.Random) -> Story:
    """Draw one of the STORIES stories uniformly.

    Only `rng.random()` is called: its stream is the same in every Python, that of `choice` need not be.
    """
    if not hasattr(rng, "random"):
        raise TypeError(f"draw_story: rng is {type(rng).__name__}, expected random.Random(seed).")
    giver = pick(NAMES, rng)
    receiver = pick([name for name in NAMES if name != giver], rng)
    return Story(giver, receiver, pick(THINGS, rng), pick(PLACES, rng), pick(ORDERS, rng))


def pick(options: Sequence[Option], rng: random.Random) -> Option:
    """Draw one of the options uniformly."""
    return options[int(rng.random() * len(options))]


def write_stories(seed: int = 0, characters: int = 400_000) -> str:
    """Generate stories, one per line, the same ones on every machine.

    Args:
        seed: of the random numbers.
        characters: minimum length; the text ends with the first story that reaches it.
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
    """Return a regular expression that matches exactly these words."""
    return "|".join(re.escape(word) for word in words)


FACT = re.compile(
    rf"Kind (?P<giver>{any_of(NAMES)}) gave poor (?P<receiver>{any_of(NAMES)}) "
    rf"a (?P<thing>{any_of(THINGS)}) at the (?P<place>{any_of(PLACES)})\. "
)
ANSWER = re.compile(rf"(?:{any_of(QUESTIONS.values())})(\w+)\.")


def read_story(line: str) -> Story:
    """Parse a line, with or without its newline.

    Raises:
        ValueError: the line is not a story.
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
        f"read_story: {line[:150]!r} is not a story. Expected a fact about two people, then three questions, "
        f"each once and with its true answer, as in {example!r}."
    )


def stories_entropy(text: str) -> float:
    r"""Return the entropy of a text of whole stories, in nats per character, newlines included.

    Each story has probability 1 / STORIES, so its surprisal is ln STORIES. No model that has not seen the
    text has a lower expected loss. A split text begins within a story: cut it first,
    text[text.index("\n") + 1 :].

    Raises:
        ValueError: the text is empty, or is not made of whole stories, each with its newline.
    """
    check_type(text, str, "stories_entropy", "text")
    *lines, rest = text.split("\n")
    if rest or not lines:
        raise ValueError(
            f"stories_entropy: the text ends with {text[-40:]!r}, expected whole stories, one per line. "
            'Cut after the last newline: text[: text.rindex("\\n") + 1].'
        )
    for number, line in enumerate(lines, start=1):
        try:
            read_story(line)
        except ValueError as error:
            advice = 'Cut after it: text[text.index("\\n") + 1 :]. ' if number == 1 else ""
            raise ValueError(f"stories_entropy: line {number} is not a story. {advice}{error}") from None
    return len(lines) * math.log(STORIES) / len(text)


def answers(text: str) -> list[tuple[int, int]]:
    """Return the span (start, end) of each answer, in order: text[start:end] is the word.

    The text may begin and end within a story.
    """
    check_type(text, str, "answers", "text")
    return [found.span(1) for found in ANSWER.finditer(text)]


@runtime_checkable
class CharCodec(Protocol):
    """A tokenizer with one id per character, such as `attention_course.text.CharTokenizer`."""

    def encode(self, text: str) -> Int[Tensor, " T"]:
        """Encode a text of T characters as ids."""
        ...

    def decode(self, ids: Int[Tensor, " T"]) -> str:
        """Decode ids to a text."""
        ...


def answer_accuracy(model: nn.Module, text: str, tokenizer: CharCodec, precision: str = "auto") -> float:
    """Return the fraction of answers in a text of stories that the model predicts correctly.

    Papers call this exact match.

    An answer is correct if the argmax is correct at each of its characters, given the true text before it
    (teacher forcing). Answers that end within the first block_size characters are skipped, and so are all
    after the first 1000.

    Raises:
        ValueError: the text has no answer that counts.
    """
    check_type(model, nn.Module, "answer_accuracy", "model")
    check_type(tokenizer, CharCodec, "answer_accuracy", "tokenizer")
    ids, block_size = tokenizer.encode(text), block_size_of(model)  # one id for each character
    spans = [(start, end) for start, end in answers(text) if end > block_size][:1000]
    if not spans:
        raise ValueError(
            f"answer_accuracy: no answer in this text of {len(text)} characters has block_size = "
            f"{block_size} before it. Pass a longer text from write_stories()."
        )
    right, device = 0, next(model.parameters()).device
    with evaluating(model), autocast(precision, device):
        for i in range(0, len(spans), 64):
            batch = spans[i : i + 64]
            x = torch.stack([ids[end - block_size - 1 : end] for _, end in batch]).to(device)
            hits = model(x[:, :-1]).argmax(dim=-1) == x[:, 1:]
            right += sum(
                bool(row[start - end :].all()) for row, (start, end) in zip(hits, batch, strict=True)
            )
    return right / len(spans)
