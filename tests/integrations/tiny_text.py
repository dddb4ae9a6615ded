"""A sentence transformer of two layers with weights at random, and sentences for it; nothing is downloaded."""

from pathlib import Path
from typing import Any

import pytest
import torch

st = pytest.importorskip("sentence_transformers", reason="the extra text has it")
transformers = pytest.importorskip("transformers", reason="the extra text has it")
tokenizers = pytest.importorskip("tokenizers", reason="the extra text has it")

WORDS = [f"w{number}" for number in range(60)]


def tiny_model(folder: Path, *, dropout: float = 0.0) -> Any:
    """A ``SentenceTransformer`` of 16 features, from files that are written to a folder."""
    known = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(known, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(known),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.5,
    )
    transformers.BertModel(config).save_pretrained(folder)
    modules = st.sentence_transformer.modules
    return st.SentenceTransformer(modules=[modules.Transformer(str(folder)), modules.Pooling(16)], device="cpu")


def sentences(count: int, *, seed: int) -> list[str]:
    """Sentences of two to six words."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 7, (count,), generator=generator).tolist()
    return [" ".join(WORDS[n] for n in torch.randint(60, (k,), generator=generator)) for k in lengths]
