// Curves that can be hovered and switched on and off. The numbers are in the page, uPlot draws them.
"use strict";

const report = JSON.parse(document.getElementById("report-data").textContent);
const darkMode = matchMedia("(prefers-color-scheme: dark)");
const WIDTH = 1.6;
// A page that reloads itself while runs continue keeps what was switched off.
const hidden = report.problems.map((problem) => new Set(JSON.parse(sessionStorage.getItem(problem.name) ?? "[]")));
let charts = [];

function format(value) {
  return Math.abs(value) >= 1000 ? Math.round(value).toLocaleString("en-US") : String(Number(value.toPrecision(4)));
}

function makeChart(place) {
  const problem = report.problems[place.dataset.problem];
  const panel = problem.panels[place.dataset.panel];
  const off = hidden[place.dataset.problem];
  const style = getComputedStyle(document.documentElement);
  const [ink, rule] = ["--quiet", "--rule"].map((name) => style.getPropertyValue(name));
  const lineOf = (curve) => problem.lines[curve.line];

  // Three series for each curve: its mean, and the ends of its band.
  const opacity = panel.curves.length > 8 ? "0c" : panel.curves.length > 4 ? "18" : "30";
  const data = [panel.x];
  const series = [{}];
  const bands = [];
  for (const curve of panel.curves) {
    const line = lineOf(curve);
    const color = darkMode.matches ? line.dark : line.color;
    const common = {show: !off.has(line.label), spanGaps: true, label: line.label};
    const edge = {...common, stroke: "transparent", width: 0, points: {show: false}};
    if (line.band) {
      bands.push({series: [data.length + 1, data.length + 2], fill: color + opacity});
    }
    data.push(curve.mean, curve.high, curve.low);
    const points = {show: panel.x.length <= 12, size: 5, fill: color};
    series.push({...common, stroke: color, width: WIDTH, dash: line.dash, points}, edge, edge);
  }

  const tip = document.createElement("div");
  tip.className = "tip";
  tip.hidden = true;

  function nearest(chart) {
    const {idx, top} = chart.cursor;
    let best = null;
    panel.curves.forEach((curve, n) => {
      const mean = idx == null ? null : curve.mean[idx];
      if (mean == null || !chart.series[1 + 3 * n].show) return;
      const distance = Math.abs(chart.valToPos(mean, "y") - top);
      if (best === null || distance < best.distance) best = {n, distance};
    });
    return best === null ? null : best.n;
  }

  let marked = null;
  function showValues(chart) {
    const found = chart.cursor.left < 0 ? null : nearest(chart);
    if (found !== marked) {
      marked = found;
      panel.curves.forEach((_, n) => {
        chart.series[1 + 3 * n].width = n === found ? 1.6 * WIDTH : WIDTH;
        for (const part of [1, 2, 3]) chart.series[part + 3 * n].alpha = found === null || n === found ? 1 : 0.3;
      });
      chart.redraw(false);
    }
    tip.hidden = found === null;
    if (found === null) return;
    const {idx, left, top} = chart.cursor;
    const curve = panel.curves[found];
    const seeds = curve.seeds > 1 ? ` (${format(curve.low[idx])} to ${format(curve.high[idx])}), ${curve.seeds} seeds` : "";
    const name = document.createElement("b");
    name.textContent = lineOf(curve).label;
    tip.replaceChildren(name, `${problem.unit} ${panel.x[idx].toLocaleString("en-US")}: ${format(curve.mean[idx])}${seeds}`);
    const right = left > chart.over.clientWidth / 2;
    tip.style.left = right ? "" : `${left + 14}px`;
    tip.style.right = right ? `${chart.over.clientWidth - left + 14}px` : "";
    tip.style.top = `${Math.min(top, chart.over.clientHeight - 50)}px`;
  }

  const axis = {stroke: ink, font: "11px system-ui, sans-serif", ticks: {stroke: rule, size: 4}};
  const xLabel = problem.unit === "step" ? "environment step" : problem.unit;
  const whole = (values) => values.map((value) => (Number.isInteger(value) ? value.toLocaleString("en-US") : ""));
  const chart = new uPlot(
    {
      width: place.clientWidth,
      height: place.clientHeight,
      series,
      bands,
      scales: {x: {time: false}},
      axes: [
        {...axis, grid: {show: false}, space: 60, size: 30, label: xLabel, labelSize: 16, labelFont: axis.font, values: (_, values) => whole(values)},
        {...axis, grid: {stroke: rule, width: 1}, size: 56},
      ],
      legend: {show: false},
      padding: [8, 12, 0, 0],
      cursor: {points: {show: false}, y: false},
      hooks: {setCursor: [showValues], ready: [(chart) => chart.over.append(tip)]},
    },
    data,
    place,
  );
  return {place, problem, panel, chart};
}

function drawAll() {
  charts.forEach(({chart}) => chart.destroy());
  charts = [...document.querySelectorAll(".chart")].map(makeChart);
}

function showLine(index, label, show) {
  hidden[index][show ? "delete" : "add"](label);
  sessionStorage.setItem(report.problems[index].name, JSON.stringify([...hidden[index]]));
  for (const {place, problem, panel, chart} of charts) {
    if (place.dataset.problem !== String(index)) continue;
    panel.curves.forEach((curve, n) => {
      if (problem.lines[curve.line].label !== label) return;
      for (const part of [1, 2, 3]) chart.setSeries(part + 3 * n, {show});
    });
  }
}

document.documentElement.classList.add("script");
for (const box of document.querySelectorAll("input[data-line]")) {
  const {problem, line} = box.dataset;
  box.checked = !hidden[problem].has(line);
  box.addEventListener("change", () => showLine(problem, line, box.checked));
}
for (const button of document.querySelectorAll("button[data-show]")) {
  button.addEventListener("click", () => {
    for (const box of document.querySelectorAll(`input[data-problem="${button.dataset.problem}"]`)) {
      box.checked = button.dataset.show === "all";
      showLine(box.dataset.problem, box.dataset.line, box.checked);
    }
  });
}
for (const button of document.querySelectorAll("button[data-table]")) {
  button.addEventListener("click", async () => {
    const words = button.textContent;
    await navigator.clipboard.writeText(report.tables[button.dataset.table][button.dataset.kind]);
    button.textContent = "copied";
    setTimeout(() => { button.textContent = words; }, 1500);
  });
}
drawAll();
darkMode.addEventListener("change", drawAll);
addEventListener("resize", () => {
  for (const {place, chart} of charts) chart.setSize({width: place.clientWidth, height: place.clientHeight});
});
// Everything is printed, also what is folded.
let opened = [];
addEventListener("beforeprint", () => {
  opened.push(...document.querySelectorAll("details:not([open])"));
  for (const part of opened) part.open = true;
});
addEventListener("afterprint", () => {
  for (const part of opened) part.open = false;
  opened = [];
});
