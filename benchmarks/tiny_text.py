"""A sentence transformer of two layers with weights at random, and sentences for it; nothing is downloaded."""

import tempfile

import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace
from transformers import BertConfig, BertModel, PreTrainedTokenizerFast

WORDS = [f"w{number}" for number in range(60)]
MOST_TOKENS = 16


def tiny_model(*, features: int = 16, dropout: float = 0.0) -> SentenceTransformer:
    """Mean pooling over a BERT of two layers and two heads."""
    vocabulary = {word: number for number, word in enumerate(["[PAD]", "[UNK]", *WORDS])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token="[UNK]"))
    tokenizer.pre_tokenizer = Whitespace()
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(vocabulary),
        hidden_size=features,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=2 * features,
        max_position_embeddings=MOST_TOKENS,
        hidden_dropout_prob=dropout,
        attention_probs_dropout_prob=dropout,
        initializer_range=0.5,  # at BERT's 0.02 all sentences look alike
    )
    with tempfile.TemporaryDirectory() as folder:  # the module reads files alone
        PreTrainedTokenizerFast(
            tokenizer_object=tokenizer, pad_token="[PAD]", unk_token="[UNK]", model_max_length=MOST_TOKENS
        ).save_pretrained(folder)
        BertModel(config).save_pretrained(folder)
        return SentenceTransformer(modules=[Transformer(folder), Pooling(features)], device="cpu")


def sentences(count: int, *, seed: int) -> list[str]:
    """Sentences of two to six words."""
    generator = torch.Generator().manual_seed(seed)
    lengths = torch.randint(2, 7, (count,), generator=generator).tolist()
    return [" ".join(WORDS[n] for n in torch.randint(60, (k,), generator=generator)) for k in lengths]
