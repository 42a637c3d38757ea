"""Load a published policy with transformers alone and go through one exchange with a tool.

    python -I load_policy.py FOLDER EXAMPLE

EXAMPLE is JSON: ``messages`` (system, user, call, result, answer) and ``tools``. It prints what was
loaded as JSON, with the exchange as the template renders it, what the policy writes in its two
turns, and how much of a tool's document the template shows. Exit 1 where weights are missing, left
over or of another shape.
"""

from __future__ import annotations

import json
import sys
from importlib import metadata
from typing import Any

NEW_TOKENS = 64
SAID = " ".join(f"Word{number:03}" for number in range(200))
"""A description of more characters than chat APIs take (1,024 at OpenAI)."""
OF_PARAMETER = "Xylophone"


def main(folder: str, example: str) -> None:
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
    asked = json.loads(example)
    messages, tools = asked["messages"], asked["tools"]
    turns = [at for at, message in enumerate(messages) if message["role"] == "assistant"]
    written: list[str] = []
    for at in turns:
        prompt = tokenizer.apply_chat_template(
            messages[:at], tools=tools, add_generation_prompt=True, return_dict=True,
            return_tensors="pt",
        )  # fmt: skip
        with torch.inference_mode():
            if not torch.isfinite(model(**prompt).logits).all():
                sys.exit("the model computes numbers that are not finite")
            made = model.generate(**prompt, do_sample=False, max_new_tokens=NEW_TOKENS)
        new = made[0][prompt["input_ids"].shape[1] :]
        written.append(tokenizer.decode(new, skip_special_tokens=True))
    found = {
        "architecture": type(model).__name__,
        "parameters": model.num_parameters(),
        "dtype": str(model.dtype).removeprefix("torch."),
        "vocabulary": len(tokenizer),
        "context": model.config.max_position_embeddings,
        "documents": shown_documents(tokenizer),
        "exchange": {
            "rendered": tokenizer.apply_chat_template(messages, tools=tools, tokenize=False),
            "written": written,
        },
        "versions": {name: metadata.version(name) for name in ("torch", "transformers")},
    }
    print(json.dumps(found))


def shown_documents(tokenizer: Any) -> dict[str, Any]:
    """How much of a tool's document the template shows, found by rendering a long one."""
    listing = {"type": "string", "description": OF_PARAMETER}
    parameters = {"type": "object", "properties": {"listing": listing}, "required": ["listing"]}
    function = {"name": "get_price", "description": SAID, "parameters": parameters}
    rendered = tokenizer.apply_chat_template(
        [{"role": "system", "content": "-"}, {"role": "user", "content": "-"}],
        tools=[{"type": "function", "function": function}], tokenize=False,
    )  # fmt: skip
    lower = rendered.lower()
    chars = next(end for end in range(len(SAID), -1, -1) if SAID[:end].lower() in lower)
    return {
        "description_chars": chars,
        "whole": chars == len(SAID),
        "lower_case": SAID[:chars] not in rendered,
        "parameters_described": OF_PARAMETER.lower() in lower,
    }


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2])
