package grammar

import (
	"encoding/json"
	"testing"
)

func BenchmarkFromSchema(b *testing.B) {
	for _, s := range []struct{ name, schema string }{
		{"any", `true`},
		{"tool", `{"type":"object","properties":{"path":{"type":"string"},"n":{"type":"integer"}},"required":["path"]}`},
		{"tree", `{"$ref":"#/$defs/N","$defs":{"N":{"type":"object","properties":{"v":{"type":"integer"},"kids":{"type":"array","items":{"$ref":"#/$defs/N"}}},"required":["v"]}}}`},
		{"formats", `{"properties":{"a":{"format":"date-time"},"b":{"format":"email"},"c":{"format":"ipv6"}},"additionalProperties":{"minimum":0,"maximum":1}}`},
		{"long string", `{"maxLength":60000}`},
	} {
		b.Run(s.name, func(b *testing.B) {
			size := 0
			for b.Loop() {
				gbnf, err := FromSchema(json.RawMessage(s.schema))
				if err != nil {
					b.Fatal(err)
				}
				size = len(gbnf)
			}
			b.ReportMetric(float64(size), "bytes")
		})
	}
}
