"""Planted bugs: words of a model's source, which occur in it once, and what replaces them.

`planted.toml` lists them; `bugs.md` is a table of what an examination says of each.
"""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType

import torch
from torch import nn

from attention_course.attention import Cache
from attention_course.checks import check_generator, check_sizes
from attention_course.ladder import read_table
from attention_course.names import look_up
from attention_course.patching import replaced

HERE = Path(__file__).parent
PACKAGE = HERE.parent
ONE_FILE = "one_file.py"
PLANTED_DEFAULTS = {"vocab_size": 29, "block_size": 24}
NUMBERS = {"vocab_size", "block_size", "width", "heads", "layers"}  # of the sizes of one_file.py


@dataclass(frozen=True)
class Bug:
    """A bug, and the finding of an examination that is meant for it.

    Attributes:
        name: what it is.
        edits: pairs of words: those of the source, and those that take their place.
        file: "one_file.py", or a module of the package.
        finding: the name of the finding; "" if the examination does not find it.
        why: why not.
        sizes: those of a model that shows it, where they are not the defaults.
    """

    name: str
    edits: list[list[str]]
    file: str = ONE_FILE
    finding: str = ""
    why: str = ""
    sizes: Mapping[str, int | str] = field(default_factory=dict)


BUGS = {name: Bug(name, **table) for name, table in read_table(HERE / "planted.toml").items()}


def plant(*bugs: Bug | str, **sizes: int | str) -> nn.Module:
    """Return a model with bugs in it, and random parameters from torch's global seed.

    It has attributes vocab_size and block_size, 29 and 24 by default. A bug of one_file.py makes a model that
    maps ids (B, T) to (logits (B, T, V), loss or None); one of the package a GPT, or a Llama.

    Args:
        *bugs: bugs of one file, or their names. Without any, the right model of one_file.py.
        **sizes: of the model; they take the place of those of a bug.

    Raises:
        TypeError: a size is not an integer.
        ValueError: as `source_of`; or two bugs show at different sizes, or a size is below 1.
    """
    chosen = known(bugs)
    wanted: dict[str, int | str] = {}
    for bug in chosen:
        for name, value in bug.sizes.items():
            if wanted.setdefault(name, value) != value:
                raise ValueError(f"One bug needs {name} = {wanted[name]!r}, {bug.name!r} needs {value!r}.")
    file, sizes = file_of(chosen), PLANTED_DEFAULTS | wanted | sizes
    check_sizes("plant", 1, **{name: sizes[name] for name in NUMBERS & sizes.keys()})
    module = executed(file, source_of(*chosen))
    if file == ONE_FILE:
        return module.Model(**sizes)
    if file == "attention.py":
        module.__dict__["Cache"] = Cache  # the examination passes one of the package
        gpt = (PACKAGE / "gpt.py").read_text(encoding="utf-8")
        module = executed("gpt.py", gpt.replace("attention_course.attention", module.__name__))
    kind = "Llama" if file == "llama.py" else "GPT"
    model = getattr(module, kind)(getattr(module, f"{kind}Config")(n_embd=32, **sizes))
    model.vocab_size = model.config.vocab_size
    return model


def source_of(*bugs: Bug | str) -> str:
    """Return the source of one_file.py, or of a module of the package, with bugs in it.

    Raises:
        ValueError: unknown name; the message lists all. Or the bugs are of different files, or change the
            same words.
    """
    chosen = known(bugs)
    file = file_of(chosen)
    source = (HERE / file if file == ONE_FILE else PACKAGE / file).read_text(encoding="utf-8")
    names = " and ".join(repr(bug.name) for bug in chosen)
    return replaced(source, [(old, new) for bug in chosen for old, new in bug.edits], f"{names} in {file}")


def draw_bugs(number: int, generator: torch.Generator | None = None) -> list[Bug]:
    """Draw bugs of one_file.py that are found, each by another finding.

    Args:
        number: how many.
        generator: for random numbers; torch's global one by default.

    Raises:
        TypeError: number is not an integer, or generator not a torch.Generator.
        ValueError: number is below 1, or there are fewer findings.
    """
    check_sizes("draw_bugs", 1, number=number)
    check_generator(generator, "draw_bugs")
    seen = [bug for bug in BUGS.values() if bug.file == ONE_FILE and bug.finding]
    order = torch.randperm(len(seen), generator=generator).tolist()
    by_finding = {seen[place].finding: seen[place] for place in order}
    if number > len(by_finding):
        raise ValueError(f"draw_bugs: number = {number}, expected at most {len(by_finding)} findings.")
    return list(by_finding.values())[:number]


def known(bugs: Sequence[Bug | str]) -> list[Bug]:
    """Return bugs, looked up where a name is given."""
    return [bug if isinstance(bug, Bug) else look_up(bug, BUGS, "bug") for bug in bugs]


def file_of(bugs: list[Bug]) -> str:
    """Return the one file that bugs are planted in."""
    files = sorted({bug.file for bug in bugs}) or [ONE_FILE]
    if len(files) > 1:
        raise ValueError(f"These bugs are of {' and '.join(files)}. Plant bugs of one file together.")
    return files[0]


def executed(file: str, source: str) -> ModuleType:
    """Execute the source of a module."""
    module = ModuleType(f"planted_{Path(file).stem}")
    sys.modules[module.__name__] = module  # where dataclasses, and imports, look for it
    exec(compile(source, f"<{file}, planted>", "exec"), module.__dict__)
    return module
