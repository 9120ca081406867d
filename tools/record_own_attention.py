"""Record what SmolLM2 does with attention of one's own: `python tools/record_own_attention.py`, some minutes.

For `right` and each of BUGS of the explorer `own_attention`: the loss on the tale of the ferry; and for each
prompt the tokens that are written greedily, and the weights of some heads, in percent, a byte each.
"""

import base64
import json

import torch
import torch.nn.functional as F
from torch import Tensor

from attention_course.attention import record_weights
from attention_course.gpt import GPT, evaluating, generate
from attention_course.heads import attention_by
from attention_course.rungs.a_real_model import explorer_own_attention as explorer
from attention_course.smollm import load_smollm
from attention_course.text import Tokenizer, load_text


def loss_on(model: GPT, ids: Tensor) -> float:
    """Return the mean loss of all next tokens of a text."""
    with evaluating(model):
        return F.cross_entropy(model(ids[None, :-1])[0], ids[1:]).item()


def maps_of(model: GPT, ids: Tensor) -> Tensor:
    """Return the weights (heads, T, T) of the explorer's heads."""
    with evaluating(model), record_weights() as layers:
        model(ids[None])
    return torch.stack([layers[layer][0, head] for layer, head in explorer.HEADS.values()])


def in_percent(shares: Tensor) -> str:
    """Return numbers from 0 to 1 as bytes in base64."""
    return base64.b64encode(bytes((100 * shares).round().int().flatten().tolist())).decode()


def record(model: GPT, tokenizer: Tokenizer, name: str) -> dict[str, object]:
    """Return what the model does with one of the explorer's functions."""
    prompts = [tokenizer.encode(prompt) for prompt in explorer.PROMPTS.values()]
    with attention_by(model, explorer.OWN[name]):
        loss = loss_on(model, tokenizer.encode(load_text("tale")))
        written = [generate(model, ids[None], explorer.TOKENS, temperature=0)[0] for ids in prompts]
        maps = [in_percent(maps_of(model, ids)) for ids in prompts]
    return {
        "loss": round(loss, 4),
        "written": [
            [tokenizer.decode(token[None]) for token in ids[len(prompt) :]]
            for prompt, ids in zip(prompts, written, strict=True)
        ],
        "maps": maps,
    }


def main() -> None:
    """Record all of them."""
    model, tokenizer = load_smollm()
    stored = {
        "guess": round(torch.tensor(float(tokenizer.vocab_size)).log().item(), 4),
        "tokens": [
            [tokenizer.decode(token[None]) for token in tokenizer.encode(prompt)]
            for prompt in explorer.PROMPTS.values()
        ],
        "own": {},
    }
    for name in explorer.OWN:
        stored["own"][name] = record(model, tokenizer, name)
        print(f"{stored['own'][name]['loss']:6.2f} {name}", flush=True)
    text = json.dumps(stored, indent=1, ensure_ascii=False)
    explorer.FILE.write_text(text + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
