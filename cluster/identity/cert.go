package identity

import (
	"bytes"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"fmt"
	"math/big"
	"net/url"
	"time"

	"tandem/cluster/member"
)

// How long certificates of nodes are good for. They begin before they are made, for
// nodes whose clocks are behind, and are replaced long before they end, for those whose
// clocks are ahead.
const (
	certBefore = 48 * time.Hour
	certAfter  = 7 * 24 * time.Hour
	certRenew  = certAfter / 2
)

// idScheme begins the URI that names a node in its certificate.
const idScheme = "tandem"

// authority is the certificate authority of a secret. It is the same, byte for byte,
// wherever it is derived.
type authority struct {
	key  ed25519.PrivateKey
	cert *x509.Certificate
}

// newAuthority makes the authority. Its dates say nothing: who has the secret has it
// for ever.
func newAuthority(seed [32]byte, id KeyID) (authority, error) {
	key := ed25519.NewKeyFromSeed(seed[:])
	template := &x509.Certificate{
		SerialNumber:          big.NewInt(1),
		Subject:               pkix.Name{CommonName: "tandem cluster " + id.String()},
		NotBefore:             time.Unix(0, 0).UTC(),
		NotAfter:              time.Date(9999, 12, 31, 23, 59, 59, 0, time.UTC),
		IsCA:                  true,
		BasicConstraintsValid: true,
		MaxPathLenZero:        true,
		KeyUsage:              x509.KeyUsageCertSign,
	}
	der, err := x509.CreateCertificate(rand.Reader, template, template, key.Public(), key)
	if err != nil {
		return authority{}, fmt.Errorf("make the certificate authority: %w", err)
	}
	cert, err := x509.ParseCertificate(der)
	return authority{key: key, cert: cert}, err
}

// minted is a certificate of this node and when it was made, by the wall clock.
type minted struct {
	cert *tls.Certificate
	at   time.Time
}

// certificate is this node's certificate by secret n, made anew when the old one has
// lived half of its time or was made on a day that has not come yet.
func (i *Identity) certificate(n int) (*tls.Certificate, error) {
	now := i.now().Round(0) // the wall clock: what others will check it with
	i.mu.Lock()
	defer i.mu.Unlock()
	have := i.certs[n]
	if age := now.Sub(have.at); have.cert != nil && age < certRenew && age > -certBefore/2 {
		return have.cert, nil
	}
	cert, err := i.mint(i.secrets[n].ca, now)
	if err != nil {
		return nil, err
	}
	i.certs[n] = minted{cert: cert, at: now}
	return cert, nil
}

func (i *Identity) mint(ca authority, now time.Time) (*tls.Certificate, error) {
	public, private, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return nil, fmt.Errorf("make a node certificate: %w", err)
	}
	serial, err := rand.Int(rand.Reader, new(big.Int).Lsh(big.NewInt(1), 120))
	if err != nil {
		return nil, fmt.Errorf("make a node certificate: %w", err)
	}
	template := &x509.Certificate{
		SerialNumber: serial,
		Subject:      pkix.Name{CommonName: string(i.self)},
		URIs:         []*url.URL{{Scheme: idScheme, Host: string(i.self)}},
		NotBefore:    now.Add(-certBefore),
		NotAfter:     now.Add(certAfter),
		KeyUsage:     x509.KeyUsageDigitalSignature,
		ExtKeyUsage:  []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth, x509.ExtKeyUsageServerAuth},
	}
	der, err := x509.CreateCertificate(rand.Reader, template, ca.cert, public, ca.key)
	if err != nil {
		return nil, fmt.Errorf("make a node certificate: %w", err)
	}
	leaf, err := x509.ParseCertificate(der)
	if err != nil {
		return nil, fmt.Errorf("make a node certificate: %w", err)
	}
	return &tls.Certificate{Certificate: [][]byte{der}, PrivateKey: private, Leaf: leaf}, nil
}

// nodeID is the id that a certificate names.
func nodeID(cert *x509.Certificate) (member.ID, error) {
	if len(cert.URIs) != 1 || cert.URIs[0].Scheme != idScheme {
		return "", fmt.Errorf("the certificate of the other side names no node")
	}
	return member.ParseID(cert.URIs[0].Host)
}

// acceptable tells whether secret n is behind one of the authorities that the other
// side accepts.
func (i *Identity) acceptable(n int, authorities [][]byte) bool {
	for _, subject := range authorities {
		if bytes.Equal(subject, i.secrets[n].ca.cert.RawSubject) {
			return true
		}
	}
	return false
}
