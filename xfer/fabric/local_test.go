package fabric

import (
	"bytes"
	"math"
	"reflect"
	"strings"
	"testing"
)

func exampleLocal() Local {
	return Local{Provider: "verbs;ofi_rxm", Protocol: "rxm", Format: 3, Name: []byte("\x02\x00\x1b\x58\x0a\x00\x00\x01"),
		Key: 0x1122334455667788, Base: 0x7f0000000000, Length: 64 << 20}
}

func TestLocalComesBack(t *testing.T) {
	longest := Local{Provider: strings.Repeat("p", providerBytesMax), Protocol: strings.Repeat("q", protocolBytesMax), Format: math.MaxUint32,
		Name: bytes.Repeat([]byte{0xff}, nameBytesMax), Key: math.MaxUint64, Base: math.MaxUint64 - math.MaxInt64, Length: math.MaxInt64}
	for _, want := range []Local{exampleLocal(), longest} {
		encoded, err := want.AppendBinary([]byte("before"))
		if err != nil {
			t.Fatal(err)
		}
		encoded = encoded[len("before"):]
		if len(encoded) > LocalBytesMax {
			t.Errorf("%d bytes, the most is %d", len(encoded), LocalBytesMax)
		}
		got, err := ParseLocal(encoded)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%+v, %v; want %+v", got, err, want)
		}
		for n := range encoded {
			if _, err := ParseLocal(encoded[:n]); err == nil {
				t.Errorf("the first %d of %d bytes pass", n, len(encoded))
			}
		}
		if _, err := ParseLocal(append(encoded, 0)); err == nil {
			t.Error("one byte more passes")
		}
	}
	if encoded, err := longest.AppendBinary(nil); err != nil || len(encoded) != LocalBytesMax {
		t.Errorf("the longest has %d bytes, not LocalBytesMax, %v", len(encoded), err)
	}
}

func TestLocalRefuses(t *testing.T) {
	for name, change := range map[string]func(*Local){
		"no provider":           func(l *Local) { l.Provider = "" },
		"a long provider":       func(l *Local) { l.Provider = strings.Repeat("x", providerBytesMax+1) },
		"a provider with a \\n": func(l *Local) { l.Provider = "tcp\n" },
		"no protocol":           func(l *Local) { l.Protocol = "" },
		"a long protocol":       func(l *Local) { l.Protocol = strings.Repeat("x", protocolBytesMax+1) },
		"no name":               func(l *Local) { l.Name = nil },
		"a long name":           func(l *Local) { l.Name = make([]byte, nameBytesMax+1) },
		"no region":             func(l *Local) { l.Length = 0 },
		"a region past the end": func(l *Local) { l.Base = math.MaxUint64 - l.Length + 1 },
		"a negative length":     func(l *Local) { l.Length, l.Base = 1<<63, 0 },
	} {
		t.Run(name, func(t *testing.T) {
			l := exampleLocal()
			change(&l)
			if b, err := l.AppendBinary(nil); err == nil || len(b) > 0 {
				t.Errorf("encoded as %x, %v", b, err)
			}
		})
	}
	good, err := exampleLocal().AppendBinary(nil)
	if err != nil {
		t.Fatal(err)
	}
	for name, change := range map[string]func([]byte) []byte{
		"another version":  func(b []byte) []byte { b[0]++; return b },
		"a space":          func(b []byte) []byte { b[2] = ' '; return b },
		"a long provider":  func(b []byte) []byte { b[1] = 255; return b },
		"a length of zero": func(b []byte) []byte { clear(b[len(b)-8:]); return b },
		"too many bytes":   func(b []byte) []byte { return append(b, make([]byte, LocalBytesMax)...) },
	} {
		t.Run(name, func(t *testing.T) {
			if l, err := ParseLocal(change(bytes.Clone(good))); err == nil {
				t.Errorf("parsed as %+v", l)
			}
		})
	}
}

// Whatever parses is encoded as it came: there is one encoding of each Local.
func FuzzParseLocal(f *testing.F) {
	good, err := exampleLocal().AppendBinary(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(good)
	f.Add(good[:len(good)-1])
	f.Add([]byte{localVersion, 0, 0})
	f.Fuzz(func(t *testing.T, b []byte) {
		l, err := ParseLocal(b)
		if err != nil {
			return
		}
		again, err := l.AppendBinary(nil)
		if err != nil || !bytes.Equal(again, b) {
			t.Errorf("%x became %+v, then %x, %v", b, l, again, err)
		}
	})
}

func TestSpeaks(t *testing.T) {
	for _, tt := range []struct {
		own, peer string // provider/protocol
		format    uint32
		want      bool
	}{
		{"net/xnet", "net/xnet", 0, true},
		{"net/xnet", "tcp/xnet", 0, true}, // 1.17 and later
		{"tcp/xnet", "net/xnet", 0, true},
		{"tcp;ofi_rxm/rxm", "tcp/xnet", 0, false},
		{"tcp;ofi_rxm/rxm", "verbs;ofi_rxm/rxm", 0, false},
		{"verbs;ofi_rxm/rxm", "verbs;ofi_rxm/rxm", 0, true},
		{"verbs;ofi_rxm/rxm", "verbs;ofi_rxm/xrc", 0, false},
		{"net/xnet", "net/xnet", 1, false},
	} {
		local := func(s string, format uint32) Local {
			provider, protocol, _ := strings.Cut(s, "/")
			return Local{Provider: provider, Protocol: protocol, Format: format}
		}
		if got := speaks(local(tt.own, 0), local(tt.peer, tt.format)); got != tt.want {
			t.Errorf("%s and %s (format %d): %v, want %v", tt.own, tt.peer, tt.format, got, tt.want)
		}
	}
}
