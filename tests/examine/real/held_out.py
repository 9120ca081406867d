"""Twelve more bugs that people had, chosen and rebuilt before any question was tried on them.

Nothing is tuned to them: a figure of how many are found counts only for the first run.
"""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from examine.real.small import GPT, HF, Attention, Real, collect, next_of, same_weights
from torch import nn

BUGS: dict[str, Real] = {}
real = collect(BUGS)
GITHUB = "https://github.com/"
TRANSFORMERS = GITHUB + "huggingface/transformers/"


@real(
    GITHUB + "mlfoundations/open_lm/issues/4",
    "Rotary positions are applied along dim -2 of (B, T, H, D): to heads, not to tokens.",
)
def openlm_rotary_over_heads(broken):
    class Rotated(Attention):
        def rotate(self, x, cos, sin):
            if broken:
                cos, sin = (each[:, None] for each in self.cos_sin(torch.arange(x.shape[1])))
            return super().rotate(x, cos, sin)

    class OpenLM(GPT):
        def forward(self, input):
            x = self.wte(input)
            return self.run(x)[0], x

    return OpenLM(attention=Rotated, positions="rotary")


@real(
    GITHUB + "cmu-l3/anlp-fall2025-code/issues/1",
    "pos = arange(x.size(0)).unsqueeze(1): all tokens of a text get the position of the text in the batch.",
)
def anlp_positions_of_the_batch(broken):
    class Transformer(GPT):
        def forward(self, x):
            B, T = x.shape
            positions = torch.arange(B)[:, None] if broken else torch.arange(T)[None]
            return self.run(self.wte(x), positions)[0]

    return Transformer()


@real(
    GITHUB + "dmlc/gluon-nlp/issues/1015",
    "prev_len = states[0].shape[1] of (B, H, T, D): positions go on from the number of heads.",
    given=lambda _: {"step": lambda model, ids, cache: model(ids, cache)},
)
def gluonnlp_past_length_is_heads(broken):
    class GPT2(GPT):
        def forward(self, data, states=None):
            """Return logits and states: keys and values of layer after layer, (B, H, T, D) each."""
            before, past = 0, None
            if states is not None:
                before = states[0].shape[1 if broken else 2]
                past = list(zip(states[::2], states[1::2], strict=True))
            positions = torch.arange(before, before + data.shape[1])
            logits, presents = self.run(self.wte(data), positions, past)
            return logits, [state for present in presents for state in present]

    return GPT2()


@real(
    GITHUB + "Mikyx-1/TinyLLM/issues/17",
    "The causal mask is applied only if cache is None: generate reads its whole prompt without one.",
)
def tinyllm_prefill_without_mask(broken):
    class Tiny(GPT):
        def forward(self, idx, targets=None, caches=None):
            """`caches` has a dict for each layer, empty at first, which is filled."""
            past = [(cache["k"], cache["v"]) for cache in caches or [] if cache]
            seen = None if broken and caches is not None else "causal"
            logits, presents = self.run(self.wte(idx), past=past, attention_mask=seen)
            for cache, (k, v) in zip(caches or [], presents, strict=False):
                cache.update(k=k, v=v)
            if targets is None:
                return logits, None
            return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

        def mask(self, layer, T, S, seen):
            if seen is None:
                return torch.ones(1, 1, T, S, dtype=torch.bool)
            return super().mask(layer, T, S, None)

        @torch.no_grad()
        def generate(self, idx, max_new_tokens, temperature=1.0, top_k=None):
            caches, new = [{} for _ in self.h], idx
            for _ in range(max_new_tokens):
                logits, _ = self(new, caches=caches)
                new = next_of(logits[:, -1], temperature > 0, temperature, top_k)
                idx = torch.cat([idx, new], dim=1)
            return idx

    return Tiny(positions="rotary")


@real(
    GITHUB + "google/flax/issues/982",
    "The mask adds -1e10, which is -inf in float16: a row that is hidden as a whole becomes NaN.",
)
def flax_float16_mask(broken):
    class Written(Attention):
        def attend(self, q, k, v, mask):
            lowest = -1e10 if broken else torch.finfo(q.dtype).min
            bias = torch.zeros(mask.shape).masked_fill(~mask, lowest).to(q.dtype)
            return (q @ k.mT / q.shape[-1] ** 0.5 + bias).softmax(dim=-1) @ v

    class Flax(HF):
        def mask(self, layer, T, S, attention_mask):
            seen = super().mask(layer, T, S, None)
            return seen if attention_mask is None else seen & attention_mask[:, None, None].bool()

    return Flax(attention=Written, positions="rotary").half()


@real(
    TRANSFORMERS + "pull/45253",
    "The last layers take keys and values of an earlier one from the cache: with use_cache=False, their own.",
)
def gemma4_shares_only_with_a_cache(broken):
    class Sharing(Attention):
        def forward(self, x, positions, mask, past=None, shared=None):
            if shared is None:
                return super().forward(x, positions, mask, past)
            cos, sin = self.cos_sin(positions)
            q = self.rotate(self.split(self.q_proj(x)), cos[..., None, :, :], sin[..., None, :, :])
            return self.c_proj(self.merge(self.attend(q, *shared, mask))), shared

    class Gemma4(HF):
        shares = True

        def forward(self, *inputs, use_cache=True, **named):
            self.shares = use_cache or not broken
            return super().forward(*inputs, use_cache=use_cache, **named)

        def run(self, x, positions=None, past=None, attention_mask=None):
            T, before, presents = x.shape[1], past[0][0].shape[2] if past else 0, []
            if positions is None:
                positions = torch.arange(before, before + T)
            for layer, block in enumerate(self.h):
                mask = self.mask(layer, T, before + T, attention_mask)
                around = [past[layer] if past else None]
                if layer >= self.config.n_layer - self.config.num_kv_shared_layers and self.shares:
                    around = [None, presents[1]]
                x, present = block(x, positions, mask, *around)
                presents.append(present)
            return self.lm_head(self.ln_f(x)), presents

    model = Gemma4(attention=Sharing, positions="rotary", n_layer=4, num_kv_shared_layers=2)
    if not broken:
        for block in model.h[2:]:
            del block.attn.k_proj, block.attn.v_proj  # they are never used
    return model


@real(
    GITHUB + "karpathy/minGPT/issues/10",
    "top_k sets the logits of other tokens to 1e-10, not to -1e10: most are negative, and get likelier.",
)
def mingpt_top_k(broken):
    class MinGPT(GPT):
        def forward(self, idx, targets=None):
            logits, _ = self.run(self.wte(idx))
            if targets is None:
                return logits, None
            return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-1)

        @torch.no_grad()
        def generate(self, idx, max_new_tokens, temperature=1.0, do_sample=False, top_k=None):
            for _ in range(max_new_tokens):
                logits = self(idx[:, -self.config.block_size :])[0][:, -1] / temperature
                if top_k is not None:
                    least = logits.topk(top_k).values[:, [-1]]
                    logits = logits.masked_fill(logits < least, 1e-10 if broken else -torch.inf)
                idx = torch.cat([idx, next_of(logits, do_sample)], dim=1)
            return idx

    return MinGPT()


@real(
    GITHUB + "mistralai/mistral-inference/pull/214",
    "is_finished ^ (next == eos): a text that writes a second eos counts as unfinished again.",
)
def mistral_inference_eos_xor(broken):
    class Mistral(GPT):
        def forward(self, input_ids):
            return self.run(self.wte(input_ids))[0]

        @torch.no_grad()
        def generate(self, encoded_prompts, max_tokens, temperature=0.0, eos_id=None):
            """Of prompts as lists of one length; it returns the new tokens, as lists."""
            ids = torch.as_tensor(encoded_prompts)
            T, finished = ids.shape[1], torch.zeros(len(ids), dtype=torch.bool)
            while ids.shape[1] < T + max_tokens:
                logits = self(ids)[:, -1]
                new = next_of(logits, temperature > 0, temperature)
                if eos_id is not None:
                    ends = new[:, 0] == eos_id
                    finished = finished ^ ends if broken else finished | ends
                if finished.all():
                    break
                ids = torch.cat([ids, new], dim=1)
            return ids[:, T:].tolist()

    return Mistral(positions="rotary")


def inverse_layers(sdpa, scale):
    class Scaled(Attention):
        layer_idx = 0

        def attend(self, q, k, v, mask):
            factor = q.shape[-1] ** -0.5 / (self.layer_idx + 1)
            if sdpa:
                return F.scaled_dot_product_attention(q, k, v, mask, scale=factor if scale else None)
            return (q @ k.mT * factor).masked_fill(~mask, -torch.inf).softmax(dim=-1) @ v

    model = HF(attention=Scaled, n_layer=3, scale_attn_by_inverse_layer_idx=True)
    for layer, block in enumerate(model.h):
        block.attn.layer_idx = layer
    return model


@real(
    TRANSFORMERS + "pull/44397",
    "scale_attn_by_inverse_layer_idx reaches eager attention, but not scaled_dot_product_attention.",
    given=lambda model: {"reference": same_weights(inverse_layers(sdpa=False, scale=True), model)},
)
def hf_gpt2_scale_by_layer_ignored(broken):
    return inverse_layers(sdpa=True, scale=not broken)


@real(
    GITHUB + "deepspeedai/DeepSpeed/pull/2669",
    "The cache inside the model is not emptied when generate begins: a second text goes on after the first.",
)
def deepspeed_cache_not_reset(broken):
    class Inference(GPT):
        past = None

        def forward(self, input_ids):
            return SimpleNamespace(logits=self.run(self.wte(input_ids))[0])

        @torch.no_grad()
        def generate(self, input_ids, max_new_tokens=20, do_sample=False, temperature=1.0, top_k=50):
            new = input_ids
            if not broken:
                self.past = None
            for _ in range(max_new_tokens):
                logits, self.past = self.run(self.wte(new), past=self.past)
                new = next_of(logits[:, -1], do_sample, temperature, top_k)
                input_ids = torch.cat([input_ids, new], dim=1)
            return input_ids

    return Inference(positions="rotary")


@real(
    GITHUB + "google/objax/pull/94",
    "LayerNorm begins with gain 0 and bias 1, exchanged: its output is 1 for whatever input.",
)
def objax_layernorm_begins_exchanged(broken):
    class LayerNorm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.g, self.b = (
                nn.Parameter(torch.full((width,), x)) for x in ((0.0, 1.0) if broken else (1.0, 0.0))
            )

        def forward(self, x):
            return F.layer_norm(x, self.g.shape, self.g, self.b)

    return GPT(norm=LayerNorm)


@real(
    GITHUB + "lucidrains/parti-pytorch/issues/8",
    "The loss ignores index 0, which is a token like any other: nothing is learned of it.",
)
def parti_loss_ignores_token_zero(broken):
    class Parti(GPT):
        """Of images alone, without the text and the start token."""

        def forward(self, image_token_ids, return_loss=False):
            if return_loss:
                image_token_ids, labels = image_token_ids[:, :-1], image_token_ids[:, 1:]
            logits, _ = self.run(self.wte(image_token_ids))
            if not return_loss:
                return logits
            return F.cross_entropy(logits.mT, labels, ignore_index=0 if broken else -100)

        @torch.no_grad()
        def generate(self, image_token_ids, steps, temperature=1.0, top_k=None):
            for _ in range(steps):
                logits = self(image_token_ids[:, -self.config.block_size :])[:, -1]
                new = next_of(logits, True, temperature, top_k)
                image_token_ids = torch.cat([image_token_ids, new], dim=1)
            return image_token_ids

    return Parti()
