"""Judges a cell of the reader's in the page, with the package's own judge; worker.js calls `judged`."""

import asyncio
import builtins
import contextlib
import gc
import io
import json
import linecache
import os
import shutil
import sys
import time
from collections.abc import Iterator
from functools import partial
from importlib.abc import MetaPathFinder
from types import FunctionType, ModuleType

import absent
import torch
from _pyodide._importhook import jsfinder
from torch.names import asked, lacking

from attention_course.exercises import EXERCISES
from attention_course.exercises.exercise import source_of, unwrapped
from attention_course.exercises.judging import Verdict, judge, not_tried, trial
from attention_course.exercises.problems import beginning, described, named
from attention_course.exercises.running import call
from attention_course.exercises.worker import is_untouched

PRINTED = 10_000  # characters that one check shows of what an answer prints
FILE = "your code"
HIDDEN = ("attention_course.exercises", "attention_course.rungs", "absent", "bridge")
TAKEN = ("gc", "js", "pyodide_js")  # an answer gets a stand-in, since others import them, too
BORROWED = "Your code asks for the course's own solution. Write it yourself: a check is for what you wrote."
CHANGED = (
    "Your code changes `{}`, which belongs to what checks it, so a verdict would mean nothing. Give what you "
    "write a name of its own, and leave that as it is."
)
OURS = ("absent.", "attention_course.", "bridge.", "math.", "sys.modules.", "torch.")
LACKING = (
    "This page has only a part of Python and of PyTorch, and not {}. "
    "Write it in another way here, or check it in the notebook."
)


def tell(kind, value=""):
    """Tell the worker, by a line: an object of JavaScript would lead an answer to all that a page can do."""
    os.write(1, f"\n{json.dumps([kind, value])}\n".encode())  # an answer may have left its line open


class Relay(io.TextIOBase):
    """Sends on the first PRINTED characters, then a note that the rest is not shown."""

    def __init__(self):
        self.left = PRINTED

    def write(self, text):
        if text and self.left > 0:  # an empty one would never come to an end
            tell("printed", text[: self.left])
            self.left -= len(text)
            if self.left <= 0:
                tell("printed", "\n... Your code prints more than this. The rest is not shown.\n")
        return len(text)


class BorrowedError(BaseException):
    """Not an `Exception`: an answer that catches errors gets no verdict either."""


borrowed: list[str] = []


class Guard(MetaPathFinder):
    """Refuses what holds the solutions."""

    def find_spec(self, name, path=None, target=None):
        if any(name == each or name.startswith(f"{each}.") for each in HIDDEN):
            borrowed.append(name)
            raise BorrowedError(BORROWED)


# An answer runs in the Python that judges it. What it changes there is put back, and never passes.

known: list[tuple] = []
functions: list[tuple] = []
INSIDE = ("__code__", "__defaults__", "__kwdefaults__")  # what a function does can be changed in its place
can_call = callable  # an answer may change even this


def remember(modules):
    """Note what modules, their classes and all functions hold before the first answer comes."""
    classes = {each for module in modules for each in vars(module).values() if isinstance(each, type)}
    for owner in dict.fromkeys([builtins, *modules]):
        place = "" if owner is builtins else f"{owner.__name__}."
        note(place, vars(owner), vars(owner).__setitem__, vars(owner).__delitem__)
    for owner in classes:
        package = owner.__module__.split(".")[0]
        note(
            f"{package}.{owner.__qualname__}.", vars(owner), partial(setattr, owner), partial(delattr, owner)
        )
    note("sys.modules.", sys.modules, sys.modules.__setitem__, sys.modules.__delitem__)
    for each in gc.get_objects():
        if isinstance(each, FunctionType):
            functions.extend((each, name, getattr(each, name)) for name in INSIDE)


def note(place, now, put, take):
    """Note what a place holds. Of other people's, data does not count: they change it themselves."""
    is_ours = not place or place.startswith(OURS)
    objects = {name: each for name, each in now.items() if is_ours or callable(each)}
    known.append((place, now, frozenset(now), objects, put, take))


def put_back():
    """Put back what has changed; return the names of that. A module that is imported late is no change."""
    changed = []
    for place, now, names, objects, put, take in known:
        for name, each in objects.items():
            if now.get(name, known) is not each:
                put(name, each)
                changed.append(place + name)
        for name in now.keys() - names:
            if can_call(now[name]):
                take(name)
                changed.append(place + name)
    for function, name, value in functions:
        if getattr(function, name) is not value:
            setattr(function, name, value)
            changed.append(f"{function.__module__}.{function.__qualname__}.{name}")
    return changed


def hide(folder):
    """Take the solutions away: all is loaded, and what an answer may import is the rest of the package."""
    modules = [
        each for name, each in sys.modules.items() if name != "__main__" and isinstance(each, ModuleType)
    ]
    for exercise in EXERCISES.values():
        source_of(unwrapped(exercise.reference))
    shutil.rmtree(folder, ignore_errors=True)
    linecache.clearcache()
    for name in [name for name in sys.modules if name.startswith(HIDDEN + TAKEN)]:
        del sys.modules[name]
    package = sys.modules["attention_course"]
    for name in ("exercises", "rungs"):
        vars(package).pop(name, None)
    sys.meta_path.insert(0, Guard())
    jsfinder.jsproxies.clear()
    absent.NAMES += TAKEN
    asyncio.run = lambda *given, **named: lacking("asyncio.run")  # the browser would have to wait
    remember(modules)


def sentence(exercise, headline, message, mistakes=()):
    return Verdict(exercise.name, False, tuple(mistakes), f"not yet: {headline}", message)


def apart(source, **names):
    """Return a function whose globals lead nowhere: an answer is given it."""
    return eval(source, {"__builtins__": {}, **names})


def run(exercise, source, given, name):
    """Run the cell; return the function that it passes to `check`, or a verdict."""
    checked, own = [], ModuleType("attention_course.exercises")
    own.check = apart("lambda name, function=None, seed=None: add(function)", add=checked.append)
    own.hint = own.solution = apart("lambda name: None")
    sys.modules[own.__name__] = own
    scope = {"__name__": "__main__", "check": own.check}
    linecache.cache[FILE] = (len(source), None, source.splitlines(keepends=True), FILE)
    try:
        exec(given, scope)
        exec(compile(source, FILE, "exec"), scope)
    except SyntaxError as error:
        line = f" Line {error.lineno}: `{(error.text or '').strip()}`." if error.lineno else ""
        return sentence(exercise, "Python cannot read it", f"{error.msg}.{line}")
    except BaseException as error:
        where = error.__traceback__
        while where.tb_next and where.tb_frame.f_code.co_filename != FILE:
            where = where.tb_next
        text = beginning(str(error))
        line = f" It happened in line {where.tb_lineno}." if where.tb_frame.f_code.co_filename == FILE else ""
        return sentence(
            exercise, "it raises an error", f"Your code raised {type(error).__name__}: {text}.{line}"
        )
    finally:
        del sys.modules[own.__name__]
    if not checked:
        return sentence(
            exercise,
            "nothing to check",
            f'End with `check("{exercise.name}", {name})`, with the name of your function.',
        )
    return checked[-1]


def calls_the_reference(exercise, function, seed):
    """Return whether an answer that passed calls the very function that it is compared with."""
    code, found = unwrapped(exercise.reference).__code__, []

    def note(frame, event, argument):
        if event == "call" and frame.f_code is code:
            found.append(True)

    def noted(*given):
        sys.setprofile(note)
        try:
            return function(*given)
        finally:
            sys.setprofile(None)

    call(noted, trial(exercise, seed).inputs[-1])
    return bool(found)


def verdict_on(exercise, source, given, name, seed):
    asked.clear(), borrowed.clear()
    lacks = []
    tell("call")
    function = run(exercise, source, given, name)
    tell("called")
    if isinstance(function, Verdict):
        verdict, lacks = function, list(asked)
    elif is_untouched(function):
        verdict = not_tried(exercise)
    elif function is not None and not callable(function):
        verdict = sentence(
            exercise,
            "wrong type",
            f"Pass your function itself, without calling it, and not a {type(function).__name__}.",
        )
    else:

        @contextlib.contextmanager
        def watched(arguments):
            tell("call", described(named(exercise, arguments)))
            before = len(asked)
            yield
            tell("called")
            lacks.extend(asked[before:])  # what a known mistake asks for does not count

        verdict = judge(exercise, function, seed, watched)
        if verdict.passed and calls_the_reference(exercise, function, seed):
            verdict = sentence(exercise, "it calls the solution", BORROWED)
    if borrowed:
        verdict = sentence(exercise, "it reads the solution", BORROWED)
    elif lacks:
        verdict = sentence(
            exercise, "not in this page", LACKING.format(f"`{lacks[0]}`"), ["not_in_this_page"]
        )
    return verdict


def judged(exercise, source, given, name, seed):
    """Return the verdict on a cell as JSON; what it prints is told beforehand."""
    exercise, shown, start = EXERCISES[exercise], Relay(), time.perf_counter()
    torch.manual_seed(seed)
    with contextlib.redirect_stdout(shown), contextlib.redirect_stderr(shown):
        changed, spoilt = ["Python"], False
        try:
            try:
                verdict = verdict_on(exercise, source, given, name, seed)
            finally:
                changed = put_back()
        except BaseException as error:  # an object of the reader's can raise it wherever it is looked at
            spoilt = True
            verdict = sentence(
                exercise,
                "it cannot be judged",
                "What your function returned or raised cannot be judged: the check itself raised "
                f"{type(error).__name__}. Return a plain tensor.",
            )
    if changed:
        verdict = sentence(exercise, "it changes the check", CHANGED.format(changed[0]))
    verdict = {
        "passed": verdict.passed,
        "tried": verdict.tried and "not_in_this_page" not in verdict.mistakes,
        "mistakes": verdict.mistakes,
        "message": repr(verdict),
        "html": verdict._repr_html_().replace("run the cell again", "press Check again"),
        "seconds": time.perf_counter() - start,
        "spent": bool(changed) or spoilt,  # later checks get a new worker: what is kept may be wrong
    }
    return json.dumps(verdict)


# While the reader types, the mistakes are tried on the smallest input: the next check finds them done.

waiting: list[Iterator] = []


def prepare(ahead):
    """Prepare what the next checks compare with: pairs of an exercise and a seed, in JSON."""
    waiting[:] = [steps(EXERCISES[name], seed) for name, seed in json.loads(ahead)]


def steps(exercise, seed):
    drawn = trial(exercise, seed)
    for part in (lambda: exercise.mistakes, lambda: exercise.pairs):  # the first use of pairs takes a while
        yield
        yield from (drawn.outcome(mistake, 0) for mistake in part())


def work_on():
    """Go on for 40 milliseconds; return whether there is more to do."""
    end = time.perf_counter() + 0.04
    with contextlib.redirect_stdout(None), contextlib.redirect_stderr(None):
        return any(time.perf_counter() > end for each in waiting for _ in each)
