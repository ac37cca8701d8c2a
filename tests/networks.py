"""Small PyTorch networks, and what torch.onnx makes of them with both of its exporters."""

from __future__ import annotations

import functools
import io
import logging
import warnings
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor, nn

# The first writes the newest operators (Gelu, LayerNormalization), the other spells them out: it gets an old opset.
EXPORTERS = ("dynamo", "torchscript")


class Mlp(nn.Module):
    """Both spellings of GELU, and SiLU."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(48, 96), nn.GELU(), nn.Linear(96, 64), nn.GELU(approximate="tanh"), nn.Linear(64, 33), nn.SiLU()
        )

    def forward(self, x: Tensor) -> Tensor:
        return self.layers(x)


class RmsNorm(nn.Module):
    """As in Llama: computed in float32 whatever the type of the rest."""

    def __init__(self, size: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(size))

    def forward(self, x: Tensor) -> Tensor:
        wide = x.float()
        wide = wide * torch.rsqrt(wide.pow(2).mean(-1, keepdim=True) + 1e-6)
        return self.weight * wide.to(x.dtype)


class Attention(nn.Module):
    """Softmax attention spelled out, with a causal mask."""

    def __init__(self, size: int = 48, heads: int = 3) -> None:
        super().__init__()
        self.heads, self.head_size = heads, size // heads
        self.qkv, self.out = nn.Linear(size, 3 * size), nn.Linear(size, size)
        self.register_buffer("mask", torch.full((16, 16), -1e4).triu(1))

    def forward(self, x: Tensor) -> Tensor:
        batch, length, size = x.shape
        split = (batch, length, 3, self.heads, self.head_size)
        q, k, v = self.qkv(x).reshape(split).permute(2, 0, 3, 1, 4).unbind(0)
        scores = q @ k.transpose(-1, -2) / self.head_size**0.5 + self.mask[:length, :length]
        mixed = torch.softmax(scores, -1) @ v
        return self.out(mixed.transpose(1, 2).reshape(batch, length, size))


class Block(nn.Module):
    """A pre-norm transformer block with RMSNorm and SwiGLU."""

    def __init__(self, size: int = 48) -> None:
        super().__init__()
        self.norm1, self.norm2 = RmsNorm(size), RmsNorm(size)
        self.attention = Attention(size)
        self.gate, self.up, self.down = nn.Linear(size, 100), nn.Linear(size, 100), nn.Linear(100, size)

    def forward(self, x: Tensor) -> Tensor:
        x = x + self.attention(self.norm1(x))
        y = self.norm2(x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class ManualSoftmax(nn.Module):
    """A softmax from primitives, between a scale and a mask."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = torch.where(mask, x * 0.125, torch.tensor(-1e4))
        e = torch.exp(x - x.amax(-1, keepdim=True))
        return e / e.sum(-1, keepdim=True)


class MobileBlock(nn.Module):
    """Convolutions with HardSwish and a squeeze-and-excite gate, as in MobileNetV3."""

    def __init__(self) -> None:
        super().__init__()
        self.expand, self.norm = nn.Conv2d(5, 24, 3, padding=1, bias=False), nn.BatchNorm2d(24)
        self.squeeze, self.excite = nn.Conv2d(24, 6, 1), nn.Conv2d(6, 24, 1)
        self.project = nn.Conv2d(24, 5, 1)
        self.norm.running_mean.normal_()
        self.norm.running_var.uniform_(0.5, 2)

    def forward(self, x: Tensor) -> Tensor:
        y = nn.functional.hardswish(self.norm(self.expand(x)))
        gate = torch.relu(self.squeeze(y.mean((2, 3), keepdim=True)))
        gate = (self.excite(gate) + 3).clamp(0, 6) / 6
        return x + self.project(y * gate)


class ChannelsFirst(nn.Module):
    """LayerNorm over the channels of images, spelled out as in ConvNeXt."""

    def __init__(self, channels: int = 20) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, 3, padding=1, groups=channels)
        self.weight = nn.Parameter(1 + 0.1 * torch.randn(channels))
        self.bias = nn.Parameter(torch.randn(channels))

    def forward(self, x: Tensor) -> Tensor:
        y = self.conv(x)
        mean = y.mean(1, keepdim=True)
        variance = (y - mean).pow(2).mean(1, keepdim=True)
        y = (y - mean) / torch.sqrt(variance + 1e-6)
        return x + self.weight[:, None, None] * y + self.bias[:, None, None]


class Norms(nn.Module):
    """PyTorch's own normalizations, with a residual and activations around them."""

    def __init__(self, size: int = 40) -> None:
        super().__init__()
        self.layer_norm, self.group_norm = nn.LayerNorm(size), nn.GroupNorm(4, size)

    def forward(self, x: Tensor) -> Tensor:
        y = torch.relu(self.layer_norm(x + torch.tanh(x)))
        return nn.functional.mish(self.group_norm(y.transpose(1, 2)))


@dataclass(frozen=True)
class Network:
    """How to build a network and inputs for it of a given batch size; `dtype` is what both are converted to."""

    build: Callable[[], nn.Module]
    inputs: Callable[[int], tuple[Tensor, ...]]
    dtype: torch.dtype = torch.float32


def _tokens(batch: int) -> tuple[Tensor, ...]:
    return (torch.randn(batch, 9, 48),)


NETWORKS: dict[str, Network] = {
    "mlp": Network(Mlp, lambda batch: (torch.randn(batch, 7, 48),)),
    "attention": Network(Attention, _tokens),
    "block": Network(Block, _tokens),
    "block_fp16": Network(Block, _tokens, torch.float16),
    "softmax": Network(ManualSoftmax, lambda batch: (8 * torch.randn(batch, 5, 37), torch.rand(batch, 5, 37) > 0.3)),
    "mobile": Network(MobileBlock, lambda batch: (torch.randn(batch, 5, 11, 13),)),
    "channels_first": Network(ChannelsFirst, lambda batch: (torch.randn(batch, 20, 6, 5),)),
    "norms": Network(Norms, lambda batch: (torch.randn(batch, 6, 40),)),
}


@functools.cache
def module(name: str) -> nn.Module:
    """A network in inference mode, always with the same weights."""
    torch.manual_seed(0)
    network = NETWORKS[name]
    return network.build().eval().to(network.dtype)


def example(name: str, batch: int) -> tuple[Tensor, ...]:
    """Inputs of a network, always the same for a batch size."""
    torch.manual_seed(batch)
    network = NETWORKS[name]
    return tuple(x.to(network.dtype) if x.is_floating_point() else x for x in network.inputs(batch))


@functools.cache
def export(name: str, exporter: str) -> bytes:
    """A network as ONNX, with a dynamic first dimension."""
    arguments = example(name, 2)
    names = [f"input{i}" for i in range(len(arguments))]
    file = io.BytesIO()
    common = {"input_names": names, "output_names": ["output"], "verbose": False}
    logging.getLogger("torch.onnx").setLevel(logging.ERROR)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        if exporter == "torchscript":
            axes = {key: {0: "batch"} for key in (*names, "output")}
            torch.onnx.export(
                module(name), arguments, file, dynamo=False, opset_version=13, dynamic_axes=axes, **common
            )
        else:
            shapes = tuple({0: torch.export.Dim("batch")} for _ in arguments)
            program = torch.onnx.export(module(name), arguments, dynamo=True, dynamic_shapes=shapes, **common)
            return program.model_proto.SerializeToString()
    return file.getvalue()
