"""What `onnxfuse bench` prints."""

from __future__ import annotations

from collections.abc import Iterator

from onnxfuse.benchmark import Account, BenchCase, BenchResult
from onnxfuse.cli.console import human_bytes, line, table

__all__ = ["show_bench", "show_kernels"]


def show_bench(result: BenchResult, kernels: bool = False) -> None:
    """Prints what ran where, then for each set of shapes a table of both models' figures and the verdict.

    With `kernels`, also the generated kernels that the optimized model launches.
    """
    threads = f", {result.threads} threads" if result.threads else ""
    graph = ", CUDA graph" if result.cuda_graph else ""
    line(f"{result.provider}{threads}{graph}, ONNX Runtime {result.runtime}, {result.device}")
    line(f"original:  {result.original}")
    line(f"optimized: {result.optimized}")
    for case in result.cases:
        line()
        _show_case(case, result)
        if kernels and case.optimized.account is not None:
            show_kernels(case.optimized.account)
    cost = result.launch_cost
    if cost is not None:
        line(f"an empty kernel: {cost.host:.1f} us of the host to launch, {cost.device:.1f} us of the GPU")
        line(f"in a CUDA graph: {cost.graph_host:.1f} us of the host to replay, {cost.graph_device:.1f} us a kernel")


def show_kernels(account: Account) -> None:
    """Prints the launches of generated kernels, equal ones together."""
    columns = ("launches", "blocks", "threads", "registers", "shared, bytes", "spilled, bytes", "occupancy")
    rows = [
        (
            str(count),
            "x".join(str(n) for n in _trimmed(k.grid)),
            "x".join(str(n) for n in _trimmed(k.block)),
            *(str(n) for n in (k.registers, k.shared, k.local)),
            f"{100 * k.occupancy:.0f} %",
        )
        for count, k in account.fused_kernels
    ]
    table("Generated kernels", columns, rows, right=range(7))


def _trimmed(sizes: tuple[int, ...]) -> tuple[int, ...]:
    while len(sizes) > 1 and sizes[-1] == 1:
        sizes = sizes[:-1]
    return sizes


def _show_case(case: BenchCase, result: BenchResult) -> None:
    shapes = ", ".join(f"{n} {t} {'x'.join(map(str, s)) or 'scalar'}" for n, t, s in case.inputs) or "no inputs"
    table(shapes, ("", "original", "optimized", "original / optimized"), list(_rows(case, result)), right=(1, 2, 3))
    for account in (case.original.account, case.optimized.account):
        if account is not None and account.note:
            line(f"note: {account.note}", "yellow")
    for check in case.graphs:
        same = "equal to the bit" if check.equal else f"off by up to {check.difference:.2g}"
        line(f"graph {check.graph_id}: {check.replays} replays on new data, {same}, against plain runs")
    line(*_verdict(case))


def _rows(case: BenchCase, result: BenchResult) -> Iterator[tuple[str, str, str, str]]:
    a, b = case.original, case.optimized
    for label, x, y in (
        ("latency p50, ms", a.latency.median, b.latency.median),
        ("latency p90, ms", a.latency.p90, b.latency.p90),
        ("latency p99, ms", a.latency.p99, b.latency.p99),
    ):
        yield label, f"{x:.3f}", f"{y:.3f}", f"{x / y:.2f}"
    yield "throughput, runs/s", f"{a.throughput:.1f}", f"{b.throughput:.1f}", f"{a.throughput / b.throughput:.2f}"
    yield "first run, ms", f"{a.first_run:.1f}", f"{b.first_run:.1f}", f"{a.first_run / b.first_run:.2f}"
    for number, label in enumerate(("session creation, ms", "the same again, ms")):
        x, y = result.session_ms["original"][number], result.session_ms["optimized"][number]
        yield label, f"{x:.0f}", f"{y:.0f}", f"{x / y:.2f}"
    if a.account is not None and b.account is not None:
        yield from _counts(a.account, b.account)


def _counts(a: Account, b: Account) -> Iterator[tuple[str, str, str, str]]:
    yield "nodes run", str(a.nodes), str(b.nodes), _share(a.nodes, b.nodes)
    if a.elsewhere or b.elsewhere:
        yield "of them on the CPU", str(a.elsewhere), str(b.elsewhere), ""
    if a.launches is not None or b.launches is not None:
        yield "kernel launches", _known(a.launches), _known(b.launches), _share(a.launches, b.launches)
        yield "copies and fills", _known(a.device_copies), _known(b.device_copies), ""
    moved = human_bytes(a.bytes_moved), human_bytes(b.bytes_moved)
    yield "bytes moved", *moved, _share(a.bytes_moved, b.bytes_moved)
    memory = human_bytes(a.peak_memory), human_bytes(b.peak_memory)
    yield "peak memory of a run", *memory, _share(a.peak_memory, b.peak_memory)


def _known(count: int | None) -> str:
    return "-" if count is None else str(count)


def _share(a: int | None, b: int | None) -> str:
    return "" if a is None or not b else f"{a / b:.2f}"


def _verdict(case: BenchCase) -> tuple[str, str]:
    ratio = case.ratio
    spread = f"{ratio.value:.2f} times as fast (95 % of resampled rounds: {ratio.low:.2f} to {ratio.high:.2f}"
    runs = f"; {case.original.latency.runs} rounds"
    noise = "" if case.noise is None else f"; two equal sessions: {case.noise.low:.2f} to {case.noise.high:.2f}"
    figures = f"{spread}{noise}{runs})"
    if case.verdict == "faster":
        return f"FASTER: {figures}", "bold green"
    if case.verdict == "slower":
        return f"SLOWER: {figures}", "bold red"
    return f"NO DIFFERENCE BEYOND NOISE: {figures}", "bold"
