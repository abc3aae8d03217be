//go:build race

package grammar

import "time"

// hostileTime is what one schema or grammar may take under the race detector.
const hostileTime = 20 * time.Second
