package api

import (
	"slices"
	"strconv"
	"strings"
)

// model reads the required name of a model.
func (o *object) model(name string) string {
	var model string
	switch {
	case !o.text(name, &model, MaxBody) || model == "":
		o.bad(name, "is required")
	case !validModelName(model):
		o.bad(name, "%s is not a name that a model can have", strconv.Quote(clip(model, 100)))
	}
	return model
}

// ollamaModel reads the name of a model under either of Ollama's two names.
func (o *object) ollamaModel() string {
	if m := o.find("model"); m == nil || string(m.raw) == `""` || string(m.raw) == "null" {
		if o.find("name") != nil {
			o.take("model")
			return o.model("name")
		}
	}
	o.take("name")
	return o.model("model")
}

// validModelName says whether s can name a model: at most four parts joined by
// slashes, each of letters, digits and . _ + -, the first of which may have a port
// and the last a tag. A name becomes part of a file's path in some libraries, so
// nothing that a file system might read as more than a name is let through.
func validModelName(s string) bool {
	if len(s) > MaxModelName {
		return false
	}
	parts := strings.Split(s, "/")
	if len(parts) > 4 {
		return false
	}
	for i, part := range parts {
		name, tag, tagged := strings.Cut(part, ":")
		if tagged && i > 0 && i < len(parts)-1 {
			return false
		}
		if !validNamePart(name) || tagged && !validNamePart(tag) {
			return false
		}
	}
	return true
}

func validNamePart(s string) bool {
	if s == "" || !isAlnum(s[0]) || strings.Contains(s, "..") || s[len(s)-1] == '.' {
		return false
	}
	for _, c := range []byte(s) {
		if !isAlnum(c) && !strings.ContainsRune("._+-", rune(c)) {
			return false
		}
	}
	stem, _, _ := strings.Cut(strings.ToLower(s), ".")
	return !slices.Contains(deviceNames, stem)
}

// deviceNames are files that Windows has in every folder.
var deviceNames = []string{"con", "prn", "aux", "nul",
	"com0", "com1", "com2", "com3", "com4", "com5", "com6", "com7", "com8", "com9",
	"lpt0", "lpt1", "lpt2", "lpt3", "lpt4", "lpt5", "lpt6", "lpt7", "lpt8", "lpt9"}

// validDigest says whether s is sha256: and 64 lower-case hex digits.
func validDigest(s string) bool {
	digits, ok := strings.CutPrefix(s, "sha256:")
	if !ok || len(digits) != 64 {
		return false
	}
	for _, c := range []byte(digits) {
		if (c < '0' || c > '9') && (c < 'a' || c > 'f') {
			return false
		}
	}
	return true
}
