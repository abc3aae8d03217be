package api

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestCheckJSON(t *testing.T) {
	deep := func(n int) string { return strings.Repeat("[", n) + strings.Repeat("]", n) }
	for name, tc := range map[string]struct{ text, fault string }{
		"object":            {`{"a":[1,-2.5e+3,true,false,null,"\u00e9\n\ud83d\ude42"]}`, ""},
		"blanks":            {" \t\r\n{ \"a\" : [ ] , \"b\" : { } } ", ""},
		"scalar":            {`0`, ""},
		"as deep as may be": {deep(MaxDepth), ""},
		"empty":             {``, "too early"},
		"cut":               {`{"a":`, "too early"},
		"trailing":          {`{} {}`, "more after"},
		"trailing comma":    {`[1,]`, "unexpected"},
		"key without value": {`{"a"}`, "unexpected"},
		"bare key":          {`{a:1}`, "unexpected"},
		"single quotes":     {`{'a':1}`, "unexpected"},
		"leading zero":      {`01`, "more after"},
		"plus":              {`+1`, "unexpected"},
		"bare point":        {`1.`, "too early"},
		"NaN":               {`NaN`, "unexpected"},
		"word":              {`truth`, "unknown word"},
		"newline in string": {"\"a\nb\"", "control character"},
		"NUL":               {"\x00", "unexpected"},
		"open string":       {`"abc`, "does not end"},
		"bad escape":        {`"\x"`, "escape"},
		"short escape":      {`"\u12"`, "escape"},
		"high half":         {`"\ud83d"`, "half of a surrogate"},
		"low half":          {`"\ude42"`, "half of a surrogate"},
		"halves swapped":    {`"\ude42\ud83d"`, "half of a surrogate"},
		"two highs":         {`"\ud83d\ud83d"`, "half of a surrogate"},
		"bad UTF-8":         {"\"\xff\"", "UTF-8"},
		"encoded surrogate": {"\"\xed\xa0\xbd\"", "UTF-8"},
		"overlong":          {"\"\xc0\xaf\"", "UTF-8"},
		"too deep":          {deep(MaxDepth + 1), "deep"},
		"a million deep":    {strings.Repeat(`{"a":`, 1_000_000), "deep"},
		"byte order mark":   {"\ufeff{}", "unexpected"},
	} {
		t.Run(name, func(t *testing.T) {
			err := checkJSON([]byte(tc.text))
			switch {
			case tc.fault == "" && err != nil:
				t.Errorf("refused: %v", err)
			case tc.fault != "" && (err == nil || !strings.Contains(err.Error(), tc.fault)):
				t.Errorf("got %v, want a fault with %q", err, tc.fault)
			}
		})
	}
}

// FuzzCheckJSON holds the scanner against encoding/json, and the splitters against
// the scanner.
func FuzzCheckJSON(f *testing.F) {
	for _, seed := range []string{`{"a":[1,2,{"b":"\u00e9\ud83d\ude42"}],"c":-1.5e-7}`, `[[],{},"",null]`, ` {"a" : "}]\"" } `, `"\ud800"`, "\"\xff\"", `1e`, `[1 2]`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		err := checkJSON(data)
		if err == nil && !json.Valid(data) {
			t.Fatal("accepted what is not JSON")
		}
		if err != nil && json.Valid(data) && utf8.Valid(data) && !strings.Contains(err.Error(), "deep") && !strings.Contains(err.Error(), "surrogate") {
			t.Fatalf("refused JSON: %v", err)
		}
		if err == nil {
			walk(t, bytes.TrimSpace(data))
		}
	})
}

// walk splits a value all the way down; every part must be JSON of its own.
func walk(t *testing.T, raw []byte) {
	if checkJSON(raw) != nil || skip(raw, 0) != len(raw) {
		t.Fatalf("a part is not one value: %q", raw)
	}
	switch raw[0] {
	case '{':
		for key, value := range members(raw) {
			var want string
			if json.Unmarshal(key, &want) != nil || unquote(key) != want {
				t.Fatalf("key %q", key)
			}
			walk(t, value)
		}
	case '[':
		n := 0
		for i, value := range elements(raw) {
			if i != n {
				t.Fatalf("element %d comes as %d", n, i)
			}
			n++
			walk(t, value)
		}
	case '"':
		var want string
		if json.Unmarshal(raw, &want) != nil || unquote(raw) != want {
			t.Fatalf("string %q", raw)
		}
	}
}

func TestAppendString(t *testing.T) {
	for _, s := range []string{"", "plain", "a\"b\\c\n\r\t\x00\x1f/", "é 日本語 👩‍👩‍👧", "bad \xff\xc3 end", "\xf0\x9f\x99", "<&>\u2028"} {
		var got string
		quoted := appendString(nil, s)
		if err := json.Unmarshal(quoted, &got); err != nil || got != strings.ToValidUTF8(s, "\ufffd") && got != string([]rune(s)) {
			t.Errorf("%q became %s: %q, %v", s, quoted, got, err)
		}
	}
}

func TestTokenText(t *testing.T) {
	for text, p := range map[string][]byte{"é": []byte("é"), "": nil, `bytes:\xf0\x9f`: {0xf0, 0x9f}} {
		if got := tokenText(p); got != text {
			t.Errorf("%q is %q, want %q", p, got, text)
		}
	}
}
