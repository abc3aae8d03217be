package identity

import (
	"encoding/hex"
	"errors"
	"fmt"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"crypto/tls"

	"tandem/cluster/member"
)

const (
	secretA = "correct horse battery staple"
	secretB = "another secret of that length"

	node1 = member.ID("11111111111111111111111111111111")
	node2 = member.ID("22222222222222222222222222222222")
	node3 = member.ID("33333333333333333333333333333333")
)

func mustNew(t *testing.T, secret string, self member.ID, more ...string) *Identity {
	t.Helper()
	id, err := New(secret, self, more...)
	if err != nil {
		t.Fatal(err)
	}
	return id
}

// The keys are stored (block ids) and spoken (gossip): they may never change. The
// values come of HKDF written in another language.
func TestKeysAreGolden(t *testing.T) {
	id := mustNew(t, secretA, node1)
	block, gossip := id.BlockKey(), id.GossipKey()
	for _, tt := range []struct{ name, got, want string }{
		{"block key", hex.EncodeToString(block[:]), "fe7ed4eda4469b1017b5be9b5bbe1f7750e057c52d9e9cd76c05e6fe0a52fd01"},
		{"gossip key", hex.EncodeToString(gossip[:]), "040d5802c9043ca5f8bad5708d0dda60821b30a01952db88efb4c6b078e0f8be"},
		{"hello key", hex.EncodeToString(id.secrets[0].hello[:]), "5d051e2c0032fcc0b92c9ce4d8869e314af0115da29e867f8df88af098aaff6e"},
		{"key id", hex.EncodeToString(id.KeyIDs()[0][:]), "9b593baf6ea6f589366a"},
		{"key id in words", id.ClusterKeyID(), "tnmtxl3ou32ysntk"},
	} {
		if tt.got != tt.want {
			t.Errorf("%s = %s, want %s", tt.name, tt.got, tt.want)
		}
	}
}

func TestEveryHolderDerivesTheSameAuthority(t *testing.T) {
	a, b := mustNew(t, secretA, node1), mustNew(t, secretA, node2)
	if !a.secrets[0].ca.cert.Equal(b.secrets[0].ca.cert) {
		t.Error("two nodes of one secret have two authorities")
	}
	if other := mustNew(t, secretB, node1); a.ClusterKeyID() == other.ClusterKeyID() || other.secrets[0].ca.cert.Equal(a.secrets[0].ca.cert) {
		t.Error("two secrets have the same key id or authority")
	}
}

func TestSecretsThatAreRefused(t *testing.T) {
	for _, tt := range []struct {
		name, secret string
		more         []string
		want         string
	}{
		{"short", "short", nil, "has 5 characters; allowed are 16 to 1024"},
		{"none", "", nil, "has 0 characters"},
		{"long", strings.Repeat("x", SecretMax+1), nil, "has 1025 characters"},
		{"newline", secretA + "\n", nil, "ends with a blank"},
		{"newline inside", "correct horse\nbattery staple", nil, "control character"},
		{"short old one", secretA, []string{secretB, "short"}, "old secret 2 has 5 characters"},
		{"too many", secretA, []string{secretB, secretB, secretB, secretB}, "knows 4 at most"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := New(tt.secret, node1, tt.more...)
			if err == nil || !strings.Contains(err.Error(), tt.want) {
				t.Fatalf("error = %v, want one with %q", err, tt.want)
			}
			if strings.Contains(err.Error(), secretA) {
				t.Errorf("the error shows the secret: %v", err)
			}
		})
	}
	if _, err := New(secretA, "no id"); err == nil {
		t.Error("an id that is none was taken")
	}
}

// shake runs a handshake over a pipe and returns what both sides say of it, and the ids
// that they see.
func shake(t *testing.T, server, client *tls.Config) (serverSees, clientSees member.ID, serverErr, clientErr error) {
	t.Helper()
	a, b := net.Pipe()
	defer func() { _, _ = a.Close(), b.Close() }()
	done := make(chan struct{})
	go func() {
		defer close(done)
		s := tls.Server(a, server)
		if serverErr = s.Handshake(); serverErr != nil {
			_ = a.Close()
			return
		}
		serverSees, serverErr = PeerID(s.ConnectionState())
		_, _ = s.Write([]byte{1})
	}()
	c := tls.Client(b, client)
	if clientErr = c.Handshake(); clientErr == nil {
		clientSees, clientErr = PeerID(c.ConnectionState())
		if _, err := c.Read(make([]byte, 1)); clientErr == nil && err != nil {
			clientErr = err
		}
	}
	_ = b.Close()
	<-done
	return serverSees, clientSees, serverErr, clientErr
}

func TestNodesOfOneSecretAcceptEachOther(t *testing.T) {
	for _, tt := range []struct {
		name           string
		server, client *Identity
		want           member.ID
	}{
		{"any member", mustNew(t, secretA, node1), mustNew(t, secretA, node2), ""},
		{"this member", mustNew(t, secretA, node1), mustNew(t, secretA, node2), node1},
		{"client has changed the secret", mustNew(t, secretA, node1), mustNew(t, secretB, node2, secretA), node1},
		{"server has changed the secret", mustNew(t, secretB, node1, secretA), mustNew(t, secretA, node2), node1},
		{"both have changed it", mustNew(t, secretB, node1, secretA), mustNew(t, secretB, node2, secretA), node1},
		{"client has dropped the old one", mustNew(t, secretB, node1, secretA), mustNew(t, secretB, node2), node1},
		{"both know both, in another order", mustNew(t, secretB, node1, secretA), mustNew(t, secretA, node2, secretB), node1},
	} {
		t.Run(tt.name, func(t *testing.T) {
			serverSees, clientSees, serverErr, clientErr := shake(t, tt.server.ServerTLS(), tt.client.ClientTLS(tt.want))
			if serverErr != nil || clientErr != nil {
				t.Fatalf("server: %v, client: %v", serverErr, clientErr)
			}
			if serverSees != node2 || clientSees != node1 {
				t.Errorf("the server sees %s, the client %s", serverSees, clientSees)
			}
		})
	}
}

func TestRefusalsSayWhy(t *testing.T) {
	late := func(days int) func() time.Time {
		return func() time.Time { return time.Now().AddDate(0, 0, days) }
	}
	at := func(days int, self member.ID) *Identity {
		id, err := NewAt(late(days), secretA, self)
		if err != nil {
			t.Fatal(err)
		}
		return id
	}
	for _, tt := range []struct {
		name   string
		client *Identity
		want   member.ID
		kind   error
		says   string
	}{
		{"secret", mustNew(t, secretB, node2), "", ErrWrongSecret, "made with another cluster secret"},
		{"id", mustNew(t, secretA, node2), node3, ErrWrongNode, "the node there is 11111111, not 33333333"},
		{"clock ahead", at(30, node2), "", ErrClock, "set both clocks"},
		{"clock behind", at(-30, node2), "", ErrClock, "set both clocks"},
		{"a day ahead", at(1, node2), "", nil, ""},
		{"a day behind", at(-1, node2), "", nil, ""},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, _, serverErr, clientErr := shake(t, mustNew(t, secretA, node1).ServerTLS(), tt.client.ClientTLS(tt.want))
			if tt.kind == nil {
				if serverErr != nil || clientErr != nil {
					t.Fatalf("server: %v, client: %v", serverErr, clientErr)
				}
				return
			}
			if !errors.Is(clientErr, tt.kind) || !strings.Contains(clientErr.Error(), tt.says) {
				t.Errorf("client: %v", clientErr)
			}
			if says := fmt.Sprint(Explain(serverErr)); !strings.Contains(says, "the other side refused this node's certificate") {
				t.Errorf("server: %v", says)
			}
		})
	}
}

// A server must not trust the client's word about secrets: one that names the right key
// id and shows a certificate of another authority is refused by the server itself.
func TestServerChecksTheCertificateItself(t *testing.T) {
	server := mustNew(t, secretA, node1)
	client := mustNew(t, secretB, node2).ClientTLS("")
	client.ServerName = server.ClientTLS("").ServerName
	client.VerifyConnection = nil
	_, _, serverErr, _ := shake(t, server.ServerTLS(), client)
	if !errors.Is(serverErr, ErrWrongSecret) {
		t.Errorf("server: %v", serverErr)
	}
	client.GetClientCertificate = func(*tls.CertificateRequestInfo) (*tls.Certificate, error) { return &tls.Certificate{}, nil }
	if _, _, serverErr, _ := shake(t, server.ServerTLS(), client); serverErr == nil {
		t.Error("a client without a certificate was accepted")
	}
	old := mustNew(t, secretA, node2).ClientTLS("")
	old.MaxVersion = tls.VersionTLS12
	old.MinVersion = tls.VersionTLS12
	if _, _, serverErr, _ := shake(t, server.ServerTLS(), old); serverErr == nil {
		t.Error("TLS 1.2 was accepted")
	}
}

// A node that runs for months always has a certificate that the others accept.
func TestCertificatesAreRenewed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		id := mustNew(t, secretA, node1)
		first, err := id.certificate(0)
		if err != nil {
			t.Fatal(err)
		}
		if again, _ := id.certificate(0); again != first {
			t.Error("a new certificate for each connection")
		}
		for range 100 {
			time.Sleep(24 * time.Hour)
			cert, err := id.certificate(0)
			if err != nil {
				t.Fatal(err)
			}
			if left := time.Until(cert.Leaf.NotAfter); left < certAfter-certRenew {
				t.Fatalf("%v are left", left)
			}
		}
	})
}

// A clock that was set back by months does not leave a certificate of the future.
func TestCertificateFollowsAClockThatIsSetBack(t *testing.T) {
	now := time.Now()
	id, err := NewAt(func() time.Time { return now }, secretA, node1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := id.certificate(0); err != nil {
		t.Fatal(err)
	}
	now = now.AddDate(0, -6, 0)
	cert, err := id.certificate(0)
	if err != nil {
		t.Fatal(err)
	}
	if cert.Leaf.NotBefore.After(now) {
		t.Errorf("it begins %s, now it is %s", cert.Leaf.NotBefore, now)
	}
}
