package node

import (
	"crypto/rand"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

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
