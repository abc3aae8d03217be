package node

import (
	"context"
	"errors"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"tandem/node/api"
	"tandem/node/models"
	"tandem/node/models/builtin"
)

// openStore opens the model store of a configuration. Several processes may:
// the store's own files change by rename only.
func openStore(c Config, log *slog.Logger) (*models.Store, error) {
	mc := models.Config{Dir: filepath.Join(c.DataDir, "models"), Builtin: builtin.GGUF, BuiltinName: builtin.Name, Logger: log}
	home, err := os.UserHomeDir()
	if err != nil {
		home = ""
	}
	mc.KnownPlaces(os.Getenv, home)
	return models.Open(mc)
}

// OpenLibrary opens the models of a data folder without a node.
func OpenLibrary(c Config) (api.Library, error) {
	store, err := openStore(c, c.logger())
	if err != nil {
		return nil, err
	}
	return &library{store: store, context: c.Context}, nil
}

// ModelPath is the file of a model: of a path itself, or of a name in the store.
func ModelPath(c Config, ref string) (string, error) {
	if IsPath(ref) {
		return filepath.Abs(ref)
	}
	store, err := openStore(c, c.logger())
	if err != nil {
		return "", err
	}
	m, err := store.Resolve(ref)
	return m.Path, err
}

// IsPath tells whether a model reference is a file of this machine.
func IsPath(ref string) bool { return models.IsPath(ref) }

// ModelName is how a model is called in requests: a file without its folder and
// ending, anything else as it is written.
func ModelName(ref string) string {
	if !IsPath(ref) {
		return ref
	}
	base := filepath.Base(ref)
	return strings.TrimSuffix(strings.TrimSuffix(base, ".gguf"), ".GGUF")
}

// library is the store as the API sees it. Without a node nothing is loaded.
type library struct {
	store   *models.Store
	node    *Node // nil: only files
	context int   // of one request
}

func (l *library) List(ctx context.Context) ([]api.Model, error) {
	out, err := l.here(ctx)
	if err != nil {
		return nil, refusal("", err)
	}
	if l.node != nil {
		have := func(name string) bool {
			return slices.ContainsFunc(out, func(m api.Model) bool { return m.Name == name })
		}
		out = append(out, l.node.peers.cards(have)...)
	}
	return out, nil
}

// here are the models on this machine.
func (l *library) here(ctx context.Context) ([]api.Model, error) {
	list, err := l.store.List(ctx)
	return l.describeAll(list), err
}

func (l *library) describeAll(list []models.Model) []api.Model {
	out := make([]api.Model, 0, len(list))
	for _, m := range list {
		out = append(out, l.describe(m))
	}
	return out
}

// describe is one model of a list; the context is the one enforced here.
func (l *library) describe(m models.Model) api.Model {
	out := api.Model{Name: m.Name, Digest: m.Digest, Size: m.Size, Modified: m.Modified, Family: m.Info.Architecture, Parameters: m.Info.Parameters,
		Quantization: m.Info.Quantization, ContextLength: l.context, Source: string(m.Source), License: m.License}
	switch {
	case m.Info.IsEmbedding:
		out.Capabilities = []string{"embedding"}
		out.ContextLength = min(l.context, m.Info.ContextLength)
	default:
		out.Capabilities = []string{"completion"}
		if m.Info.CanChat() {
			out.Capabilities = append(out.Capabilities, "tools")
		}
	}
	if l.node != nil {
		out.Loaded = l.node.isLoaded(m.Name)
		out.Default = l.node.isDefault(m.Name)
		out.Memory = l.node.wouldTake(m)
	}
	return out
}

func (l *library) Show(ctx context.Context, name string) (api.ModelDetail, error) {
	m, f, err := l.store.Inspect(name)
	if err != nil {
		return api.ModelDetail{}, refusal(name, err)
	}
	return api.ModelDetail{Model: l.describe(m), Template: f.ChatTemplate, Metadata: f.Metadata}, nil
}

func (l *library) Loaded() []api.LoadedModel {
	if l.node == nil {
		return nil
	}
	var out []api.LoadedModel
	for _, p := range l.node.pool.Loaded() {
		m, err := l.store.Resolve(p.Spec.Model)
		if err != nil {
			m = models.Model{Name: p.Spec.Model}
		}
		out = append(out, api.LoadedModel{Model: l.describe(m), MemoryBytes: p.Memory.Total(), Expires: p.Expires, Running: p.Running, Queued: p.Queued})
	}
	return out
}

func (l *library) Pull(ctx context.Context, ref string, progress func(api.PullProgress)) error {
	defer l.changed()
	var bytes int64
	pull := l.store.Pull
	if l.node != nil {
		pull = l.node.pull
	}
	if l.node == nil && IsPath(ref) { // only a person at this machine may name its files
		pull = l.store.Import
	}
	_, err := pull(ctx, ref, func(p models.Progress) {
		bytes = max(bytes, p.Total)
		progress(api.PullProgress{Status: p.Status, Digest: p.Digest, Total: p.Total, Completed: p.Completed})
	})
	if l.node != nil {
		done := PullFinished{Ref: ref, Bytes: bytes}
		if err != nil {
			done.Error = err.Error()
		}
		l.node.events.emit(done)
	}
	return refusal(ref, err)
}

func (l *library) Delete(ctx context.Context, name string) error {
	if err := l.Unload(ctx, name); err != nil {
		return err
	}
	defer l.changed()
	return refusal(name, l.store.Delete(name))
}

func (l *library) Copy(_ context.Context, from, to string) error {
	defer l.changed()
	return refusal(from, l.store.Copy(from, to))
}

func (l *library) Create(_ context.Context, c api.CreateModel) error {
	defer l.changed()
	_, err := l.store.Create(c.Name, c.From, c.Files)
	name := c.Name
	if errors.Is(err, models.ErrNotFound) && c.From != "" {
		name = c.From
	}
	return refusal(name, err)
}

// changed lets other nodes know soon.
func (l *library) changed() {
	if l.node != nil {
		l.node.told.changed()
	}
}

func (l *library) HasBlob(digest string) bool { return l.store.HasBlob(digest) }

func (l *library) PutBlob(ctx context.Context, digest string, r io.Reader) error {
	return refusal(digest, l.store.PutBlob(ctx, digest, r))
}

func (l *library) Unload(ctx context.Context, name string) error {
	m, err := l.store.Resolve(name)
	if err != nil {
		return refusal(name, err)
	}
	if l.node == nil {
		return nil
	}
	return refusal(name, l.node.unload(ctx, m.Name))
}
