package identity

import (
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"strings"
	"time"

	"tandem/cluster/member"
)

// Why the other side of a connection is not accepted.
var (
	ErrWrongSecret = errors.New("another cluster secret")
	ErrClock       = errors.New("clocks too far apart")
	ErrWrongNode   = errors.New("another node")
)

// refusal is a sentence for people with one of the errors above for programs.
type refusal struct {
	text string
	kind error
}

func (r *refusal) Error() string { return r.text }
func (r *refusal) Unwrap() error { return r.kind }

// serverNameTail ends the server name, in which a client lists the ids of the secrets
// that it knows.
const serverNameTail = ".tandem"

// ServerTLS is for the side that accepts: TLS 1.3, and a certificate of this cluster
// from the other side. The protocol (ALPN) is set by the caller on a clone.
func (i *Identity) ServerTLS() *tls.Config {
	authorities := x509.NewCertPool()
	for _, k := range i.secrets {
		authorities.AddCert(k.ca.cert)
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ClientAuth:             tls.RequireAnyClientCert, // checked by VerifyConnection, which says why
		ClientCAs:              authorities,              // tells clients which secrets are known
		SessionTicketsDisabled: true,
		GetCertificate: func(hello *tls.ClientHelloInfo) (*tls.Certificate, error) {
			return i.certificate(i.knownTo(hello.ServerName))
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			_, err := i.verify(s)
			return err
		},
	}
}

// ClientTLS is for the side that dials. With an id, only that node is accepted; ""
// accepts any member.
func (i *Identity) ClientTLS(want member.ID) *tls.Config {
	labels := make([]string, len(i.secrets))
	for n, k := range i.secrets {
		labels[n] = k.id.String()
	}
	return &tls.Config{
		MinVersion:             tls.VersionTLS13,
		ServerName:             strings.Join(labels, ".") + serverNameTail,
		SessionTicketsDisabled: true,
		// Names are not what is checked: VerifyConnection pins the authority and the id.
		InsecureSkipVerify: true,
		GetClientCertificate: func(r *tls.CertificateRequestInfo) (*tls.Certificate, error) {
			for n := range i.secrets {
				if i.acceptable(n, r.AcceptableCAs) {
					return i.certificate(n)
				}
			}
			return i.certificate(0)
		},
		VerifyConnection: func(s tls.ConnectionState) error {
			id, err := i.verify(s)
			if err != nil {
				return err
			}
			if want != "" && id != want {
				return &refusal{fmt.Sprintf("the node there is %s, not %s: it has moved, or two addresses are mixed up", id.Short(), want.Short()), ErrWrongNode}
			}
			return nil
		},
	}
}

// PeerID is the id of the other side of an established connection.
func PeerID(s tls.ConnectionState) (member.ID, error) {
	if len(s.PeerCertificates) == 0 {
		return "", errors.New("the other side showed no certificate")
	}
	return nodeID(s.PeerCertificates[0])
}

// knownTo is the first of this node's secrets that a client says it knows. Where there
// is none, the client is shown the certificate in use and finds out by itself.
func (i *Identity) knownTo(serverName string) int {
	labels := strings.Split(strings.TrimSuffix(serverName, serverNameTail), ".")
	for n, k := range i.secrets {
		for _, l := range labels {
			if l == k.id.String() {
				return n
			}
		}
	}
	return 0
}

// verify checks the certificate of the other side and returns the id in it.
func (i *Identity) verify(s tls.ConnectionState) (member.ID, error) {
	id, err := PeerID(s)
	if err != nil {
		return "", err
	}
	cert, now := s.PeerCertificates[0], i.now()
	made := false
	for _, k := range i.secrets {
		made = made || cert.CheckSignatureFrom(k.ca.cert) == nil
	}
	if !made {
		return "", &refusal{fmt.Sprintf("the certificate of the other side (%s) was made with another cluster secret than the one of this node (key %s): start both with the same secret", id.Short(), i.ClusterKeyID()), ErrWrongSecret}
	}
	if now.Before(cert.NotBefore) || now.After(cert.NotAfter) {
		return "", &refusal{fmt.Sprintf("the clock of %s is too far from this node's (its certificate is good from %s to %s, here it is %s): set both clocks, best with NTP",
			id.Short(), cert.NotBefore.Format(time.RFC3339), cert.NotAfter.Format(time.RFC3339), now.UTC().Format(time.RFC3339)), ErrClock}
	}
	return id, i.usable(cert)
}

// usable checks that a certificate may be used for what it was shown for, by the rules
// of package x509; signature and time have been checked before, for their sentences.
func (i *Identity) usable(cert *x509.Certificate) error {
	roots := x509.NewCertPool()
	for _, k := range i.secrets {
		roots.AddCert(k.ca.cert)
	}
	_, err := cert.Verify(x509.VerifyOptions{
		Roots:       roots,
		CurrentTime: i.now(),
		KeyUsages:   []x509.ExtKeyUsage{x509.ExtKeyUsageClientAuth},
	})
	if err != nil {
		return fmt.Errorf("the certificate of the other side cannot be used: %w", err)
	}
	return nil
}

// Explain makes a sentence of a failed handshake in which the other side refused this
// node: what arrives then is only an alert.
func Explain(err error) error {
	if err == nil || !strings.Contains(err.Error(), "tls: bad certificate") {
		return err
	}
	return fmt.Errorf("the other side refused this node's certificate: it has another cluster secret, a clock that is far off, or expected another node here (%w)", err)
}
