package xfer

import (
	"bytes"
	"encoding/hex"
	"errors"
	"io"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"
	"time"
)

func TestMessages(t *testing.T) {
	var b bytes.Buffer
	long := bytes.Repeat([]byte("k"), 3*messageInitMax)
	for _, m := range [][]byte{{}, []byte("one"), long} {
		if err := WriteMessage(&b, m); err != nil {
			t.Fatal(err)
		}
	}
	whole := bytes.Clone(b.Bytes())
	for _, want := range [][]byte{{}, []byte("one"), long} {
		got, err := ReadMessage(&b, len(long))
		if err != nil || !bytes.Equal(got, want) {
			t.Fatalf("%d bytes, want %d: %v", len(got), len(want), err)
		}
	}
	if _, err := ReadMessage(&b, 10); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
	for _, cut := range []int{2, 6, len(whole) - 1} {
		r := bytes.NewReader(whole[:cut])
		var err error
		for err == nil {
			_, err = ReadMessage(r, len(long))
		}
		if !errors.Is(err, io.ErrUnexpectedEOF) {
			t.Errorf("cut at %d: %v", cut, err)
		}
	}
	var tooLong *MessageTooLongError
	if _, err := ReadMessage(bytes.NewReader([]byte{0, 0, 1, 0}), 255); !errors.As(err, &tooLong) || tooLong.Bytes != 256 || tooLong.Limit != 255 {
		t.Errorf("too long to read: %v", err)
	}
	if err := WriteMessage(io.Discard, make([]byte, MessageMax+1)); !errors.As(err, &tooLong) {
		t.Errorf("too long to write: %v", err)
	}
	// A length alone must not take memory.
	before := testing.AllocsPerRun(10, func() {})
	allocated := testing.Benchmark(func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			ReadMessage(bytes.NewReader([]byte{3, 0, 0, 0, 1}), MessageMax)
		}
	}).AllocedBytesPerOp()
	if allocated > 4*messageInitMax {
		t.Errorf("%d bytes for a length of 48 MiB (%v)", allocated, before)
	}
}

var sampleFrames = []frame{
	{Type: frameHello, Hello: hello{Versions: Versions{1, 2}, Cluster: "abc", Node: nodeID(1), Program: "0.4.0", Instance: 7, Stamp: 9, Streams: 256, Idle: 3500 * time.Millisecond}},
	{Type: frameHello, Hello: hello{Versions: Versions{2, 2}, Cluster: "abc", Node: nodeID(1), Program: "0.4.0", Instance: 7, Stamp: 9, Streams: bulkStreamsMax, Idle: 3500 * time.Millisecond, Lane: lanesMax}},
	{Type: frameRefuse, Code: CodeVersion, Text: "no"},
	{Type: framePing, Nonce: 1 << 60, Pad: 30},
	{Type: framePong, Nonce: 3},
	{Type: frameFinish, Stream: 8, Size: 1 << 40, Stops: true, Code: CodeFailed, Text: "disk"},
	{Type: frameFinish, Stream: 8, Size: 12},
	{Type: frameCancel, Stream: 5, Code: CodeCancelled, Text: "é"},
	{Type: frameBye, Code: CodeClosing},
}

func TestFrames(t *testing.T) {
	for _, f := range sampleFrames {
		b := appendFrame(nil, f)
		got, err := readFrame(bytes.NewReader(b))
		if err != nil || !reflect.DeepEqual(got, f) {
			t.Errorf("%+v became %+v, %v", f, got, err)
		}
		// Later versions append fields.
		longer := append(bytes.Clone(b), 1, 2, 3)
		longer[4] += 3
		if got, err := readFrame(bytes.NewReader(longer)); err != nil || got.Type != f.Type || got.Text != f.Text || got.Hello != f.Hello {
			t.Errorf("with later fields %+v became %+v, %v", f, got, err)
		}
	}
	// Version 1 ends before the lane.
	first := appendFrame(nil, sampleFrames[0])
	first = first[:len(first)-1]
	first[4]--
	if got, err := readFrame(bytes.NewReader(first)); err != nil || got.Hello != sampleFrames[0].Hello {
		t.Errorf("a hello without a lane: %+v, %v", got, err)
	}
	if f, err := readFrame(bytes.NewReader([]byte{200, 0, 0, 0, 2, 1, 2})); err != nil || f.Type != 200 {
		t.Errorf("an unknown frame: %+v, %v", f, err)
	}
	long := appendFrame(nil, frame{Type: frameCancel, Text: strings.Repeat("x", 10*textBytesMax)})
	if f, err := readFrame(bytes.NewReader(long)); err != nil || len(f.Text) != textBytesMax {
		t.Errorf("a long text: %d bytes, %v", len(f.Text), err)
	}
}

// The examples of docs/wire.md.
func TestWireExamples(t *testing.T) {
	page, err := os.ReadFile("../docs/wire.md")
	if err != nil {
		t.Fatal(err)
	}
	examples := map[string][]byte{
		"hello": appendFrame(nil, frame{Type: frameHello, Hello: hello{Versions: Versions{1, 1}, Instance: 1, Stamp: 2, Streams: 256,
			Idle: 3500 * time.Millisecond, Cluster: "c", Node: nodeID(1), Program: "v"}}),
		"hello for data": appendFrame(nil, frame{Type: frameHello, Hello: hello{Versions: Versions{2, 2}, Instance: 1, Stamp: 2, Streams: 64,
			Idle: 3500 * time.Millisecond, Cluster: "c", Node: nodeID(1), Program: "v", Lane: 3}}),
		"ping":   appendFrame(nil, frame{Type: framePing, Nonce: 7, Pad: 1}),
		"finish": appendFrame(nil, frame{Type: frameFinish, Stream: 4, Size: 300, Stops: true, Code: CodeFailed, Text: "no"}),
		"cancel": appendFrame(nil, frame{Type: frameCancel, Stream: 5, Code: CodeCancelled, Text: "bye"}),
		"header": appendHeader(nil, header{Service: "raft", Within: 1500 * time.Millisecond}),
	}
	for name, want := range examples {
		written := regexp.MustCompile("(?m)^- " + name + "\\b.*: `([0-9a-f ]+)`$").FindSubmatch(page)
		if written == nil {
			t.Errorf("%s: the page has no example", name)
			continue
		}
		if said := strings.ReplaceAll(string(written[1]), " ", ""); said != hex.EncodeToString(want) {
			t.Errorf("%s: the page says %s, the code %x", name, said, want)
		}
	}
}

func FuzzFrame(f *testing.F) {
	for _, s := range sampleFrames {
		f.Add(appendFrame(nil, s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		got, err := readFrame(bytes.NewReader(b))
		if err != nil {
			return
		}
		encoded := appendFrame(nil, got)
		again, err := readFrame(bytes.NewReader(encoded))
		if err != nil || !reflect.DeepEqual(again, got) {
			t.Fatalf("%+v became %+v, %v", got, again, err)
		}
	})
}

func FuzzHello(f *testing.F) {
	f.Add(appendHello(nil, sampleFrames[0].Hello))
	f.Add(appendHello(nil, sampleFrames[1].Hello))
	whole := appendHello(nil, sampleFrames[0].Hello)
	f.Add(whole[:len(whole)-1]) // as version 1 has it
	f.Fuzz(func(t *testing.T, b []byte) {
		r := reader{b: b}
		h := readHello(&r)
		if r.fault != "" {
			return
		}
		if len(h.Cluster) > clusterBytesMax || len(h.Program) > programBytesMax || h.Idle < idleMin || h.Versions.Min == 0 || h.Lane > lanesMax {
			t.Fatalf("%+v", h)
		}
		r = reader{b: appendHello(nil, h)}
		if again := readHello(&r); r.fault != "" || again != h {
			t.Fatalf("%+v became %+v, %s", h, again, r.fault)
		}
	})
}

func FuzzHeader(f *testing.F) {
	f.Add(appendHeader(nil, header{Service: "raft", Within: time.Second}))
	f.Fuzz(func(t *testing.T, b []byte) {
		r := bytes.NewReader(b)
		h, err := readHeader(r)
		if err != nil {
			return
		}
		if taken := len(b) - r.Len(); taken > headerBytesMax+2 {
			t.Fatalf("%d bytes were taken", taken)
		}
		again, err := readHeader(bytes.NewReader(appendHeader(nil, h)))
		if err != nil || again != h {
			t.Fatalf("%+v became %+v, %v", h, again, err)
		}
	})
}

func FuzzMessage(f *testing.F) {
	f.Add([]byte{0, 0, 0, 3, 'a', 'b', 'c'}, 10)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		m, err := ReadMessage(bytes.NewReader(b), limit)
		if err != nil {
			return
		}
		var out bytes.Buffer
		if err := WriteMessage(&out, m); err != nil || !bytes.HasPrefix(b, out.Bytes()) || len(m) > max(limit, 0) {
			t.Fatalf("%d bytes, limit %d, %v", len(m), limit, err)
		}
	})
}
