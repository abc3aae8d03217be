// Package cli is the command line: it turns arguments into a node.Config and
// runs a node, or talks to a running node over its HTTP API.
//
// It holds no logic of the product. Commands that need a node use the one that
// answers at the configured address; pull and models also work on the data
// folder when no node runs, and run starts a node of its own for as long as the
// chat lasts.
//
// Settings are merged by node.LoadConfig from a YAML file, the environment and
// flags; a bad value is reported with its name, value and what is allowed before
// anything is started, with exit status 2. Other failures exit with 1.
package cli
