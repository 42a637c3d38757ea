"""Adapters merged into weights of 16 bits without losing what they learned."""

from __future__ import annotations

from typing import Any

import torch
from peft.tuners.tuners_utils import BaseTunerLayer


def merged(model: Any, dtype: torch.dtype | None = None) -> Any:
    """The model that adapters wrap, with what they learned in its weights: added in float32, then
    rounded at random to ``dtype``, or each weight's own type. The same adapters, the same weights.

    What adapters learn is small beside the steps of bfloat16: rounded to the nearest, most weights
    would stay where they are.
    """
    for at, layer in enumerate(model.modules()):
        if isinstance(layer, BaseTunerLayer):
            adapted: Any = layer
            base = adapted.get_base_layer()
            own = base.weight.dtype
            base.float()
            adapted.merge()
            generator = torch.Generator(base.weight.device).manual_seed(at)
            for weight in base.parameters():
                weight.data = rounded_at_random(weight.data, dtype or own, generator)
    return model.unload()


def rounded_at_random(
    values: torch.Tensor, dtype: torch.dtype, generator: torch.Generator
) -> torch.Tensor:
    """Float32 values in ``dtype``. In bfloat16 each becomes one of the two numbers around it, the
    nearer one the more often, so that it is right on average; a number of bfloat16 stays.

    A random number below the step is added to the bits of a value, and what is below it cut off.
    """
    if dtype != torch.bfloat16:
        return values.to(dtype)
    noise = torch.randint(
        0, 1 << 16, values.shape, generator=generator, device=values.device, dtype=torch.int32
    )
    bits = (values.contiguous().view(torch.int32) + noise) & ~0xFFFF
    return bits.view(torch.float32).to(dtype)
