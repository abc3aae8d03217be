package scheduler

import (
	"math"
	"time"
)

// forecaster predicts the load of the next interval of the throughput loop by three
// predictors of which the one that has erred least lately counts. Lengths of prompts and
// answers, and what is cached, are as in the last interval that had requests.
type forecaster struct {
	last     PlanLoad // that had requests
	count    int      // intervals
	requests float64  // of the last one
	level    float64  // of the trend
	slope    float64
	days     [slots]season
	errors   [3]float64 // mean absolute error, older ones count less
	guess    [3]float64 // for the next interval
}

// season is a part of the day.
type season struct {
	requests float64
	days     int
}

const (
	slots    = 48 // half hours
	trendFor = 5  // intervals before the trend says anything
	// Weights of the newest interval.
	levelWeight, slopeWeight, seasonWeight, errorWeight = 0.5, 0.2, 0.4, 0.2
	// betterBy is how much less another predictor must err than the constant one.
	betterBy = 0.9
)

var predictors = [3]string{"constant", "trend", "season"}

// planInterval is that of the throughput loop.
const planInterval = planIntervals * PlanEvery

func slotOf(now time.Duration) int {
	day := now % (24 * time.Hour)
	return int(day / (24 * time.Hour / slots))
}

// add takes in an interval that ends now.
func (f *forecaster) add(now time.Duration, l PlanLoad) {
	x := l.Requests
	if l.Requests > 0 {
		f.last = l
	}
	if f.count > 0 {
		for i := range f.errors {
			f.errors[i] += (math.Abs(f.guess[i]-x) - f.errors[i]) * errorWeight
		}
	}
	// Holt's linear trend.
	if f.count == 0 {
		f.level = x
	} else {
		before := f.level
		f.level += f.slope
		f.level += (x - f.level) * levelWeight
		f.slope += (f.level - before - f.slope) * slopeWeight
	}
	f.count++
	f.requests = x
	s := &f.days[slotOf(now-planInterval/2)]
	if s.days == 0 {
		s.requests = x
	}
	s.requests += (x - s.requests) * seasonWeight
	s.days++
	f.guess = [3]float64{x, x, x}
	if f.count >= trendFor {
		f.guess[1] = max(0, f.level+f.slope)
	}
	// A part of the day says something when it was seen on another day.
	if next := &f.days[slotOf(now+planInterval/2)]; next != s && next.days > 0 && f.count > slots*int(30*time.Minute/planInterval)/2 {
		f.guess[2] = next.requests
	}
}

// next is the demand that is expected, and who expects it.
func (f *forecaster) next(time.Duration) (demand, string) {
	best := 0
	for i := 1; i < len(f.errors); i++ {
		if f.count >= trendFor && f.errors[i] < f.errors[0]*betterBy && f.errors[i] < f.errors[max(best, 0)] {
			best = i
		}
	}
	l := f.last
	if l.Requests == 0 {
		return demand{}, predictors[best]
	}
	d := demandOf(l, planInterval)
	d.rps = f.guess[best] / planInterval.Seconds()
	return d, predictors[best]
}
