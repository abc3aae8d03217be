package scheduler

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// explain says in one sentence why a node was chosen. Milliseconds in it are what
// costs differ by and the first token waits for, without what an answer costs anyway.
func (s *State) explain(r *Request, f field, scores []Score, chosen int) string {
	name := s.name(scores[chosen].Node)
	here := -1
	for i := range scores {
		if scores[i].Node == s.Entry {
			here = i
		}
	}
	var why string
	switch other := runnerUp(scores, chosen); {
	case len(scores) == 1:
		why = s.alone(f)
	case here < 0:
		why = fmt.Sprintf("%s; this node cannot (%s)", s.against(r, scores, chosen, other), s.cannot(f))
	case chosen != here:
		why = s.against(r, scores, chosen, here)
	default:
		why = s.stays(r, scores, chosen, other)
	}
	if f.marked {
		why += "; it had failed before, but no other is left"
	}
	if n := s.node(scores[chosen].Node); n != nil && scores[chosen].Guessed {
		why += "; some of its figures are guessed from other nodes"
	}
	return name + ": " + why
}

// alone is for the only candidate.
func (s *State) alone(f field) string {
	if len(f.refused) == 0 {
		return "the only node with the model"
	}
	return "the only node that can answer now (" + s.whyNot(f.refused) + ")"
}

// cannot says why the entry node is no candidate.
func (s *State) cannot(f field) string {
	for _, score := range f.refused {
		if score.Node == s.Entry {
			return score.Why
		}
	}
	return "it does not have the model"
}

// runnerUp is the best of those that were not chosen, or -1.
func runnerUp(scores []Score, chosen int) int {
	best := -1
	for i := range scores {
		if i != chosen && (best < 0 || scores[i].Cost < scores[best].Cost) {
			best = i
		}
	}
	return best
}

// against compares the chosen node with one that was not.
func (s *State) against(r *Request, scores []Score, chosen, other int) string {
	a, b, floor := &scores[chosen], &scores[other], decodeFloor(scores)
	return fmt.Sprintf("%s; %s ms against %s ms %s", s.advantage(r, a, b), milliseconds(a.Cost-floor), milliseconds(b.Cost-floor), s.where(b))
}

// stays is for when the request stays here.
func (s *State) stays(r *Request, scores []Score, chosen, other int) string {
	a, b, floor := &scores[chosen], &scores[other], decodeFloor(scores)
	if a.Cost <= b.Cost {
		return fmt.Sprintf("%s; %s ms here against %s ms %s", s.advantage(r, a, b), milliseconds(a.Cost-floor), milliseconds(b.Cost-floor), s.where(b))
	}
	return fmt.Sprintf("%s ms here; %s ms %s is not enough better to move", milliseconds(a.Cost-floor), milliseconds(b.Cost-floor), s.where(b))
}

func (s *State) where(score *Score) string {
	if score.Node == s.Entry {
		return "here"
	}
	return "on " + s.name(score.Node)
}

// advantage names the part in which a wins most over b.
func (s *State) advantage(r *Request, a, b *Score) string {
	there := "there"
	if a.Node == s.Entry {
		there = "here"
	}
	best, text := 0.0, "as good as any"
	offer := func(gain float64, words string) {
		if gain > best && gain > s.Tuning.NoiseMs/2 {
			best, text = gain, words
		}
	}
	work := b.PrefillMs + b.FetchMs - a.PrefillMs - a.FetchMs
	switch {
	case a.Cached > b.Cached:
		offer(work, fmt.Sprintf("%s of %s prompt tokens %s", number(a.Cached), number(r.Tokens), s.kept(a, there)))
	default:
		offer(work, fmt.Sprintf("%s prompt tokens are computed faster %s", number(r.Tokens-a.Cached), there))
	}
	offer(b.QueueMs-a.QueueMs, fmt.Sprintf("less work waits %s (%s ms against %s ms)", there, milliseconds(a.QueueMs), milliseconds(b.QueueMs)))
	offer(b.DecodeMs+b.HarmMs-a.DecodeMs-a.HarmMs, fmt.Sprintf("answers run faster %s", there))
	offer(b.RoleMs-a.RoleMs, s.where(b)+" prompts of others are computed")
	offer(-a.CopyMs, fmt.Sprintf("a beginning that many requests share is worth a copy %s", there))
	offer(b.ForwardMs-a.ForwardMs, "nearer")
	return text
}

// kept says where the cached tokens are.
func (s *State) kept(a *Score, there string) string {
	switch chosen := &a.plans.list[0]; {
	case chosen.Kind == Remote:
		return fmt.Sprintf("are computed by %s and come in %s ms", s.name(chosen.From), milliseconds(chosen.getMs))
	case chosen.Kind == Fetched:
		return fmt.Sprintf("come from %s in %s ms instead of being computed", s.name(chosen.From), milliseconds(chosen.getMs))
	case a.fromDisk > 0 && a.fromDisk >= a.Cached/2:
		return fmt.Sprintf("are kept %s on disk", there)
	case a.fromRAM > 0 && a.fromRAM >= a.Cached/2:
		return fmt.Sprintf("are kept %s in memory", there)
	case a.predicted > 0 && a.predicted >= a.Cached/2:
		return fmt.Sprintf("are being computed %s", there)
	}
	return fmt.Sprintf("are ready %s in the engine", there)
}

// number writes 12345 as 12,345.
func number(n int) string {
	digits := strconv.Itoa(n)
	for at := len(digits) - 3; at > 0 && digits[at-1] != '-'; at -= 3 {
		digits = digits[:at] + "," + digits[at:]
	}
	return digits
}

func milliseconds(ms float64) string {
	ms = max(0, ms)
	if ms < 10 {
		return strings.TrimSuffix(strconv.FormatFloat(ms, 'f', 1, 64), ".0")
	}
	return number(int(ms + 0.5))
}

func duration(d time.Duration) string {
	if d < time.Second {
		return fmt.Sprintf("%d ms", d.Milliseconds())
	}
	return fmt.Sprintf("%d s", int(d.Seconds()))
}
