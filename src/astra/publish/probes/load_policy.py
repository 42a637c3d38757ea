"""Load a published policy with transformers alone, render its template and generate a few tokens.

    python -I load_policy.py FOLDER

It prints what was loaded as JSON. Exit 1 where weights are missing, left over or of another shape.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

MESSAGES = [
    {"role": "system", "content": "You are an assistant with tools."},
    {"role": "user", "content": "What is the price of Amber Cove?"},
]
TOOL = {
    "type": "function",
    "function": {
        "name": "get_price",
        "description": "The price of a listing.",
        "parameters": {
            "type": "object",
            "properties": {"listing": {"type": "string"}},
            "required": ["listing"],
        },
    },
}
NEW_TOKENS = 16


def main(folder: str) -> None:
    sys.modules["astra"] = None  # type: ignore[assignment]  # whoever imports it now fails
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    tokenizer: Any = AutoTokenizer.from_pretrained(folder)
    loaded: Any = AutoModelForCausalLM.from_pretrained(
        folder, dtype="auto", output_loading_info=True
    )
    model, info = loaded
    wrong = {name: sorted(map(str, found)) for name, found in info.items() if found}
    if wrong:
        sys.exit(f"the weights do not fit the configuration: {wrong}")
    prompt = tokenizer.apply_chat_template(
        MESSAGES, tools=[TOOL], add_generation_prompt=True, return_dict=True, return_tensors="pt"
    )
    with torch.inference_mode():
        if not torch.isfinite(model(**prompt).logits).all():
            sys.exit("the model computes numbers that are not finite")
        made = model.generate(**prompt, do_sample=False, max_new_tokens=NEW_TOKENS)
    found = {
        "architecture": type(model).__name__,
        "parameters": model.num_parameters(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "vocabulary": len(tokenizer),
        "context": model.config.max_position_embeddings,
        "prompt_tokens": int(prompt["input_ids"].shape[1]),
        "written_tokens": int(made.shape[1] - prompt["input_ids"].shape[1]),
        "versions": {name: metadata.version(name) for name in ("torch", "transformers")},
    }
    print(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1])
