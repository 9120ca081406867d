"""Twenty-five bugs that people had, for which questions were written. All code here is our own."""

from types import SimpleNamespace

import torch
import torch.nn.functional as F
from examine.real.small import (
    GPT,
    HF,
    Attention,
    Block,
    Eager,
    Nano,
    Real,
    collect,
    frequencies,
    next_of,
    same_weights,
)
from torch import nn

BUGS: dict[str, Real] = {}
real = collect(BUGS)
GITHUB = "https://github.com/"
TRANSFORMERS = GITHUB + "huggingface/transformers/"


def written_out(kind, **sizes):
    """Return what gives examine the reference: the right model, with attention written out."""
    return lambda model: {"reference": same_weights(kind(attention=Eager, **sizes), model)}


@real(GITHUB + "karpathy/nanoGPT/pull/240", "F.scaled_dot_product_attention drops weights in eval mode too.")
def nanogpt_dropout_in_eval(broken):
    class Flash(Attention):
        def attend(self, q, k, v, mask):
            dropout = self.config.dropout if broken or self.training else 0
            return F.scaled_dot_product_attention(q, k, v, dropout_p=dropout, is_causal=True)

    return Nano(attention=Flash, dropout=0.1)


@real(GITHUB + "kyegomez/BitNet/issues/32", "x, _ = attn(x); x = x + x: the input is not added.")
def bitnet_residual_x_plus_x(broken):
    class Layer(Block):
        def forward(self, x, *around):
            skip = x
            x, present = self.attn(self.ln_1(x), *around)
            x = x + x if broken else x + skip
            return x + self.mlp(self.ln_2(x)), present

    return GPT(block=Layer, positions="rotary")


@real(
    TRANSFORMERS + "pull/38290",
    "OPT multiplies q by head_dim**-0.5, and the attention interface scales again by default.",
    given=written_out(HF),
)
def opt_scaled_twice(broken):
    class OPT(Attention):
        def attend(self, q, k, v, mask):
            q = q * q.shape[-1] ** -0.5
            return F.scaled_dot_product_attention(q, k, v, attn_mask=mask, scale=None if broken else 1.0)

    return HF(attention=OPT)


@real(
    TRANSFORMERS + "issues/31673",
    "Gemma 2 multiplies the additive causal mask by tril(ones, -window): in sliding layers all zeros.",
)
def gemma2_sliding_mask_leaks(broken):
    class Gemma2(HF):
        def mask(self, layer, T, S, attention_mask):
            lowest, window = torch.finfo(torch.float32).min, self.config.sliding_window
            seen = super().mask(layer, T, S, attention_mask)
            mask = torch.zeros(seen.shape).masked_fill(~seen, lowest)
            far = torch.ones_like(mask).tril(S - T - window)
            if layer % 2 == 0:  # every second layer is sliding
                mask = mask * far if broken else torch.where(far == 1, lowest, mask)
            return mask

    model = Gemma2(positions="rotary")
    model.config.sliding_window = 8
    return model


@real(
    TRANSFORMERS + "pull/26792",
    "Mistral's mask was triu(diagonal=-window): each token sees window + 1 tokens.",
    given=written_out(HF, positions="rotary", windows=(6, 6)),
)
def mistral_window_off_by_one(broken):
    model = HF(positions="rotary", windows=(6 + broken,) * 2)
    model.config.sliding_window = 6
    return model


class KVCache:
    """nanochat's: room for whole texts in all layers, and how much of it is filled."""

    def __init__(self, batch_size, num_heads, seq_len, head_dim, num_layers):
        self.kv = torch.zeros(num_layers, 2, batch_size, num_heads, seq_len, head_dim)
        self.pos = 0

    def get(self):
        return [tuple(layer[:, :, :, : self.pos]) for layer in self.kv] if self.pos else None

    def insert(self, presents):
        self.pos = presents[0][0].shape[2]
        for layer, present in zip(self.kv, presents, strict=True):
            layer[:, :, :, : self.pos] = torch.stack(present)


class Nanochat(GPT):
    def forward(self, idx, targets=None, kv_cache=None, loss_reduction="mean"):
        logits, presents = self.run(self.wte(idx), past=kv_cache.get() if kv_cache else None)
        if kv_cache:
            kv_cache.insert(presents)
        if targets is None:
            return logits
        return F.cross_entropy(
            logits.flatten(0, 1), targets.flatten(), ignore_index=-1, reduction=loss_reduction
        )

    @torch.no_grad()
    def generate(self, tokens, max_tokens, temperature=1.0, top_k=None, seed=42):
        """Yield token after token, without a cache: nanochat's other generate, in its Engine, has one."""
        ids = torch.tensor([tokens])
        for _ in range(max_tokens):
            new = next_of(self(ids)[:, -1], temperature > 0, temperature, top_k)
            ids = torch.cat([ids, new], dim=1)
            yield new.item()


def nanochat_step(_):
    def step(model, ids, cache):
        config = model.config
        D = config.n_embd // config.n_head
        cache = cache or KVCache(len(ids), config.n_head, 2 * config.block_size, D, config.n_layer)
        return model(ids, kv_cache=cache), cache

    return {"step": step}


@real(
    GITHUB + "karpathy/nanochat/issues/452",
    "With a cache and one new token the sliding window is not applied: it attends to the whole cache.",
    given=nanochat_step,
)
def nanochat_cached_decode_ignores_window(broken):
    class Fallback(Nanochat):
        def mask(self, layer, T, S, attention_mask):
            if broken and T == 1:
                return torch.ones(1, 1, 1, S, dtype=torch.bool)
            return super().mask(layer, T, S, attention_mask)

    return Fallback(positions="rotary", windows=(6, None))


class XTransformer(GPT):
    """As TransformerWrapper: with a cache it still takes the whole text, and reads its last token."""

    def forward(self, x, return_intermediates=False, mask=None, cache=None):
        past, T = None if cache is None else cache.cached_kv, x.shape[1]
        positions = torch.arange(T) if cache is None else torch.tensor([T - 1])
        logits, presents = self.run(self.wte(x[:, positions]), positions, past, mask)
        return (logits, SimpleNamespace(cached_kv=presents)) if return_intermediates else logits


def xtransformers_step(_):
    def step(model, ids, cache):
        read, inside = cache or (ids[:, :0], None)
        parts = [ids] if inside is None else ids.split(1, dim=1)
        logits = []
        for part in parts:
            read = torch.cat([read, part], dim=1)
            new, inside = model(read, return_intermediates=True, cache=inside)
            logits.append(new)
        return torch.cat(logits, dim=1), (read, inside)

    return {"step": step}


@real(
    GITHUB + "lucidrains/x-transformers/issues/187",
    "is_causal=True aligns the mask to the top left: with a cache, one new query sees only the first key.",
    given=xtransformers_step,
)
def xtransformers_sdpa_causal_with_cache(broken):
    class Flash(Attention):
        def attend(self, q, k, v, mask):
            causal = broken or q.shape[2] > 1
            return F.scaled_dot_product_attention(q, k, v, is_causal=causal)

    return XTransformer(attention=Flash)


@real(
    GITHUB + "lucidrains/x-transformers/commit/74f241d8fd127cd59750cf294a8e28947f289649",
    "The ALiBi bias of the first text is kept and cut in one dimension only: other lengths raise an error.",
)
def xtransformers_alibi_bias_kept(broken):
    class Alibi(Attention):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("slopes", 2.0 ** -(torch.arange(config.n_head) + 1.0), persistent=False)
            self.register_buffer("bias", None, persistent=False)

        def attend(self, q, k, v, mask):
            T, S = q.shape[2], k.shape[2]
            if self.bias is None or self.bias.shape[-1] < S:
                away = torch.arange(S) - torch.arange(S - T, S)[:, None]
                self.bias = -away.abs() * self.slopes[:, None, None]
            bias = self.bias[..., :S] if broken else self.bias[..., :T, :S]
            return F.scaled_dot_product_attention(q, k, v, attn_mask=bias.masked_fill(~mask, -torch.inf))

    return GPT(attention=Alibi, positions="none")


@real(
    TRANSFORMERS + "issues/27226",
    "Dynamic NTK: after one text longer than the block the tables stay those of the long text.",
)
def hf_dynamic_ntk_remembers(broken):
    class Dynamic(Attention):
        def __init__(self, config):
            super().__init__(config)
            self.build(config.block_size)

        def build(self, T):
            D, block, factor, base = self.config.n_embd // self.config.n_head, self.config.block_size, 2, 1e4
            if block < T:
                base *= (factor * T / block - (factor - 1)) ** (D / (D - 2))
            angles = torch.arange(T)[:, None] * frequencies(self.config, base)
            self.register_buffer("cos_cached", angles.cos(), persistent=False)
            self.register_buffer("sin_cached", angles.sin(), persistent=False)

        def cos_sin(self, positions):
            T, kept, block = int(positions.max()) + 1, len(self.cos_cached), self.config.block_size
            if kept < T or (not broken and max(T, block) < kept):
                self.build(max(T, block))
            return self.cos_cached[positions], self.sin_cached[positions]

    return HF(attention=Dynamic, positions="rotary")


@real(
    GITHUB + "karpathy/build-nanogpt/issues/89",
    "lm_head.weight = wte.weight, not the reverse: the head starts as N(0, 1), as nn.Embedding does.",
)
def buildnanogpt_tied_to_embedding_init(broken):
    model = Nano(std=None, vocab_size=40, n_embd=48)
    if broken:
        model.lm_head.weight = model.wte.weight
    else:
        model.wte.weight = model.lm_head.weight
    return model


@real(
    TRANSFORMERS + "issues/47458",
    "The scaled init of residual projections compares name == 'c_proj.weight' with full names.",
)
def hf_gpt2_cproj_init(broken):
    model = HF(n_layer=12)
    for name, parameter in model.named_parameters():
        if name == "c_proj.weight" if broken else name.endswith("c_proj.weight"):
            nn.init.normal_(parameter, std=0.1 / (2 * model.config.n_layer) ** 0.5)
    return model


@real(
    GITHUB + "bkitano/llama-from-scratch/issues/4",
    "RMSNorm divides by the norm over dim=(1, 2): over all tokens of a text, later ones too.",
)
def llama_from_scratch_rmsnorm_over_time(broken):
    class RMSNorm(nn.Module):
        def __init__(self, width):
            super().__init__()
            self.scale = nn.Parameter(torch.ones(width))

        def forward(self, x):
            dim = (1, 2) if broken else -1
            return self.scale * x / (x.square().mean(dim=dim, keepdim=True).sqrt() + 1e-8)

    class Llama(GPT):
        def forward(self, idx, targets=None):
            logits, _ = self.run(self.wte(idx))
            if targets is None:
                return logits
            return logits, F.cross_entropy(logits.flatten(0, 1), targets.flatten())

    return Llama(norm=RMSNorm, positions="rotary")


@real(
    TRANSFORMERS + "pull/37830",
    "Logits and labels are shifted, and the loss function shifts them again.",
)
def hf_jetmoe_labels_shifted_twice(broken):
    class JetMoe(HF):
        def loss(self, logits, labels):
            if broken:
                logits, labels = logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()
            labels = F.pad(labels, (0, 1), value=-100)[..., 1:]
            return F.cross_entropy(logits.reshape(-1, logits.shape[-1]), labels.flatten())

    return JetMoe(positions="rotary")


@real(
    TRANSFORMERS + "issues/27517",
    "MBartForCausalLM does not shift labels, though labels = input_ids: it learns to copy its input.",
)
def hf_mbart_labels_not_shifted(broken):
    class MBart(HF):
        def loss(self, logits, labels):
            if broken:
                return F.cross_entropy(logits.flatten(0, 1), labels.flatten())
            return super().loss(logits, labels)

    return MBart()


@real(
    GITHUB + "jsbaan/transformer-from-scratch/pull/6",
    "values (B, H, T, D) are reshaped to (B, T, H * D) without permute: times and heads are mixed.",
)
def jsbaan_heads_merged_without_permute(broken):
    class Heads(Attention):
        def merge(self, y):
            B, H, T, D = y.shape
            return y.reshape(B, T, H * D) if broken else y.permute(0, 2, 1, 3).reshape(B, T, H * D)

    return GPT(attention=Heads)


@real(
    GITHUB + "maruya24/pytorch_robotics_transformer/issues/3",
    "The layers are in a plain list: the optimizer does not see them.",
)
def rt1_layers_in_a_list(broken):
    model = GPT()
    if broken:
        layers = list(model.h)
        del model.h
        model.h = layers
    return model


@real(
    TRANSFORMERS + "issues/2302",
    "The repetition penalty divides all logits of seen tokens, negative ones too: these get likelier.",
)
def hf_repetition_penalty(broken):
    class Old(GPT):
        """As in transformers 2.3: tuples, and a generate whose max_length counts the prompt."""

        def forward(self, input_ids, past=None, labels=None):
            logits, presents = self.run(self.wte(input_ids), past=past)
            if labels is None:
                return logits, presents
            return (
                F.cross_entropy(logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten()),
                logits,
                presents,
            )

        @torch.no_grad()
        def generate(
            self,
            input_ids,
            max_length=20,
            do_sample=False,
            temperature=1.0,
            top_k=50,
            repetition_penalty=1.0,
        ):
            while input_ids.shape[1] < max_length:
                logits = self(input_ids)[0][:, -1]
                seen = logits.gather(1, input_ids)
                divided = seen / repetition_penalty
                if not broken:
                    divided = torch.where(seen > 0, divided, seen * repetition_penalty)
                logits = logits.scatter(1, input_ids, divided)
                input_ids = torch.cat([input_ids, next_of(logits, do_sample, temperature, top_k)], dim=1)
            return input_ids

    return Old()


@real(
    GITHUB + "Lightning-AI/lit-llama/pull/248",
    "generate asks T <= max_seq_length, T the length of the prompt, not t: the context is never cropped.",
)
def litllama_crop_by_prompt_length(broken):
    class LLaMA(GPT):
        def forward(self, idx):
            T, block_size = idx.shape[1], self.config.block_size
            assert block_size >= T, f"Cannot forward sequence of length {T}, max seq length is {block_size}"
            return self.run(self.wte(idx))[0]

        @torch.no_grad()
        def generate(self, idx, max_new_tokens, max_seq_length=None, temperature=1.0, top_k=None):
            """Of texts (B, T); lit-llama's takes one, (T,), and is a function of the model and that."""
            T, longest = idx.shape[1], max_seq_length or self.config.block_size
            for t in range(T, T + max_new_tokens):
                context = idx if (T if broken else t) <= longest else idx[:, -longest:]
                idx = torch.cat([idx, next_of(self(context)[:, -1], True, temperature, top_k)], dim=1)
            return idx

    return LLaMA(positions="rotary")


@real(
    TRANSFORMERS + "pull/7552",
    "Positions count the padding on the left: generate makes no position_ids of the attention_mask.",
)
def hf_gpt2_left_padding_positions(broken):
    class GPT2(HF):
        def prepare_position_ids(self, input_ids, attention_mask):
            return None if broken else super().prepare_position_ids(input_ids, attention_mask)

    return GPT2()


@real(
    TRANSFORMERS + "pull/29285",
    "inv_freq is a buffer and positions take its dtype: in a bfloat16 model angles are in bfloat16.",
)
def hf_rope_in_bfloat16(broken):
    class Rope(Attention):
        def __init__(self, config):
            super().__init__(config)
            self.register_buffer("inv_freq", frequencies(config), persistent=False)

        def cos_sin(self, positions):
            speeds = self.inv_freq if broken else frequencies(self.config)
            angles = positions[..., None].to(speeds.dtype) * speeds
            return angles.cos(), angles.sin()

    return HF(attention=Rope, positions="rotary", block_size=512, std=0.25).bfloat16()  # as if trained


@real(TRANSFORMERS + "pull/47742", "inputs_embeds *= sqrt(width) writes into the tensor of the caller.")
def hf_ctrl_inputs_embeds_in_place(broken):
    class CTRL(HF):
        def run(self, x, *others):
            factor = self.config.n_embd**0.5
            if broken:
                x *= factor
            else:
                x = x * factor
            return super().run(x, *others)

    return CTRL()


@real(
    GITHUB + "macwiatrak/Bacformer/pull/36",
    "Rotary tables are non-persistent buffers: to_empty() and load_state_dict() leave garbage in them.",
)
def bacformer_rope_buffers_not_restored(broken):
    class Tables(Attention):
        def __init__(self, config):
            super().__init__(config)
            D = config.n_embd // config.n_head
            for name in ("freqs_cos", "freqs_sin"):
                self.register_buffer(name, torch.empty(config.block_size, D // 2), persistent=False)
            self.fill()
            if not broken:
                self.register_load_state_dict_post_hook(lambda module, keys: module.fill())

        def fill(self):
            angles = torch.arange(self.config.block_size)[:, None] * frequencies(self.config)
            self.freqs_cos.copy_(angles.cos())
            self.freqs_sin.copy_(angles.sin())

        def cos_sin(self, positions):
            return self.freqs_cos[positions], self.freqs_sin[positions]

    return HF(attention=Tables, positions="rotary")


class Lecture(GPT):
    """As in the lecture: with targets the logits come as (B * T, V)."""

    def forward(self, idx, targets=None):
        logits, _ = self.run(self.wte(idx))
        if targets is None:
            return logits, None
        logits = logits.view(-1, logits.shape[-1])
        return logits, F.cross_entropy(logits, targets.view(-1))

    def generate(self, idx, max_new_tokens):
        for _ in range(max_new_tokens):
            logits, _ = self(idx[:, -self.config.block_size :])
            idx = torch.cat([idx, next_of(logits[:, -1], True)], dim=1)
        return idx


@real(
    GITHUB + "karpathy/ng-video-lecture/pull/6",
    "Scores are scaled by C**-0.5, C the width of the model, not of a head.",
    given=written_out(Lecture),
)
def ngvideo_scaled_by_width(broken):
    class Head(Attention):
        def attend(self, q, k, v, mask):
            C = q.shape[-1] * (self.config.n_head if broken else 1)
            weights = (q @ k.transpose(-2, -1) * C**-0.5).masked_fill(~mask, -torch.inf).softmax(dim=-1)
            return weights @ v

    return Lecture(attention=Head)


@real(
    TRANSFORMERS + "pull/38094",
    "The float mask (0 or min) is converted to bool: True, 'look here', where it should hide.",
)
def llama4_inverted_bool_mask(broken):
    class Llama4(HF):
        def mask(self, layer, T, S, attention_mask):
            seen = super().mask(layer, T, S, attention_mask)
            mask = torch.zeros(seen.shape).masked_fill(~seen, torch.finfo(torch.float32).min)
            return mask.bool() if broken else mask

    return Llama4(positions="rotary")


@real(
    GITHUB + "tatp22/linformer-pytorch/issues/25",
    "Linformer projects keys and values along time, future included, before the causal mask.",
)
def linformer_causal_leak(broken):
    class Linear(Attention):
        def __init__(self, config, dim_k=8):
            super().__init__(config)
            self.E, self.F = (nn.Linear(config.block_size, dim_k) for _ in range(2))

        def attend(self, q, k, v, mask):
            T = k.shape[2]
            k, v = (each.weight[:, :T] @ x for each, x in ((self.E, k), (self.F, v)))
            causal = torch.ones(T, k.shape[2], dtype=torch.bool).tril()
            return F.scaled_dot_product_attention(q, k, v, attn_mask=causal)

    return GPT(attention=Linear if broken else Attention)
