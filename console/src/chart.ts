// Charts, which are loaded with the first one.
import uPlot from "uplot";

/** draw shows series over time, and returns what takes the chart away. */
export function draw(parent: HTMLElement, times: number[], series: { label: string; values: (number | null)[]; colour: string }[],
  unit: (n: number) => string): () => void {
  const style = getComputedStyle(document.documentElement), ink = style.getPropertyValue("--muted"), line = style.getPropertyValue("--line");
  const axis = { stroke: ink, grid: { stroke: line, width: 1 }, ticks: { stroke: line, width: 1 }, font: "11px system-ui" };
  const make = () => new uPlot({
    width: Math.max(200, parent.clientWidth), height: 180, legend: { show: false }, cursor: { y: false }, padding: [8, 8, 0, 0],
    scales: { y: { range: (_u, _min, max) => [0, max > 0 ? max * 1.1 : 1] } },
    axes: [axis, { ...axis, size: 64, values: (_u, all) => all.map(unit) }],
    series: [{}, ...series.map((s) => ({ stroke: style.getPropertyValue(s.colour), fill: style.getPropertyValue(s.colour) + "22", width: 1.5, points: { show: false } }))],
  }, [times, ...series.map((s) => s.values)] as uPlot.AlignedData, parent);
  const plot = make();
  const watch = new ResizeObserver(() => plot.setSize({ width: Math.max(200, parent.clientWidth), height: 180 }));
  watch.observe(parent);
  return () => { watch.disconnect(); plot.destroy(); };
}
