package api

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/binary"
	"encoding/json"
	"math"
	"net/http"
	"runtime/debug"
	"strconv"
	"time"
)

// embedding is a decoded embedding request.
type embedding struct {
	EmbedRequest
	base64   bool
	warnings []string
}

// embedDialect is how one of the three embedding endpoints speaks.
type embedDialect struct {
	endpoint string
	decode   func(body []byte) (*embedding, error)
	refuse   refusal
	answer   func(e *embedding, res EmbedResult) any
}

var (
	openAIEmbeddings = embedDialect{"embeddings", decodeEmbeddings, refuseOpenAI, answerEmbeddings}
	ollamaEmbed      = embedDialect{"ollama_embed", decodeOllamaEmbed, refuseOllama, answerOllamaEmbed}
	ollamaEmbeddings = embedDialect{"ollama_embed", decodeOllamaEmbeddings, refuseOllama, answerOllamaEmbeddings}
)

// decodeEmbeddings reads POST /v1/embeddings.
func decodeEmbeddings(body []byte) (*embedding, error) {
	o := decodeBody(body)
	e := &embedding{}
	e.Model = o.model("model")
	o.embedInputs(e, "input")
	o.integer("dimensions", &e.Dimensions, 1, MaxDimensions)
	encoding := "float"
	o.oneOf("encoding_format", &encoding, "float", "base64")
	e.base64 = encoding == "base64"
	var user string
	o.text("user", &user, MaxIdentifier)
	e.KeepAlive = o.keepAlive()
	o.rest()
	e.warnings = o.unknown
	return e, o.err
}

func (o *object) embedInputs(e *embedding, name string) {
	e.Inputs = o.inputs(name, MaxEmbedInputs, false)
	for i := range e.Inputs {
		e.Inputs[i].Plain = true // documents may hold anything
	}
}

// decodeOllamaEmbed reads POST /api/embed. Inputs are cut only where the request
// says truncate: true, unlike with Ollama, which cuts unless told not to.
func decodeOllamaEmbed(body []byte) (*embedding, error) {
	o := decodeBody(body)
	e := &embedding{}
	e.Model = o.ollamaModel()
	o.embedInputs(e, "input")
	o.integer("dimensions", &e.Dimensions, 0, MaxDimensions)
	o.flag("truncate", &e.Truncate)
	o.embedCommon(e)
	return e, o.err
}

// decodeOllamaEmbeddings reads POST /api/embeddings, the older form.
func decodeOllamaEmbeddings(body []byte) (*embedding, error) {
	o := decodeBody(body)
	e := &embedding{}
	e.Model = o.ollamaModel()
	var prompt string
	if !o.text("prompt", &prompt, MaxBody) || prompt == "" {
		o.bad("prompt", "is required")
	}
	e.Inputs = []Prompt{{Text: prompt, Plain: true}}
	o.embedCommon(e)
	return e, o.err
}

func (o *object) embedCommon(e *embedding) {
	c := call{Request: Request{Sampling: ollamaDefaults()}}
	o.ollamaOptions(&c) // checked; none of them shapes a vector
	e.KeepAlive = o.keepAlive()
	o.rest()
	e.warnings = o.unknown
}

// embed serves one embedding request, from its body to its record.
func (s *Server) embed(d *embedDialect) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		meter := newMeter(s.cfg.Now)
		id := "embd-" + rand.Text()
		w.Header().Set(requestID, id)
		record := RequestRecord{ID: id, Endpoint: d.endpoint, Tenant: tenantOf(r.Context())}
		err := error(errInternal) // stands if what follows panics
		defer func() {
			record.Outcome = meter.outcome(r.Context(), false, err)
			meter.record(&record)
			s.cfg.Observe(record)
		}()

		e, res, failed := s.runEmbed(w, r, d, id)
		armWrite(w, s.cfg.WriteTimeout)
		if failed == nil {
			record.Model, record.PromptTokens, record.Status = res.Model, res.PromptTokens, http.StatusOK
			allowanceOf(r.Context()).charge(s.cfg.Now(), res.PromptTokens)
			if res.Truncated > 0 {
				w.Header().Set("X-Tandem-Truncated", strconv.Itoa(res.Truncated))
			}
			writeJSON(w, http.StatusOK, d.answer(e, res))
		} else if refused := s.explain(w, failed); refused.Status != statusClientGone {
			record.Status = refused.Status
			d.refuse(w, refused)
		}
		err = failed
	}
}

func (s *Server) runEmbed(w http.ResponseWriter, r *http.Request, d *embedDialect, id string) (e *embedding, res EmbedResult, err error) {
	body, err := s.readBody(w, r)
	if err != nil {
		return nil, res, err
	}
	e, err = d.decode(body)
	setWarning(w, e.warnings, nil)
	if err != nil {
		return nil, res, err
	}
	if err := s.takeAllowance(r.Context()); err != nil {
		return e, res, err
	}
	e.Tenant = tenantOf(r.Context())
	res, err = s.callEmbed(r.Context(), d, e, id)
	return e, res, err
}

func (s *Server) callEmbed(ctx context.Context, d *embedDialect, e *embedding, id string) (res EmbedResult, err error) {
	defer func() {
		if v := recover(); v != nil {
			s.panicked(d.endpoint, id, v, debug.Stack())
			err = errInternal
		}
	}()
	res, err = s.cfg.Generator.Embed(ctx, &e.EmbedRequest)
	if res.Model == "" {
		res.Model = e.Model
	}
	return res, err
}

type embeddingItem struct {
	Object    string `json:"object"`
	Index     int    `json:"index"`
	Embedding any    `json:"embedding"`
}

type embeddingList struct {
	Object string          `json:"object"`
	Data   []embeddingItem `json:"data"`
	Model  string          `json:"model"`
	Usage  struct {
		PromptTokens int `json:"prompt_tokens"`
		TotalTokens  int `json:"total_tokens"`
	} `json:"usage"`
}

func answerEmbeddings(e *embedding, res EmbedResult) any {
	list := embeddingList{Object: "list", Model: res.Model, Data: make([]embeddingItem, len(res.Vectors))}
	list.Usage.PromptTokens, list.Usage.TotalTokens = res.PromptTokens, res.PromptTokens
	for i, v := range res.Vectors {
		list.Data[i] = embeddingItem{Object: "embedding", Index: i, Embedding: vectorJSON(v)}
		if e.base64 {
			list.Data[i].Embedding = vectorBase64(v)
		}
	}
	return list
}

// vectorJSON writes numbers as short as they can be read back to the same float32.
func vectorJSON(v []float32) json.RawMessage {
	b := make([]byte, 0, 12*len(v)+2)
	b = append(b, '[')
	for i, x := range v {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendFloat(b, float64(x), 'g', -1, 32)
	}
	return append(b, ']')
}

// vectorBase64 is OpenAI's: little-endian float32 after one another.
func vectorBase64(v []float32) string {
	b := make([]byte, 0, 4*len(v))
	for _, x := range v {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return base64.StdEncoding.EncodeToString(b)
}

type ollamaVectors struct {
	Model       string            `json:"model"`
	Embeddings  []json.RawMessage `json:"embeddings"`
	Truncated   int               `json:"truncated,omitempty"` // inputs that were cut
	Total       time.Duration     `json:"total_duration"`
	Load        time.Duration     `json:"load_duration"`
	PromptCount int               `json:"prompt_eval_count"`
}

func answerOllamaEmbed(_ *embedding, res EmbedResult) any {
	out := ollamaVectors{Model: res.Model, Embeddings: make([]json.RawMessage, len(res.Vectors)), Truncated: res.Truncated,
		Total: res.Total, Load: res.Load, PromptCount: res.PromptTokens}
	for i, v := range res.Vectors {
		out.Embeddings[i] = vectorJSON(v)
	}
	return out
}

func answerOllamaEmbeddings(_ *embedding, res EmbedResult) any {
	out := struct {
		Embedding json.RawMessage `json:"embedding"`
	}{json.RawMessage("[]")}
	if len(res.Vectors) > 0 {
		out.Embedding = vectorJSON(res.Vectors[0])
	}
	return out
}
