package block

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/zeebo/blake3"
)

// Token is a token id of the model's vocabulary.
type Token = int32

// Key is the secret of a node or a cluster that makes IDs: 32 random bytes. With
// it a prompt can be guessed and tested against IDs; without it IDs say nothing.
// It prints as "secret" whatever the verb.
type Key [32]byte

// Format writes "secret".
func (k Key) Format(s fmt.State, _ rune) { io.WriteString(s, "secret") }

// MarshalText writes "secret", so that logs cannot hold the key. To keep a key,
// write its bytes.
func (k Key) MarshalText() ([]byte, error) { return []byte("secret"), nil }

// Tags of the fields of a root and of a block's ID.
const (
	tagRootFingerprint = 1
	tagRootTenant      = 2

	tagParent = 1
	tagTokens = 2
)

// Root is the parent of the first blocks of all prompts under f that tenant
// sends. Tenant is the salt that keeps the blocks of API keys apart; it may be
// empty.
func (k Key) Root(f Fingerprint, tenant string) ID {
	h := k.hasher()
	defer h.release()
	h.message = appendString(h.message[:0], tagPurpose, purposeRoot)
	h.message = appendBytes(h.message, tagRootFingerprint, f[:])
	h.message = appendString(h.message, tagRootTenant, tenant)
	return h.id()
}

// Next is the ID of the block that holds tokens and follows parent, which is
// another block or a root.
func (k Key) Next(parent ID, tokens []Token) ID {
	h := k.hasher()
	defer h.release()
	h.setBlock(parent, tokens)
	return h.id()
}

// Chain returns the IDs of all full blocks of size tokens that follow root; what is
// left over at the end has none. It is nil if there are no full blocks, or if size
// is below 1. It allocates only what it returns.
func (k Key) Chain(root ID, tokens []Token, size int) []ID {
	if size < 1 || len(tokens) < size {
		return nil
	}
	h := k.hasher()
	defer h.release()
	ids := make([]ID, 0, len(tokens)/size)
	for parent := root; len(tokens) >= size; tokens = tokens[size:] {
		h.setBlock(parent, tokens[:size])
		parent = h.id()
		ids = append(ids, parent)
	}
	return ids
}

// Verify checks that the header's ID is the one that its parent and tokens make.
// It cannot tell whether the parent's own ID was made honestly: follow the chain
// from the root for that. The error matches ErrInvalid.
func (k Key) Verify(h Header) error {
	if want := k.Next(h.Parent, h.Tokens); h.ID != want {
		return fmt.Errorf("%w: id is %v; its parent and tokens make %v", ErrInvalid, h.ID, want)
	}
	return nil
}

// hasher makes IDs under one key. It is used again, as its state is some 11 KB.
type hasher struct {
	key     Key
	blake   *blake3.Hasher
	message []byte    // what is hashed
	room    [512]byte // where message begins its life: enough for blocks of 64
	sum     [32]byte  // what comes out
}

// hashers keeps hashers between uses. Nearly always they all have the same key.
var hashers sync.Pool

// messageBytesMax is the longest buffer that is kept: some 4,000 tokens.
const messageBytesMax = 16 << 10

// hasher returns one that is the caller's until release.
func (k Key) hasher() *hasher {
	if h, ok := hashers.Get().(*hasher); ok && h.key == k {
		return h
	}
	blake, err := blake3.NewKeyed(k[:])
	if err != nil {
		panic(err) // a Key has the length that NewKeyed wants
	}
	h := &hasher{key: k, blake: blake}
	h.message = h.room[:0]
	return h
}

func (h *hasher) release() {
	if cap(h.message) <= messageBytesMax {
		hashers.Put(h)
	}
}

// setBlock makes the message for the ID of a block.
func (h *hasher) setBlock(parent ID, tokens []Token) {
	b := appendString(h.message[:0], tagPurpose, purposeBlock)
	b = appendBytes(b, tagParent, parent[:])
	b = appendFieldHead(b, tagTokens, 4*len(tokens))
	for _, t := range tokens {
		b = binary.LittleEndian.AppendUint32(b, uint32(t))
	}
	h.message = b
}

// id is the first half of the 32 bytes that the message's hash has.
func (h *hasher) id() ID {
	h.blake.Reset()
	h.blake.Write(h.message)
	return ID(h.blake.Sum(h.sum[:0])[:len(ID{})])
}
