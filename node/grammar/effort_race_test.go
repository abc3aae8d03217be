//go:build race

package grammar

import "time"

const (
	hostileTime     = 20 * time.Second
	propertySchemas = 40
)
