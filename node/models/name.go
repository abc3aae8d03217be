package models

import (
	"fmt"
	"regexp"
	"strings"
)

// Name is a checked model name: [host/][namespace/]model[:tag].
type Name struct {
	host      string // "" for the Ollama registry and for local names
	namespace string // "" for its library
	model     string
	tag       string
}

const (
	defaultHost      = "registry.ollama.ai"
	defaultNamespace = "library"
	defaultTag       = "latest"
	hubHost          = "hf.co"

	maxName    = 400
	maxSegment = 96 // the longest repository name of Hugging Face
	maxHost    = 253
)

var (
	segmentPattern = regexp.MustCompile(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	hostPattern    = regexp.MustCompile(`^[A-Za-z0-9](?:[A-Za-z0-9.-]*[A-Za-z0-9])?(?::[0-9]{1,5})?$`)
	digestPattern  = regexp.MustCompile(`^sha256:([0-9a-f]{64})$`)
	hexPattern     = regexp.MustCompile(`^[0-9a-f]{64}$`)
	devicePattern  = regexp.MustCompile(`^(?i:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\.|$)`)
)

// ParseName checks a model name as clients write it. A name without tag means
// the tag "latest".
func ParseName(s string) (Name, error) {
	bad := func(allowed string) (Name, error) {
		return Name{}, &RefError{Field: "model", Value: s, Allowed: allowed}
	}
	if s == "" || len(s) > maxName {
		return bad(fmt.Sprintf("names have 1 to %d bytes", maxName))
	}
	n := Name{tag: defaultTag}
	rest := s
	if i := strings.LastIndexByte(s, ':'); i > strings.LastIndexByte(s, '/') {
		rest, n.tag = s[:i], s[i+1:]
	}
	parts := strings.Split(rest, "/")
	n.model = parts[len(parts)-1]
	switch len(parts) {
	case 1:
	case 2:
		n.namespace = parts[0]
	case 3:
		n.host, n.namespace = parts[0], parts[1]
	default:
		return bad("names have the form [host/][namespace/]model[:tag]")
	}
	if len(parts) == 3 && !validHost(n.host) {
		return bad("a host is a domain name, or an address with a port")
	}
	if len(parts) > 1 && !validSegment(n.namespace) || !validSegment(n.model) || !validSegment(n.tag) {
		return bad("the parts of a name are letters, digits and _ . -, at most 96 of them, begin with a letter, digit or _ and hold no ..")
	}
	if strings.EqualFold(n.namespace, hubHost) || strings.EqualFold(n.namespace, "huggingface.co") {
		return bad("a model of Hugging Face is hf.co/organisation/repository[:quantisation]")
	}
	return n.short(), nil
}

func validSegment(s string) bool {
	return len(s) <= maxSegment && segmentPattern.MatchString(s) && !strings.Contains(s, "..") && !devicePattern.MatchString(s)
}

// validHost tells a host from a namespace by its dot or port.
func validHost(s string) bool {
	return len(s) <= maxHost && hostPattern.MatchString(s) && !strings.Contains(s, "..") && (strings.ContainsAny(s, ".:") || s == "localhost")
}

// short leaves out what is understood.
func (n Name) short() Name {
	n.host = strings.ToLower(n.host)
	if n.host == "huggingface.co" || n.host == "www.huggingface.co" {
		n.host = hubHost
	}
	if n.host == defaultHost {
		n.host = ""
	}
	if n.host == "" && n.namespace == defaultNamespace {
		n.namespace = ""
	}
	return n
}

// String is the name as it is shown.
func (n Name) String() string {
	s := n.model + ":" + n.tag
	if n.namespace != "" {
		s = n.namespace + "/" + s
	}
	if n.host != "" {
		s = n.host + "/" + s
	}
	return s
}

// key is what two names that mean the same model have in common.
func (n Name) key() string { return strings.ToLower(n.String()) }

func (n Name) isHub() bool { return n.host == hubHost }

// ParseDigest checks "sha256:" and 64 hexadecimal digits, and returns the digits.
func ParseDigest(s string) (string, error) {
	if m := digestPattern.FindStringSubmatch(s); m != nil {
		return m[1], nil
	}
	return "", &RefError{Field: "digest", Value: s, Allowed: "digests are sha256: and 64 digits 0-9 a-f"}
}

// fileName is the name of a model file that has no other: its base name without
// .gguf, with a - for every character that names cannot have.
func fileName(base string) Name {
	if i := len(base) - len(".gguf"); i > 0 && strings.EqualFold(base[i:], ".gguf") {
		base = base[:i]
	}
	b := []byte(base)
	for i, c := range b {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_'
		if !letter && (i == 0 || c != '.' && c != '-') || c == '.' && i > 0 && b[i-1] == '.' {
			b[i] = '-'
		}
	}
	model := strings.TrimLeft(string(b[:min(len(b), maxSegment)]), "-.")
	if !validSegment(model) {
		model = "model_" + model[:min(len(model), maxSegment-len("model_"))]
	}
	return Name{model: model, tag: defaultTag}
}
