package xfer

import "time"

// Limits on what the other side may send or keep here. Whoever sends more is cut
// off: the members of a cluster know these numbers.
const (
	helloBytesMax   = 1024 // a hello with all its names and room for later fields
	headerBytesMax  = 512  // the header of a stream
	serviceBytesMax = 64   // the name of a service
	clusterBytesMax = 64   // the fingerprint of a cluster
	programBytesMax = 64   // the version of a program
	textBytesMax    = 512  // a reason; fits in one packet with what is around it
	pingBytes       = 1500 // a keep-alive is more than one packet of any size that QUIC uses
	frameBytesMax   = 4096 // one control frame; what is unknown is skipped up to this

	// StreamsMax is how many streams a node has open to one peer on one connection;
	// whoever opens more waits.
	StreamsMax = 256
	// acceptMax is how many streams of a peer may be here at once. It is twice what
	// the peer may open, as handlers need a moment to end after their stream.
	acceptMax = 2 * StreamsMax
	// StreamBufferMax is how many bytes of a stream that nobody reads are held.
	StreamBufferMax = 256 << 10
	// ConnBufferMax is how many bytes of all streams of a connection that nobody
	// reads are held: no slow reader may take what others need.
	ConnBufferMax = (acceptMax + 1) * StreamBufferMax

	earlyMax     = acceptMax     // ends of streams that have not arrived yet
	workMax      = 4 * acceptMax // control frames that wait to be written
	connsMax     = 8             // connections of one peer
	bulkConnsMax = 2 * lanesMax  // connections for data that one peer dials
	// bulkStreamsMax is how many streams are open on a connection for data: as many as
	// the pulls that a node serves. Those of TCP hold 256 MiB if nobody reads them.
	bulkStreamsMax = PullsMax
	helloMax       = 64 // connections that have not said hello yet
	addressesMax   = 16 // addresses of a peer that are tried
	// writeChunkMax is how many bytes of one stream are written before others have
	// their turn: two TLS records with the head of a yamux frame.
	writeChunkMax  = 32<<10 - muxHeadBytes
	messageInitMax = 64 << 10 // of a message before its bytes have come
)

// Timings are the durations of a link. A zero takes the default.
type Timings struct {
	QUIC      time.Duration // for a QUIC connection with its hello, all addresses together; 3 s. Then TCP is tried
	TCP       time.Duration // for a TCP connection with its hello; 3 s
	Retry     time.Duration // between attempts to get from TCP back to QUIC; 1 min
	KeepAlive time.Duration // between pings; 1 s; at most a third of DeadAfter is used
	DeadAfter time.Duration // a ping without an answer for this long ends the connection; 3.5 s; the smaller of both sides counts
	Suspect   time.Duration // a ping without an answer for this long: new streams take another connection; 1.5 s
	Open      time.Duration // for Open altogether, if its context gives more; 10 s
	Header    time.Duration // for the header of a stream that a peer opened, and for what explains an end; 5 s
	Retire    time.Duration // until a connection that is not preferred and has no streams is closed; 10 s
	// RetireBulk is until a connection for data without streams is closed; 15 min, more
	// than between two measurements of the way.
	RetireBulk time.Duration
	// RetryBulk is for how long a transport that gave no connection for data is not
	// tried again; 10 s, a multiple of what an attempt takes. A new connection for
	// control ends it sooner.
	RetryBulk time.Duration
}

func (t Timings) withDefaults() Timings {
	for _, d := range []struct {
		of      *time.Duration
		standby time.Duration
	}{
		{&t.QUIC, 3 * time.Second}, {&t.TCP, 3 * time.Second}, {&t.Retry, time.Minute},
		{&t.KeepAlive, time.Second}, {&t.DeadAfter, 3500 * time.Millisecond}, {&t.Suspect, 1500 * time.Millisecond},
		{&t.Open, 10 * time.Second}, {&t.Header, 5 * time.Second}, {&t.Retire, 10 * time.Second}, {&t.RetireBulk, 15 * time.Minute},
		{&t.RetryBulk, 10 * time.Second},
	} {
		if *d.of <= 0 {
			*d.of = d.standby
		}
	}
	return t
}
