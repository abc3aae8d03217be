package api

import (
	"math"
	"net/http"
	"strconv"
	"sync"
	"time"
)

// allowance is what a key may still ask of this node. It holds two numbers a key,
// whatever the clients do. A zero limit bounds nothing.
type allowance struct {
	limits KeyLimits

	mu struct {
		sync.Mutex
		requests, tokens float64 // left; tokens may be below 0 after a long answer
		since            time.Time
	}
}

func newAllowance(limits KeyLimits) *allowance {
	a := &allowance{limits: limits}
	a.mu.requests, a.mu.tokens = float64(limits.Requests), float64(limits.Tokens)
	return a
}

// fillLocked gives back what time has brought since the last call, up to the limits.
func (a *allowance) fillLocked(now time.Time) {
	if minutes := now.Sub(a.mu.since).Minutes(); !a.mu.since.IsZero() && minutes > 0 {
		a.mu.requests = math.Min(float64(a.limits.Requests), a.mu.requests+minutes*float64(a.limits.Requests))
		a.mu.tokens = math.Min(float64(a.limits.Tokens), a.mu.tokens+minutes*float64(a.limits.Tokens))
	}
	a.mu.since = now
}

// take takes one request, or tells when there will be one. Tokens are charged when
// they are known, so the request that uses up the last ones is still answered.
func (a *allowance) take(now time.Time) *Error {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fillLocked(now)
	if a.limits.Tokens > 0 && a.mu.tokens <= 0 {
		return errRate("tokens", a.limits.Tokens, 1-a.mu.tokens)
	}
	if a.limits.Requests > 0 {
		if a.mu.requests < 1 {
			return errRate("requests", a.limits.Requests, 1-a.mu.requests)
		}
		a.mu.requests--
	}
	return nil
}

// charge takes the tokens of a request that has ended.
func (a *allowance) charge(now time.Time, tokens int) {
	if a == nil || a.limits.Tokens == 0 {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	a.fillLocked(now)
	a.mu.tokens -= float64(tokens)
}

// errRate says how long it takes until what is missing is there.
func errRate(of string, limit int, missing float64) *Error {
	wait := time.Duration(math.Ceil(missing/float64(limit)*60)) * time.Second
	return &Error{Status: http.StatusTooManyRequests, Type: of, Code: "rate_limit_exceeded", RetryAfter: max(wait, time.Second),
		Message: "this API key may use " + strconv.Itoa(limit) + " " + of + " a minute on this node, and has; try again in " + strconv.Itoa(int(max(wait, time.Second).Seconds())) + " s"}
}
