//go:build !race

package grammar

import "time"

// hostileTime is what one schema or grammar may take.
const hostileTime = 2 * time.Second
