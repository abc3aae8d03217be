package node

import "testing"

func TestLocksNameTheirHolder(t *testing.T) {
	const locks = "1: POSIX  ADVISORY  WRITE 1 08:01:55 0 EOF\n2: FLOCK  ADVISORY  WRITE 4242 08:01:55 0 EOF\n3: FLOCK  ADVISORY  WRITE 0 00:19:56 0 EOF\nrubbish\n"
	if pid := holderIn(locks, 55); pid != 4242 {
		t.Errorf("process %d", pid)
	}
	for _, inode := range []uint64{5, 56, 57} {
		if pid := holderIn(locks, inode); pid != 0 {
			t.Errorf("inode %d: process %d", inode, pid)
		}
	}
}
