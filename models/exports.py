#!/usr/bin/env python3
"""Exports well-known networks with random weights, by torch.onnx: what onnxfuse meets in practice.

    exports.py [NAME...] [--more] [--folder DIR] [--size small|full] [--exporter dynamo,torchscript] [--opset 17,newest]
               [--dtype fp32,fp16] [--batch N] [--static]

Needs torch, transformers and timm. --more are those of more_networks.py. `small` has the structure in a few layers and
few channels; `full` is what people serve. The batch is a dynamic dimension but for --static. Each model lies in DIR as
NAME-EXPORTER-OPSET-DTYPE.onnx, with its weights inside.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import logging
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

sys.path.append(str(Path(__file__).resolve().parent.parent))
from models.more_networks import MORE, Text

__all__ = ["DTYPES", "EXPORTERS", "NETWORKS", "OPSETS", "export"]

EXPORTERS = ("dynamo", "torchscript")
OPSETS = ("17", "newest")
DTYPES = {"fp32": torch.float32, "fp16": torch.float16}
# The newest opset that each exporter writes: TorchScript's stands still.
_NEWEST = {"dynamo": 23, "torchscript": 20}
CACHE = Path(__file__).with_name("cache") / "exports"


class Mamba(nn.Module):
    """A selective state space block (Gu and Dao, arXiv:2312.00752), its recurrence as running sums in log space."""

    def __init__(self, size: int, states: int = 8, width: int = 4) -> None:
        super().__init__()
        inner, rank = 2 * size, max(size // 16, 1)
        self.states, self.rank = states, rank
        self.norm = nn.LayerNorm(size)
        self.enter, self.leave = nn.Linear(size, 2 * inner, bias=False), nn.Linear(inner, size, bias=False)
        self.conv = nn.Conv1d(inner, inner, width, groups=inner, padding=width - 1)
        self.select = nn.Linear(inner, rank + 2 * states, bias=False)
        self.step = nn.Linear(rank, inner)
        self.decay_log = nn.Parameter(torch.log(torch.arange(1, states + 1).float()).repeat(inner, 1))
        self.skip = nn.Parameter(torch.ones(inner))
        with torch.no_grad():
            self.step.bias.fill_(-4.0)  # slow decay, as trained models have it

    def forward(self, x: Tensor) -> Tensor:
        u, gate = self.enter(self.norm(x)).chunk(2, -1)
        u = nn.functional.silu(self.conv(u.transpose(1, 2))[..., : x.shape[1]].transpose(1, 2))
        step, b, c = self.select(u).split([self.rank, self.states, self.states], -1)
        step = nn.functional.softplus(self.step(step))
        logs = torch.cumsum(step[..., None] * -torch.exp(self.decay_log.float()).to(x.dtype), 1)
        put_in = step[..., None] * b[:, :, None] * u[..., None] * torch.exp(-logs)
        state = torch.cumsum(put_in, 1) * torch.exp(logs)
        y = (state * c[:, :, None]).sum(-1) + u * self.skip
        return x + self.leave(y * nn.functional.silu(gate))


def _text(make: Callable[[Any, bool], nn.Module], lengths: tuple[int, int]) -> Callable[..., tuple[nn.Module, Tensor]]:
    def network(full: bool, batch: int) -> tuple[nn.Module, Tensor]:
        import transformers

        return Text(make(transformers, full)), torch.randint(0, 1000, (batch, lengths[full]))

    return network


def _bert(tr: Any, full: bool) -> nn.Module:
    small = {"num_hidden_layers": 2, "hidden_size": 128, "num_attention_heads": 4, "intermediate_size": 512}
    return tr.BertModel(tr.BertConfig(attn_implementation="eager", **({} if full else {**small, "vocab_size": 1000})))


def _gpt2(tr: Any, full: bool) -> nn.Module:
    shape = {"n_layer": 6} if full else {"n_layer": 2, "n_embd": 128, "n_head": 4, "vocab_size": 1000}
    return tr.GPT2Model(tr.GPT2Config(attn_implementation="eager", use_cache=False, **shape))


def _llama(tr: Any, full: bool) -> nn.Module:
    shape = {"hidden_size": 1024, "intermediate_size": 2816, "num_hidden_layers": 8, "num_attention_heads": 16}
    if not full:
        shape = {"hidden_size": 128, "intermediate_size": 352, "num_hidden_layers": 2, "num_attention_heads": 4}
        shape["vocab_size"] = 1000
    heads = shape["num_attention_heads"]
    config = tr.LlamaConfig(attn_implementation="eager", use_cache=False, num_key_value_heads=heads, **shape)
    return tr.LlamaModel(config)


def _image(name: str, small: dict[str, Any], side: int) -> Callable[..., tuple[nn.Module, Tensor]]:
    def network(full: bool, batch: int) -> tuple[nn.Module, Tensor]:
        import timm

        size = 224 if full else side
        return timm.create_model(name, **({} if full else small)), torch.randn(batch, 3, size, size)

    return network


def _mamba(full: bool, batch: int) -> tuple[nn.Module, Tensor]:
    size, length = (1024, 512) if full else (64, 24)
    return Mamba(size), torch.randn(batch, length, size)


# name -> (whether full, batch) -> network and input
NETWORKS: dict[str, Callable[..., tuple[nn.Module, Tensor]]] = {
    "bert": _text(_bert, (16, 128)),
    "gpt2": _text(_gpt2, (16, 128)),
    "llama": _text(_llama, (16, 256)),
    "vit": _image("vit_base_patch16_224", {"img_size": 32, "embed_dim": 64, "depth": 2, "num_heads": 4}, 32),
    "swin": _image(
        "swin_tiny_patch4_window7_224",
        {"img_size": 56, "embed_dim": 32, "depths": (2, 2), "num_heads": (2, 4)},
        56,
    ),
    "convnext": _image("convnext_tiny", {"depths": (1, 1, 2, 1), "dims": (16, 32, 48, 64)}, 64),
    "efficientnet": _image("efficientnet_b0", {}, 64),
    "mobilenetv3": _image("mobilenetv3_large_100", {}, 64),
    "mamba": _mamba,
}


def export(
    name: str,
    path: Path,
    exporter: str,
    opset: str,
    dtype: str,
    *,
    full: bool = False,
    batch: int = 2,
    dynamic: bool = True,
) -> None:
    """Writes one network to `path`, with torch's random numbers from seed 0."""
    torch.manual_seed(0)
    network, x = (NETWORKS | MORE)[name](full, batch)
    _roughen(network)
    network = network.eval().to(DTYPES[dtype])
    if isinstance(network, Text):
        network.masked = exporter == "torchscript"
    x = x.to(DTYPES[dtype]) if x.is_floating_point() else x
    version = _NEWEST[exporter] if opset == "newest" else int(opset)
    axes = {"x": {0: "batch"}}
    with torch.no_grad(), _quiet():
        if exporter == "dynamo":
            shapes = ({0: torch.export.Dim("batch", min=1, max=64)},) if dynamic else None
            program = torch.onnx.export(
                network, (x,), dynamo=True, opset_version=version, verbose=False, dynamic_shapes=shapes,
                input_names=["x"], output_names=["y"],
            )  # fmt: skip
            program.save(str(path), external_data=False)
        else:
            torch.onnx.export(
                network, (x,), str(path), dynamo=False, opset_version=version, input_names=["x"],
                output_names=["y"], dynamic_axes=axes if dynamic else None,
            )  # fmt: skip


def _roughen(network: nn.Module) -> None:
    """Makes parameters that are all alike (biases of 0, scales of 1) differ, as in trained networks.

    Exporters drop a bias of zeros.
    """
    with torch.no_grad():
        for parameter in network.parameters():
            if parameter.numel() > 1 and bool((parameter == parameter.flatten()[0]).all()):
                parameter.add_(0.02 * torch.randn_like(parameter))


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    with (
        warnings.catch_warnings(),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()),
    ):
        warnings.simplefilter("ignore")
        try:
            yield
        finally:
            logging.disable(logging.NOTSET)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(NETWORKS | MORE))
    parser.add_argument("--more", action="store_true", help=f"those of {', '.join(MORE)}, of one size each")
    parser.add_argument("--folder", type=Path, default=CACHE)
    parser.add_argument("--size", choices=("small", "full"), default="small")
    parser.add_argument("--exporter", default=",".join(EXPORTERS))
    parser.add_argument("--opset", default=",".join(OPSETS))
    parser.add_argument("--dtype", default=",".join(DTYPES))
    parser.add_argument("--batch", type=int, default=2)
    parser.add_argument("--static", action="store_true", help="a fixed batch")
    args = parser.parse_args(arguments)
    exporters, opsets, dtypes = (text.split(",") for text in (args.exporter, args.opset, args.dtype))
    names = args.names or list(MORE if args.more else NETWORKS)
    for given, known in ((names, NETWORKS | MORE), (exporters, EXPORTERS), (opsets, OPSETS), (dtypes, DTYPES)):
        unknown = next((name for name in given if name not in known), None)
        if unknown is not None:
            parser.error(f"{unknown!r} is none of {', '.join(known)}")
    args.folder.mkdir(parents=True, exist_ok=True)
    failed = 0
    for name in names:
        for exporter in exporters:
            for opset in opsets:
                for dtype in dtypes:
                    path = args.folder / f"{name}-{exporter}-{opset}-{dtype}.onnx"
                    try:
                        how = {"full": args.size == "full", "batch": args.batch, "dynamic": not args.static}
                        export(name, path, exporter, opset, dtype, **how)
                        print(path, flush=True)
                    except Exception as error:
                        failed += 1
                        reason = (str(error).strip() or "no message").splitlines()[-1][:300]
                        print(f"{path.stem}: {type(error).__name__}: {reason}", file=sys.stderr, flush=True)
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
