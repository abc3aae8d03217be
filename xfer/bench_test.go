package xfer

import (
	"context"
	"io"
	"testing"
	"time"
)

func benchLinks(b *testing.B, kind Transport) (from, to *Link) {
	book := &addressBook{}
	tcpOnly := func(c *Config) {
		c.TCPOnly, c.Timings = kind == TCP, Timings{}
		c.Handlers = map[string]Handler{"echo": echoMessages, "sink": func(ctx context.Context, s *Stream) error {
			buf := make([]byte, 256<<10)
			for {
				if _, err := s.Read(buf); err != nil {
					_, err = s.Write([]byte{1})
					return err
				}
			}
		}}
	}
	from = startLink(b, 1, book, tcpOnly)
	if kind == Loop {
		return from, from
	}
	return from, startLink(b, 2, book, tcpOnly)
}

func benchTransports(b *testing.B, bench func(b *testing.B, from, to *Link)) {
	for _, kind := range []Transport{QUIC, TCP, Loop} {
		b.Run(string(kind), func(b *testing.B) {
			from, to := benchLinks(b, kind)
			bench(b, from, to)
		})
	}
}

// BenchmarkCall is a request of 100 bytes and its answer on a stream of their own.
func BenchmarkCall(b *testing.B) {
	benchTransports(b, func(b *testing.B, from, to *Link) {
		message := make([]byte, 100)
		for b.Loop() {
			s, err := from.Open(context.Background(), to.cfg.Self, "echo")
			if err != nil {
				b.Fatal(err)
			}
			WriteMessage(s, message)
			s.CloseWrite()
			if _, err := ReadMessage(s, 100); err != nil {
				b.Fatal(err)
			}
			if _, err := s.Read(message); err != io.EOF {
				b.Fatal(err)
			}
			s.Close()
		}
	})
}

// BenchmarkMessage is a message of 100 bytes there and back on an open stream.
func BenchmarkMessage(b *testing.B) {
	benchTransports(b, func(b *testing.B, from, to *Link) {
		s, err := from.Open(context.Background(), to.cfg.Self, "echo")
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		message := make([]byte, 100)
		for b.Loop() {
			WriteMessage(s, message)
			if _, err := ReadMessage(s, 100); err != nil {
				b.Fatal(err)
			}
		}
	})
}

// BenchmarkStream is one stream in one direction.
func BenchmarkStream(b *testing.B) {
	benchTransports(b, func(b *testing.B, from, to *Link) {
		s, err := from.Open(context.Background(), to.cfg.Self, "sink")
		if err != nil {
			b.Fatal(err)
		}
		defer s.Close()
		s.SetDeadline(time.Now().Add(time.Minute))
		piece := make([]byte, 1<<20)
		b.SetBytes(int64(len(piece)))
		for b.Loop() {
			if _, err := s.Write(piece); err != nil {
				b.Fatal(err)
			}
		}
		s.CloseWrite()
		if _, err := io.ReadFull(s, piece[:1]); err != nil {
			b.Fatal(err)
		}
	})
}
