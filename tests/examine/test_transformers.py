"""The table of architectures of transformers: what it says is so, and nothing in it is unexplained."""

import re

import examine_transformers as tool
import pytest
import transformers
from torch import nn

TEXT = tool.TABLE.read_text(encoding="utf-8")
ROWS = {row.split(" | ")[0].removeprefix("| "): row for row in TEXT.split("| --- |\n")[-1].splitlines()}
SAMPLE = ["gpt2", "bart", "llama"]

pytestmark = [
    pytest.mark.usefixtures("shapes_unchecked"),
    pytest.mark.skipif(
        f"transformers {transformers.__version__}, " not in TEXT, reason="written with another version"
    ),
]


def test_there_are_many_and_each_wrong_is_explained():
    assert len(ROWS) >= 40
    assert re.search(r"(\d+), of which", TEXT)[1] == str(len(ROWS))
    for kind, row in ROWS.items():
        _, said, wrong, why, _, seconds = row.removeprefix("| ").removesuffix(" |").split(" | ")
        assert (" wrong" in said) == bool(wrong.strip()) == bool(why.strip()), row
        assert "?" not in why, row
        assert all((kind, name) in tool.EXPLAINED for name in wrong.strip().split("; ") if name)
        assert float(seconds) < 10, row


def test_no_explanation_is_left_of_what_is_right():
    assert {kind for kind, _ in tool.EXPLAINED} <= ROWS.keys()
    assert all(name in ROWS[kind] for kind, name in tool.EXPLAINED)


@pytest.mark.parametrize(
    "kind",
    [*SAMPLE, *(pytest.param(kind, marks=pytest.mark.slow) for kind in sorted({*ROWS} - {*SAMPLE})[::8])],
)
def test_a_row_is_what_an_examination_says(kind):
    row, unexplained = tool.row(kind, tool.small(kind))
    assert row.rpartition(" | ")[0] == ROWS[kind].rpartition(" | ")[0]
    assert not unexplained


def test_what_is_wrong_and_not_explained_fails_the_command(monkeypatch, tmp_path):
    class Bigram(nn.Module):
        def __init__(self):
            super().__init__()
            self.config = transformers.GPT2Config(vocab_size=29, n_positions=tool.BLOCK)
            self.table = nn.Embedding(29, 29)

        def forward(self, ids):
            return self.table(ids)

    table = tmp_path / "table.md"
    table.write_text(TEXT, encoding="utf-8")
    monkeypatch.setattr(tool, "TABLE", table)
    monkeypatch.setattr(tool, "small", lambda kind: Bigram())
    with pytest.raises(SystemExit, match=r"^wrong, and not explained: gpt2: The past is used; gpt2: "):
        tool.main(["gpt2"])
    assert "| gpt2 |" in table.read_text()
