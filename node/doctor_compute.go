package node

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strings"

	"github.com/dustin/go-humanize"
	"golang.org/x/sys/cpu"

	"tandem/node/engine"
	"tandem/node/engine/llama"
	"tandem/node/models"
	"tandem/node/models/builtin"
)

// computing tells with what this machine computes.
func (d *doctor) computing() {
	threads := d.Config.Threads
	if threads == 0 {
		threads = llama.DefaultThreads()
	}
	if threads > runtime.NumCPU() {
		d.warn("CPU", "leave --threads at 0", "--threads %d, but there are %d CPUs: the threads wait for each other", threads, runtime.NumCPU())
	} else {
		d.ok("CPU", "%d threads on %d CPUs", threads, runtime.NumCPU())
	}
	if runtime.GOARCH == "amd64" {
		d.vectors(cpu.X86.HasAVX2, buildFlags())
	}
	d.gpus()
}

// buildFlags is what the C compiler was told, "" if the program does not say.
func buildFlags() string {
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, s := range info.Settings {
			if s.Key == "CGO_CFLAGS" {
				return s.Value
			}
		}
	}
	return ""
}

// vectors tells whether CPU and program both have AVX2.
func (d *doctor) vectors(have bool, flags string) {
	const name = "AVX2"
	arch := ""
	built := false
	for flag := range strings.FieldsSeq(flags) {
		if a, ok := strings.CutPrefix(flag, "-march="); ok {
			arch, built = flag, slices.Contains([]string{"native", "x86-64-v3", "x86-64-v4", "haswell", "skylake", "znver1", "znver2", "znver3", "znver4", "znver5"}, a)
		}
		if flag == "-mavx2" {
			arch, built = flag, true
		}
	}
	switch {
	case !have:
		d.warn(name, "put large models on another machine", "this CPU has none: computing is several times slower")
	case arch == "":
		d.warn(name, "build it with `make build`", "this CPU has it; the program was not built for it, or does not say so: computing may be several times slower")
	case !built:
		d.warn(name, "build it with `make build`, or ARCH=x86-64-v3 for several machines", "this CPU has it; the program was built with %s, perhaps without: computing may be several times slower", arch)
	default:
		d.ok(name, "this CPU has it and the program was built for it (%s)", arch)
	}
}

// gpus tells which GPU libraries and devices there are.
func (d *doctor) gpus() {
	const name = "GPU"
	dir := d.Config.Backends
	if dir == "" {
		if program, err := os.Executable(); err == nil {
			dir = filepath.Join(filepath.Dir(program), "backends")
		}
	}
	libraries := backendLibraries(dir)
	loadGPUBackends(d.Config.Backends)
	var devices []string
	for _, dev := range llama.Devices() {
		if dev.Kind != "cpu" {
			devices = append(devices, dev.Description+", "+humanize.IBytes(uint64(dev.FreeBytes))+" free")
		}
	}
	switch {
	case len(devices) > 0:
		d.ok(name, "%s", strings.Join(devices, "; "))
	case len(libraries) > 0:
		d.warn(name, "see that the driver is installed and fits the library (`nvidia-smi` or `vulkaninfo` tells)", "%s is in %s, and no device was found with it", strings.Join(libraries, ", "), dir)
	case d.Config.Backends != "":
		d.warn(name, "put the ggml libraries of a GPU into it, or leave --backends out", "there is no GPU library in %s", dir)
	default:
		d.ok(name, "no GPU library in %s: the CPU computes", dir)
	}
}

// backendLibraries are the ggml libraries of a folder that are not for the CPU.
func backendLibraries(dir string) []string {
	var found []string
	for _, pattern := range []string{"libggml-*.so", "libggml-*.dylib", "ggml-*.dll"} {
		files, _ := filepath.Glob(filepath.Join(dir, pattern))
		for _, f := range files {
			base := filepath.Base(f)
			if !strings.Contains(base, "ggml-base") && !strings.Contains(base, "ggml-cpu") {
				found = append(found, base)
			}
		}
	}
	return found
}

// models tells which models are here, whether the default one can be used, and whether
// it fits into memory.
func (d *doctor) models(ctx context.Context) {
	const name = "models"
	dir := filepath.Join(d.Config.DataDir, "models")
	if _, err := os.Stat(dir); err != nil { // nothing is made that is not there
		temporary, err := os.MkdirTemp("", "tandem-doctor-")
		if err != nil {
			d.wrong(name, "make the folder for temporary files writable", "%v", err)
			return
		}
		defer os.RemoveAll(temporary)
		dir = temporary
	}
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	c := models.Config{Dir: dir}
	c.KnownPlaces(os.Getenv, home)
	store, err := models.Open(c)
	if err != nil {
		d.wrong(name, "make the folder models in the data folder writable", "%v", err)
		return
	}
	list, err := store.List(ctx)
	if err != nil {
		d.wrong(name, "", "%v", err)
		return
	}
	d.ok(name, "%d on this machine, beside the one that is built in", len(list))
	if d.Running != nil {
		for _, m := range d.Running.Models {
			d.ok("memory", "%s is loaded and takes %s", m.Name, humanize.IBytes(uint64(m.MemoryBytes)))
		}
		return // the node that runs has made its choice
	}
	n := &Node{cfg: d.Config, store: store, pool: engine.NewPool(engine.PoolConfig{})}
	defer n.pool.Close(ctx)
	d.defaultModel(ctx, n)
}

// defaultModel examines the model that the node serves first.
func (d *doctor) defaultModel(ctx context.Context, n *Node) {
	const name = "default model"
	ref := ""
	if len(d.Config.Models) > 0 {
		ref = d.Config.Models[0]
	}
	var m models.Model
	var err error
	switch {
	case ref != "" && IsPath(ref):
		m, err = n.store.AddPath(ref)
	case ref == builtin.Name:
		d.ok(name, "%s, which is built in", ref)
		return
	case ref != "":
		if m, err = n.store.Resolve(ref); errors.Is(err, models.ErrNotFound) {
			d.ok(name, "%s is not here yet: the start pulls it, which needs the network", ref)
			return
		}
	default:
		var ok bool
		if m, ok = n.store.Default(ctx, n.fits); !ok {
			d.ok(name, "none that fits is here: the start pulls %s, and without network a small built-in one answers", defaultRef)
			return
		}
	}
	if err == nil {
		_, _, err = n.store.Inspect(m.Name)
	}
	if err != nil {
		d.wrong(name, "name another with --model, or get it again with `tandem pull`", "%v", err)
		return
	}
	d.ok(name, "%s is valid (%s, %s)", m.Name, m.Info.Architecture, humanize.IBytes(uint64(m.Size)))
	d.memory(n, m)
}

// memory compares what a model takes with what there is.
func (d *doctor) memory(n *Node, m models.Model) {
	const name = "memory"
	need, err := n.memory(m, n.engineOptions(generating(m)))
	have := n.pool.Capacity()
	switch {
	case err != nil:
		d.wrong(name, "", "%v", err)
	case need.Total() > have:
		refusal := &engine.NoMemoryError{Model: m.Name, Need: need, Have: have}
		d.wrong(name, "", "%v", refusal)
	case need.Total()+d.Config.KVRAM > have:
		d.warn(name, "choose a smaller --kv-ram, --ctx or --parallel", "%s needs %s and kept KV may take %s, of %s that are there",
			m.Name, humanize.IBytes(uint64(need.Total())), humanize.IBytes(uint64(d.Config.KVRAM)), humanize.IBytes(uint64(have)))
	default:
		d.ok(name, "%s needs %s of %s", m.Name, humanize.IBytes(uint64(need.Total())), humanize.IBytes(uint64(have)))
	}
}
