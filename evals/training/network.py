"""The model as it is trained: Qwen3-VL's blocks for pictures of one size, all of a batch at once.

Parameters bear the names and shapes of the family's checkpoints, so that ``export`` only has to write them
down. Tensors: ``B`` conversations of ``T`` tokens, ``N`` pictures of 64 patches that become 16 tokens each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn import functional

SIDE = 128
PATCH, MERGE = 16, 2
GRID = SIDE // PATCH
PICTURE_TOKENS = (GRID // MERGE) ** 2


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of the model; heads are 64 wide, which CPU attention takes."""

    vocab: int
    hidden: int = 256
    layers: int = 6
    heads: int = 4
    key_heads: int = 2
    between: int = 768
    head: int = 64
    theta: float = 10000.0
    eye: int = 128
    eye_layers: int = 4
    eye_heads: int = 2
    eye_between: int = 512
    deep: tuple[int, ...] = (1, 2)

    @property
    def sections(self) -> tuple[int, int, int]:
        """Frequencies for time, row and column, interleaved."""
        third = self.head // 2 * 20 // 64
        return self.head // 2 - 2 * third, third, third


class Norm(nn.Module):
    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(size))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return functional.rms_norm(x, (x.shape[-1],), self.weight.to(x.dtype), 1e-6)


def turned(x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
    """Rotary positions on the last dimension."""
    one, two = x.chunk(2, dim=-1)
    return x * cos + torch.cat((-two, one), dim=-1) * sin


class EyeAttention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.heads = shape.eye_heads
        self.qkv = nn.Linear(shape.eye, 3 * shape.eye)
        self.proj = nn.Linear(shape.eye, shape.eye)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        n, patches, width = x.shape
        q, k, v = self.qkv(x).view(n, patches, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
        y = functional.scaled_dot_product_attention(turned(q, cos, sin), turned(k, cos, sin), v)
        return self.proj(y.transpose(1, 2).reshape(n, patches, width))


class EyeMlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.linear_fc1 = nn.Linear(shape.eye, shape.eye_between)
        self.linear_fc2 = nn.Linear(shape.eye_between, shape.eye)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.linear_fc2(functional.gelu(self.linear_fc1(x), approximate="tanh"))


class EyeBlock(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(shape.eye, eps=1e-6)
        self.norm2 = nn.LayerNorm(shape.eye, eps=1e-6)
        self.attn = EyeAttention(shape)
        self.mlp = EyeMlp(shape)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x), cos, sin)
        return x + self.mlp(self.norm2(x))


class Merger(nn.Module):
    """Four patches become one token of the language model."""

    def __init__(self, shape: Shape, *, late_norm: bool) -> None:
        super().__init__()
        self.wide = shape.eye * MERGE**2
        self.late_norm = late_norm
        self.norm = nn.LayerNorm(self.wide if late_norm else shape.eye, eps=1e-6)
        self.linear_fc1 = nn.Linear(self.wide, self.wide)
        self.linear_fc2 = nn.Linear(self.wide, shape.hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        n = x.shape[0]
        x = (
            self.norm(x.reshape(n, -1, self.wide))
            if self.late_norm
            else self.norm(x).reshape(n, -1, self.wide)
        )
        return self.linear_fc2(functional.gelu(self.linear_fc1(x)))


class PatchEmbed(nn.Module):
    """A picture stands for two moments in the family: both halves of the kernel see the same pixels."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.proj = nn.Conv3d(3, shape.eye, (2, PATCH, PATCH), (2, PATCH, PATCH))

    def forward(self, patches: torch.Tensor) -> torch.Tensor:
        return functional.linear(patches, self.proj.weight.sum(2).flatten(1), self.proj.bias)


class Eye(nn.Module):
    """Pictures ``N x 128 x 128 x 3`` of bytes to ``N x 16`` tokens, and those that later layers add."""

    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.deep = shape.deep
        self.patch_embed = PatchEmbed(shape)
        self.pos_embed = nn.Embedding(GRID**2, shape.eye)
        self.blocks = nn.ModuleList(EyeBlock(shape) for _ in range(shape.eye_layers))
        self.merger = Merger(shape, late_norm=False)
        self.deepstack_merger_list = nn.ModuleList(Merger(shape, late_norm=True) for _ in shape.deep)
        order = torch.arange(GRID**2).view(GRID // 2, 2, GRID // 2, 2).permute(0, 2, 1, 3).flatten()
        self.register_buffer("order", order, persistent=False)
        quarter = shape.eye // shape.eye_heads // 4
        speed = 1.0 / (10000.0 ** (torch.arange(quarter).float() / quarter))
        angles = torch.cat(((order // GRID)[:, None] * speed, (order % GRID)[:, None] * speed), dim=-1)
        self.register_buffer("cos", torch.cat((angles, angles), -1).cos(), persistent=False)
        self.register_buffer("sin", torch.cat((angles, angles), -1).sin(), persistent=False)

    def forward(self, pictures: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        n = pictures.shape[0]
        x = pictures.to(self.pos_embed.weight.dtype) / 127.5 - 1.0
        x = x.view(n, GRID // 2, 2, PATCH, GRID // 2, 2, PATCH, 3).permute(0, 1, 4, 2, 5, 7, 3, 6)
        x = self.patch_embed(x.reshape(n, GRID**2, 3 * PATCH**2)) + self.pos_embed(self.order)
        cos, sin = self.cos.to(x.dtype), self.sin.to(x.dtype)
        deep = []
        for index, block in enumerate(self.blocks):
            x = block(x, cos, sin)
            if index in self.deep:
                deep.append(self.deepstack_merger_list[self.deep.index(index)](x))
        return self.merger(x), deep


class Attention(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.head = shape.head
        self.q_proj = nn.Linear(shape.hidden, shape.heads * shape.head, bias=False)
        self.k_proj = nn.Linear(shape.hidden, shape.key_heads * shape.head, bias=False)
        self.v_proj = nn.Linear(shape.hidden, shape.key_heads * shape.head, bias=False)
        self.o_proj = nn.Linear(shape.heads * shape.head, shape.hidden, bias=False)
        self.q_norm, self.k_norm = Norm(shape.head), Norm(shape.head)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        b, t, _ = x.shape
        q = self.q_norm(self.q_proj(x).view(b, t, -1, self.head)).transpose(1, 2)
        k = self.k_norm(self.k_proj(x).view(b, t, -1, self.head)).transpose(1, 2)
        v = self.v_proj(x).view(b, t, -1, self.head).transpose(1, 2)
        q, k = turned(q, cos, sin), turned(k, cos, sin)
        k = k.repeat_interleave(q.shape[1] // k.shape[1], 1)
        v = v.repeat_interleave(q.shape[1] // v.shape[1], 1)
        y = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(y.transpose(1, 2).reshape(b, t, -1))


class Mlp(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.gate_proj = nn.Linear(shape.hidden, shape.between, bias=False)
        self.up_proj = nn.Linear(shape.hidden, shape.between, bias=False)
        self.down_proj = nn.Linear(shape.between, shape.hidden, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(functional.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.self_attn, self.mlp = Attention(shape), Mlp(shape)
        self.input_layernorm, self.post_attention_layernorm = Norm(shape.hidden), Norm(shape.hidden)

    def forward(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.input_layernorm(x), cos, sin)
        return x + self.mlp(self.post_attention_layernorm(x))


class Language(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        self.embed_tokens = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = Norm(shape.hidden)
        axis = torch.zeros(shape.head // 2, dtype=torch.long)
        for which, count in enumerate(shape.sections[1:], start=1):
            axis[which : count * 3 : 3] = which
        self.register_buffer("axis", axis, persistent=False)

    def rotary(self, places: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """``places``: ``3 x B x T`` of time, row and column. Angles need single precision, so no buffer holds
        their speeds: a model that is turned into bf16 takes its buffers along."""
        head = self.shape.head
        speed = self.shape.theta ** -(torch.arange(0, head, 2, device=places.device).float() / head)
        angles = places.permute(1, 2, 0)[..., self.axis].float() * speed
        angles = torch.cat((angles, angles), -1)[:, None]
        return angles.cos(), angles.sin()

    def forward(
        self, tokens: torch.Tensor, places: torch.Tensor, seen: torch.Tensor,
        tokens_seen: torch.Tensor, deep: list[torch.Tensor], tap: int,
    ) -> tuple[torch.Tensor, torch.Tensor]:  # fmt: skip
        """Last hidden states, and those after layer ``tap``; ``seen``: where the pictures' tokens stand."""
        x = self.embed_tokens(tokens)
        b, t, width = x.shape
        x = x.reshape(b * t, width).index_copy(0, seen, tokens_seen.to(x.dtype)).view(b, t, width)
        cos, sin = (part.to(x.dtype) for part in self.rotary(places))
        tapped = x
        for index, layer in enumerate(self.layers):
            x = layer(x, cos, sin)
            if index < len(deep):
                x = x.reshape(b * t, width).index_add(0, seen, deep[index].to(x.dtype)).view(b, t, width)
            if index == tap:
                tapped = x
        return self.norm(x), tapped


class Inner(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.visual, self.language_model = Eye(shape), Language(shape)


class Network(nn.Module):
    """The model, and two heads that only training needs: ``glance`` says what one picture shows, ``notice``
    what changed with it. Their targets are 0 and 1 for every name of a thing."""

    def __init__(self, shape: Shape, names: int) -> None:
        super().__init__()
        self.shape = shape
        self.model = Inner(shape)
        self.lm_head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.glance = nn.Linear(shape.hidden, names)
        self.notice = nn.Linear(shape.hidden, 3 * names)
        for name, weight in self.named_parameters():
            if weight.dim() >= 2:
                deep = name.endswith(
                    ("o_proj.weight", "down_proj.weight", "attn.proj.weight", "linear_fc2.weight")
                )
                nn.init.normal_(
                    weight, std=0.02 / (2 * shape.layers) ** 0.5 if deep and "merger" not in name else 0.02
                )
            elif name.endswith("bias"):
                nn.init.zeros_(weight)

    def forward(self, batch: dict[str, Any]) -> dict[str, torch.Tensor]:
        """``tokens`` B x T, ``places`` 3 x B x T, ``pictures`` N x 128 x 128 x 3. Flat indices: ``seen`` of
        pictures' tokens, ``wanted`` of those before what is to be said, ``ticks`` of those after pictures."""
        shown, deep = self.model.visual(batch["pictures"])
        glance = self.glance(shown.mean(1))
        last, tapped = self.model.language_model(
            batch["tokens"], batch["places"], batch["seen"], shown.flatten(0, 1),
            [part.flatten(0, 1) for part in deep], self.shape.layers // 2 - 1,
        )  # fmt: skip
        width = last.shape[-1]
        return {
            "logits": self.lm_head(last.reshape(-1, width)[batch["wanted"]]),
            "glance": glance,
            "notice": self.notice(tapped.reshape(-1, width)[batch["ticks"]]),
        }
