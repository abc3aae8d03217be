package sim

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"math"
	"strings"
)

//go:embed report.html
var reportHTML string

// Report is a page about some runs that needs nothing but itself: plots are drawn here.
type Report struct {
	Title   string
	Command string      // that makes it again
	Facts   [][2]string // the conditions
	Runs    []Result
}

var reportTemplate = template.Must(template.New("report").Funcs(template.FuncMap{
	"ms":      func(s Spread) []string { return []string{ms(s.P50), ms(s.P90), ms(s.P99), ms(s.Mean)} },
	"percent": func(v float64) string { return fmt.Sprintf("%.1f", 100*v) },
	"gb":      func(v float64) string { return fmt.Sprintf("%.1f", v/1e9) },
	"two":     func(v float64) string { return fmt.Sprintf("%.2f", v) },
	"name":    runName,
}).Parse(reportHTML))

// runName is what tells a run from others of its report.
func runName(r Result) string {
	if r.Disagg == "" {
		return r.Policy
	}
	return r.Policy + ", " + r.Disagg
}

// Write writes the page.
func (r Report) Write(w io.Writer) error {
	return reportTemplate.Execute(w, struct {
		Report
		Plots []template.HTML
	}{r, r.plots()})
}

func (r Report) plots() []template.HTML {
	var ttft, itl, perNode, arrivals, busy, kv, late []line
	for _, run := range r.Runs {
		name := runName(run)
		cumulated := func(q []float64) (points [][2]float64) {
			for i, v := range q {
				points = append(points, [2]float64{max(v, 0.1), float64(i)})
			}
			return points
		}
		ttft, itl = append(ttft, line{name, cumulated(run.TTFTs)}), append(itl, line{name, cumulated(run.ITLs)})
		var a, l, b, k, n [][2]float64
		for i, s := range run.Series {
			length := 1.0
			if i+1 < len(run.Series) {
				length = run.Series[i+1].At - s.At
			} else if i > 0 {
				length = s.At - run.Series[i-1].At
			}
			a = append(a, [2]float64{s.At, float64(s.Arrivals) / max(length, 1e-9)})
			if s.TTFTMs > 0 {
				l = append(l, [2]float64{s.At, s.TTFTMs})
			}
			b, k = append(b, [2]float64{s.At, 100 * s.Busy}), append(k, [2]float64{s.At, 100 * s.KV})
		}
		for i, node := range run.Nodes {
			n = append(n, [2]float64{float64(i + 1), float64(node.Requests)})
		}
		late, busy, kv, perNode = append(late, line{name, l}), append(busy, line{name, b}), append(kv, line{name, k}), append(perNode, line{name, n})
		if len(arrivals) == 0 {
			arrivals = append(arrivals, line{"all runs", a})
		}
	}
	return []template.HTML{
		plot{title: "Time to first token", x: "ms", y: "% of requests within", logX: true, lines: ttft}.svg(),
		plot{title: "Time between tokens, mean of each request", x: "ms", y: "% of requests within", logX: true, lines: itl}.svg(),
		plot{title: "Mean time to first token over time", x: "s", y: "ms", logY: true, lines: late}.svg(),
		plot{title: "Requests that come", x: "s", y: "1/s", lines: arrivals}.svg(),
		plot{title: "Nodes that compute", x: "s", y: "% of their time", lines: busy}.svg(),
		plot{title: "KV of running requests, after steps", x: "s", y: "% of the room", lines: kv}.svg(),
		plot{title: "Requests by node", x: "node", y: "requests", lines: perNode}.svg(),
	}
}

// line is one of a plot.
type line struct {
	name   string
	points [][2]float64
}

// plot is a chart of lines over common axes.
type plot struct {
	title, x, y string
	logX, logY  bool
	lines       []line
}

// The palette keeps its order, so that a run has one colour in all plots; beyond it,
// lines are dashed.
var palette = []string{"#2a78d6", "#eb6834", "#1baf7a", "#eda100", "#e87ba4", "#008300", "#4a3aa7", "#e34948"}

// Sizes of a plot, in px.
const (
	plotWidth, plotHeight           = 560, 300
	plotLeft, plotRight             = 62, 12
	plotTop, plotBottom             = 34, 44
	innerWidth, innerHeight float64 = plotWidth - plotLeft - plotRight, plotHeight - plotTop - plotBottom
)

// svg draws a plot. All text in it is escaped.
func (p plot) svg() template.HTML {
	lowX, highX := p.bounds(0, p.logX)
	lowY, highY := p.bounds(1, p.logY)
	if !p.logY {
		lowY = min(0, lowY)
	}
	toX := func(v float64) float64 { return plotLeft + innerWidth*position(v, lowX, highX, p.logX) }
	toY := func(v float64) float64 { return plotTop + innerHeight*(1-position(v, lowY, highY, p.logY)) }
	var b strings.Builder
	esc := template.HTMLEscapeString
	fmt.Fprintf(&b, `<svg viewBox="0 0 %d %d" role="img" aria-label="%s"><text class="t" x="%d" y="18">%s</text>`, plotWidth, plotHeight, esc(p.title), plotLeft, esc(p.title))
	for _, v := range ticks(lowX, highX, p.logX) {
		fmt.Fprintf(&b, `<line class="g" x1="%.1f" x2="%.1f" y1="%d" y2="%.1f"/><text class="a" text-anchor="middle" x="%.1f" y="%.1f">%s</text>`,
			toX(v), toX(v), plotTop, plotTop+innerHeight, toX(v), plotTop+innerHeight+15, short(v))
	}
	for _, v := range ticks(lowY, highY, p.logY) {
		fmt.Fprintf(&b, `<line class="g" x1="%d" x2="%.1f" y1="%.1f" y2="%.1f"/><text class="a" text-anchor="end" x="%d" y="%.1f">%s</text>`,
			plotLeft, plotLeft+innerWidth, toY(v), toY(v), plotLeft-6, toY(v)+4, short(v))
	}
	fmt.Fprintf(&b, `<text class="a" text-anchor="middle" x="%.1f" y="%d">%s</text>`, plotLeft+innerWidth/2, plotHeight-8, esc(p.x))
	fmt.Fprintf(&b, `<text class="a" text-anchor="middle" transform="translate(14 %.1f) rotate(-90)">%s</text>`, plotTop+innerHeight/2, esc(p.y))
	for i, l := range p.lines {
		dash := ""
		if i >= len(palette) {
			dash = ` stroke-dasharray="5 3"`
		}
		fmt.Fprintf(&b, `<path fill="none" stroke-width="2" stroke="%s"%s d="`, palette[i%len(palette)], dash)
		for k, pt := range l.points {
			fmt.Fprintf(&b, "%c%.1f %.1f", "ML"[min(k, 1)], toX(pt[0]), toY(pt[1]))
		}
		fmt.Fprintf(&b, `"><title>%s</title></path>`, esc(l.name))
	}
	b.WriteString("</svg><p class=legend>")
	for i, l := range p.lines {
		fmt.Fprintf(&b, `<span><i style="background:%s"></i>%s</span> `, palette[i%len(palette)], esc(l.name))
	}
	b.WriteString("</p>")
	return template.HTML(b.String())
}

// bounds are the least and the largest of one coordinate; never the same.
func (p plot) bounds(axis int, log bool) (low, high float64) {
	low, high = math.Inf(1), math.Inf(-1)
	for _, l := range p.lines {
		for _, pt := range l.points {
			low, high = min(low, pt[axis]), max(high, pt[axis])
		}
	}
	switch {
	case math.IsInf(low, 1):
		return 1, 2
	case low == high && log:
		return low / 2, high * 2
	case low == high:
		return min(0, low), high + 1
	}
	return low, high
}

// position is where a value lies, 0 to 1.
func position(v, low, high float64, log bool) float64 {
	if log {
		return math.Log(max(v, low)/low) / math.Log(high/low)
	}
	return (v - low) / (high - low)
}

// ticks are round numbers in a range.
func ticks(low, high float64, log bool) (out []float64) {
	if log {
		for e := math.Floor(math.Log10(low)); e <= math.Ceil(math.Log10(high)); e++ {
			for _, m := range []float64{1, 2, 5} {
				if v := m * math.Pow(10, e); v >= low && v <= high && (m == 1 || high/low < 300) {
					out = append(out, v)
				}
			}
		}
		return out
	}
	step := math.Pow(10, math.Floor(math.Log10((high-low)/4)))
	for _, m := range []float64{1, 2, 5, 10} {
		if (high-low)/(step*m) <= 6 {
			step *= m
			break
		}
	}
	for v := math.Ceil(low/step) * step; v <= high*(1+1e-9); v += step {
		out = append(out, v)
	}
	return out
}

// short writes a number for an axis.
func short(v float64) string {
	switch a := math.Abs(v); {
	case a >= 1e6:
		return fmt.Sprintf("%gM", v/1e6)
	case a >= 1e4:
		return fmt.Sprintf("%gk", v/1e3)
	}
	return fmt.Sprintf("%.4g", v)
}
