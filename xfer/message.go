package xfer

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
)

// MessageMax is the longest message that WriteMessage takes.
const MessageMax = 64 << 20

// WriteMessage writes one message: its length in four bytes, big-endian, and its
// bytes, in one Write.
func WriteMessage(w io.Writer, message []byte) error {
	if len(message) > MessageMax {
		return &MessageTooLongError{Bytes: len(message), Limit: MessageMax}
	}
	framed := make([]byte, 4+len(message))
	binary.BigEndian.PutUint32(framed, uint32(len(message)))
	copy(framed[4:], message)
	_, err := w.Write(framed)
	return err
}

// ReadMessage reads one message of at most limit bytes; the slice is the caller's.
// At the end of the stream it returns io.EOF, in the middle of a message
// io.ErrUnexpectedEOF. It allocates in step with the bytes that come, not with
// those that were announced.
func ReadMessage(r io.Reader, limit int) ([]byte, error) {
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return nil, err
	}
	length := binary.BigEndian.Uint32(head[:])
	if uint64(length) > uint64(max(limit, 0)) {
		return nil, &MessageTooLongError{Bytes: int(length), Limit: limit}
	}
	if length <= messageInitMax {
		message := make([]byte, length)
		if _, err := io.ReadFull(r, message); err != nil {
			return nil, inMessage(err, length)
		}
		return message, nil
	}
	var message bytes.Buffer
	message.Grow(messageInitMax)
	if _, err := io.CopyN(&message, r, int64(length)); err != nil {
		return nil, inMessage(err, length)
	}
	return message.Bytes(), nil
}

func inMessage(err error, length uint32) error {
	if err == io.EOF {
		err = io.ErrUnexpectedEOF
	}
	return fmt.Errorf("within a message of %d bytes: %w", length, err)
}
