package models

import (
	"path"
	"regexp"
	"slices"
	"strings"
)

// quantPattern is a quantisation at the end of a part of a file name.
var quantPattern = regexp.MustCompile(`(?i)(?:^|_)((?:I?Q[1-8]_[A-Z0-9]+(?:_[A-Z0-9]+)*|TQ[12]_0|MXFP4(?:_MOE)?|BF16|F16|FP16|F32|FP32))$`)

// splitPattern is the name of a part of a split model, in lower case.
var splitPattern = regexp.MustCompile(`-[0-9]{5}-of-[0-9]{5}$`)

// preference is the order in which a quantisation is chosen where none is asked
// for: what most people run, then what is nearest to it, better before worse.
var preference = []string{"Q4_K_M", "Q4_K_S", "Q4_1", "Q4_0", "IQ4_NL", "IQ4_XS", "Q4_K_L", "MXFP4", "MXFP4_MOE", "Q5_K_M", "Q5_K_S", "Q5_1", "Q5_0", "Q6_K", "Q8_0",
	"Q3_K_L", "Q3_K_M", "IQ3_M", "Q3_K_S", "IQ3_S", "IQ3_XS", "IQ3_XXS", "F16", "BF16", "Q2_K", "IQ2_M", "F32"}

// quantOf is the quantisation in a file's name, in upper case, "" if there is
// none. Of several the last counts.
func quantOf(file string) string {
	parts := strings.FieldsFunc(splitPattern.ReplaceAllString(stem(file), ""), func(r rune) bool { return strings.ContainsRune("-./", r) })
	for i := len(parts) - 1; i >= 0; i-- {
		m := quantPattern.FindStringSubmatch(parts[i])
		if m == nil {
			continue
		}
		quant := strings.ToUpper(m[1])
		if i > 0 && parts[i-1] == "ud" {
			quant = "UD-" + quant
		}
		return quant
	}
	return ""
}

// stem is a file's path in lower case without .gguf.
func stem(file string) string { return strings.TrimSuffix(strings.ToLower(file), ".gguf") }

// preferred says whether quantisation a is chosen before b.
func preferred(a, b string) bool {
	ra, rb := rank(a), rank(b)
	return ra < rb || ra == rb && a < b
}

func rank(quant string) int {
	if i := slices.Index(preference, strings.TrimPrefix(strings.ToUpper(quant), "UD-")); i >= 0 {
		return i
	}
	return len(preference)
}

// hubFile is a GGUF file of a Hugging Face repository.
type hubFile struct {
	path   string
	size   int64
	digest string // hex
	quant  string // "" if its name does not say
}

// isModelFile leaves out the parts of a repository that are no text models.
func isModelFile(file string) bool {
	base := strings.ToLower(path.Base(file))
	return strings.HasSuffix(base, ".gguf") && !strings.Contains(base, "mmproj") && !strings.Contains(base, "imatrix") && !strings.HasPrefix(base, ".")
}

func isSplit(file string) bool { return splitPattern.MatchString(stem(file)) }

// choose picks the file of a quantisation, or the preferred one if want is
// "latest". Whole files come before split ones, and shorter paths before longer.
func choose(files []hubFile, want string) (hubFile, bool) {
	var best hubFile
	found := false
	for _, f := range files {
		if want != defaultTag && !strings.EqualFold(f.quant, want) {
			continue
		}
		if !found || before(f, best) {
			best, found = f, true
		}
	}
	return best, found
}

func before(a, b hubFile) bool {
	switch {
	case isSplit(a.path) != isSplit(b.path):
		return isSplit(b.path)
	case a.quant != b.quant:
		return preferred(a.quant, b.quant)
	case len(a.path) != len(b.path):
		return len(a.path) < len(b.path)
	}
	return a.path < b.path
}
