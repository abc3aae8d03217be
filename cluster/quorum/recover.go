package quorum

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"

	"tandem/cluster/member"
)

// Recover makes the node whose folder this is a cluster of one, while it does not run:
// for when so many voters are gone for good that there is no majority. The state is
// what this node had, with changes that it had received and that may never have been
// acknowledged. The generation rises, and a node that was thought lost gives up its
// own state when it returns and is let in, whatever it held. ErrInUse: the node runs;
// ask it.
func Recover(dir string, self member.ID) error {
	if _, err := member.ParseID(string(self)); err != nil {
		return err
	}
	if _, err := os.Stat(filepath.Join(dir, storeFile)); errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("%s holds no state of a cluster: there is nothing to recover", dir)
	}
	logger := slog.New(slog.DiscardHandler)
	s, err := openFolder(Config{Self: self, Dir: dir, Join: true}, logger)
	if err != nil {
		return err
	}
	defer s.close()
	return s.recover(dir, logger)
}

// recover founds the next generation from what is here.
func (s *store) recover(dir string, logger *slog.Logger) error {
	id, from := s.who(), s.who().realm
	m, err := s.replay(logger)
	if err != nil {
		return err
	}
	if m.State.ClusterID == "" { // it never had a state, or lost it
		old, _ := readMemo(dir)
		if old.Cluster != "" {
			m = old.Machine
		}
		if from.Cluster == "" {
			from = old.realm
		}
	}
	return s.found(id.found(from), m)
}

// Recover is the same for a node that runs. It refuses where there is a quorum, since
// then there is a better way: what is gone is removed by itself.
func (q *Quorum) Recover(ctx context.Context) error {
	done := make(chan error, 1)
	select {
	case q.recoveries <- recovery{ctx: ctx, done: done}:
	case <-ctx.Done():
		return ctx.Err()
	case <-q.ctx.Done():
		return ErrClosed
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return fmt.Errorf("%w; the recovery goes on", ctx.Err())
	case <-q.ctx.Done():
		return ErrClosed
	}
}

type recovery struct {
	ctx  context.Context
	done chan error
}

// recover runs in the reconciler.
func (q *Quorum) recover(r recovery) error {
	if s := q.Status(); s.HasQuorum && s.ClusterID != "" {
		return fmt.Errorf("this cluster has a quorum, led by node %s: there is nothing to recover", s.Leader.Short())
	}
	return q.rebuild(r.ctx, func() error {
		s, err := openFolder(q.cfg, q.logger)
		if err != nil {
			return err
		}
		defer s.close()
		return s.recover(q.cfg.Dir, q.logger)
	})
}
