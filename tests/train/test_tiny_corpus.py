"""What the tiny base has seen: generic text, none of it an entity or a tool of the pipeline."""

from __future__ import annotations

import random
from itertools import islice

from astra.text.names import WORDS, pool_of
from astra.train.tiny.corpus import KINDS, documents, name


def test_the_corpus_is_the_same_for_the_same_seed() -> None:
    first, again, other = (list(islice(documents(seed), 50)) for seed in (3, 3, 4))
    assert first == again != other


def test_every_document_trains_something_that_follows_from_its_text() -> None:
    """Every trained word stands in the document before the span that repeats it."""
    rng = random.Random(0)
    for maker, _ in KINDS:
        for _ in range(40):
            seen = ""
            trained = 0
            for text, is_trained in maker(rng):
                if is_trained:
                    trained += 1
                    words = text.translate(str.maketrans('{}":,;.()_', " " * 10)).split()
                    said = seen.translate(str.maketrans('{}":,;.()_', " " * 10)).split()
                    assert set(words) <= set(said), (maker.__name__, text)
                seen += text
            assert trained, maker.__name__


def test_no_name_of_the_corpus_is_an_entity() -> None:
    """Entities pair first with last and qualifier with noun; the corpus never does."""
    pairs = {
        kind: {f"{first} {second}" for first in heads for second in tails}
        for kind, (heads, tails) in WORDS.items()
    }
    entities = pairs["person"] | pairs["thing"]
    rng = random.Random(1)
    drawn = {name(rng) for _ in range(5000)}
    assert not drawn & entities
    assert all(pool_of(entity) for entity in list(entities)[:10])


def test_the_corpus_holds_no_chat_and_no_tool_call() -> None:
    text = "".join(span for document in islice(documents(0), 3000) for span, _ in document)
    for mark in ("<|im_start|>", "<tool_call>", "<answer>", '"arguments"', "# Tools"):
        assert mark not in text
