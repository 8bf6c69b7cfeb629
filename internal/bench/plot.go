package bench

import (
	"fmt"
	"html"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// plot is one drawing: lines of points over a count.
type plot struct {
	file, title string
	x, y        string
	lines       []plotLine
	bound       float64 // a target, drawn as a dashed line; 0 for none
}

// plotLine is one series of points and its label.
type plotLine struct{ series, name string }

// plots are the drawings of the points of a run.
var plots = []plot{
	{file: "density-latency.svg", title: "Latency with idle sandboxes", x: "idle gVisor sandboxes", y: "ms", bound: 60,
		lines: []plotLine{{"density.create", "cold create"}, {"density.exec", "exec, median"}, {"density.exec.p95", "exec, p95"}}},
	{file: "density-memory.svg", title: "Memory of each idle sandbox", x: "idle gVisor sandboxes", y: "MiB", bound: 10,
		lines: []plotLine{{"density.memory", "charged, and the daemon's share"}, {"density.gone", "gone from the machine"}}},
	{file: "density-daemon.svg", title: "The daemon's memory", x: "idle gVisor sandboxes", y: "MiB",
		lines: []plotLine{{"density.daemon", "daemon"}}},
	{file: "sustained.svg", title: "Creates one after the other", x: "sandboxes created before", y: "ms",
		lines: []plotLine{{"sustained", "create → first command's output, 4 at a time"}}},
	{file: "soak.svg", title: "Five creates a second", x: "sandboxes created before", y: "ms, MiB",
		lines: []plotLine{{"soak.create", "create → first command's output, ms"}, {"soak.daemon", "the daemon's memory, MiB"}}},
}

// writePlots writes the drawings for which the run has points.
func writePlots(dir string, r *results) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, p := range plots {
		if svg := p.draw(r); svg != "" {
			if err := os.WriteFile(filepath.Join(dir, p.file), []byte(svg), 0o644); err != nil {
				return err
			}
		}
	}
	return nil
}

// The size of a drawing, and the space around the field.
const (
	plotWidth, plotHeight = 720, 380
	plotLeft, plotRight   = 64, 20
	plotTop, plotBottom   = 64, 56
)

// plotColours can be distinguished by people who see few colours, too. The lines also have
// different dashes.
var plotColours = []string{"#0060a8", "#c05000", "#4a7a1e"}

// draw returns the SVG, "" if there is nothing to draw.
func (p plot) draw(r *results) string {
	lines := make([][]point, len(p.lines))
	var maxX, maxY float64
	for i, l := range p.lines {
		for _, pt := range r.Points {
			if pt.Series == l.series {
				lines[i] = append(lines[i], pt)
				maxX, maxY = max(maxX, pt.X), max(maxY, pt.Y)
			}
		}
		slices.SortFunc(lines[i], func(a, b point) int { return int(a.X - b.X) })
	}
	if maxX == 0 || maxY == 0 {
		return ""
	}
	stepX, stepY := tickStep(maxX), tickStep(max(maxY, p.bound))
	maxX, maxY = math.Ceil(maxX/stepX)*stepX, math.Ceil(max(maxY, p.bound)/stepY)*stepY
	x := func(v float64) float64 { return plotLeft + v/maxX*(plotWidth-plotLeft-plotRight) }
	y := func(v float64) float64 { return plotHeight - plotBottom - v/maxY*(plotHeight-plotTop-plotBottom) }
	var b strings.Builder
	fmt.Fprintf(&b, `<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 %d %d" font-family="sans-serif" font-size="12" fill="#222">`+"\n", plotWidth, plotHeight)
	fmt.Fprintf(&b, `<title>%s</title><rect width="100%%" height="100%%" fill="#fff"/>`+"\n", html.EscapeString(p.title))
	text := func(x, y float64, anchor, s string) {
		fmt.Fprintf(&b, `<text x="%.1f" y="%.1f" text-anchor="%s">%s</text>`+"\n", x, y, anchor, html.EscapeString(s))
	}
	fmt.Fprintf(&b, `<text x="%d" y="20" font-size="15" font-weight="bold">%s</text>`+"\n", plotLeft, html.EscapeString(p.title))
	for v := 0.0; v <= maxY*1.0001; v += stepY {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#ddd"/>`+"\n", plotLeft, y(v), plotWidth-plotRight)
		text(plotLeft-8, y(v)+4, "end", fmt.Sprintf("%g", v))
	}
	for v := 0.0; v <= maxX*1.0001; v += stepX {
		fmt.Fprintf(&b, `<path d="M%.1f %dv5" stroke="#222"/>`+"\n", x(v), plotHeight-plotBottom)
		text(x(v), plotHeight-plotBottom+20, "middle", fmt.Sprintf("%g", v))
	}
	fmt.Fprintf(&b, `<path d="M%d %dV%dH%d" fill="none" stroke="#222"/>`+"\n", plotLeft, plotTop, plotHeight-plotBottom, plotWidth-plotRight)
	text(float64(plotWidth)/2, plotHeight-12, "middle", p.x)
	text(plotLeft-8, plotTop-12, "end", p.y)
	if p.bound > 0 {
		fmt.Fprintf(&b, `<path d="M%d %.1fH%d" stroke="#a00" stroke-dasharray="2 4"/>`+"\n", plotLeft, y(p.bound), plotWidth-plotRight)
		text(plotWidth-plotRight, y(p.bound)-5, "end", fmt.Sprintf("target %g", p.bound))
	}
	legend := float64(plotLeft)
	for i, pts := range lines {
		if len(pts) == 0 {
			continue
		}
		style := fmt.Sprintf(`fill="none" stroke="%s" stroke-width="2" stroke-dasharray="%s"`, plotColours[i%3], []string{"none", "8 3", "3 3"}[i%3])
		var path strings.Builder
		for j, pt := range pts {
			fmt.Fprintf(&path, "%c%.1f %.1f", "ML"[min(j, 1)], x(pt.X), y(pt.Y))
		}
		fmt.Fprintf(&b, `<path d="%s" %s/>`+"\n", path.String(), style)
		fmt.Fprintf(&b, `<path d="M%.1f 40h24" %s/>`+"\n", legend, style)
		text(legend+30, 44, "start", p.lines[i].name)
		legend += 50 + 6.5*float64(len([]rune(p.lines[i].name)))
	}
	b.WriteString("</svg>\n")
	return b.String()
}

// tickStep returns 1, 2 or 5 times a power of ten, so that there are four to ten steps up to most.
func tickStep(most float64) float64 {
	unit := math.Pow(10, math.Floor(math.Log10(most/4)))
	for _, by := range []float64{5, 2} {
		if most/(unit*by) >= 4 {
			return unit * by
		}
	}
	return unit
}
