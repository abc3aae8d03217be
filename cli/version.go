package cli

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"tandem/node"
)

// versionInfo is what `version --json` prints.
type versionInfo struct {
	Version string `json:"version"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Go      string `json:"go"`
	CFlags  string `json:"cgo_cflags,omitempty"` // with which the engine was compiled
	Engine  string `json:"engine,omitempty"`     // the module that carries llama.cpp
}

// engineModule carries llama.cpp.
const engineModule = "github.com/ollama/ollama"

func thisVersion() versionInfo {
	v := versionInfo{Version: node.Version, OS: runtime.GOOS, Arch: runtime.GOARCH, Go: runtime.Version()}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return v
	}
	for _, s := range info.Settings {
		if s.Key == "CGO_CFLAGS" {
			v.CFlags = s.Value
		}
	}
	for _, m := range info.Deps {
		if m.Path == engineModule {
			v.Engine = m.Path + " " + m.Version
		}
	}
	return v
}

func (a *app) versionCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{Use: "version", Short: "Show the version", Args: noArgs,
		RunE: func(*cobra.Command, []string) error {
			if asJSON {
				return printJSON(a.env.Out, thisVersion())
			}
			_, err := fmt.Fprintln(a.env.Out, node.VersionLine())
			return err
		}}
	return jsonFlag(cmd, &asJSON)
}
