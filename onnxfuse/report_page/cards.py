"""What was fused, one card for all regions that are alike, and what was left, one entry for each reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from onnxfuse.report import Fusion, Refusal, Tensor, by_reason
from onnxfuse.report_page.markup import compact, escape, with_unit
from onnxfuse.report_page.picture import after, before
from onnxfuse.rewrites.savings import traffic

__all__ = ["Group", "fused_cards", "groups", "kind", "left_entries"]

_OPEN = 3  # cards that show their pictures at once
_CONSTANT = re.compile(r"(= const \w+) .*")
_TOKEN = re.compile(
    r"(?P<value>%\d+)|(?P<word>\b(?:input|output|const|space|onnxfuse)\b)|(?P<type>\b(?:b?f|[iu])\d+\b|\bbool\b)"
)


@dataclass(frozen=True)
class Group:
    """Fusions that differ in names and in the values of constants only."""

    fusions: tuple[Fusion, ...]

    @property
    def launches(self) -> int:
        """Launches saved by all of them."""
        return sum(f.launches_saved for f in self.fusions)

    @property
    def bytes(self) -> int | None:
        """Bytes saved by all of them, None where that is unknown."""
        known = [f.bytes_saved for f in self.fusions if f.bytes_saved is not None]
        return sum(known) if len(known) == len(self.fusions) else None


def kind(op_type: str) -> str:
    """The class that colours a kind of fused node: "layernorm" for FusedLayerNorm."""
    return escape(op_type.removeprefix("Fused").lower())


def groups(fusions: Iterable[Fusion]) -> list[Group]:
    """Like fusions together; those that save most first."""
    found: dict[object, list[Fusion]] = {}
    for fusion in fusions:
        found.setdefault(_signature(fusion), []).append(fusion)
    return sorted((Group(tuple(g)) for g in found.values()), key=lambda g: (-(g.bytes or 0), -g.launches))


def _signature(fusion: Fusion) -> object:
    """All that a card shows but names."""
    places: dict[str, int] = {}
    for name in (n for node in fusion.source for n in (*node.inputs, *node.outputs)):
        places.setdefault(name, len(places))
    wiring = tuple(
        (node.operator, tuple(places[n] for n in node.inputs), tuple(places[n] for n in node.outputs))
        for node in fusion.source
    )
    known = tuple(_anonymous(fusion.tensors.get(n)) for n in places)
    return (fusion.op_type, _CONSTANT.sub(r"\1", fusion.program), fusion.operators, wiring, known, fusion.notes != ())


def _anonymous(tensor: Tensor | None) -> object:
    if tensor is None:
        return None
    shape = tensor.shape and tuple(d if isinstance(d, int) else "" for d in tensor.shape)
    return (tensor.type, shape, tensor.constant, tensor.value is None)


def fused_cards(found: Sequence[Group]) -> str:
    """The cards of all groups."""
    return "".join(_card(group, number) for number, group in enumerate(found, 1))


def _card(group: Group, number: int) -> str:
    first, count = group.fusions[0], len(group.fusions)
    times = f'<span class="times">×{count}</span>' if count > 1 else ""
    saved = [f"{group.launches} launch{'es' if group.launches != 1 else ''}"]
    if group.bytes is not None:
        saved.append(with_unit(group.bytes))
    words = " ".join(dict.fromkeys((*first.operators, *(n for f in group.fusions for n in (f.name, *f.nodes)))))
    notes = "".join(
        f'<p class="note">{escape(n)}</p>' for n in dict.fromkeys(n for f in group.fusions for n in f.notes)
    )
    if shared := ", ".join(f"{n.name} ({n.operator})" for n in first.shared):
        notes = (
            f'<p class="note">Computes its part of {escape(shared)} again, as other nodes do; what that saves is '
            f"counted once.</p>{notes}"
        )
    if len({f.program for f in group.fusions}) > 1:
        notes = f'<p class="note">Their constants differ; those of {escape(first.name)} are shown.</p>{notes}'
    return (
        f'<details class="card k-{kind(first.op_type)}" id="r{number}" data-kind="{kind(first.op_type)}" '
        f'data-words="{escape(words.lower())}"{" open" if number <= _OPEN else ""}>'
        f'<summary><span class="badge">{escape(first.op_type)}</span>{times}'
        f'<span class="ops">{escape(compact(first.operators))}</span>'
        f'<span class="saves">saves {" · ".join(saved)}</span></summary>'
        f'<div class="pictures">{_pair(first, number)}</div>{notes}'
        '<details class="inner"><summary>Program</summary>'
        f'<pre tabindex="0">{_highlighted(first.program)}</pre></details>'
        f"{_places(group)}</details>"
    )


def _pair(fusion: Fusion, number: int) -> str:
    less = traffic((*fusion.inputs, *fusion.outputs), fusion.tensors)
    more = less + fusion.bytes_saved if less is not None and fusion.bytes_saved is not None else None
    launches = fusion.launches_saved + 1
    bars = _bars(more, less) if less is not None and more else ""
    pane = '<div class="scroll" tabindex="0" role="group" aria-label='
    return (
        f"<figure><figcaption><b>Before</b> {len(fusion.nodes)} operators, {launches} "
        f"launch{'es' if launches != 1 else ''}</figcaption>"
        f'{pane}"Source graph">{before(fusion, f"b{number}")}</div></figure>'
        "<figure><figcaption><b>After</b> 1 operator, 1 launch</figcaption>"
        f'{pane}"Fused node">{after(fusion, f"a{number}")}</div>{bars}</figure>'
    )


def _bars(more: int, less: int) -> str:
    most = max(more, less)
    shown = "".join(
        f'<span>{name}</span><span class="bar"><i class="{look}" style="width:{100 * value / most:.1f}%"></i></span>'
        f'<span class="amount">{with_unit(value)}</span>'
        for name, look, value in (("before", "was", more), ("after", "is", less))
    )
    return f'<h4>Memory traffic</h4><div class="bars">{shown}</div>'


def _highlighted(program: str) -> str:
    looks = {"value": "v", "word": "w", "type": "y"}
    return _TOKEN.sub(lambda m: f'<b class="{looks[m.lastgroup or "value"]}">{m[0]}</b>', escape(program))


def _places(group: Group) -> str:
    rows = "".join(
        f"<li><b>{escape(f.name)}</b>{f' in {escape(f.graph)}' if f.graph else ''}: {escape(', '.join(f.nodes))}</li>"
        for f in group.fusions
    )
    count = len(group.fusions)
    return (
        f'<details class="inner"><summary>{"Source nodes" if count == 1 else f"All {count} places"}</summary>'
        f'<ul class="places">{rows}</ul></details>'
    )


def left_entries(refusals: Sequence[Refusal]) -> str:
    """What was not fused, by reason, with the nodes behind a disclosure."""
    entries = []
    for reason, group in by_reason(refusals):
        nodes = "".join(
            f"<li><b>{escape(r.operator)}</b> {escape(r.node)}{f' in {escape(r.graph)}' if r.graph else ''}"
            f"{f'<span class=why>{escape(r.reason)}</span>' if r.reason != reason else ''}</li>"
            for r in group
        )
        kinds = compact(r.operator for r in group)
        entries.append(
            f'<details class="left"><summary><span class="count">{len(group)}</span>'
            f'<span class="reason">{escape(reason)}</span><span class="ops">{escape(kinds)}</span></summary>'
            f'<ul class="places">{nodes}</ul></details>'
        )
    return "".join(entries)
