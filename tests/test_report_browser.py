"""The report in a real browser: nothing overflows, every text fits its box, colours can be told apart, cards filter."""

from __future__ import annotations

import html
import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report_pages import BENCH, TUNING, VALIDATION, layers

import onnxfuse
from onnxfuse.report_page import Measurements

BROWSER = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)

pytestmark = pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome is installed")

# What the page is asked, as JSON in its title. A colour's luminance and contrast are those of WCAG 2.1.
PROBE = r"""
const problems = [];
const rgb = (text) => text.match(/[\d.]+/g).map(Number);
const luminance = (c) => {
  const [r, g, b] = c.slice(0, 3).map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
  return 0.2126 * r + 0.7152 * g + 0.0722 * b;
};
const contrast = (a, b) => {
  const [low, high] = [luminance(a), luminance(b)].sort((x, y) => x - y);
  return (high + 0.05) / (low + 0.05);
};
const behind = (element) => {
  for (let e = element; e; e = e.parentElement) {
    const c = rgb(getComputedStyle(e).backgroundColor);
    if (c.length < 4 || c[3] > 0.5) return c;
  }
  return [255, 255, 255];
};
document.querySelectorAll("details").forEach((d) => (d.open = true));
const wide = document.documentElement.scrollWidth - document.documentElement.clientWidth;
if (wide > 0) problems.push(`the page is ${wide} pixels too wide`);
let boxes = 0;
for (const group of document.querySelectorAll(".graph g")) {
  const rect = group.querySelector("rect").getBBox();
  for (const text of group.querySelectorAll("text")) {
    boxes += 1;
    const b = text.getBBox();
    if (b.x < rect.x || b.x + b.width > rect.x + rect.width) problems.push(`${text.textContent} leaves its box`);
  }
}
for (const e of document.querySelectorAll("p, b, span, small, h1, h2, h3, h4, li, td, th, a, label, button, summary")) {
  if (!e.textContent.trim() || !e.getClientRects().length || e.className === "hidden" || e.closest(".skip")) continue;
  const ratio = contrast(rgb(getComputedStyle(e).color), behind(e));
  if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)}: ${e.tagName}.${e.className} ${e.textContent}`);
}
for (const e of document.querySelectorAll(".graph text")) {
  const rect = e.parentElement.querySelector("rect");
  const fill = getComputedStyle(rect).fill;
  const under = fill === "none" ? behind(rect.closest("details")) : rgb(fill);
  const ratio = contrast(rgb(getComputedStyle(e).fill), under);
  if (ratio < 4.5) problems.push(`contrast ${ratio.toFixed(2)} in a picture: ${e.textContent}`);
}
const find = document.getElementById("find");
const seen = () => [...document.querySelectorAll(".card")].filter((c) => !c.hidden).length;
const all = seen();
find.value = "no such node";
find.dispatchEvent(new Event("input"));
const none = seen();
find.value = "sqrt exporters/";
find.dispatchEvent(new Event("input"));
const some = seen();
const said = document.getElementById("shown").textContent;
document.title = JSON.stringify({
  problems: [...new Set(problems)], boxes, all, none, some, said, page: luminance(behind(document.body)),
});
"""


def ask(page, tmp_path, width, dark):
    """The page's answer to PROBE. Its content security policy, which forbids the probe, is taken out of a copy."""
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", page)
    text = text.replace("</body>", f"<script>{PROBE}</script></body>")
    file = tmp_path / "page.html"
    file.write_text(text, "utf-8")
    command = [BROWSER, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--dump-dom"]
    command += [f"--window-size={width},900", f"--user-data-dir={tmp_path / 'profile'}"]
    if dark:
        command.append("--blink-settings=preferredColorScheme=0")
    done = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, check=False, timeout=120)
    title = re.search(r"<title>(.*?)</title>", done.stdout)
    assert title, done.stderr
    return json.loads(html.unescape(title[1]))


@pytest.fixture(scope="module")
def page():
    """A page with all its parts: two kinds of regions, measurements, and something left."""
    report = onnxfuse.optimize(layers(3), target="cuda").report
    model = layers(2, rows="rows", name="a/long/path/of/modules/such/as/exporters/write/")
    report.fusions += onnxfuse.optimize(model, target="cuda", skip=["layer_norm"]).report.fusions
    report.fusions += onnxfuse.optimize(model, target="cuda").report.fusions
    report.refusals += onnxfuse.optimize(model, target="cuda", skip=["layer_norm"]).report.refusals
    return report.to_html(Measurements(VALIDATION, BENCH, TUNING))


@pytest.mark.parametrize(("width", "dark"), [(1280, False), (1280, True), (500, False)])
def test_the_page_in_a_browser(page, tmp_path, width, dark):
    answer = ask(page, tmp_path, width, dark)
    assert answer["problems"] == []
    assert (answer["page"] < 0.1) == dark
    assert answer["boxes"] > 40
    assert answer["all"] == page.count('<details class="card') >= 2
    assert answer["none"] == 0
    assert 0 < answer["some"] < answer["all"]
    assert answer["said"] == f"{answer['some']} of {answer['all']} shown"


def test_the_page_without_its_script_shows_all_cards(page, tmp_path):
    file = Path(tmp_path / "page.html")
    file.write_text(re.sub(r"<script>.*</script>", "", page, flags=re.DOTALL), "utf-8")
    command = [
        BROWSER,
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--dump-dom",
        f"--user-data-dir={tmp_path / 'p'}",
    ]
    dom = subprocess.run([*command, file.as_uri()], capture_output=True, text=True, check=True, timeout=120).stdout
    assert dom.count('class="card') == page.count('class="card')
    assert '<form class="filter" hidden' in dom
