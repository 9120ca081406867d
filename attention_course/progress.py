"""What a learner has done, in `progress.json` beside the notebooks: a file to read, and to delete.

In a notebook `progress()` shows all rungs, and `progress("bag_of_words")` one. What was missed comes back in
a review after each of DAYS, as long as it goes right. For a class,
`python -m attention_course.progress FILE...` prints who is where, and what most of them failed.
"""

import argparse
import html
import json
import os
import sys
from collections import Counter
from collections.abc import Callable, Sequence, Sized
from dataclasses import dataclass, field, fields
from datetime import date, timedelta
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

from filelock import FileLock, Timeout

from attention_course.files import MAX_BYTES, printable, read_text, told, write_at_once
from attention_course.ladder import RUNGS, WAYS, Rung, read_table
from attention_course.names import look_up

HERE = Path(__file__).parent
CELL = "text-align:left"
LEVELS = {"gaps": "with gaps", "blocks": "from lines in disorder"}  # of a fill
DAYS = (1, 7, 30)  # until what was missed comes back, and again whenever it goes right
LONGEST = 15  # minutes of an exercise that comes back
Entry = TypeVar("Entry")
SKIP = "Skip"  # among the answers: the learner asked for the right one


@dataclass
class Answered:
    """A question: the choices made, each once, in order."""

    answers: list[str] = field(default_factory=list)
    right_at_first_try: bool = False

    def __post_init__(self):
        check_fields(self.answers, (self.right_at_first_try, bool))

    @property
    def wrong(self) -> list[str] | None:
        """The first answer, or None if that was right."""
        return None if self.right_at_first_try else self.answers[:1]


@dataclass
class Tried:
    """An exercise: the checks up to the first that passed, and the names of the mistakes, each once."""

    tries: int = 0
    passed: bool = False
    mistakes: list[str] = field(default_factory=list)

    def __post_init__(self):
        check_fields(self.mistakes, (self.tries, int), (self.passed, bool))
        if self.tries < self.passed:  # it takes at least one to pass
            raise ValueError(f"expected tries of at least {int(self.passed)}, got {self.tries}")

    @property
    def wrong(self) -> list[str] | None:
        """The mistakes, or None if the first try passed."""
        return None if self.passed and self.tries < 2 else self.mistakes


@dataclass
class Due:
    """What comes back in a review: the day, as 2026-11-27, and after how many DAYS that is."""

    due: str
    days: int

    def __post_init__(self):
        check_fields([self.due], (self.days, int))
        if self.days not in DAYS:
            raise ValueError(f"expected days of {', '.join(map(str, DAYS))}, got {self.days}")
        if date.fromisoformat(self.due).isoformat() != self.due:
            raise ValueError(f"expected a day such as 2026-11-27, got {self.due!r}")


@dataclass
class Record:
    """The content of a file: what was done, by the names of questions and exercises.

    Of a fill, which has the name of its exercise, the levels that were solved. What comes back in a review
    goes by its kind and its name, "question mean_at_one".
    """

    questions: dict[str, Answered] = field(default_factory=dict)
    exercises: dict[str, Tried] = field(default_factory=dict)
    fills: dict[str, list[str]] = field(default_factory=dict)
    review: dict[str, Due] = field(default_factory=dict)
    others: dict[str, object] = field(default_factory=dict)  # of a newer edition; it stays

    def to_json(self) -> str:
        """Return the text of the file. ValueError if it holds lists in lists, too deep to be written."""
        content = {
            "questions": self.questions,
            "exercises": self.exercises,
            "fills": self.fills,
            "review": self.review,
        } | self.others
        try:
            text = json.dumps(content, default=vars, indent=2, ensure_ascii=False) + "\n"
        except RecursionError:  # Python may have read what it cannot write
            raise ValueError("The file holds lists in lists, too deep to be written again.") from None
        return text.encode("utf-8", "backslashreplace").decode()  # a half of a surrogate pair as \ud800


def checked_texts(texts: object) -> list[str]:
    """Return a list of texts, or raise ValueError."""
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"expected a list of texts, got {texts!r}")
    return texts


def check_fields(texts: object, *others: tuple[object, type]) -> None:
    """Raise ValueError if a person has put something else into a field."""
    checked_texts(texts)
    for value, kind in others:
        if type(value) is not kind:
            raise ValueError(f"expected {kind.__name__}, got {value!r}")


def made(kind: Callable[..., Entry], given: dict[str, Any]) -> Entry:
    """Make an entry of what the file has; other fields, of a newer edition, stay in it."""
    known = {each.name for each in fields(kind)}  # pyright: ignore[reportArgumentType]
    entry = kind(**{name: value for name, value in given.items() if name in known})
    vars(entry).update({name: value for name, value in given.items() if name not in known})
    return entry


def each_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object, or raise ValueError if one of its names stands in it twice, as after a merge."""
    names = Counter(name for name, _ in pairs)
    if twice := [name for name, times in names.items() if times > 1]:
        raise ValueError(f"{twice[0]!r} appears twice")
    return dict(pairs)


# The file


def path() -> Path | None:
    """Return `progress.json` in the current folder, or the file named by $ATTENTION_PROGRESS; "" is none."""
    name = os.environ.get("ATTENTION_PROGRESS", "progress.json")
    return Path(os.path.expanduser(name)) if name else None  # no shell has, where a notebook sets it


def read(file: Path) -> Record:
    """Read a file that `keep` has written, and perhaps a person has edited.

    Raises:
        OSError: it cannot be read.
        ValueError: it is damaged, or no record of progress.
    """
    try:
        content = json.loads(read_text(file), object_pairs_hook=each_once)
        return Record(
            questions={name: made(Answered, entry) for name, entry in content.pop("questions").items()},
            exercises={name: made(Tried, entry) for name, entry in content.pop("exercises").items()},
            fills={name: checked_texts(levels) for name, levels in content.pop("fills", {}).items()},
            review={item: made(Due, entry) for item, entry in content.pop("review", {}).items()},
            others=content,
        )
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        reason = f" ({error})" if isinstance(error, ValueError) else ""  # of others Python's own words
        raise ValueError(f"{file} is damaged, or isn't a progress file{reason}.") from error


def why(error: Exception) -> str:
    """Return what an error of the file says, and what to do if that is not plain."""
    return told(error) + ("" if isinstance(error, OSError) else " Move the file away to begin a new one.")


def kept() -> tuple[Record, str]:
    """Return what the learner has done, and why it cannot be read: "" if it can."""
    file = path()
    try:
        return (read(file) if file and file.exists() else Record()), ""
    except (OSError, ValueError) as error:
        return Record(), f"Your progress cannot be read: {why(error)}"


def keep(change: Callable[[Record], None]) -> str:
    """Change the record in the file, atomically; return why that failed: "" if it did not.

    Nothing is raised: a full disk ends no lesson.
    """
    file = path()
    if file is None:
        return ""
    try:
        target = Path(os.path.realpath(file))
        with FileLock(target.with_name(f".{target.name}.lock"), timeout=2):  # of two notebooks at once
            record = read(file) if file.exists() else Record()
            before = record.to_json()
            change(record)
            content = record.to_json().encode()
            if content == before.encode():
                return ""
            if len(content) > MAX_BYTES:  # it could not be read again
                raise ValueError(f"{file} would be larger than {MAX_BYTES // 2**20} MB.")
            write_at_once(file, content)
    except Timeout as error:  # held, or left behind where the system has no locks
        return (
            f"Your progress is not kept: another notebook is writing, or has left {error.lock_file} behind. "
            "When no other notebook is open, you may delete that file."
        )
    except (OSError, ValueError) as error:
        return f"Your progress is not kept: {why(error)}"
    return ""


# What comes back


def move(record: Record, item: str, right: bool) -> None:
    """Let an item of the review come back after the next of DAYS, after the last no more; missed, tomorrow.

    What is right before it is due, or was never missed, stays as it is.
    """
    if not right:
        days = DAYS[0]
    elif not is_due(record, item):
        return
    else:
        days = next((days for days in DAYS if days > record.review[item].days), 0)
    if days:
        coming = Due((date.today() + timedelta(days)).isoformat(), days)
        vars(record.review.setdefault(item, coming)).update(vars(coming))  # fields of a newer edition stay
    else:
        del record.review[item]


def is_due(record: Record, item: str) -> bool:
    """Is an item due, today or since an earlier day?"""
    return item in record.review and record.review[item].due <= date.today().isoformat()


@cache
def that_come_back() -> set[str]:
    """Return all that may come back: questions, fills, and the exercises that are not too long."""
    exercises = {name: each for rung in RUNGS for name, each in rung.table("exercises.toml").items()}
    short = {
        name for name, each in exercises.items() if each["minutes"] <= LONGEST
    }  # the others have no fill
    names = {
        "question": {name for rung in RUNGS for name in rung.questions},
        "exercise": short,
        "fill": short.union(*(rung.steps for rung in RUNGS)),
    }
    return {f"{kind} {name}" for kind, those in names.items() for name in those}


def due(record: Record) -> list[str]:
    """Return what is due and comes back in this edition, the oldest first."""
    found = [item for item in record.review if is_due(record, item) and item in that_come_back()]
    return sorted(found, key=lambda item: record.review[item].due)


def keep_review(item: str, right: bool) -> str:
    """Keep how it went with something that may come back; return as `keep` does."""
    return keep(lambda record: move(record, item, right))


# What is done


def keep_answer(question: str, answer: str, right: bool) -> str:
    """Keep an answer to a question; return as `keep` does."""

    def change(record: Record) -> None:
        if question not in record.questions:
            move(record, f"question {question}", right)
        entry = record.questions.setdefault(question, Answered(right_at_first_try=right))
        if answer not in entry.answers:
            entry.answers.append(answer)

    return keep(change)


def keep_try(exercise: str, passed: bool, mistakes: tuple[str, ...]) -> str:
    """Keep a try at an exercise that has not passed before, or is due again; return as `keep` does."""

    def change(record: Record) -> None:
        entry = record.exercises.setdefault(exercise, Tried())
        if not entry.passed or is_due(record, f"exercise {exercise}"):
            move(record, f"exercise {exercise}", passed)
        if not entry.passed:
            entry.tries += 1
            entry.passed = passed
            entry.mistakes += [name for name in mistakes if name not in entry.mistakes]

    return keep(change)


def keep_fill(exercise: str, levels: list[str]) -> str:
    """Keep the levels at which the fill of an exercise was solved; return as `keep` does."""

    def change(record: Record) -> None:
        record.fills[exercise] = sorted({*record.fills.get(exercise, []), *levels})
        move(record, f"fill {exercise}", right=True)

    return keep(change)


# For the learner


class Standing:
    """What was done of one rung, from a record."""

    def __init__(self, rung: Rung, record: Record):
        self.rung = rung
        self.questions = list(rung.questions)
        self.exercises = list(rung.table("exercises.toml"))
        self.answered = [name for name in self.questions if name in record.questions]
        self.right = [name for name in self.answered if record.questions[name].right_at_first_try]
        self.tried = [name for name in self.exercises if name in record.exercises]
        self.passed = [name for name in self.tried if record.exercises[name].passed]
        fills = [record.fills.get(name, []) for name in (*rung.steps, *self.exercises)]
        self.filled = {says: sum(level in levels for levels in fills) for level, says in LEVELS.items()}
        self.tasted, self.done = any(fills), rung.hardest in self.passed

    @property
    def again(self) -> list[str]:
        """What to look at again: not right at the first try, or not passed yet."""
        done = {*self.right, *self.passed}
        return [name for name in self.answered + self.tried if name not in done]

    def __repr__(self) -> str:
        number, questions, exercises = self.rung.number, self.questions, self.exercises
        if not self.answered and not self.tried and not any(self.filled.values()):
            return f"Rung {number}: {counted(questions, 'question')} and {counted(exercises, 'exercise')}."
        again = f" Look again: {', '.join(self.again)}." if self.again else ""
        filled = ", ".join(f"{number} {says}" for says, number in self.filled.items() if number)
        again = f" Filled in: {filled}.{again}" if filled else again
        again = f" Done, by its hardest exercise.{again}" if self.done else again
        return (
            f"Rung {number}: {len(self.right)} of {counted(questions, 'question')} right at the first try, "
            f"{len(self.passed)} of {counted(exercises, 'exercise')} passed.{again}"
        )


def counted(things: Sized, noun: str) -> str:
    """Return the number of things with the noun in singular or plural."""
    return f"{len(things)} {noun}{'' if len(things) == 1 else 's'}"


def to_review(record: Record) -> str:
    """Say what is due, and how to review it: "" if nothing is."""
    kinds = Counter(item.split()[0] for item in due(record))
    things = " and ".join(counted(range(number), kind) for kind, number in kinds.items())
    return things and f"To review: {things}. Run `from attention_course.review import review; review()`."


def ways(standings: list[Standing]) -> list[str]:
    """Say how far up each way one has come: a taste of a rung is a fill of it."""
    found = []
    for way in WAYS:
        on_it = [each for each in standings if each.rung in way.rungs]
        done = sum(each.tasted if way.name == "taste" else each.done for each in on_it)
        name = way.name.capitalize()
        found.append(f"{name}, {way.takes}, about {way.hours} hours: {done} of {len(on_it)} done.")
    return found


class Progress:
    """What was done of some rungs; as the last line of a cell it shows itself.

    Below stand the ways up, if these are all rungs, and what is due for review.
    """

    def __init__(self, standings: list[Standing], record: Record, problem: str = ""):
        self.standings = standings
        self.remarks = ways(standings) if len(standings) == len(RUNGS) else []
        self.remarks += filter(None, [to_review(record), problem])

    def __repr__(self) -> str:
        return "\n".join([*map(repr, self.standings), *self.remarks])

    def _repr_html_(self) -> str:
        remarks = "".join(f"<p>{html.escape(remark)}</p>" for remark in self.remarks)
        if len(self.standings) == 1:
            return f"<p>{html.escape(repr(self.standings[0]))}</p>{remarks}"
        titles = ("Rung", "Right at the first try", "Exercises passed", "Look again")
        head = "".join(f'<th scope="col" style="{CELL}">{title}</th>' for title in titles)
        rows = "".join(f"<tr>{row_of(each)}</tr>" for each in self.standings)
        return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>{remarks}"


def row_of(standing: Standing) -> str:
    """Return the cells of a rung in the table: it and two fractions, with ✓ where that is done, and names."""
    pairs = [(standing.right, standing.questions), (standing.passed, standing.exercises)]
    fractions = [f"{len(done)} of {len(of)}{' ✓' if done == of else ''}" for done, of in pairs]
    cells = "".join(f'<td style="{CELL}">{cell}</td>' for cell in [*fractions, ", ".join(standing.again)])
    title = html.escape(f"{standing.rung.number} {standing.rung.title}{' ✓' if standing.done else ''}")
    return f'<th scope="row" style="{CELL}">{title}</th>{cells}'


def progress(stem: str | None = None) -> Progress:
    """Show what you have done: of the rung called `stem`, for example "bag_of_words", or of all.

    Raises:
        ValueError: there is no rung of that name; the message lists them.
    """
    by_stem = {rung.stem: rung for rung in RUNGS}
    rungs = list(RUNGS) if stem is None else [look_up(stem, by_stem, "rung")]
    record, problem = kept()
    return Progress([Standing(rung, record) for rung in rungs], record, problem)


# For a class. Of a learner's file only what the course has is printed: it may hold anything.

HARDEST = 3  # exercises and questions that the table of a class names
SELF_EXPLAINING = ("wrong_type", "wrong_dtype", "changed_input")  # mistakes whose sentence is code


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
        lines.append((printable(who), place, f"{right} of {answered}", f"{passed} of {tried}"))
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    table = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in lines]
    unknown = set()
    for title, kind, known in (
        ("Exercises not passed", "exercises", mistakes()),
        ("Questions not right", "questions", answers()),
    ):
        entries = [entry for record in records.values() for entry in getattr(record, kind).items()]
        table += ["", *hardest(title, entries, known)]
        unknown |= {name for name, _ in entries} - known.keys()
    if unknown:
        table += ["", f"Left out, as this edition does not have them: {counted(unknown, 'name')}."]
    return "\n".join(table)


def mistakes() -> dict[str, set[str]]:
    """Return the mistakes that an exercise may name, by exercise."""
    texts = (read_table(HERE / file) for file in ("exercises/shared_messages.toml", "examine/findings.toml"))
    shared = {*SELF_EXPLAINING}.union(*texts)
    exercises = [pair for rung in RUNGS for pair in rung.table("exercises.toml").items()]
    return {name: shared | each.get("mistakes", {}).keys() for name, each in exercises}


def answers() -> dict[str, set[str]]:
    """Return the answers that a question takes, by question."""
    questions = [pair for rung in RUNGS for pair in rung.questions.items()]
    return {name: {SKIP, *(choice["text"] for choice in each["choices"])} for name, each in questions}


def hardest(
    title: str, entries: Sequence[tuple[str, Answered | Tried]], known: dict[str, set[str]]
) -> list[str]:
    """Return a line for each known name that most failed at the first try, with the most frequent reason."""
    failed = Counter(name for name, each in entries if name in known and each.wrong is not None)
    lines = [f"{title} at the first try:{'' if failed else ' none'}"]
    for name, count in failed.most_common(HARDEST):
        tried = [each for other, each in entries if other == name]
        never = sum(isinstance(each, Tried) and not each.passed for each in tried)
        reasons = Counter(text for each in tried for text in each.wrong or () if text in known[name])
        often = "".join(f"; most often: {text} ({times})" for text, times in reasons.most_common(1))
        lines.append(f"  {name}: {count} of {len(tried)}{f', {never} not yet' if never else ''}{often}")
    return lines


FOLDERS = ("progress", "notebooks", "my_notebooks")  # names that do not identify a learner


def names_of(files: list[Path]) -> list[str]:
    """Name learners by their files, or by folders where the files are called alike."""
    names = []
    for file in files:
        target = Path(os.path.realpath(file))
        names.append([part for part in (*target.parent.parts, target.stem) if part not in FOLDERS][-1])
    names = [name if names.count(name) == 1 else str(file) for name, file in zip(names, files, strict=True)]
    return names if len({*names}) == len(names) else [*map(str, files)]  # a path may be another's name


def main(arguments: list[str] | None = None) -> int:
    """Print the report on the files; return 1 if one cannot be read, and 0 otherwise."""
    parser = argparse.ArgumentParser(
        prog="python -m attention_course.progress",
        description="Print who is where on the ladder, and which exercises and questions most failed.",
    )
    parser.add_argument("files", nargs="+", type=Path, metavar="FILE", help="a learner's progress.json")
    given = parser.parse_args(arguments).files
    files = list({os.path.realpath(file): file for file in given}.values())  # each once
    records = {}
    for who, file in zip(names_of(files), files, strict=True):
        try:
            records[who] = read(file)
        except OSError as error:
            problem = f"{file} cannot be read: {error.strerror}. Name a learner's progress.json."
            print(printable(problem), file=sys.stderr)
        except ValueError as error:
            print(printable(f"{error} Ask for it again."), file=sys.stderr)
    if records:
        print(report(records))
    return int(len(records) < len(files))


if __name__ == "__main__":
    sys.exit(main())
