"""A small Llama in PyTorch, with the rotary pairs next to each other as in GGUF files of architecture "llama"."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Shape:
    vocabulary: int
    layers: int = 4
    width: int = 256
    heads: int = 4
    kv_heads: int = 2
    hidden: int = 640
    context: int = 8192  # what the GGUF announces
    rope_base: float = 10000.0
    eps: float = 1e-5

    @property
    def head_width(self) -> int:
        return self.width // self.heads


def rotations(shape: Shape, length: int) -> tuple[torch.Tensor, torch.Tensor]:
    steps = torch.arange(0, shape.head_width, 2).float() / shape.head_width
    angles = torch.outer(torch.arange(length).float(), shape.rope_base ** -steps)
    return angles.cos(), angles.sin()


def rotate(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack((even * cos - odd * sin, even * sin + odd * cos), dim=-1).flatten(-2)


class Layer(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.shape = s
        kv = s.kv_heads * s.head_width
        self.attn_norm, self.ffn_norm = nn.RMSNorm(s.width, s.eps), nn.RMSNorm(s.width, s.eps)
        self.attn_q, self.attn_k, self.attn_v = (nn.Linear(s.width, n, bias=False) for n in (s.width, kv, kv))
        self.attn_output = nn.Linear(s.width, s.width, bias=False)
        self.ffn_gate, self.ffn_up = nn.Linear(s.width, s.hidden, bias=False), nn.Linear(s.width, s.hidden, bias=False)
        self.ffn_down = nn.Linear(s.hidden, s.width, bias=False)

    def forward(self, x, cos, sin):
        s, (batch, length, _) = self.shape, x.shape
        h = self.attn_norm(x)
        split = lambda t, n: t.view(batch, length, n, s.head_width).transpose(1, 2)
        q = rotate(split(self.attn_q(h), s.heads), cos, sin)
        k = rotate(split(self.attn_k(h), s.kv_heads), cos, sin)
        v = split(self.attn_v(h), s.kv_heads)
        repeat = s.heads // s.kv_heads
        a = F.scaled_dot_product_attention(q, k.repeat_interleave(repeat, 1), v.repeat_interleave(repeat, 1), is_causal=True)
        x = x + self.attn_output(a.transpose(1, 2).reshape(batch, length, s.width))
        h = self.ffn_norm(x)
        return x + self.ffn_down(F.silu(self.ffn_gate(h)) * self.ffn_up(h))


class Llama(nn.Module):
    def __init__(self, s: Shape):
        super().__init__()
        self.shape = s
        self.token_embd = nn.Embedding(s.vocabulary, s.width)
        self.blk = nn.ModuleList(Layer(s) for _ in range(s.layers))
        self.output_norm = nn.RMSNorm(s.width, s.eps)
        for name, p in self.named_parameters():
            if p.dim() == 2:
                last = name.endswith(("attn_output.weight", "ffn_down.weight"))
                nn.init.normal_(p, std=0.04 / math.sqrt(2 * s.layers) if last else 0.04)

    def hidden(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.token_embd(tokens)
        cos, sin = rotations(self.shape, tokens.shape[1])
        for layer in self.blk:
            x = layer(x, cos, sin)
        return self.output_norm(x)

    def logits(self, hidden: torch.Tensor) -> torch.Tensor:
        return F.linear(hidden, self.token_embd.weight)  # tied

    def loss(self, tokens: torch.Tensor, weights: torch.Tensor) -> torch.Tensor:
        """Mean loss over the tokens that have a weight; logits are made for those only."""
        wanted = weights[:, 1:] > 0
        hidden = self.hidden(tokens[:, :-1])[wanted]
        return F.cross_entropy(self.logits(hidden), tokens[:, 1:][wanted])

    @torch.no_grad()
    def answer(self, prompts: list[list[int]], end: int, limit: int) -> list[list[int]]:
        """Greedy answers. No KV cache: the prompts are short and this is only used to check the training."""
        rows = [list(p) for p in prompts]
        open_rows = list(range(len(rows)))
        for _ in range(limit):
            if not open_rows:
                break
            length = max(len(rows[i]) for i in open_rows)
            batch = torch.zeros(len(open_rows), length, dtype=torch.long)
            for at, i in enumerate(open_rows):
                batch[at, : len(rows[i])] = torch.tensor(rows[i])
            last = self.hidden(batch)[torch.arange(len(open_rows)), torch.tensor([len(rows[i]) - 1 for i in open_rows])]
            chosen = self.logits(last).argmax(-1).tolist()
            for i, token in zip(open_rows, chosen):
                rows[i].append(token)
            open_rows = [i for i, token in zip(open_rows, chosen) if token != end]
        return [row[len(p):] for row, p in zip(rows, prompts)]
