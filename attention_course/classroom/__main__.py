"""The command line: `attention-course class after_a_space` opens a class in this network."""

import argparse
import asyncio
import logging
import socket
import sys
import tomllib
import webbrowser
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from attention_course.classroom.server import in_browsers, open_class
from attention_course.classroom.session import LETTERS, Session
from attention_course.files import printable, read_text
from attention_course.ladder import RUNGS
from attention_course.names import look_up
from attention_course.questions import QUESTIONS, Entry

NOWHERE = "192.0.2.1"  # an address for documentation, RFC 5737; nothing is sent there
ENTRY = {"question": str, "choices": list}
CHOICE = {"text": str, "explanation": str, "right": bool}
KINDS = {str: "a text", list: "a list", bool: "true or false, without quotes"}
FORM = (
    'Write [NAME], question = "...", and choices = [{text = "...", explanation = "...", right = true}, ...].'
)


def arguments() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="attention-course class",
        description="Put questions to a class, one at a time. Phones in the same network vote on them, "
        "without an account: vote, talk, vote again, and read what there is to say to each choice.",
        epilog="The page for teachers of the course's site has a plan of each rung, with questions to vote "
        "on. Every device in the network of ADDRESS can vote, and nothing is sent beyond it.",
    )
    parser.add_argument(
        "questions",
        nargs="+",
        metavar="QUESTION",
        help="a question of the course, such as after_a_space; a rung, such as bag_of_words, for all of its "
        "questions; or a file of your own, such as mine.toml, in the form of the course's questions.toml, "
        "but with its numbers in the texts instead of `draw` and {{fields}}",
    )
    parser.add_argument(
        "--address", help="the address of this computer in the network; by default it is found"
    )
    parser.add_argument("--port", type=port, default=8000, help="by default 8000")
    parser.add_argument(
        "--votes", type=Path, metavar="FILE", help="where the votes go; by default votes-TIME.jsonl"
    )
    parser.add_argument("--no-browser", action="store_true", help="do not open the teacher's page")
    return parser


def port(text: str) -> int:
    """Return the number of a port; ArgumentTypeError or ValueError if it is none."""
    if not 0 <= (number := int(text)) < 2**16:
        raise argparse.ArgumentTypeError(f"{text} is no port: expected 0 to {2**16 - 1}, such as 8001")
    return number


def chosen(names: list[str]) -> list[tuple[str, Entry]]:
    """Return the questions of these names, rungs and files.

    Raises:
        OSError: a file cannot be read.
        ValueError: there is no such question, or a file holds something else; the message says what to do.
    """
    rungs = {rung.stem: rung for rung in RUNGS}
    found: list[tuple[str, Entry]] = []
    for name in names:
        if name.endswith(".toml"):
            found += own(Path(name)).items()
        elif name in rungs:
            found += rungs[name].questions.items()
        else:
            found.append((name, look_up(name, QUESTIONS, "question")))
    name, times = Counter(name for name, _ in found).most_common(1)[0]
    if times > 1:  # pages, and the file of the votes, tell questions apart by their names
        raise ValueError(f"{name} is there twice. Name each question once.")
    return found


def own(file: Path) -> Mapping[str, Any]:
    """Read a teacher's own questions.

    Raises:
        OSError: the file cannot be read.
        ValueError: it holds something else.
    """
    try:
        table = tomllib.loads(read_text(file))
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{file} cannot be read as TOML: {error}. {FORM}") from error
    for name, entry in table.items():
        if not name or name != printable(name.strip()):
            raise ValueError(f"{file}: {name!a} is no name: it is empty, or has what cannot be seen. {FORM}")
        try:
            check(entry, ENTRY)
            if not 2 <= len(entry["choices"]) <= len(LETTERS):
                raise ValueError(f"expected 2 to {len(LETTERS)} choices, got {len(entry['choices'])}")
            for choice in entry["choices"]:
                check(choice, CHOICE, "explanation", "right")
        except ValueError as error:
            raise ValueError(f"{file}: {name} is no question: {error}. {FORM}") from error
    if not table:
        raise ValueError(f"{file} holds no question. {FORM}")
    return table


def check(given: Any, kinds: dict[str, type], *optional: str) -> None:
    """Raise ValueError where a table lacks one of these keys, has another, or a value of another kind."""
    if not isinstance(given, dict) or given.keys() - kinds:
        got = ", ".join(map(repr, sorted(given.keys() - kinds))) if isinstance(given, dict) else repr(given)
        raise ValueError(f"{got} is not known here, only {', '.join(kinds)}")
    for key, kind in kinds.items():
        if type(given.get(key)) is not kind and (key in given or key not in optional):
            got = f"{key} = {given[key]!r}" if key in given else f"{key}, which is missing,"
            raise ValueError(f"{got} has to be {KINDS[kind]}")


def own_address() -> str:
    """Return the address of this computer in its network.

    Raises:
        OSError: it is in none.
    """
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.connect((NOWHERE, 9))  # for UDP this only chooses a way out
        return one.getsockname()[0]


async def until_interrupted() -> None:
    """Wait."""
    await asyncio.Event().wait()


def main(argv: list[str] | None = None) -> None:
    """Run the command line."""
    options = arguments().parse_args(argv)
    file = options.votes or Path(f"votes-{datetime.now():%Y-%m-%d-%H%M%S}.jsonl")
    logging.getLogger("tornado.general").setLevel(logging.ERROR)  # what is malformed is no news
    try:
        questions = chosen(options.questions)
        address = in_browsers(options.address or own_address())
        session = Session(questions, file)
    except ValueError as error:
        sys.exit(printable(str(error)))
    except FileExistsError:
        sys.exit(
            printable(f"{file} exists, and votes are never written over. Name another file: --votes FILE")
        )
    except OSError as error:
        if not options.address and error.filename is None:
            sys.exit("This computer is in no network. Join one, or name its address: --address 192.168.1.7")
        sys.exit(printable(f"{error.filename}: {error.strerror}."))
    try:
        asyncio.run(teach(session, address, options))
    except KeyboardInterrupt:
        print()
    except OSError as error:
        if not session.summary():  # as when the port is in use
            file.unlink()
        sys.exit(
            printable(f"No class at {address}:{options.port}: {error.strerror}. Name another port, --port ")
            + "8001, or one of this computer's own addresses, --address 192.168.1.7"
        )
    print(*map(printable, [*session.summary(), f"All votes are in {file}"]), sep="\n")


async def teach(session: Session, address: str, options: argparse.Namespace) -> None:
    """Open the class, and say where; wait for its end."""
    _, phones, teacher = open_class(session, address, options.port)
    print(
        f"The class is at {phones}",
        f"Every device in the network of {address} can open it and vote, until you press Ctrl-C here.",
        f"Your own page is {teacher}",
        "Who has that address leads the class, so keep it to yourself: the page itself does not show it.",
        printable(f"Votes go into {session.file}"),
        "If phones find nothing there, this computer's firewall or the network keeps devices apart; the "
        "hotspot of a phone does not.",
        sep="\n",
        flush=True,
    )
    if not options.no_browser:
        webbrowser.open(teacher)
    await until_interrupted()


if __name__ == "__main__":
    main()
