"""What a learner has done, in `progress.json` beside the notebooks: a file to read, and to delete.

In a notebook `progress()` shows all rungs, and `progress("bag_of_words")` one. For a class,
`python -m attention_course.progress FILE...` prints who is where, and what most of them failed.
"""

import argparse
import html
import json
import os
import secrets
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock

from attention_course.ladder import RUNGS, Rung, tables
from attention_course.names import look_up

CELL = "text-align:left"
SKIP = "Skip"  # among the answers: the learner asked for the right one


@dataclass
class Answered:
    """A question: the choices made, each once, in order."""

    answers: list[str] = field(default_factory=list)
    right_at_first_try: bool = False

    def __post_init__(self):
        check_fields(self.answers, (self.right_at_first_try, bool))


@dataclass
class Tried:
    """An exercise: the checks up to the first that passed, and the names of the mistakes, each once."""

    tries: int = 0
    passed: bool = False
    mistakes: list[str] = field(default_factory=list)

    def __post_init__(self):
        check_fields(self.mistakes, (self.tries, int), (self.passed, bool))


@dataclass
class Record:
    """The content of a file: what was done, by the names of questions and exercises."""

    questions: dict[str, Answered] = field(default_factory=dict)
    exercises: dict[str, Tried] = field(default_factory=dict)


def check_fields(texts: object, *others: tuple[object, type]) -> None:
    """Raise TypeError if a person has put something else into a field."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise TypeError(f"expected a list of texts, got {texts!r}")
    for value, kind in others:
        if type(value) is not kind:
            raise TypeError(f"expected {kind.__name__}, got {value!r}")


# The file


def path() -> Path | None:
    """Return `progress.json` in the current folder, or the file named by $ATTENTION_PROGRESS; "" is none."""
    name = os.environ.get("ATTENTION_PROGRESS", "progress.json")
    return Path(name) if name else None


def read(file: Path) -> Record:
    """Read a file that `keep` has written, and perhaps a person has edited.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or no record of progress.
    """
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        return Record(
            questions={name: Answered(**entry) for name, entry in content["questions"].items()},
            exercises={name: Tried(**entry) for name, entry in content["exercises"].items()},
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise ValueError(f"{file} is damaged, or holds something else ({error}).") from error


def kept() -> tuple[Record, str]:
    """Return what the learner has done, and why it cannot be read: "" if it can."""
    file = path()
    try:
        return (read(file) if file and file.exists() else Record()), ""
    except (OSError, ValueError) as error:
        return Record(), f"Your progress cannot be read: {error} Delete the file to begin a new one."


def write_at_once(file: Path, text: str) -> None:
    """Write a file in one step: whoever interrupts it keeps the old one."""
    partial_file = file.with_name(f".{file.name}.{secrets.token_hex(8)}.partial")
    try:
        partial_file.write_text(text, encoding="utf-8")
        os.replace(partial_file, file)
    finally:
        partial_file.unlink(missing_ok=True)


def keep(change: Callable[[Record], None]) -> str:
    """Change the record in the file, atomically; return why that failed: "" if it did not.

    Nothing is raised: a full disk ends no lesson.
    """
    file = path()
    if file is None:
        return ""
    try:
        with FileLock(file.with_name(f".{file.name}.lock"), timeout=2):  # of two notebooks at once
            record = read(file) if file.exists() else Record()
            before = asdict(record)
            change(record)
            if asdict(record) != before:
                write_at_once(file, json.dumps(asdict(record), indent=2, ensure_ascii=False) + "\n")
    except (OSError, ValueError) as error:
        return f"Your progress is not kept: {error}"
    return ""


def keep_answer(question: str, answer: str, right: bool) -> str:
    """Keep an answer to a question; return as `keep` does."""

    def change(record: Record) -> None:
        entry = record.questions.setdefault(question, Answered(right_at_first_try=right))
        if answer not in entry.answers:
            entry.answers.append(answer)

    return keep(change)


def keep_try(exercise: str, passed: bool, mistakes: tuple[str, ...]) -> str:
    """Keep a try at an exercise that has not passed before; return as `keep` does."""

    def change(record: Record) -> None:
        entry = record.exercises.setdefault(exercise, Tried())
        if not entry.passed:
            entry.tries += 1
            entry.passed = passed
            entry.mistakes += [name for name in mistakes if name not in entry.mistakes]

    return keep(change)


# For the learner


class Standing:
    """What was done of one rung, from a record."""

    def __init__(self, rung: Rung, record: Record):
        self.rung = rung
        self.questions = list(tables("questions", rung.stem))
        self.exercises = list(tables("exercises", rung.stem))
        self.answered = [name for name in self.questions if name in record.questions]
        self.right = [name for name in self.answered if record.questions[name].right_at_first_try]
        self.tried = [name for name in self.exercises if name in record.exercises]
        self.passed = [name for name in self.tried if record.exercises[name].passed]

    @property
    def again(self) -> list[str]:
        """What to look at again: not right at the first try, or not passed yet."""
        done = {*self.right, *self.passed}
        return [name for name in self.answered + self.tried if name not in done]

    def __repr__(self) -> str:
        number, questions, exercises = self.rung.number, self.questions, self.exercises
        if not self.answered and not self.tried:
            return f"Rung {number}: {counted(questions, 'question')} and {counted(exercises, 'exercise')}."
        again = f" Look again: {', '.join(self.again)}." if self.again else ""
        return (
            f"Rung {number}: {len(self.right)} of {counted(questions, 'question')} right at the first try, "
            f"{len(self.passed)} of {counted(exercises, 'exercise')} passed.{again}"
        )


def counted(things: list[str], noun: str) -> str:
    """Return the number of things with the noun in singular or plural."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


class Progress:
    """What was done of some rungs; as the last line of a cell it shows itself."""

    def __init__(self, standings: list[Standing], problem: str = ""):
        self.standings, self.problem = standings, problem

    def __repr__(self) -> str:
        return "\n".join([*map(repr, self.standings), *filter(None, [self.problem])])

    def _repr_html_(self) -> str:
        problem = f"<p>{html.escape(self.problem)}</p>" if self.problem else ""
        if len(self.standings) == 1:
            return f"<p>{html.escape(repr(self.standings[0]))}</p>{problem}"
        titles = ("Rung", "Right at the first try", "Exercises passed", "Look again")
        head = "".join(f'<th scope="col" style="{CELL}">{title}</th>' for title in titles)
        rows = "".join(f"<tr>{row_of(each)}</tr>" for each in self.standings)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{problem}"


def row_of(standing: Standing) -> str:
    """Return the cells of a rung in the table: two fractions, with ✓ where all is done, and names."""
    pairs = [(standing.right, standing.questions), (standing.passed, standing.exercises)]
    fractions = [f"{len(done)} of {len(of)}{' ✓' if done == of else ''}" for done, of in pairs]
    cells = "".join(f'<td style="{CELL}">{cell}</td>' for cell in [*fractions, ", ".join(standing.again)])
    title = html.escape(f"{standing.rung.number} {standing.rung.title}")
    return f'<th scope="row" style="{CELL}">{title}</th>{cells}'


def progress(stem: str | None = None) -> Progress:
    """Show what you have done: of the rung called `stem`, for example "bag_of_words", or of all.

    Raises:
        ValueError: there is no rung of that name; the message lists them.
    """
    by_stem = {rung.stem: rung for rung in RUNGS}
    rungs = list(RUNGS) if stem is None else [look_up(stem, by_stem, "rung")]
    record, problem = kept()
    return Progress([Standing(rung, record) for rung in rungs], problem)


# For a class

HARDEST = 3  # exercises and questions that the table of a class names


def report(records: dict[str, Record]) -> str:
    """Return a table with a line for each learner, and what most of them failed at the first try."""
    lines = [("who", "is at rung", "right at the first try", "exercises passed")]
    for who, record in records.items():
        standings = [Standing(rung, record) for rung in RUNGS]
        begun = [each.rung for each in standings if each.answered or each.tried]
        right, answered, passed, tried = (
            sum(len(getattr(each, name)) for each in standings)
            for name in ("right", "answered", "passed", "tried")
        )
        place = f"{begun[-1].number} {begun[-1].title}" if begun else "not begun"
        lines.append((who, place, f"{right} of {answered}", f"{passed} of {tried}"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    return "\n".join([*table, "", *hardest_exercises(records), "", *hardest_questions(records)])


def hardest_exercises(records: dict[str, Record]) -> list[str]:
    """Return a line for each exercise that most did not pass at the first try."""
    entries = [(name, each) for record in records.values() for name, each in record.exercises.items()]
    failed = Counter(name for name, each in entries if each.tries > 1 or not each.passed)
    lines = [f"Exercises not passed at the first try:{'' if failed else ' none'}"]
    for name, count in failed.most_common(HARDEST):
        tried = [each for other, each in entries if other == name]
        never = sum(not each.passed for each in tried)
        mistakes = Counter(mistake for each in tried for mistake in each.mistakes)
        lines.append(f"  {name}: {count} of {len(tried)}, {never} not yet{most_frequent(mistakes)}")
    return lines


def hardest_questions(records: dict[str, Record]) -> list[str]:
    """Return a line for each question that most did not answer right at the first try."""
    entries = [(name, each) for record in records.values() for name, each in record.questions.items()]
    failed = Counter(name for name, each in entries if not each.right_at_first_try)
    lines = [f"Questions not right at the first try:{'' if failed else ' none'}"]
    for name, count in failed.most_common(HARDEST):
        answered = [each for other, each in entries if other == name]
        wrong = Counter(each.answers[0] for each in answered if each.answers and not each.right_at_first_try)
        lines.append(f"  {name}: {count} of {len(answered)}{most_frequent(wrong)}")
    return lines


def most_frequent(mistakes: Counter[str]) -> str:
    """Continue a line with the most frequent mistake, if there is one."""
    return "".join(f"; most often: {name} ({count})" for name, count in mistakes.most_common(1))


FOLDERS = ("progress", "notebooks", "my_notebooks")  # that are called alike for all


def names_of(files: list[Path]) -> list[str]:
    """Name learners by their files, or by folders where the files are called alike."""
    names = []
    for file in files:
        parts = file.resolve().with_suffix("").parts
        names.append([part for part in parts if part not in FOLDERS][-1])
    return [name if names.count(name) == 1 else str(file) for name, file in zip(names, files, strict=True)]


def main(arguments: list[str] | None = None) -> int:
    """Print the report on the files; return 1 if one cannot be read, and 0 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m attention_course.progress",
        description="Print who is where on the ladder, and which exercises and questions most failed.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a learner's progress.json")
    files = parser.parse_args(arguments).files
    records = {}
    for who, file in zip(names_of(files), files, strict=True):
        try:
            records[who] = read(file)
        except OSError as error:
            print(
                f"{file} cannot be read: {error.strerror}. Name a learner's progress.json.", file=sys.stderr
            )
        except ValueError as error:
            print(f"{error} Ask for it again.", file=sys.stderr)
    if records:
        print(report(records))
    return int(len(records) < len(files))


if __name__ == "__main__":
    sys.exit(main())
