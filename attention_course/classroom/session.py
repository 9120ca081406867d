"""What happens in a class: a question, a vote, a discussion, another vote, and the explanations."""

import json
import os
import time
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from attention_course.questions import Entry

# Of each stage, what the teacher can do, and the stage that it leads to. What is usual comes first.
STAGES = {
    "join": {"begin": "first"},
    "first": {"show": "shown", "again": "second", "next": "first"},
    "shown": {"again": "second", "explain": "explained", "next": "first"},
    "second": {"show": "both", "next": "first"},
    "both": {"explain": "explained", "next": "first"},
    "explained": {"next": "first"},
}
ROUND = {"first": 1, "second": 2}  # the vote that is open
LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
MOST = 500  # phones in a class
AWAY = 10.0  # seconds after which a phone that asks for nothing is no longer waited for
CLOSED = "This vote is closed. Your page shows what comes next."


class RefusedError(Exception):
    """What a phone or a page asked for cannot be done; the message says why."""


def is_there(at: float) -> bool:
    """Return whether a phone that was last heard of at that time is still waited for."""
    return time.monotonic() - at < AWAY


def append(file: Path, line: bytes) -> None:
    """Add a line to a file, or leave the file as it was.

    Raises:
        OSError: it cannot be written.
    """
    size = file.stat().st_size
    try:
        with open(file, "ab") as votes:
            votes.write(line)
            votes.flush()
            os.fsync(votes.fileno())
    except OSError:
        os.truncate(file, size)
        raise


class Session:
    """A class and its votes, each of which is a line of a file before it counts.

    Args:
        questions: pairs of a name and a question, in their order.
        file: where the votes go, a JSON object per line. It must not exist yet.

    A phone is known by a secret of its own. It has a place in the class while it is there, and gets one again
    once it has voted.

    Attributes:
        at: the index of the question.
        stage: a key of STAGES.
        votes: of each question, what each phone chose in each round, as indices.

    Raises:
        OSError: the file cannot be made.
    """

    def __init__(self, questions: Sequence[tuple[str, Entry]], file: Path):
        self.questions, self.at, self.stage = list(questions), 0, "join"
        self.votes: list[dict[int, dict[str, int]]] = [{} for _ in questions]
        self.phones: dict[str, int] = {}  # those that have voted, numbered
        self.heard: dict[str, float] = {}  # when each was last heard of
        self.file = file
        file.open("x").close()

    @property
    def name(self) -> str:
        """The name of the question."""
        return self.questions[self.at][0]

    @property
    def entry(self) -> Entry:
        """The question."""
        return self.questions[self.at][1]

    @property
    def round(self) -> int:
        """The vote that is open, 1 or 2; 0 if none is."""
        return ROUND.get(self.stage, 0)

    @property
    def actions(self) -> list[str]:
        """What the teacher can do now."""
        last = self.at + 1 == len(self.questions)
        return [action for action in STAGES[self.stage] if action != "next" or not last]

    def hear(self, phone: str) -> None:
        """Note that a phone is there, and let it in if it is new.

        Raises:
            RefusedError: there are MOST phones already.
        """
        if phone not in self.heard:
            self.heard = {each: at for each, at in self.heard.items() if is_there(at)}
            if len(self.heard) >= MOST and phone not in self.phones:
                raise RefusedError(f"This class is full: it has {MOST} phones.")
        self.heard[phone] = time.monotonic()

    def vote(self, phone: str, question: str, round: str, choice: str) -> None:
        """Count a vote, in place of an earlier one of this phone in this round.

        Raises:
            RefusedError: the class is full, that vote is not open, or there is no such choice.
            OSError: the vote cannot be written into the file, and does not count.
        """
        self.hear(phone)
        if not self.round or (question, round) != (self.name, str(self.round)):
            raise RefusedError(CLOSED)
        choices = self.entry["choices"]
        if choice not in map(str, range(len(choices))):
            raise RefusedError("There is no such choice. Press one of the buttons.")
        chosen = choices[int(choice)]
        line = {
            "time": datetime.now(UTC).isoformat(timespec="seconds"),
            "question": self.name,
            "round": self.round,
            "phone": self.phones.get(phone, len(self.phones) + 1),
            "choice": chosen["text"],
            "right": chosen.get("right", False),
        }
        append(self.file, (json.dumps(line, ensure_ascii=False) + "\n").encode())
        self.phones[phone] = line["phone"]
        self.votes[self.at].setdefault(self.round, {})[phone] = int(choice)

    def act(self, action: str, question: str, stage: str) -> None:
        """Do what the teacher asks for, on a page that shows this question at this stage.

        Raises:
            RefusedError: the class is further already, as after a double click, or there is no such action.
        """
        if (question, stage) != (self.name, self.stage) or action not in self.actions:
            raise RefusedError("The class is further already. Your page shows where it is.")
        self.at += action == "next"
        self.stage = STAGES[stage][action]

    def chosen(self, phone: str) -> int | None:
        """Return the last choice of a phone, of the vote that is open or else of the last one."""
        votes = self.votes[self.at]
        return votes.get(self.round or max(votes, default=0), {}).get(phone)

    def counts(self, round: int) -> list[int]:
        """Return how many chose each choice in a round."""
        counted = Counter(self.votes[self.at].get(round, {}).values())
        return [counted[index] for index in range(len(self.entry["choices"]))]

    def shown(self) -> list[int]:
        """Return the rounds whose votes are shown."""
        rounds = {"shown": [1], "both": [1, 2], "explained": [1, 2]}.get(self.stage, [])
        return [round for round in rounds if self.votes[self.at].get(round)]

    def turnout(self) -> tuple[int, int]:
        """Return how many have voted in this round, and how many phones there are."""
        voted = self.votes[self.at].get(self.round, {}).keys()
        there = {phone for phone, at in self.heard.items() if is_there(at)}
        return len(voted), len(there | voted)

    def summary(self) -> list[str]:
        """Return a line for each question that was voted on, with the right answers of each round."""
        lines = []
        for (name, entry), votes in zip(self.questions, self.votes, strict=True):
            right = [index for index, choice in enumerate(entry["choices"]) if choice.get("right")]
            shares = [
                f"{sum(choice in right for choice in chosen.values())} of {len(chosen)}"
                for _, chosen in sorted(votes.items())
            ]
            if shares:
                lines.append(f"{name}: {', then '.join(shares)}{' right' if right else ' votes'}")
        return lines
