package block

// FingerprintMessage is what the fingerprint of t is the hash of.
func FingerprintMessage(t Traits) []byte { return t.appendFields(nil) }

// Finite is the fast scan.
func Finite(t Type, rows []byte) bool { return finite(t, rows) }
