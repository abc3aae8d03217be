package grammar

import (
	"fmt"
	"strconv"
	"strings"
)

// decimal is an exact number. The digits before the point have no leading zeros
// (zero is "0"), those behind it no trailing ones.
type decimal struct {
	negative bool // never of zero
	whole    string
	fraction string
}

// parseDecimal reads the literal of a JSON number.
func parseDecimal(literal string) (decimal, error) {
	var d decimal
	s, exp := literal, 0
	if i := strings.IndexAny(s, "eE"); i >= 0 {
		var err error
		if exp, err = strconv.Atoi(s[i+1:]); err != nil || exp > MaxNumberDigits || exp < -MaxNumberDigits {
			return d, fmt.Errorf("%s has an exponent beyond ±%d", clip(literal), MaxNumberDigits)
		}
		s = s[:i]
	}
	if len(s) > MaxNumberDigits {
		return d, fmt.Errorf("%s has more than %d digits", clip(literal), MaxNumberDigits)
	}
	s, d.negative = strings.CutPrefix(s, "-")
	d.whole, d.fraction, _ = strings.Cut(s, ".")
	d.shift(exp)
	d.whole = strings.TrimLeft(d.whole, "0")
	d.fraction = strings.TrimRight(d.fraction, "0")
	if d.whole == "" {
		d.whole = "0"
	}
	if d.isZero() {
		d.negative = false
	}
	return d, nil
}

// shift multiplies by ten to the power of exp.
func (d *decimal) shift(exp int) {
	if exp > 0 {
		d.fraction += strings.Repeat("0", max(0, exp-len(d.fraction)))
		d.whole, d.fraction = d.whole+d.fraction[:exp], d.fraction[exp:]
	} else if exp < 0 {
		d.whole = strings.Repeat("0", max(0, -exp-len(d.whole))) + d.whole
		cut := len(d.whole) + exp
		d.whole, d.fraction = d.whole[:cut], d.whole[cut:]+d.fraction
	}
}

func (d decimal) isZero() bool { return d.whole == "0" && d.fraction == "" }

func (d decimal) isInteger() bool { return d.fraction == "" }

func (d decimal) String() string {
	s := d.whole
	if d.negative {
		s = "-" + s
	}
	if d.fraction != "" {
		s += "." + d.fraction
	}
	return s
}

// negated is -d.
func (d decimal) negated() decimal {
	d.negative = !d.negative && !d.isZero()
	return d
}

// compare is negative if d < e, positive if d > e.
func (d decimal) compare(e decimal) int {
	if d.negative != e.negative {
		if d.negative {
			return -1
		}
		return 1
	}
	c := len(d.whole) - len(e.whole)
	if c == 0 {
		c = strings.Compare(d.whole, e.whole)
	}
	if c == 0 {
		c = strings.Compare(d.fraction, e.fraction)
	}
	if d.negative {
		return -c
	}
	return c
}
