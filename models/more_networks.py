"""More networks for exports.py, small ones of many families: what users bring that no table of ours was tuned to."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

__all__ = ["MORE", "Text"]

Network = tuple[nn.Module, Tensor]

_SIZES = {"vocab_size": 1000, "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4}
_EAGER = {"attn_implementation": "eager"}


class Text(nn.Module):
    """A language model as a function from token numbers to hidden states.

    Without a mask, transformers looks for packed sequences with an operator that TorchScript's exporter lacks.
    """

    masked = False

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, ids: Tensor) -> Tensor:
        mask = torch.ones_like(ids) if self.masked else None
        return self.model(input_ids=ids, attention_mask=mask).last_hidden_state


class Hidden(nn.Module):
    """A model of sound or of images as a function of one tensor."""

    def __init__(self, model: nn.Module, argument: str) -> None:
        super().__init__()
        self.model, self.argument = model, argument

    def forward(self, x: Tensor) -> Tensor:
        return self.model(**{self.argument: x}).last_hidden_state


class Residual(nn.Module):
    """The residual block of a denoising U-Net: GroupNorm, SiLU and a convolution twice, with an embedded time."""

    def __init__(self, inner: int, outer: int, time: int) -> None:
        super().__init__()
        self.first, self.second = nn.GroupNorm(8, inner), nn.GroupNorm(8, outer)
        self.enter, self.leave = nn.Conv2d(inner, outer, 3, padding=1), nn.Conv2d(outer, outer, 3, padding=1)
        self.time, self.skip = nn.Linear(time, outer), nn.Conv2d(inner, outer, 1)

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        h = self.enter(functional.silu(self.first(x))) + self.time(functional.silu(time))[:, :, None, None]
        return self.skip(x) + self.leave(functional.silu(self.second(h)))


class UNet(nn.Module):
    """A denoising U-Net of one step down and up, with attention at the bottom."""

    def __init__(self, channels: int = 64, time: int = 32) -> None:
        super().__init__()
        self.enter, self.leave = nn.Conv2d(4, time, 3, padding=1), nn.Conv2d(channels, 4, 3, padding=1)
        self.down = nn.Conv2d(channels, channels, 3, stride=2, padding=1)
        self.blocks = nn.ModuleList(Residual(i, channels, time) for i in (time, channels, 2 * channels))
        self.norm, self.last = nn.GroupNorm(8, channels), nn.GroupNorm(8, channels)
        self.split, self.join, self.embed = (
            nn.Linear(channels, 3 * channels),
            nn.Linear(channels, channels),
            nn.Linear(time, time),
        )

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(16, dtype=torch.float32) * 0.1
        time = self.embed(torch.cat([steps.sin(), steps.cos()]).to(x.dtype)[None].expand(x.shape[0], 32))
        wide = self.blocks[0](self.enter(x), time)
        h = self.attend(self.blocks[1](self.down(wide), time))
        h = self.blocks[2](torch.cat([functional.interpolate(h, scale_factor=2.0, mode="nearest"), wide], 1), time)
        return self.leave(functional.silu(self.last(h)))

    def attend(self, x: Tensor) -> Tensor:
        batch, channels, height, width = x.shape
        rows = self.norm(x).reshape(batch, channels, height * width).transpose(1, 2)
        q, k, v = self.split(rows).chunk(3, -1)
        y = torch.softmax(q @ k.transpose(1, 2) * channels**-0.5, -1) @ v
        return x + self.join(y).transpose(1, 2).reshape(batch, channels, height, width)


def _text(name: str, **options: Any) -> Callable[..., Network]:
    def network(_full: bool, batch: int) -> Network:
        import transformers

        config = getattr(transformers, f"{name}Config")(**options)
        model = getattr(transformers, f"{name}EncoderModel" if name == "T5" else f"{name}Model")
        return Text(model(config)), torch.randint(0, 1000, (batch, 13))

    return network


def _causal(name: str, **options: Any) -> Callable[..., Network]:
    return _text(name, **_SIZES, **_EAGER, intermediate_size=128, use_cache=False, **options)


def _hidden(name: str, argument: str, shape: tuple[int, ...], **options: Any) -> Callable[..., Network]:
    def network(_full: bool, batch: int) -> Network:
        import transformers

        family = name.removesuffix("Encoder").removesuffix("Vision")
        config = getattr(transformers, f"{'CLIPVision' if family == 'CLIP' else family}Config")(**options)
        if name == "WhisperEncoder":
            from transformers.models.whisper.modeling_whisper import WhisperEncoder

            return Hidden(WhisperEncoder(config), argument), torch.randn(batch, *shape)
        return Hidden(getattr(transformers, f"{name}Model")(config), argument), torch.randn(batch, *shape)

    return network


def _image(name: str, side: int = 64, **options: Any) -> Callable[..., Network]:
    def network(_full: bool, batch: int) -> Network:
        import timm

        return timm.create_model(name, **options), torch.randn(batch, 3, side, side)

    return network


_SOUND = {
    "hidden_size": 64, "num_hidden_layers": 2, "num_attention_heads": 4, "intermediate_size": 128,
    "conv_dim": (32, 32, 32), "conv_stride": (5, 2, 2), "conv_kernel": (10, 3, 3), "num_feat_extract_layers": 3,
    "num_conv_pos_embeddings": 16, "num_conv_pos_embedding_groups": 4,
}  # fmt: skip

# name -> (whether full: they have one size, batch) -> network and input
MORE: dict[str, Callable[..., Network]] = {
    "t5": _text(
        "T5", vocab_size=1000, d_model=64, d_kv=16, d_ff=128, num_layers=2, num_heads=4, feed_forward_proj="gated-gelu"
    ),
    "deberta": _text(
        "DebertaV2",
        **_SIZES,
        intermediate_size=128,
        relative_attention=True,
        pos_att_type=["c2p", "p2c"],
        position_buckets=8,
        norm_rel_ebd="layer_norm",
        share_att_key=True,
    ),
    "distilbert": _text("DistilBert", vocab_size=1000, dim=64, n_layers=2, n_heads=4, hidden_dim=128, **_EAGER),
    "bloom": _text("Bloom", vocab_size=1000, hidden_size=64, n_layer=2, n_head=4, use_cache=False, **_EAGER),
    "roformer": _causal("RoFormer"),
    "gemma2": _causal("Gemma2", num_key_value_heads=2, head_dim=16),
    "qwen3": _causal("Qwen3", num_key_value_heads=2, head_dim=16),
    "mistral": _causal("Mistral", num_key_value_heads=2),
    "phi": _causal("Phi"),
    "gptneox": _causal("GPTNeoX"),
    "whisper": _hidden(
        "WhisperEncoder",
        "input_features",
        (20, 100),
        d_model=64,
        encoder_layers=2,
        encoder_attention_heads=4,
        encoder_ffn_dim=128,
        num_mel_bins=20,
        max_source_positions=50,
        **_EAGER,
    ),
    "wav2vec2": _hidden("Wav2Vec2", "input_values", (1600,), **_SOUND, **_EAGER),
    "conformer": _hidden("Wav2Vec2Conformer", "input_values", (1600,), **_SOUND),
    "clip": _hidden(
        "CLIPVision",
        "pixel_values",
        (3, 32, 32),
        hidden_size=64,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        image_size=32,
        patch_size=8,
        **_EAGER,
    ),
    "segformer": _hidden("Segformer", "pixel_values", (3, 64, 64), depths=[1, 1, 1, 1], hidden_sizes=[16, 32, 48, 64]),
    "unet": lambda _full, batch: (UNet(), torch.randn(batch, 4, 16, 16)),
    "regnet": _image("regnety_002"),
    "mobilevit": _image("mobilevit_xxs"),
    "efficientvit": _image("efficientvit_b0"),
    "edgenext": _image("edgenext_xx_small"),
    "levit": _image("levit_128s", 224),
    "ghostnet": _image("ghostnet_050"),
    "poolformer": _image("poolformer_s12"),
    "mixer": _image("mixer_s32_224", 224),
    "repvit": _image("repvit_m0_9"),
    "fastvit": _image("fastvit_t8"),
    "dinov2": _image("vit_small_patch14_reg4_dinov2", 70, img_size=70),
}
