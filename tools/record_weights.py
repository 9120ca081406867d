"""Record what models write whose weights fade with the distance, for the explorer of `tril_matmul`.

All are trained as those of the staircase, one for each decay and window: about ten minutes.
"""

import json
import math

import cells
import torch
from record_heroes import Weights, measured

from attention_course.ladder import staircase
from attention_course.rungs.tril_matmul import explorer
from attention_course.training import RECIPES, train


def main() -> None:
    """Train the models and write weights.json."""
    rung = cells.run("bigram_to_gpt", "parts")
    prompt = staircase()["prompt"]
    distance = torch.arange(rung["block_size"])

    def trained(decay: float, window: str) -> dict[str, object]:
        seen = distance < (1 if decay == 0 else len(distance) if window == "all" else int(window))
        scores = (distance * math.log(decay or 1)).masked_fill(~seen, -1e30)
        model = rung["fresh"](lambda: rung["Model"](Weights(scores, rung["n_embd"])))
        train(model, rung["data"], RECIPES["stories"])
        found = measured(f"decay {decay}, window {window}", model, rung, prompt)
        return {"loss": float(f"{found['loss']:.3g}"), "line": str(found["line"]).strip()}

    windows = list(explorer.TRAINED)
    pair = trained(0, "all")  # sees one letter, whatever the window
    losses = {window: [pair] + [trained(step / 10, window) for step in range(1, 11)] for window in windows}
    explorer.TRAINED_PATH.write_text(
        json.dumps(losses, indent=1, ensure_ascii=False) + "\n", encoding="utf-8"
    )


if __name__ == "__main__":
    main()
