"""Examine the causal architectures of `transformers`, small and random: python tools/examine_transformers.py.

Writes attention_course/examine/transformers.md; given names, only their rows. What is wrong and not explained
in EXPLAINED fails it. Seconds are those of one core.
"""

import sys
import time
from collections import Counter
from pathlib import Path

import torch
import transformers
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KINDS

from attention_course.examine import examine, sizes

TABLE = Path(__file__).parents[1] / "attention_course" / "examine" / "transformers.md"
MAX_PARAMETERS = 500_000  # parameters: what is larger has sizes of other names
BLOCK = 32
SIZES = {
    "hidden_size n_embd d_model dim embed_dim embedding_size word_embed_proj_dim": 32,
    "num_hidden_layers n_layer n_layers num_layers decoder_layers encoder_layers": 2,
    "num_attention_heads n_head n_heads num_heads decoder_attention_heads encoder_attention_heads": 4,
    "num_key_value_heads num_experts_per_tok attn_layer_period": 2,
    "attn_layer_offset": 1,
    "intermediate_size ffn_dim d_ff n_inner decoder_ffn_dim encoder_ffn_dim d_inner ffn_hidden_size": 64,
    "moe_intermediate_size shared_expert_intermediate_size": 16,
    "num_experts num_local_experts n_routed_experts": 4,
    "head_dim d_kv attention_head_size rotary_dim": 8,
    "max_position_embeddings n_positions n_ctx max_seq_len seq_length context_length": BLOCK,
    "vocab_size": 29,
    "pad_token_id bos_token_id decoder_start_token_id": 0,
    "eos_token_id forced_eos_token_id": None,  # it would end what is written
}
LAYERS = {"lfm3": 4, "recurrent_gemma": 3}  # of fewer, none has attention
LEFT_OUT = {"bailing_hybrid", "falcon_h1", "xlstm"}  # minutes, minutes, and sizes that have to fit together
UNUSED, LEAK, PREFIX, PADDING = (
    "Every parameter gets a gradient",
    "No leak from the future",
    "A prefix alone gives the same logits",
    "Padding on the left changes nothing",
)
WRITES, SIZE = "It writes what it predicts", "Gradients are of similar size"
SLOPE = "The gradient is the slope of the loss"
DECODERS = [
    *("bart", "bigbird_pegasus", "blenderbot", "blenderbot-small", "marian", "mbart", "mvp", "pegasus"),
    *("plbart", "trocr", "whisper"),
]
NO_ENCODER = "Its layers that read an encoder (encoder_attn) are made, and there is none."
ROBERTAS = ["camembert", "data2vec-text", "roberta", "roberta-prelayernorm", "xlm-roberta", "xlm-roberta-xl"]
EXPLAINED = {
    **{(kind, UNUSED): NO_ENCODER for kind in DECODERS},
    ("big_bird", UNUSED): "Its pooler is made, and only its classifiers use it.",
    ("rwkv", PREFIX): "A bug: two texts of one token return logits (2, 2, V).",
    **{("rwkv", name): "backward() fails: a tensor was changed in place." for name in (UNUSED, SLOPE, SIZE)},
    ("rwkv", WRITES): "It writes token by token, so by the bug above.",
    **{(kind, WRITES): "generate counts positions from 0, forward() from padding + 1." for kind in ROBERTAS},
    ("recurrent_gemma", PADDING): "Its recurrent layers read hidden tokens; the mask is for attention.",
    (
        "prophetnet",
        "It reads a full block",
    ): "Not looked into: it fails at the end of its block, and leaks before.",
    ("xmod", "It answers ids with logits"): "It has to be told a language: set_default_language().",
    **{("xlm", name): "It reads both ways, unless causal=True." for name in (LEAK, PREFIX)},
    **{("xlnet", name): "It reads both ways, unless perm_mask hides." for name in (LEAK, PREFIX)},
    **{(kind, WRITES): "generate predicts at a mask token that it appends." for kind in ("xlm", "xlnet")},
    ("xlnet", PADDING): "generate leaves out the attention_mask.",
    ("xlnet", UNUSED): "Some parameters serve perm_mask and segments alone.",
}
HEAD = (
    "# Architectures of transformers, examined\n\n"
    "Causal architectures of transformers {version}, small, with random parameters and a block of {block} "
    "tokens, are examined without training and without further words: {count}, of which {wrong} are called "
    "wrong, each for the reason in its row. What is doubtful may be right. Seconds are those of one core. "
    "`python tools/examine_transformers.py` writes this table; it leaves out {left} that its few names of "
    "sizes do not make small, or that it cannot make.\n\n"
    "| architecture | verdicts | wrong | why | doubtful | seconds |\n| --- | --- | --- | --- | --- | --- |\n"
)


def small(kind: str) -> torch.nn.Module:
    """Return a random model of a kind, with each of SIZES that its config has."""
    if kind in LEFT_OUT:
        raise ValueError("left out")
    known = AutoConfig.for_model(kind)
    named = {*known.to_dict(), *known.attribute_map}
    given = {name: size for names, size in SIZES.items() for name in names.split() if name in named}
    if kind in LAYERS:
        given["num_hidden_layers"] = LAYERS[kind]
    config = AutoConfig.for_model(kind, **given)
    config.is_decoder = True  # BERT and its kin ask for it
    with torch.device("meta"):  # first without memory
        many = sum(parameter.numel() for parameter in AutoModelForCausalLM.from_config(config).parameters())
    if many > MAX_PARAMETERS:
        raise ValueError(f"{many} parameters")
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config)


def row(kind: str, model: torch.nn.Module) -> tuple[str, list[str]]:
    """Examine a model; return its row of the table, and what is wrong and not explained."""
    begin = time.process_time()
    tells = any(getattr(model.config, name, None) == BLOCK for name in sizes.BLOCK)
    report = examine(model, block_size=None if tells else BLOCK, train=False)
    seconds, counts = time.process_time() - begin, Counter(finding.verdict for finding in report.findings)
    wrong, doubtful = ([f.name for f in report.findings if f.verdict == v] for v in ("wrong", "doubtful"))
    said = ", ".join(
        f"{counts[verdict]} {verdict}"
        for verdict in ("right", "wrong", "doubtful", "not asked")
        if counts[verdict]
    )
    why = " ".join(dict.fromkeys(EXPLAINED.get((kind, name), "?") for name in wrong))
    cells = kind, said, "; ".join(wrong), why, "; ".join(doubtful), f"{seconds:.1f}"
    return f"| {' | '.join(cells)} |", [f"{kind}: {name}" for name in wrong if (kind, name) not in EXPLAINED]


def main(kinds: list[str]) -> None:
    """Examine kinds, by default all; write the table, in which the rows of others stay."""
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    rows = {row.split(" | ")[0][2:]: row for row in TABLE.read_text().splitlines()[6:]} if kinds else {}
    rows, unexplained = {each: made for each, made in rows.items() if each not in LEFT_OUT}, []
    for kind in kinds or KINDS:
        try:
            model = small(kind)
        except Exception as error:
            print(f"left out: {kind}: {str(error)[:80]!r}", file=sys.stderr)
            continue
        rows[kind], more = row(kind, model)
        unexplained += more
        print(rows[kind], flush=True)
        head = HEAD.format(
            version=transformers.__version__,
            block=BLOCK,
            count=len(rows),
            wrong=sum(" wrong" in each.split(" | ")[1] for each in rows.values()),
            left=len(KINDS) - len(rows),
        )
        TABLE.write_text(
            head + "".join(f"{rows[each]}\n" for each in KINDS if each in rows), encoding="utf-8"
        )
    if unexplained:
        sys.exit(f"wrong, and not explained: {'; '.join(unexplained)}")


if __name__ == "__main__":
    main(sys.argv[1:])
