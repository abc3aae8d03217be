"""Writes the model as GGUF, and rounds the weights as that file does."""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf.quants import dequantize, quantize
from tokenizers import Tokenizer

from chat import CONTROL, END, PAD, TEMPLATE
from model import Llama

Q8_0 = gguf.GGMLQuantizationType.Q8_0


def round_weights(model: Llama) -> None:
    """Gives each matrix the values that it will have in the file."""
    for p in model.parameters():
        if p.dim() == 2:
            p.data = torch.from_numpy(dequantize(quantize(p.detach().numpy(), Q8_0), Q8_0))


def write(path: Path, model: Llama, tokenizer: Tokenizer) -> None:
    s = model.shape
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("tandem-tiny")
    w.add_description("Help model of tandem: answers questions about tandem, and names a model to pull for anything else.")
    w.add_languages(["en"])
    w.add_file_type(gguf.LlamaFileType.MOSTLY_Q8_0)
    w.add_context_length(s.context)
    w.add_embedding_length(s.width)
    w.add_block_count(s.layers)
    w.add_feed_forward_length(s.hidden)
    w.add_head_count(s.heads)
    w.add_head_count_kv(s.kv_heads)
    w.add_rope_dimension_count(s.head_width)
    w.add_rope_freq_base(s.rope_base)
    w.add_layer_norm_rms_eps(s.eps)
    w.add_vocab_size(s.vocabulary)
    _write_tokenizer(w, tokenizer)
    for name, p in model.named_parameters():
        data = p.detach().numpy().astype(np.float32)
        if data.ndim == 2:
            w.add_tensor(name, quantize(data, Q8_0), raw_dtype=Q8_0)
        else:
            w.add_tensor(name, data)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def _write_tokenizer(w: gguf.GGUFWriter, tokenizer: Tokenizer) -> None:
    bpe = json.loads(tokenizer.to_str())["model"]
    tokens = sorted(bpe["vocab"], key=bpe["vocab"].get)
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([gguf.TokenType.CONTROL if t in CONTROL else gguf.TokenType.NORMAL for t in tokens])
    w.add_token_merges([" ".join(pair) for pair in bpe["merges"]])
    w.add_bos_token_id(tokenizer.token_to_id(PAD))
    w.add_eos_token_id(tokenizer.token_to_id(END))
    w.add_pad_token_id(tokenizer.token_to_id(PAD))
    w.add_add_bos_token(False)
    w.add_add_eos_token(False)
    w.add_chat_template(TEMPLATE)
