//go:build !race

package grammar

import "time"

const (
	// hostileTime is what one schema or grammar may take on a busy machine.
	hostileTime = 2 * time.Second
	// propertySchemas is the number of random schemas.
	propertySchemas = 300
)
