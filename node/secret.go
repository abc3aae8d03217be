package node

import (
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"tandem/kvstore/block"
)

// blockKeyInfo separates the key of block ids from all else that is made of the
// secret; docs/kv-format.md names it.
const blockKeyInfo = "tandem block key 1"

// clusterSecret is the secret of the cluster: given, in a file, or made by this
// node and kept in the data folder.
func clusterSecret(c Config) (string, error) {
	if c.Secret != "" {
		return c.Secret, nil
	}
	file := c.SecretFile
	if file == "" {
		file = filepath.Join(c.DataDir, "secret")
	}
	data, err := os.ReadFile(file)
	if errors.Is(err, os.ErrNotExist) && c.SecretFile == "" {
		data = []byte(rand.Text() + "\n")
		err = os.WriteFile(file, data, 0o600)
	}
	if err != nil {
		return "", fmt.Errorf("the cluster's secret: %w", err)
	}
	secret := strings.TrimSpace(string(data))
	if err := secretText(secret); err != nil {
		return "", fmt.Errorf("%s: the secret %w", file, err)
	}
	return secret, nil
}

// blockKey makes the key of block ids of a secret: HKDF-SHA256 without salt.
func blockKey(secret string) (block.Key, error) {
	raw, err := hkdf.Key(sha256.New, []byte(secret), nil, blockKeyInfo, len(block.Key{}))
	if err != nil {
		return block.Key{}, err
	}
	return block.Key(raw), nil
}
