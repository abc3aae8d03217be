//go:build fabric && linux && cgo

package fabric

import "testing"

// BenchmarkRead reads 64 MiB at a time, in pieces of 1 MiB, from a second process.
// cpu-s/GB counts the processor time of both.
func BenchmarkRead(b *testing.B) {
	const size = 64 << 20
	for _, provider := range testProviders(b) {
		b.Run(provider, func(b *testing.B) {
			h := startHolder(b, provider, size)
			e := openEndpoint(b, provider, size)
			p := connect(b, e, h.local)
			ops := []Op{{Local: e.region}}
			mustRead(b, p, ops...)
			own, theirs := cpuTime(), h.cpu(b)
			b.ResetTimer()
			for b.Loop() {
				if err := p.Read(b.Context(), ops); err != nil {
					b.Fatal(err)
				}
			}
			b.StopTimer()
			gb := float64(b.N) * size / 1e9
			own, theirs = cpuTime()-own, h.cpu(b)-theirs
			b.ReportMetric(gb/b.Elapsed().Seconds(), "GB/s")
			b.ReportMetric((own+theirs).Seconds()/gb, "cpu-s/GB")
			b.ReportMetric(theirs.Seconds()/gb, "holder-cpu-s/GB")
		})
	}
}
