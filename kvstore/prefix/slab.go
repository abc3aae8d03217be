package prefix

// chunkNodes is the number of nodes that the slab grows by. A chunk is zeroed in a
// few microseconds, so growth never stalls the caller, and nodes never move.
const chunkNodes = 256

// slab keeps nodes without pointers in chunks, which the garbage collector does not
// look into. Free nodes form a list through their parent fields.
type slab struct {
	chunks []*[chunkNodes]node
	used   index // nodes that were ever in use
	free   index
}

// get gives a node with undefined contents.
func (s *slab) get() index {
	if i := s.free; i != none {
		s.free = s.at(i).parent
		return i
	}
	if int(s.used) == len(s.chunks)*chunkNodes {
		s.chunks = append(s.chunks, new([chunkNodes]node))
	}
	s.used++
	return s.used - 1
}

// put takes a node back.
func (s *slab) put(i index) {
	*s.at(i) = node{parent: s.free}
	s.free = i
}

func (s *slab) at(i index) *node { return &s.chunks[i/chunkNodes][i%chunkNodes] }

func (t *Tree) at(i index) *node { return t.slab.at(i) }
