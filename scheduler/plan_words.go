package scheduler

import (
	"fmt"
	"math"
	"strings"
	"time"

	"tandem/cluster/member"
)

// describe is a plan in words.
func (w *planWorld) describe(roles []member.Role) string {
	if kindOf(roles) == allHybrid {
		return "all hybrid"
	}
	var prefill, decode, hybrid []string
	for i, r := range roles {
		name := w.nodes[i].name()
		switch r {
		case member.Prefill:
			prefill = append(prefill, name)
		case member.Decode:
			decode = append(decode, name)
		default:
			hybrid = append(hybrid, name)
		}
	}
	text := names(prefill) + " for prompts, " + names(decode) + " for answers"
	if len(hybrid) > 0 {
		text += ", " + names(hybrid) + " for both"
	}
	return text
}

func (n *PlanNode) name() string {
	if n.Name != "" {
		return n.Name
	}
	return n.ID.Short()
}

// names lists some and counts the rest.
func names(list []string) string {
	const most = 6
	if len(list) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(list[:most], ", "), len(list)-most)
	}
	return strings.Join(list, ", ")
}

// why says what makes a plan better than the one that holds.
func (w *planWorld) why(d demand, now, then Forecast, roles []member.Role) string {
	text := fmt.Sprintf("%s ms to the first token and %s ms a token instead of %s ms and %s ms, at %s requests/s of %s prompt and %s answer tokens",
		milliseconds(then.TTFTMs), milliseconds(then.ITLMs), milliseconds(now.TTFTMs), milliseconds(now.ITLMs), few(d.rps), number(int(d.prompt)), number(int(d.answer)))
	if kindOf(roles) == allHybrid && kindOf(w.now) == split {
		if slow := w.slowWire(d); slow != "" {
			text = slow + "; " + text
		}
	}
	return text
}

// whyNot says why the plan that holds stays.
func (w *planWorld) whyNot(d demand, now Forecast, other []member.Role, then Forecast, barred time.Duration) string {
	switch {
	case !w.in.Transfers:
		return "KV cannot move between nodes (--kv-ram 0)"
	case w.in.BytesPerToken <= 0:
		return "the KV of this model cannot move between nodes"
	case other == nil:
		return "there is no other plan"
	case kindOf(w.now) == split:
		return fmt.Sprintf("%s ms to the first token and %s ms a token; all hybrid would take %s ms and %s ms",
			milliseconds(now.TTFTMs), milliseconds(now.ITLMs), milliseconds(then.TTFTMs), milliseconds(then.ITLMs))
	}
	if slow := w.slowWire(d); slow != "" && then.costMs > now.costMs {
		return slow
	}
	but := ""
	switch {
	case barred > 0:
		but = ", but turned out worse and is not tried again for " + age(barred)
	case then.costMs < now.costMs:
		but = ", which is not enough better"
	}
	return fmt.Sprintf("%s ms to the first token and %s ms a token; %s would take %s ms and %s ms",
		milliseconds(now.TTFTMs), milliseconds(now.ITLMs), w.describe(other), milliseconds(then.TTFTMs), milliseconds(then.ITLMs)) + but
}

// age is a time in words, in its largest unit that is not too coarse.
func age(d time.Duration) string {
	switch {
	case d >= 2*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	case d >= 2*time.Minute:
		return fmt.Sprintf("%d min", d/time.Minute)
	}
	return fmt.Sprintf("%d s", d/time.Second)
}

// slowWire says what the wire would add to a prompt; "" if it is not what counts.
func (w *planWorld) slowWire(d demand) string {
	if w.goodput == 0 || len(w.nodes) == 0 {
		return ""
	}
	fastest := &w.nodes[0]
	for i := range w.nodes {
		if w.nodes[i].rate > fastest.rate {
			fastest = &w.nodes[i]
		}
	}
	move := d.compute * float64(w.in.BytesPerToken) / w.goodput * 1000
	compute := fastest.prefillMs(d)
	if move <= compute {
		return ""
	}
	return fmt.Sprintf("%s would add %s to %s %s-token prompt: its KV takes %s, computing it %s",
		wire(w.goodput), span(move-compute), article(int(d.compute+0.5)), number(int(d.compute+0.5)), span(move), span(compute))
}

// article is the one that a number is spoken with.
func article(n int) string {
	if s := number(n); strings.HasPrefix(s, "8") || s == "11" || s == "18" || strings.HasPrefix(s, "11,") || strings.HasPrefix(s, "18,") {
		return "an"
	}
	return "a"
}

// wire names the usual speed that a goodput is most of, or tells the goodput.
func wire(goodput float64) string {
	gbit := goodput * 8 / 1e9
	for _, usual := range []float64{0.1, 1, 2.5, 5, 10, 25, 40, 50, 100, 200, 400} {
		if gbit > usual*0.8 && gbit <= usual*1.02 {
			return few(usual) + " Gbit/s"
		}
	}
	return few(gbit) + " Gbit/s"
}

// few is a number with two digits.
func few(x float64) string {
	if x >= 10 || x <= 0 {
		return number(int(x + 0.5))
	}
	unit := math.Pow(10, math.Floor(math.Log10(x))-1)
	return fmt.Sprintf("%g", math.Round(math.Round(x/unit)*unit*1e6)/1e6)
}

// span is a time in words.
func span(ms float64) string {
	if ms >= 1000 {
		return few(ms/1000) + " s"
	}
	return milliseconds(ms) + " ms"
}

// broken says what of the plan that holds nobody can do; "": nothing.
func (w *planWorld) broken() string {
	var prefill, decode bool
	planned := map[member.Role]bool{}
	for _, r := range w.in.Roles {
		planned[r] = true
	}
	for _, r := range w.now {
		prefill, decode = prefill || r == member.Prefill, decode || r == member.Decode
	}
	switch {
	case !planned[member.Prefill] || !planned[member.Decode]:
		return ""
	case !prefill:
		return "no node is left that computes prompts for others"
	case !decode:
		return "no node is left that answers with prompts of others"
	}
	return ""
}

// tooFew says why there is nothing to plan.
func (w *planWorld) tooFew() string {
	switch {
	case len(w.nodes) == 1 && len(w.frozen) > 0:
		return "all hybrid: only " + w.nodes[0].name() + " answers"
	case len(w.nodes) == 1:
		return "all hybrid: only " + w.nodes[0].name() + " has the model"
	}
	return "all hybrid: no node can answer"
}

// remarks are about single nodes.
func (w *planWorld) remarks() (out []string) {
	var silent, guessed, slow []string
	for _, n := range w.frozen {
		silent = append(silent, n.name())
	}
	for i := range w.nodes {
		n := &w.nodes[i]
		if n.guessed && w.measured {
			guessed = append(guessed, n.name())
		}
		if n.Role != w.now[i] {
			slow = append(slow, n.name())
		}
	}
	if len(silent) > 0 {
		out = append(out, names(silent)+" does not report and counts for nothing")
	}
	if len(guessed) > 0 {
		out = append(out, "figures of "+names(guessed)+" are guessed from the others'")
	}
	if len(slow) > 0 {
		out = append(out, names(slow)+" has yet to take its role")
	}
	return out
}
