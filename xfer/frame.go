package xfer

import (
	"encoding/binary"
	"io"
)

// frameType tells what a control frame means. Unknown ones are skipped.
type frameType byte

const (
	frameHello  frameType = 1
	frameRefuse frameType = 2 // code, text: the connection is not wanted
	framePing   frameType = 3 // nonce, padding
	framePong   frameType = 4 // nonce
	frameFinish frameType = 5 // stream, size, flags, code, text: the sender's bytes end at size
	frameCancel frameType = 6 // stream, code, text: both directions end now
	frameBye    frameType = 7 // code, text: the connection ends now
)

const frameHeadBytes = 5 // type, length

// finishStops is the flag of a finish whose sender reads no more, either.
const finishStops = 1

// frame is a control frame, decoded; which fields count is up to the type.
type frame struct {
	Type   frameType
	Nonce  uint64
	Stream uint64
	Size   uint64
	Stops  bool
	Code   Code
	Text   string
	Pad    int   // bytes of padding of a ping
	Hello  hello // of a hello
}

// appendFrame appends the encoding of f.
func appendFrame(b []byte, f frame) []byte {
	start := len(b)
	b = append(b, byte(f.Type), 0, 0, 0, 0)
	switch f.Type {
	case frameHello:
		b = appendHello(b, f.Hello)
	case framePing, framePong:
		b = binary.BigEndian.AppendUint64(b, f.Nonce)
		b = append(b, make([]byte, f.Pad)...)
	case frameFinish:
		b = binary.BigEndian.AppendUint64(b, f.Stream)
		b = binary.BigEndian.AppendUint64(b, f.Size)
		var flags byte
		if f.Stops {
			flags = finishStops
		}
		b = append(b, flags)
		b = appendReason(b, f.Code, f.Text)
	case frameCancel:
		b = binary.BigEndian.AppendUint64(b, f.Stream)
		b = appendReason(b, f.Code, f.Text)
	case frameRefuse, frameBye:
		b = appendReason(b, f.Code, f.Text)
	}
	binary.BigEndian.PutUint32(b[start+1:], uint32(len(b)-start-frameHeadBytes))
	return b
}

func appendReason(b []byte, code Code, text string) []byte {
	text = clip(text, textBytesMax)
	b = binary.BigEndian.AppendUint16(b, uint16(code))
	b = binary.BigEndian.AppendUint16(b, uint16(len(text)))
	return append(b, text...)
}

// readFrame reads one control frame. A type that it does not know comes back with
// nothing but that type.
func readFrame(r io.Reader) (frame, error) {
	var head [frameHeadBytes]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return frame{}, err
	}
	length := binary.BigEndian.Uint32(head[1:])
	if length > frameBytesMax {
		return frame{}, protocolErrorf("a control frame of type %d with %d bytes; at most %d are allowed", head[0], length, frameBytesMax)
	}
	payload := make([]byte, length)
	if _, err := io.ReadFull(r, payload); err != nil {
		return frame{}, err
	}
	return parseFrame(frameType(head[0]), payload)
}

// parseFrame decodes the payload of a frame. Bytes after the known fields are left
// to later versions.
func parseFrame(kind frameType, payload []byte) (frame, error) {
	f := frame{Type: kind}
	r := reader{b: payload}
	switch kind {
	case frameHello:
		f.Hello = readHello(&r)
	case framePing, framePong:
		f.Nonce = r.uint64()
		f.Pad = len(r.b)
	case frameFinish:
		f.Stream, f.Size = r.uint64(), r.uint64()
		f.Stops = r.uint8()&finishStops != 0
		f.Code, f.Text = r.reason()
	case frameCancel:
		f.Stream = r.uint64()
		f.Code, f.Text = r.reason()
	case frameRefuse, frameBye:
		f.Code, f.Text = r.reason()
	}
	if r.fault != "" {
		return frame{}, protocolErrorf("a control frame of type %d with %d bytes: %s", kind, len(payload), r.fault)
	}
	return f, nil
}

// reader takes fields off the front of a payload. After the first fault it yields
// zeros.
type reader struct {
	b     []byte
	fault string
}

func (r *reader) take(n int) []byte {
	if r.fault != "" || len(r.b) < n {
		if r.fault == "" {
			r.fault = "it is too short"
		}
		return make([]byte, min(n, 8))
	}
	out := r.b[:n]
	r.b = r.b[n:]
	return out
}

func (r *reader) uint8() byte    { return r.take(1)[0] }
func (r *reader) uint16() uint16 { return binary.BigEndian.Uint16(r.take(2)) }
func (r *reader) uint32() uint32 { return binary.BigEndian.Uint32(r.take(4)) }
func (r *reader) uint64() uint64 { return binary.BigEndian.Uint64(r.take(8)) }

// text takes n bytes of text, of which there may be at most bytesMax.
func (r *reader) text(n, bytesMax int, what string) string {
	if n > bytesMax {
		if r.fault == "" {
			r.fault = what + " is too long"
		}
		return ""
	}
	b := r.take(n)
	if r.fault != "" {
		return ""
	}
	return clip(string(b), bytesMax)
}

func (r *reader) reason() (Code, string) {
	code := Code(r.uint16())
	return code, r.text(int(r.uint16()), textBytesMax, "its text")
}
