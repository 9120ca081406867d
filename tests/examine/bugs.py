"""What the examination says of planted bugs. Running this file writes `attention_course/examine/bugs.md`."""

from pathlib import Path

import torch

import attention_course
from attention_course.examine import QUESTIONS, examine_here
from attention_course.examine.planted import BUGS, Bug, plant
from attention_course.examine.wrapped_model import WrappedModel

TABLE = Path(attention_course.__file__).parent / "examine" / "bugs.md"
PAIRS = [
    ("mask off by one", "a head thrown away"),
    ("no mask", "dropout in eval mode"),
    ("no mask", "logits already softmaxed"),
    ("mask off by one", "loss summed"),
    ("mask inverted", "one block for generate: no crop"),
    ("positions counted from the end", "no residual around attention"),
    ("all positions 0", "embeddings too large"),
    ("positions of the batch", "last layer left out"),
    ("no residual around attention", "loss on the ids themselves"),
    ("scale by √T", "ReLU behind the last layer"),
    ("ids changed in place", "mask off by one"),
    ("weights over queries", "loss shifts shifted targets again"),
    ("no mask", "generate draws from the first position"),
    ("mask of the first 20 tokens", "keys by the matrix of the queries"),
    ("logits divided by T", "loss of softmaxed logits"),
    ("the MLP reads the next token, too", "generate forgets the first token"),
    ("positions from 7 on alike", "no residual around attention"),
    ("tokens normalized over the batch", "loss of the last token"),
    ("the first id overwritten", "one layer, several times"),
    ("dropout in eval mode", "a head thrown away"),
    ("is_causal forgotten, gpt.py", "embeddings too large, gpt.py"),
    ("cache without offset of the rotation, llama.py", "no gate in SwiGLU, llama.py"),
    ("RMSNorm over time, llama.py", "the values of one head for all, llama.py"),
]


def named(*bugs: str) -> list[str]:
    """Examine a model with these bugs; return what is not right, what is to be mended first at the front."""
    questions = [question for question in QUESTIONS if not question.train]
    torch.manual_seed(0)
    model = plant(*bugs)
    report = examine_here(WrappedModel(model, model.vocab_size, model.block_size), questions)
    return [finding.name for finding in report.findings if finding.verdict in ("wrong", "doubtful")]


def row(bug: Bug) -> str:
    first, *others = named(bug.name) or [f"nothing: {bug.why}"]
    return f"| {bug.name.removesuffix(f', {bug.file}')} | {bug.file} | {first} | {'; '.join(others)} |"


def hits(rows: list[str]) -> int:
    """Count the bugs that are found first by the finding that is meant for them."""
    return sum(row.split(" | ")[2] == bug.finding for row, bug in zip(rows, BUGS.values(), strict=True))


def page(rows: list[str]) -> str:
    """Return the table with these rows, one for each planted bug, and what it says above them."""
    seen = sum(bool(bug.finding) for bug in BUGS.values())
    return "\n".join(
        [
            "# What the examination finds",
            "",
            f"{len(BUGS)} bugs were planted: in the models of the course, and in one written otherwise, in "
            f"one file. {hits(rows)} of {seen} are found first by the finding that is meant for them; "
            f"{len(BUGS) - seen} are not found, for the reasons in the table. Some are only called doubtful. "
            "`python tests/examine/bugs.py` writes this table; a test compares.",
            "",
            "The questions were written for these bugs, so these figures are training accuracy: how many "
            "bugs the examination finds that nobody thought of is not known from them. `real_bugs.md` has "
            "bugs that people had, and of some of them a first run.",
            "",
            "Of the right models that the tests try (`tests/examine/right.py`) it calls none wrong, and some "
            "doubtful. It does call a model wrong that makes parameters and never uses them, even if its "
            "outputs are right: BigBird of `transformers`, for example, has such a pooler.",
            "",
            "| bug | source | fix first | also not right |",
            "| --- | --- | --- | --- |",
            *rows,
            "",
        ]
    )


if __name__ == "__main__":
    TABLE.write_text(page([row(bug) for bug in BUGS.values()]), encoding="utf-8")
