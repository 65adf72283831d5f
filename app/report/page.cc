#include "report/page.h"

#include <fmt/format.h>

#include "report/picture.h"

namespace plait::report {
namespace {

constexpr const char* kHead = R"html(<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<link rel="icon" href="data:,">
)html";

// Printed pages are always dark on white.
constexpr const char* kStyle = R"html(<style>
  :root { --paper: #ffffff; --ink: #1b1f24; --edge: #d0d7de; }
  @media screen and (prefers-color-scheme: dark) {
    :root { color-scheme: dark; --paper: #14171c; --ink: #e4e7eb; --edge: #3a4048; }
  }
  body { margin: 1.5rem auto; max-width: 1240px; padding: 0 1rem; background: var(--paper);
         color: var(--ink); font-family: system-ui, sans-serif; }
  h1 { font-size: 1.3rem; margin: 0 0 .3rem; }
  p { margin: .3rem 0; }
  button { font: inherit; color: var(--ink); background: transparent; border: 1px solid var(--edge);
           border-radius: 4px; padding: .1rem .6rem; cursor: pointer; }
  .timeline { margin-top: .6rem; border: 1px solid var(--edge); touch-action: pan-y;
              user-select: none; }
  .timeline svg { display: block; width: 100%; height: auto; }
  .timeline div, .timeline svg { break-inside: avoid; }
  .bar:hover { stroke: var(--ink); stroke-width: 1; vector-effect: non-scaling-stroke; }
  @media print {
    @page { size: A4 landscape; margin: 12mm; }
    .controls { display: none; }
    body { max-width: none; margin: 0; padding: 0; }
    .timeline { border: none; }
  }
</style>
)html";

constexpr const char* kControls =
    R"html(<p class="controls">
<button id="in">+</button> <button id="out">-</button> <button id="all">all</button>
Ctrl or Shift with the wheel zooms, dragging moves, a double click
shows all; point at a bar for its details.</p>
)html";

// Bars are stretched along x only; the axis is drawn again.
constexpr const char* kScript = R"html(<script>
  const timeline = document.querySelector(".timeline");
  const zoomed = timeline.querySelectorAll(".zoomed"), grids = timeline.querySelectorAll(".grid");
  const axes = timeline.querySelectorAll(".axis");
  const left = Number(timeline.dataset.left), plot = Number(timeline.dataset.plot);
  const whole = Number(timeline.dataset.length);
  const beside = (timeline.dataset.beside.match(/\d+ \d+/g) ?? []).map(run => run.split(" "));
  let from = 0, to = whole;

  function show(time) {
    for (const [unit, size] of [["s", 1e9], ["ms", 1e6], ["us", 1e3]])
      if (time >= size) return `${Number((time / size).toPrecision(5))} ${unit}`;
    return `${Math.round(time)} ns`;
  }
  function drawAxis(axis, ticks) {
    const y = axis.firstElementChild.getAttribute("y");
    axis.replaceChildren(...ticks.map(([at, x]) => {
      const text = document.createElementNS("http://www.w3.org/2000/svg", "text");
      text.setAttribute("x", x);
      text.setAttribute("y", y);
      text.setAttribute("text-anchor", "middle");
      text.textContent = at === 0 ? "0" : show(at);
      return text;
    }));
  }
  function draw() {
    const scale = whole / (to - from);
    const shift = left - scale * (left + from / whole * plot);
    for (const bars of zoomed)
      bars.setAttribute("transform", `translate(${shift} 0) scale(${scale} 1)`);
    const rough = (to - from) / 8, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(n => n * power).find(n => n >= rough);
    const ticks = [];
    for (let at = Math.ceil(from / step) * step; at <= to; at += step)
      ticks.push([at, left + (at - from) / (to - from) * plot]);
    for (const axis of axes) drawAxis(axis, ticks);
    const lines = ticks.flatMap(([at, x]) => beside.map(([begin, end]) => `M${x} ${begin}V${end}`));
    for (const grid of grids) grid.setAttribute("d", lines.join(""));
  }
  function look(newFrom, newTo) {
    const length = Math.min(Math.max(newTo - newFrom, 100), whole);
    from = Math.min(Math.max(newFrom, 0), whole - length);
    to = from + length;
    draw();
  }
  function zoom(by, at) { look(at - (at - from) * by, at + (to - at) * by); }
  function timeAt(event) {
    const svg = timeline.querySelector("svg"), box = svg.getBoundingClientRect();
    const x = (event.clientX - box.left) / box.width * svg.viewBox.baseVal.width;
    return from + (x - left) / plot * (to - from);
  }
  // The wheel alone must scroll a page that is taller than the window. With Shift the browser
  // reports sideways scrolling.
  timeline.addEventListener("wheel", event => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    zoom((event.deltaY || event.deltaX) < 0 ? 0.8 : 1.25, timeAt(event));
  }, {passive: false});
  let held = null;
  timeline.addEventListener("pointerdown", event => { held = timeAt(event); });
  timeline.addEventListener("pointermove", event => {
    if (held === null) return;
    const by = held - timeAt(event);
    look(from + by, to + by);
  });
  for (const name of ["pointerup", "pointerleave", "pointercancel"])
    timeline.addEventListener(name, () => { held = null; });
  timeline.addEventListener("dblclick", () => look(0, whole));
  document.getElementById("in").addEventListener("click", () => zoom(0.5, (from + to) / 2));
  document.getElementById("out").addEventListener("click", () => zoom(2, (from + to) / 2));
  document.getElementById("all").addEventListener("click", () => look(0, whole));
</script>
)html";

}  // namespace

std::string page(const Timeline& timeline) {
  std::string text = kHead;
  text += fmt::format("<title>{}</title>\n", escaped(timeline.title));
  text += kStyle;
  text += fmt::format("</head>\n<body>\n<h1>{}</h1>\n<p>{}</p>\n", escaped(timeline.title),
                      escaped(timeline.subtitle));
  text += kControls;
  text += picture(timeline);
  text += kScript;
  return text + "</body>\n</html>\n";
}

}  // namespace plait::report
