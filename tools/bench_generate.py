"""Milliseconds a token of `generate`, beside transformers and nanoGPT: `make bench-generate`.

SmolLM2 on the CPU in float32: ours without a cache, ours with it, and `transformers` with its cache, on the
same parameters, prompts and threads. Then the course's GPT, with and without a cache, beside nanoGPT's
`generate`, which has none (github.com/karpathy/nanoGPT, model.py). All write a few tokens in turns, so that
other load affects all; a figure is the median of the turns. The prompt is read before the clock starts,
except where there is no cache and each token reads everything.
"""

import argparse
import statistics
import time
from collections import defaultdict

import torch
import torch.nn.functional as F

from attention_course.attention import Cache
from attention_course.gpt import GPT, GPTConfig, evaluating, generate
from attention_course.smollm import SMOLLM, load_smollm

CONTEXTS = (16, 128, 512, 1024)
NEW = 8  # tokens a turn


def halves(rows, n_head):
    """Reorder rows that make neighbouring pairs of channels: transformers pairs i with i + head_size / 2."""
    return rows.view(n_head, -1, 2, *rows.shape[1:]).transpose(1, 2).reshape(rows.shape)


def in_transformers(model):
    """Return transformers' Llama with the numbers of ours."""
    import transformers  # takes two seconds

    config, state = model.config, {}
    head_size = config.n_embd // config.n_head
    names = {
        "transformer.wte": ["embed_tokens"],
        "transformer.ln_f": ["norm"],
        "ln_1": ["input_layernorm"],
        "attn.c_attn": ["self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"],
        "attn.c_proj": ["self_attn.o_proj"],
        "ln_2": ["post_attention_layernorm"],
        "mlp.c_fc": ["mlp.gate_proj", "mlp.up_proj"],
        "mlp.c_proj": ["mlp.down_proj"],
        "lm_head": ["lm_head"],
    }
    for name, value in model.state_dict().items():
        ours, kind = name.rsplit(".", 1)
        place = "" if ours == "lm_head" else "model."
        if ".h." in ours:
            _, _, layer, ours = ours.split(".", 3)
            place = f"model.layers.{layer}."
        theirs = names[ours]
        parts = [value]
        if len(theirs) == 2:
            parts = value.chunk(2)
        elif len(theirs) == 3:
            heads = [config.n_head, config.n_kv_head, config.n_kv_head]
            q, k, v = value.split([n * head_size for n in heads])
            parts = [halves(q, config.n_head), halves(k, config.n_kv_head), v]
        state |= {f"{place}{part}.{kind}": rows for part, rows in zip(theirs, parts, strict=True)}
    reference = transformers.LlamaForCausalLM(
        transformers.LlamaConfig(
            vocab_size=config.vocab_size,
            hidden_size=config.n_embd,
            intermediate_size=config.n_hidden,
            num_hidden_layers=config.n_layer,
            num_attention_heads=config.n_head,
            num_key_value_heads=config.n_kv_head,
            max_position_embeddings=config.block_size,
            rms_norm_eps=config.eps,
            rope_parameters={"rope_type": "default", "rope_theta": config.base},
            attention_bias=config.bias,
            mlp_bias=config.bias,
            tie_word_embeddings=True,
        )
    )
    reference.load_state_dict(state)
    return reference.eval()


def ours_cached(model, prompt):
    cache = Cache()
    model(prompt[:, :-1], cache)
    return lambda: generate(model, prompt, NEW, temperature=0, cache=cache)


def ours_uncached(model, prompt):
    return lambda: generate(model, prompt, NEW, temperature=0)


def theirs_cached(theirs, prompt):
    from transformers import DynamicCache

    cache = DynamicCache()
    theirs(prompt[:, :-1], past_key_values=cache, use_cache=True)
    options = {"max_new_tokens": NEW, "do_sample": False, "eos_token_id": None, "pad_token_id": 0}
    mask = torch.ones_like(prompt)
    return lambda: theirs.generate(prompt, attention_mask=mask, past_key_values=cache, **options)


@torch.no_grad()
def nano_gpt_generate(model, ids, max_new_tokens):
    """Sample as nanoGPT does: the whole context for each token, logits of its last position only."""
    for _ in range(max_new_tokens):
        context = ids[:, -model.block_size :]
        x = model.transformer.wte(context)
        x = x + model.transformer.wpe(torch.arange(context.shape[1]))
        for block in model.transformer.h:
            attn, (B, T, C) = block.attn, x.shape
            parts = attn.c_attn(block.ln_1(x)).split(C, dim=2)
            q, k, v = (part.view(B, T, -1, attn.head_size).transpose(1, 2) for part in parts)
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2)
            x = x + attn.c_proj(y.contiguous().view(B, T, C))
            x = x + block.mlp(block.ln_2(x))
        logits = model.lm_head(model.transformer.ln_f(x)[:, [-1]])[:, -1]
        drawn = torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)
        ids = torch.cat((ids, drawn), dim=1)
    return ids


def milliseconds(ways, turns):
    """Return the median ms a token of each way; `ways` maps names to functions that prepare a turn."""
    taken = defaultdict(list)
    for _ in range(turns + 1):  # the first turn warms up
        for name, prepare in ways.items():
            write = prepare()
            start = time.perf_counter()
            write()
            taken[name].append(1000 * (time.perf_counter() - start) / NEW)
    return {name: statistics.median(times[1:]) for name, times in taken.items()}


def main():
    parser = argparse.ArgumentParser(description="Time generate, beside transformers and nanoGPT.")
    parser.add_argument("--turns", type=int, default=5)
    turns = parser.parse_args().turns
    model, _ = load_smollm()
    theirs = in_transformers(model)
    torch.manual_seed(0)
    print(f"SmolLM2, float32, ms a token, {torch.get_num_threads()} threads\n")
    print(f"{'context':>8}{'no cache':>10}{'cache':>8}{'transformers':>14}{'ratio':>8}{'speed-up':>10}")
    with evaluating(model):
        for T in CONTEXTS:
            prompt = torch.randint(SMOLLM.vocab_size, (1, T))
            ways = {
                "cache": lambda prompt=prompt: ours_cached(model, prompt),
                "theirs": lambda prompt=prompt: theirs_cached(theirs, prompt),
            }
            ms = milliseconds(ways, turns)
            ms |= milliseconds({"none": lambda prompt=prompt: ours_uncached(model, prompt)}, 1)
            ratios = f"{ms['cache'] / ms['theirs']:8.2f}{ms['none'] / ms['cache']:10.1f}"
            print(f"{T:8}{ms['none']:10.1f}{ms['cache']:8.1f}{ms['theirs']:14.1f}{ratios}", flush=True)
    print("\nthe GPT of the course, ms a token near a full context (goal: 3 times as quick as nanoGPT)\n")
    print(
        f"{'n_layer':>8}{'n_embd':>8}{'batch':>7}{'no cache':>10}{'cache':>8}{'nanoGPT':>9}{'speed-up':>10}"
    )
    for n_layer, n_embd, B in ((2, 64, 1), (4, 128, 1), (2, 64, 16), (4, 128, 16)):
        gpt = GPT(GPTConfig(65, n_layer=n_layer, n_embd=n_embd))
        prompt = torch.randint(65, (B, gpt.block_size - NEW))
        ways = {
            "none": lambda gpt=gpt, prompt=prompt: ours_uncached(gpt, prompt),
            "cache": lambda gpt=gpt, prompt=prompt: ours_cached(gpt, prompt),
            "theirs": lambda gpt=gpt, prompt=prompt: lambda: nano_gpt_generate(gpt, prompt, NEW),
        }
        with evaluating(gpt):
            ms = milliseconds(ways, 20 * turns)
        times = f"{ms['none']:10.2f}{ms['cache']:8.2f}{ms['theirs']:9.2f}{ms['theirs'] / ms['cache']:10.1f}"
        print(f"{n_layer:8}{n_embd:8}{B:7}{times}", flush=True)


if __name__ == "__main__":
    main()
