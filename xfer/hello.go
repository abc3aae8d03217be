package xfer

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"time"

	"tandem/cluster/member"
)

// The versions of the wire format that this program speaks.
const (
	VersionMin = 1
	VersionMax = 2
)

// Versions is a range of wire versions, both ends included.
type Versions struct{ Min, Max uint16 }

func (v Versions) String() string {
	if v.Min == v.Max {
		return fmt.Sprintf("wire version %d", v.Min)
	}
	return fmt.Sprintf("wire versions %d to %d", v.Min, v.Max)
}

// common is the highest version in both ranges.
func (v Versions) common(w Versions) (uint16, bool) {
	high := min(v.Max, w.Max)
	return high, high >= max(v.Min, w.Min)
}

// helloMagic begins every hello, of every version.
const helloMagic = "tndm"

// hello is what each side says first. Its fields keep their places in all versions;
// later ones come behind.
type hello struct {
	Versions Versions
	Cluster  string
	Node     member.ID
	Program  string
	Instance uint64        // drawn when the link was made: tells restarts apart
	Stamp    uint64        // of the dialler: ranks connections, the same on both sides
	Streams  uint32        // that the sender accepts at once
	Idle     time.Duration // after which the sender gives up a silent peer
	Lane     lane          // of the dialler; hellos of version 1 end before it
}

func appendHello(b []byte, h hello) []byte {
	b = append(b, helloMagic...)
	b = binary.BigEndian.AppendUint16(b, h.Versions.Min)
	b = binary.BigEndian.AppendUint16(b, h.Versions.Max)
	b = binary.BigEndian.AppendUint64(b, h.Instance)
	b = binary.BigEndian.AppendUint64(b, h.Stamp)
	b = binary.BigEndian.AppendUint32(b, h.Streams)
	b = binary.BigEndian.AppendUint32(b, uint32(min(h.Idle.Milliseconds(), math.MaxUint32)))
	for _, s := range []string{clip(h.Cluster, clusterBytesMax), string(h.Node), clip(h.Program, programBytesMax)} {
		b = append(b, byte(len(s)))
		b = append(b, s...)
	}
	return append(b, byte(h.Lane))
}

func readHello(r *reader) hello {
	var h hello
	if len(r.b) > helloBytesMax {
		r.fault = "a hello is too long"
		return h
	}
	if magic := r.take(len(helloMagic)); r.fault == "" && string(magic) != helloMagic {
		r.fault = "a hello of another protocol"
		return h
	}
	h.Versions = Versions{r.uint16(), r.uint16()}
	h.Instance, h.Stamp, h.Streams = r.uint64(), r.uint64(), r.uint32()
	h.Idle = time.Duration(r.uint32()) * time.Millisecond
	h.Cluster = r.text(int(r.uint8()), clusterBytesMax, "the cluster")
	node := r.text(int(r.uint8()), 2*16, "the node id")
	h.Program = r.text(int(r.uint8()), programBytesMax, "the program version")
	if len(r.b) > 0 {
		h.Lane = lane(r.uint8())
	}
	if r.fault != "" {
		return hello{}
	}
	id, err := member.ParseID(node)
	switch {
	case err != nil:
		r.fault = err.Error()
	case h.Versions.Min == 0 || h.Versions.Min > h.Versions.Max:
		r.fault = fmt.Sprintf("wire versions %d to %d", h.Versions.Min, h.Versions.Max)
	case h.Streams == 0:
		r.fault = "no stream is accepted"
	case h.Lane > lanesMax:
		r.fault = fmt.Sprintf("lane %d; at most %d", h.Lane, lanesMax)
	case h.Idle < idleMin:
		r.fault = fmt.Sprintf("an idle time of %v; at least %v", h.Idle, idleMin)
	}
	h.Node = id
	return h
}

// idleMin keeps a peer from making us ping without a pause.
const idleMin = 100 * time.Millisecond

// header is how a stream begins.
type header struct {
	Service string
	Within  time.Duration // until the opener gives up; 0: it does not say
}

func appendHeader(b []byte, h header) []byte {
	start := len(b)
	b = append(b, 0, 0, byte(len(h.Service)))
	b = append(b, h.Service...)
	var ms uint32
	if h.Within > 0 {
		ms = uint32(min(max(h.Within.Milliseconds(), 1), math.MaxUint32))
	}
	b = binary.BigEndian.AppendUint32(b, ms)
	binary.BigEndian.PutUint16(b[start:], uint16(len(b)-start-2))
	return b
}

// readHeader reads the header of a stream and not one byte more.
func readHeader(r io.Reader) (header, error) {
	var head [2]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return header{}, err
	}
	length := binary.BigEndian.Uint16(head[:])
	if length > headerBytesMax {
		return header{}, protocolErrorf("the header of a stream has %d bytes; at most %d are allowed", length, headerBytesMax)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return header{}, err
	}
	f := reader{b: payload}
	h := header{Service: f.text(int(f.uint8()), serviceBytesMax, "the service")}
	h.Within = time.Duration(f.uint32()) * time.Millisecond
	if f.fault == "" && !validService(h.Service) {
		f.fault = fmt.Sprintf("service %q: 1 to %d characters a-z, 0-9, '-', '.', '/'", h.Service, serviceBytesMax)
	}
	if f.fault != "" {
		return header{}, protocolErrorf("the header of a stream: %s", f.fault)
	}
	return h, nil
}

func validService(name string) bool {
	if name == "" || len(name) > serviceBytesMax {
		return false
	}
	for _, c := range []byte(name) {
		if (c < 'a' || c > 'z') && (c < '0' || c > '9') && c != '-' && c != '.' && c != '/' {
			return false
		}
	}
	return true
}
