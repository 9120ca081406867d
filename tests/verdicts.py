"""Verdicts on all that is known of an exercise: its reference, its mistakes, the answers in tests/answers.

`python verdicts.py` prints them as JSON, under PyTorch; with the folder of the page's torch before all others
in sys.path, under that. A number says which mistakes: each, every second, and so on.
"""

import json
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path

import answers
import torch

from attention_course.exercises import EXERCISES
from attention_course.exercises.judging import judge

SEED = 5
IN_NUMPY = (
    "forgetting_mean: right fades_in_float64_by_numpy",
    "scale_for_variance: right scale_in_numpy",
    "get_batch: right batch_in_numpy",
    "generate: right write_by_numpy",
    *(f"speed_up: mistake {number} interp_wants_rising" for number in (1, 2, 3)),
    "speed_up: mistake 13 never_not_noticed",
    "speed_up: right speed_up_by_numpy",
    "speed_up: wrong speed_up_whole_curve",
)
OTHERS = (  # a module of the real model, complex numbers, and a device without memory
    "logit_lens: right lens_by_the_module_of_the_package",
    "rotate: right rotate_by_complex_numbers",
    "rotate: wrong rotate_along_dimension_1",
    "cache_bytes: right bytes_of_real_tensors",
)
NOT_IN_THE_PAGE = IN_NUMPY + OTHERS  # it says that these work in the notebook


def known(exercise: str, every: int) -> Iterator[tuple[str, Callable]]:
    """Yield the answers that are known of an exercise, each with a name of its own."""
    each = EXERCISES[exercise]
    yield "reference", each.reference
    for number, mistake in list(enumerate(each.mistakes))[::every]:
        yield f"mistake {number} {mistake.names[0]}", mistake.function
    wrong = answers.WRONG if every == 1 else []  # these are compared with each pair of mistakes
    for kind, entries in (("right", answers.RIGHT), ("wrong", wrong)):
        yield from ((f"{kind} {entry[1].__name__}", entry[1]) for entry in entries if entry[0] == exercise)


def verdicts(exercise: str, every: int = 1) -> dict[str, list]:
    """Return what is said of each: whether it passed, and its mistakes; or what the page's torch lacks."""
    found, asked = {}, []
    lacking = torch.names.asked if hasattr(torch, "names") else []

    @contextmanager
    def watched(_):
        before = len(lacking)
        yield
        asked.extend(lacking[before:])

    for name, function in known(exercise, every):
        asked.clear()
        verdict = judge(EXERCISES[exercise], function, SEED, watched)
        found[f"{exercise}: {name}"] = asked[:1] or [verdict.passed, *verdict.mistakes]
    return found


def judged_exercises() -> list[str]:
    """Import all answers, and return the exercises that the page judges."""
    for file in sorted(Path(answers.__file__).parent.glob("[a-z]*.py")):
        import_module(f"answers.{file.stem}")
    return [name for name, exercise in EXERCISES.items() if not exercise.judge]


def differing(native: dict[str, list], page: dict[str, list]) -> dict[str, tuple]:
    """Return where the page says something else, but for what it leaves to the notebook."""
    assert native.keys() == page.keys()
    said = {name: (native[name], page[name]) for name in native if native[name] != page[name]}
    left = {name for name, (_, there) in said.items() if isinstance(there[0], str)}
    return {name: pair for name, pair in said.items() if name not in left & set(NOT_IN_THE_PAGE)}


if __name__ == "__main__":
    step = int(sys.argv[1])
    json.dump(
        {key: found for name in judged_exercises() for key, found in verdicts(name, step).items()}, sys.stdout
    )
