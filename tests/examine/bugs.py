"""Planted bugs: words of a model's source, which occur in it once, and what replaces them.

`attention_course/examine/bugs.md` is the table of them, with what the examination says of each. Running this
file writes it.
"""

import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from unittest.mock import patch

import torch

import attention_course
from attention_course.attention import Cache
from attention_course.examine import QUESTIONS, Examination
from attention_course.examine.subject import Subject

HERE = Path(__file__).parent
PACKAGE = Path(attention_course.__file__).parent
BLOCKED = "It reads a full block"
TABLE = PACKAGE / "examine" / "bugs.md"
V, BLOCK = 29, 24

LEAK, BATCH, EVAL = (
    "No leak from the future",
    "The texts of a batch do not meet",
    "In eval mode the same ids give the same logits",
)
PAST, ORDER, CONTEXT, PREFIX = (
    "The past is used",
    "The order of tokens matters",
    "The context is as long as it says",
    "A prefix alone gives the same logits",
)
GRADIENT, LOSS, RESIDUAL, FINITE = (
    "Every parameter gets a gradient",
    "Its own loss is the cross-entropy",
    "A token's own output depends most on itself",
    "The logits are finite",
)
FIRST, EVEN, HEART, WRITES, CACHE = (
    "The first loss is near ln V",
    "Attention begins even",
    "One batch is learned by heart",
    "It writes on beyond its block",
    "With a cache the logits are the same",
)
ANSWER, RAW, IDS, TRACE, OWN = (
    "It answers ids with logits",
    "The logits are raw",
    "The ids stay as they were",
    "No text leaves a trace in the model",
    "Every token is read",
)


@dataclass(frozen=True)
class Bug:
    """A bug: its name, file and edits, and the finding that is meant for it; "" and why, if there is none."""

    name: str
    file: str
    edits: tuple[tuple[str, str], ...]
    finding: str
    options: tuple[tuple[str, object], ...] = ()
    why: str = ""


def bug(name, file, *words, finding, why="", **options):
    return Bug(
        name, file, tuple(zip(words[::2], words[1::2], strict=True)), finding, tuple(options.items()), why
    )


OURS, GPT, ONE = "attention.py", "gpt.py", "one_file.py"
MASK = "scores.masked_fill(self.future[:T, :T], -1e9)"
BUGS = [
    bug("no mask", ONE, MASK, "scores", finding=LEAK),
    bug("mask off by one", ONE, "triu(1)", "triu(2)", finding=LEAK),
    bug("mask inverted", ONE, "triu(1)", "tril(-1)", finding=LEAK),
    bug("each token hidden from itself", ONE, "triu(1)", "triu(0)", finding=LEAK),
    bug("mask added as 1 instead of -inf", ONE, MASK, "scores - self.future[:T, :T].float()", finding=LEAK),
    bug(
        "mask after softmax, rows not renormalized",
        ONE,
        MASK,
        "scores",
        "scores.softmax(dim=-1), self.dropout",
        "scores.softmax(dim=-1).masked_fill(self.future[:T, :T], 0), self.dropout",
        finding=LEAK,
    ),
    bug("-inf times the mask", ONE, MASK, "scores + self.future[:T, :T] * float('-inf')", finding=FINITE),
    bug("weights over queries", ONE, "scores.softmax(dim=-1)", "scores.softmax(dim=-2)", finding=LEAK),
    bug("weights over heads", ONE, "scores.softmax(dim=-1)", "scores.softmax(dim=1)", finding=LEAK),
    bug("weights over the batch", ONE, "scores.softmax(dim=-1)", "scores.softmax(dim=0)", finding=BATCH),
    bug("weights transposed", ONE, '"bhij,bjhd->bihd"', '"bhji,bjhd->bihd"', finding=LEAK),
    bug(
        "heads of the value by view without transpose",
        ONE,
        "v = self.to_v(x).view(B, T, self.heads, C // self.heads)",
        "v = self.to_v(x).view(B, self.heads, T, C // self.heads).transpose(1, 2)",
        finding=LEAK,
    ),
    bug(
        "heads joined without transpose",
        ONE,
        '"bhij,bjhd->bihd", weights, v)',
        '"bhij,bjhd->bhid", weights, v)',
        finding=LEAK,
    ),
    bug("no scale", ONE, " / math.sqrt(C // self.heads)", "", finding=EVEN, heads=1),
    bug(
        "no scale, four heads",
        ONE,
        " / math.sqrt(C // self.heads)",
        "",
        finding="",
        why="each head sees few tokens; together, over two layers, they look even",
    ),
    bug(
        "scores multiplied by √head_size",
        ONE,
        " / math.sqrt(C // self.heads)",
        " * math.sqrt(C // self.heads)",
        finding=EVEN,
        heads=1,
    ),
    bug("scale by √T", ONE, " / math.sqrt(C // self.heads)", " / math.sqrt(T)", finding=PREFIX),
    bug(
        "scale by n_embd",
        ONE,
        " / math.sqrt(C // self.heads)",
        " / C",
        finding="",
        why="attention begins even, as with small matrices; training makes queries larger",
    ),
    bug(
        "no positions, one layer",
        ONE,
        "x = x + self.places(torch.arange(T))",
        "pass",
        finding=ORDER,
        layers=1,
    ),
    bug(
        "position table not used, two layers",
        ONE,
        "x = x + self.places(torch.arange(T))",
        "pass",
        finding=GRADIENT,
    ),
    bug(
        "all positions 0",
        ONE,
        "self.places(torch.arange(T))",
        "self.places(torch.zeros_like(ids))",
        finding=GRADIENT,
    ),
    bug(
        "no positions, two layers, no table",
        ONE,
        "x = x + self.waves[:T]",
        "pass",
        finding="",
        positions="sinusoidal",
        why="two layers know the order from the mask alone (Haviv et al. 2022)",
    ),
    bug(
        "positions of the batch",
        ONE,
        "self.places(torch.arange(T))",
        "self.places(torch.arange(len(ids)))[:, None]",
        finding=BATCH,
    ),
    bug(
        "positions counted from the end",
        ONE,
        "self.places(torch.arange(T))",
        "self.places(torch.arange(T).flip(0))",
        finding=PREFIX,
    ),
    bug(
        "positions counted from 1",
        ONE,
        "self.places(torch.arange(T))",
        "self.places(torch.arange(1, T + 1))",
        finding=BLOCKED,
    ),
    bug(
        "positions of the token",
        ONE,
        "self.places(torch.arange(T))",
        "self.places(ids % self.block)",
        finding=ORDER,
        layers=1,
    ),
    bug(
        "rotary applied to queries alone",
        ONE,
        "q, k = self.rotate(q), self.rotate(k)",
        "q = self.rotate(q)",
        finding="",
        positions="rotary",
        why="scores then depend on the query's position only; order is still told, by the mask",
    ),
    bug(
        "rotary over the heads, one layer",
        ONE,
        "T, half = x.shape[1], x.shape[-1] // 2",
        "T, half = x.shape[2], x.shape[-1] // 2",
        "[None, :, None]",
        "[None, None]",
        finding=ORDER,
        positions="rotary",
        layers=1,
    ),
    bug(
        "no residual around attention",
        ONE,
        "x = x + self.attend(self.norm_a(x))",
        "x = self.attend(self.norm_a(x))",
        finding=RESIDUAL,
    ),
    bug(
        "no residual around the MLP, six layers",
        ONE,
        "return x + self.feed(self.norm_b(x))",
        "return self.feed(self.norm_b(x))",
        finding="",
        layers=6,
        why="what attention adds still gets past; such a model learns, only worse",
    ),
    bug(
        "attention not added",
        ONE,
        "x = x + self.attend(self.norm_a(x))",
        "self.attend(self.norm_a(x))",
        finding=PAST,
    ),
    bug(
        "the input of the MLP dropped",
        ONE,
        "return x + self.feed(self.norm_b(x))",
        "return x",
        finding=GRADIENT,
    ),
    bug(
        "LayerNorm over time",
        ONE,
        "x = x + self.attend(self.norm_a(x))",
        "x = x + self.attend(F.layer_norm(x.transpose(1, 2), (x.shape[1],)).transpose(1, 2))",
        finding=LEAK,
    ),
    bug(
        "BatchNorm over texts and time",
        ONE,
        "logits = self.head(self.norm(x))",
        "logits = self.head(self.norm(x - x.mean(dim=(0, 1)) * self.training))",
        finding=BATCH,
    ),
    bug(
        "dropout in eval mode",
        ONE,
        "self.dropout, self.training)\n        mixed",
        "0.1)\n        mixed",
        finding=EVAL,
    ),
    bug(
        "logits already softmaxed",
        ONE,
        "self.head(self.norm(x))",
        "self.head(self.norm(x)).softmax(dim=-1)",
        finding=RAW,
    ),
    bug(
        "ReLU behind the last layer",
        ONE,
        "self.head(self.norm(x))",
        "F.relu(self.head(self.norm(x)))",
        finding=RAW,
    ),
    bug("embeddings too large", ONE, "std=width**-0.5", "std=1.0", finding=FIRST),
    bug(
        "loss over merged dimensions in the wrong order",
        ONE,
        "logits.flatten(0, 1), targets.flatten()",
        "logits.transpose(0, 1).flatten(0, 1), targets.flatten()",
        finding=LOSS,
    ),
    bug(
        "loss over time as classes",
        ONE,
        "logits.flatten(0, 1), targets.flatten()",
        "logits.transpose(0, 1)[:T].reshape(-1, logits.shape[-1]), targets.flatten()",
        finding=LOSS,
    ),
    bug(
        "loss shifts shifted targets again",
        ONE,
        "logits.flatten(0, 1), targets.flatten()",
        "logits[:, :-1].flatten(0, 1), targets[:, 1:].flatten()",
        finding=LOSS,
    ),
    bug("loss on the ids themselves", ONE, "targets.flatten())", "ids.flatten())", finding=LOSS),
    bug("loss summed", ONE, "targets.flatten())", "targets.flatten(), reduction='sum')", finding=LOSS),
    bug(
        "logits of the last position only",
        ONE,
        "logits = self.head(self.norm(x))",
        "logits = self.head(self.norm(x[:, -1]))",
        "targets.flatten()",
        "targets[:, -1]",
        "logits.flatten(0, 1)",
        "logits",
        finding=ANSWER,
    ),
    bug(
        "time and batch exchanged in the output",
        ONE,
        "return logits, None",
        "return logits.transpose(0, 1), None",
        finding=ANSWER,
    ),
    bug(
        "ids changed in place",
        ONE,
        "x = self.tokens(ids)",
        "x = self.tokens(ids.clamp_(max=20))",
        finding=IDS,
    ),
    bug(
        "the mean of the text before kept",
        ONE,
        "x = self.tokens(ids)",
        "before, self.before = getattr(self, 'before', 0), self.tokens(ids).detach().mean(dim=(0, 1))\n"
        "        x = self.tokens(ids) + before",
        finding=EVAL,
    ),
    bug(
        "no token sees more than 4 back",
        ONE,
        MASK,
        "scores.masked_fill(self.future[:T, :T] | (torch.arange(T)[:, None] - torch.arange(T) > 4), -1e9)",
        finding=CONTEXT,
    ),
    bug("one block for generate: no crop", ONE, "ids[:, -self.block :]", "ids", finding=WRITES),
    bug(
        "last layer left out",
        ONE,
        "for layer in self.layers:",
        "for layer in self.layers[:-1]:",
        finding=GRADIENT,
    ),
    bug(
        "a head thrown away",
        ONE,
        "mixed.reshape(B, T, C)",
        "(mixed * (torch.arange(self.heads) < 3)[:, None]).reshape(B, T, C)",
        finding=GRADIENT,
    ),
    bug(
        "keys detached",
        ONE,
        'scores = torch.einsum("bihd,bjhd->bhij", q, k)',
        'scores = torch.einsum("bihd,bjhd->bhij", q, k.detach())',
        finding=GRADIENT,
    ),
    bug("layers in a plain list", ONE, "nn.ModuleList(\n", "list(\n", finding=GRADIENT),
    bug("tokens detached", ONE, "x = self.tokens(ids)", "x = self.tokens(ids).detach()", finding=GRADIENT),
    bug("no mask", OURS, "is_causal = is_causal and T_q > 1  #", "is_causal = False  #", finding=LEAK),
    bug(
        "mask off by one",
        OURS,
        ".tril(T_k - T_q)\n",
        ".tril(T_k - T_q + 1)\n",
        "explicit = bool(recordings) or sdpa_is_slow(q)",
        "explicit = True",
        finding=LEAK,
    ),
    bug(
        "mask inverted",
        OURS,
        "scores = scores.masked_fill(~mask,",
        "scores = scores.masked_fill(mask,",
        "explicit = bool(recordings) or sdpa_is_slow(q)",
        "explicit = True",
        finding=FINITE,
    ),
    bug(
        "weights over queries",
        OURS,
        'scores = scores.masked_fill(~mask, float("-inf"))\n    return torch.softmax(scores, dim=-1)',
        'scores = scores.masked_fill(~mask, float("-inf"))\n    return torch.softmax(scores, dim=-2)',
        "explicit = bool(recordings) or sdpa_is_slow(q)",
        "explicit = True",
        finding=LEAK,
    ),
    bug(
        "no scale",
        OURS,
        "scale = q.shape[-1] ** -0.5 if scale is None else scale",
        "scale = 1.0",
        "explicit = bool(recordings) or sdpa_is_slow(q)",
        "explicit = True",
        finding=EVEN,
        n_head=1,
    ),
    bug(
        "heads joined without transpose",
        OURS,
        "mask, is_causal)\n        return self.c_proj(output.transpose(1, 2).reshape",
        "mask, is_causal)\n        return self.c_proj(output.reshape",
        finding=LEAK,
    ),
    bug(
        "view without transpose",
        OURS,
        "part.view(B, T, -1, self.head_size).transpose(1, 2)",
        "part.reshape(B, -1, T, self.head_size)",
        finding=LEAK,
    ),
    bug(
        "cache without offset of positions",
        GPT,
        "torch.arange(start, stop, device=ids.device)",
        "torch.arange(stop - start, device=ids.device)",
        finding=CACHE,
    ),
    bug("cached keys not counted", GPT, "cache.advance(ids.shape[1])", "pass", finding=CACHE),
    bug(
        "all positions 0",
        GPT,
        "torch.arange(start, stop, device=ids.device)",
        "torch.zeros_like(ids)",
        finding=GRADIENT,
    ),
    bug(
        "no residual around attention",
        GPT,
        "x = x + self.dropout(self.attn(",
        "x = self.dropout(self.attn(",
        finding=RESIDUAL,
    ),
    bug("embeddings too large", GPT, "std = config.n_embd**-0.5", "std = 1.0", finding=FIRST),
    bug(
        "dropout always on",
        GPT,
        "self.dropout = nn.Dropout(config.dropout)",
        "self.dropout = lambda x: F.dropout(x, 0.1)",
        finding=EVAL,
    ),
    bug(
        "softmax in the model",
        GPT,
        "return self.lm_head(self.transformer.ln_f(x))",
        "return self.lm_head(self.transformer.ln_f(x)).softmax(-1)",
        finding=RAW,
    ),
    bug(
        "a mean over time added",
        GPT,
        "x = self.transformer.drop(x)",
        "x = self.transformer.drop(x) + x.mean(dim=1, keepdim=True)",
        finding=LEAK,
    ),
    bug("the MLP's input is not normalized", GPT, "self.mlp(self.ln_2(x))", "self.mlp(x)", finding=GRADIENT),
    bug(
        "ids beyond 20 read as 20",
        GPT,
        "self.transformer.wte(ids)",
        "self.transformer.wte(ids.clamp(max=20))",
        finding=OWN,
    ),
]


def patched(name: str, edits) -> ModuleType:
    """Execute the source of a module with words replaced, each of which occurs in it once."""
    path = (HERE if name == ONE else PACKAGE) / name
    source = path.read_text(encoding="utf-8")
    for old, new in edits:
        if source.count(old) != 1:
            raise ValueError(f"{name}: {old!r} occurs {source.count(old)} times")
        source = source.replace(old, new)
    module = ModuleType(f"patched_{path.stem}")
    sys.modules[module.__name__] = module  # where dataclasses look for it
    exec(compile(source, f"<{name}, patched>", "exec"), module.__dict__)
    return module


def planted(*bugs: Bug) -> torch.nn.Module:
    """Make a model with these bugs, all in one file."""
    (file,) = {each.file for each in bugs}
    edits = [edit for each in bugs for edit in each.edits]
    options = {name: value for each in bugs for name, value in each.options}
    torch.manual_seed(0)
    if file == ONE:
        return patched(ONE, edits).Model(vocab=V, block=BLOCK, **options)
    modules = {}
    if file == OURS:
        modules["attention_course.attention"] = patched(OURS, edits)
        modules["attention_course.attention"].Cache = Cache
        edits = []
    with patch.dict(sys.modules, modules):
        gpt = patched(GPT, edits)
    return gpt.GPT(gpt.GPTConfig(vocab_size=V, block_size=BLOCK, n_embd=32, **options))


ONE_FILE = {bug.name: bug for bug in BUGS if bug.file == "one_file.py"}
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
]


def named(*bugs: Bug) -> list[str]:
    """Examine a model with these bugs; return what is not right, what is to be mended first at the front."""
    questions = [question for question in QUESTIONS if not question.train]
    report = Examination(Subject(planted(*bugs), V, BLOCK), questions).run()
    return [finding.name for finding in report.findings if finding.verdict in ("wrong", "doubtful")]


def table() -> str:
    """Examine all planted bugs; return the table."""
    lines, hits, seen = [], 0, [each for each in BUGS if each.finding]
    for each in BUGS:
        names = named(each)
        hits += bool(each.finding) and names[:1] == [each.finding]
        first, *others = names or [f"nothing: {each.why}"]
        lines.append(f"| {each.name} | {each.file} | {first} | {'; '.join(others)} |")
    unseen = len(BUGS) - len(seen)
    return "\n".join(
        [
            "# What the examination finds",
            "",
            f"{len(BUGS)} bugs were planted in two models: rung 8's GPT, and one written otherwise, in one "
            f"file. {hits} of {len(seen)} are found first by the finding that is meant for them; "
            f"{unseen} cannot be seen from outside without a training. `python tests/examine/bugs.py` writes "
            "this table; a test compares.",
            "",
            "| bug | source | mend first | also not right |",
            "| --- | --- | --- | --- |",
            *lines,
            "",
        ]
    )


if __name__ == "__main__":
    TABLE.write_text(table(), encoding="utf-8")
