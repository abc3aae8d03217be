package node

import (
	"context"
	"errors"
	"fmt"

	"tandem/node/api"
	"tandem/node/calc"
	"tandem/node/engine"
	"tandem/node/models"
	"tandem/node/models/builtin"
	"tandem/node/models/gguf"
)

// calculator answers what a model of this node takes: api.Calculator.
type calculator struct{ node *Node }

// Calc implements api.Calculator. Settings and measured rates of this node stand in for
// what the query leaves out, and the measured ways from other nodes come after the
// links that are asked for.
func (c calculator) Calc(_ context.Context, q api.CalcQuery) (any, error) {
	n := c.node
	name := n.orDefault(q.Model)
	if name == "" {
		return nil, api.BadRequest("model", "model: is missing, and this node has no default model yet; allowed: a name that /v1/models lists")
	}
	m, file, err := n.store.Inspect(name)
	if err != nil {
		return nil, refusal(name, err)
	}
	model := calc.FromGGUF(file)
	model.Name = m.Name
	question := calc.Question{KVType: q.KVType, Tokens: q.Tokens, Context: q.Context, Sequences: q.Parallel, MicroBatch: min(n.cfg.Batch, MicroBatch),
		PrefillRate: q.PrefillRate, DecodeRate: q.DecodeRate, Memory: q.Memory, Boxes: q.Boxes}
	if question.KVType == "" {
		question.KVType = n.cfg.KVType
	}
	fill := func(v *int, def int) {
		if *v == 0 {
			*v = def
		}
	}
	fill(&question.Context, n.cfg.Context)
	fill(&question.Sequences, n.cfg.Parallel)
	fill(&question.Tokens, question.Context)
	if question.PrefillRate == 0 {
		question.PrefillRate = n.measuredPrefill(m.Name)
	}
	if have := n.pool.Capacity(); len(question.Memory) == 0 && have > 0 && have <= calc.MaxMemory {
		question.Memory = []int64{have}
	}
	question.Links = calc.Links(q.Gbit)
	question.Links = append(question.Links, n.peers.measuredLinks(calc.MaxLinks-len(question.Links))...)
	r, err := calc.Answer(model, question)
	var field *calc.FieldError
	if errors.As(err, &field) {
		return nil, api.BadRequest(field.Field, "%s", field.Error())
	}
	if err != nil {
		return nil, api.BadRequest("kv_type", "kv_type: %s", err.Error())
	}
	return r, nil
}

// measuredPrefill is the rate at which prompts of a model were computed here, in
// tokens/s; 0: it was not measured.
func (n *Node) measuredPrefill(model string) float64 {
	if n.keeper == nil {
		return 0
	}
	for _, m := range n.keeper.models.list() {
		if each, known := m.secondsPerToken(); known && m.name == model && each > 0 {
			return 1 / each
		}
	}
	return 0
}

// measuredLinks are the ways from other nodes whose goodput is known, at most n.
func (p *peers) measuredLinks(n int) []calc.Link {
	if p == nil {
		return nil
	}
	var out []calc.Link
	for _, l := range p.links() {
		if l.Goodput > 0 && len(out) < n {
			out = append(out, calc.Link{Name: "from " + p.name(l.From), Goodput: l.Goodput, RTTMs: l.RTTMs, Basis: "measured by this node"})
		}
	}
	return out
}

// MachineMemory is the memory that models on this machine may take, in bytes; 0: it is
// not known.
func MachineMemory() int64 {
	if have := engine.HostCapacity(); have > 0 && have <= calc.MaxMemory {
		return have
	}
	return 0
}

// CalcModel reads what the calculator needs of a model on this machine: of a file, of a
// name in the store, or with "" of the model that a node would serve.
func CalcModel(c Config, ref string) (*calc.Model, error) {
	if IsPath(ref) {
		file, err := gguf.Open(ref)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", ref, err)
		}
		m := calc.FromGGUF(file)
		if m.Name == "" {
			m.Name = ModelName(ref)
		}
		return m, nil
	}
	store, err := openStore(c, c.logger())
	if err != nil {
		return nil, err
	}
	if ref == "" {
		m, ok := store.Default(context.Background(), func(models.Model) bool { return true })
		if !ok {
			m.Name = builtin.Name
		}
		ref = m.Name
	}
	m, file, err := store.Inspect(ref)
	if errors.Is(err, models.ErrNotFound) {
		return nil, fmt.Errorf("there is no model %s on this machine; `tandem pull %s` gets it, and a config.json of Hugging Face does without", ref, ref)
	}
	if err != nil {
		return nil, err
	}
	model := calc.FromGGUF(file)
	model.Name = m.Name
	return model, nil
}
