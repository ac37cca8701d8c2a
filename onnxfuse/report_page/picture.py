"""Pictures of a region as it was, a small graph, and as it is, one node; both as SVG."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from onnxfuse.report import Fusion, Tensor
from onnxfuse.report_page.layering import Box, place
from onnxfuse.report_page.markup import escape, shorten, type_text

__all__ = ["after", "before"]

_FIRST, _SECOND = 7.1, 6.2  # width of a character of the first and second line of a box, on the generous side
_TALL, _MARGIN = 38.0, 6.0
_NARROWEST, _MOST_CHARACTERS = 84.0, 26
_PIN_WIDTH, _PIN_GAP, _LEAD = 152.0, 8.0, 28.0
_CORE_WIDTH = 168.0


@dataclass
class _Label:
    """What stands in a box: two lines, the whole story for the tooltip, and the class that gives its look."""

    first: str
    second: str
    title: str
    look: str

    def box(self, hugs: bool = False) -> Box:
        """A box that holds it."""
        width = max(len(self.first) * _FIRST, len(self.second) * _SECOND)
        return Box(max(_NARROWEST, width + 18), _TALL, hugs)


def before(fusion: Fusion, number: str) -> str:
    """The source graph of the region: inputs at the top, each operator with the type that it makes, outputs below.

    `number` makes the ids unique on the page. Constants of one element stand in the operators that read them.
    """
    labels: list[_Label] = []
    boxes: list[Box] = []
    edges: list[tuple[int, int]] = []
    maker: dict[str, int] = {}
    made = {n for node in fusion.source for n in node.outputs}

    def add(label: _Label, hugs: bool = False) -> int:
        labels.append(label)
        boxes.append(label.box(hugs))
        return len(boxes) - 1

    for node in fusion.source:
        scalars = [_number(t.value) for n in node.inputs if (t := fusion.tensors.get(n)) and t.value is not None]
        result = next((n for n in node.outputs if n), "")
        title = "\n".join(
            (f"{node.operator} {node.name}", f"reads {', '.join(node.inputs)}", f"makes {', '.join(node.outputs)}")
        )
        first = f"{node.operator} {shorten(', '.join(scalars), 12)}".strip()
        stays = "" if node.name in fusion.nodes else " stays"  # for others, and is computed again here
        me = add(_Label(first, type_text(fusion.tensors.get(result)), title, f"op{stays}"))
        for name in dict.fromkeys(filter(None, node.inputs)):
            tensor = fusion.tensors.get(name)
            if name not in made and tensor is not None and tensor.value is not None:
                continue
            if name not in maker:
                maker[name] = add(_value_label(name, tensor), hugs=True)
            edges.append((maker[name], me))
        maker.update(dict.fromkeys(filter(None, node.outputs), me))
    leaving = [name for name in fusion.outputs if name in maker]
    edges += [(maker[name], add(_value_label(name, fusion.tensors.get(name), "out"))) for name in leaving]
    drawing = place(boxes, edges)
    shapes = [f'<path class="e" d="{_curve(path)}"/>' for path in drawing.paths]
    shapes += [_drawn(label, box) for label, box in zip(labels, boxes, strict=True)]
    title = f"Before: {len(fusion.nodes)} operators"
    steps = "; ".join(f"{n.operator} makes {type_text(fusion.tensors.get(n.outputs[0]))}" for n in fusion.source)
    return _svg(number, title, steps, drawing.width, drawing.height, shapes)


def after(fusion: Fusion, number: str) -> str:
    """The fused node with its inputs on the left and its outputs on the right."""
    rows = max(len(fusion.inputs), len(fusion.outputs), 2)
    height = rows * (_TALL + _PIN_GAP) - _PIN_GAP
    left, right = _PIN_WIDTH + _LEAD, _PIN_WIDTH + _LEAD + _CORE_WIDTH
    core = Box(_CORE_WIDTH, height, x=left + _CORE_WIDTH / 2, y=height / 2)
    shapes = []
    for names, centre, ends, look in (
        (fusion.inputs, _PIN_WIDTH / 2, (_PIN_WIDTH, left), ""),
        (fusion.outputs, right + _LEAD + _PIN_WIDTH / 2, (right, right + _LEAD), "out"),
    ):
        start = (height - len(names) * (_TALL + _PIN_GAP) + _PIN_GAP) / 2 + _TALL / 2
        for row, name in enumerate(names):
            y = start + row * (_TALL + _PIN_GAP)
            label = _value_label(name, fusion.tensors.get(name), look)
            shapes.append(f'<path class="e" d="M{ends[0]:.0f} {y:.0f}H{ends[1] - 6:.0f}"/>')
            shapes.append(_drawn(label, Box(_PIN_WIDTH, _TALL, x=centre, y=y)))
    spaces = [s for s in fusion.program.splitlines() if s.startswith("space")]
    space = "".join(spaces) if len(spaces) < 2 else f"{len(spaces)} kernels in one launch"
    label = _Label(fusion.op_type, shorten(space, _MOST_CHARACTERS), f"{fusion.op_type} {fusion.name}", "fused")
    shapes.append(_drawn(label, core))
    reads = ", ".join(f"{n} {type_text(fusion.tensors.get(n))}" for n in fusion.inputs)
    writes = ", ".join(f"{n} {type_text(fusion.tensors.get(n))}" for n in fusion.outputs)
    title = f"After: one {fusion.op_type}"
    return _svg(number, title, f"It reads {reads} and writes {writes}.", right + _LEAD + _PIN_WIDTH, height, shapes)


def _number(text: str) -> str:
    """A constant in a box: six digits say enough."""
    try:
        return f"{float(text):.6g}"
    except ValueError:  # True, False
        return text


def _value_label(name: str, tensor: Tensor | None, look: str = "") -> _Label:
    kind = look or ("weight" if tensor is not None and tensor.constant else "in")
    full = type_text(tensor)
    shape = f"\nshape {list(tensor.shape)}" if tensor is not None and tensor.shape else ""
    return _Label(shorten(name, _MOST_CHARACTERS - 4), full, f"{name}\n{full}{shape}", kind)


def _drawn(label: _Label, box: Box) -> str:
    x, y = box.x - box.width / 2, box.y - box.height / 2
    radius = 5 if label.look.startswith(("op", "fused")) else box.height / 2
    room = box.width - 14
    lines = (shorten(label.first, int(room / _FIRST)), shorten(label.second, int(room / _SECOND)))
    return (
        f'<g class="{label.look}"><title>{escape(label.title)}</title>'
        f'<rect x="{x:.0f}" y="{y:.0f}" width="{box.width:.0f}" height="{box.height:.0f}" rx="{radius:.0f}"/>'
        f'<text x="{box.x:.0f}" y="{box.y - 3:.0f}">{escape(lines[0])}</text>'
        f'<text class="t" x="{box.x:.0f}" y="{box.y + 12:.0f}">{escape(lines[1])}</text></g>'
    )


def _curve(points: Sequence[tuple[float, float]]) -> str:
    (x, y), *rest = points
    parts = [f"M{x:.0f} {y:.0f}"]
    rest[-1] = (rest[-1][0], rest[-1][1] - 5)  # room for the arrow's head
    for to_x, to_y in rest:
        if abs(x - to_x) < 1:
            parts.append(f"V{to_y:.0f}")
        else:
            half = (y + to_y) / 2
            parts.append(f"C{x:.0f} {half:.0f} {to_x:.0f} {half:.0f} {to_x:.0f} {to_y:.0f}")
        x, y = to_x, to_y
    return "".join(parts)


def _svg(number: str, title: str, description: str, width: float, height: float, shapes: Sequence[str]) -> str:
    wide, high = width + 2 * _MARGIN, height + 2 * _MARGIN
    return (
        f'<svg class="graph" role="img" aria-labelledby="{number}t {number}d" width="{wide:.0f}" height="{high:.0f}" '
        f'viewBox="{-_MARGIN:.0f} {-_MARGIN:.0f} {wide:.0f} {high:.0f}">'
        f'<title id="{number}t">{escape(title)}</title><desc id="{number}d">{escape(description)}</desc>'
        f"{''.join(shapes)}</svg>"
    )
