package sim

import (
	"slices"
	"time"

	"tandem/cluster/member"
	"tandem/scheduler"
)

// task is one attempt at a job on a node, or a prompt that a node computes for a task
// of another one.
type task struct {
	job     *job
	attempt int
	node    *node
	served  *task // whose prompt this is
	prompt  int   // tokens to have before one can be drawn
	left    int   // tokens to write
	blocks  []uint64
	order   int // among those that its node took

	getting  bool      // its KV is on its way
	source   *task     // computes the prompt for this one
	transfer *transfer // brings it
	planned  int       // tokens that are expected to come
	gotFrom  int       // blocks from there
	got      int       // to here came

	have      int // tokens whose KV is in the engine
	restoring int // more that are on their way into it
	pinned    int // leading blocks that are kept for it
	private   int // blocks of room that only it uses
	remain    int // of node.toCompute
	credited  int // the checker's account
	admitted  time.Duration
	gone      bool
}

// stale tells whether nobody waits for a task any more.
func (t *task) stale() bool {
	if t.gone || t.attempt != t.job.attempt {
		return true
	}
	return t.served != nil && (t.served.source != t || !t.served.getting || t.served.stale())
}

// piece is a part of a prompt that a step computes.
type piece struct {
	t      *task
	tokens int
}

// node is a model of one.
//
// Invariants: running holds at most Slots tasks; resident blocks and private ones
// together are at most room; a step is under way while anything can be computed and the
// node is up.
type node struct {
	s           *sim
	at          int
	spec        NodeSpec
	id          member.ID
	role        member.Role
	fixed       bool // role is of the options, not of a planner
	up          bool
	frozenUntil time.Duration
	epoch       int32 // of its process; what an earlier one would have done is void
	feed        *scheduler.Feed
	news        []bulletin

	resident, ram, disk     *tier
	room, ramRoom, diskRoom int
	private                 int

	waiting []*task // for KV that is on its way
	queue   []*task // for a slot
	running []*task

	busy       bool
	stepNumber int
	stepBegan  time.Duration
	stepEach   time.Duration
	stepCount  int // steps of decoding alone, which are one event
	pieces     []piece
	decoding   []*task

	linkOut, linkIn time.Duration // busy until

	taken      int
	toCompute  int // prompt tokens that are not computed yet
	active     int // tokens whose KV running tasks use
	slotMs     float64
	given      int // requests
	served     int // prompts for others
	computed   int64
	written    int64
	busyTime   time.Duration
	busyBefore time.Duration // at the planner's last look
}

func newNode(s *sim, at int) *node {
	spec := s.o.Nodes[at]
	n := &node{s: s, at: at, spec: spec, id: nodeID(at), role: spec.Role, up: true, epoch: 1}
	if n.fixed = n.role != ""; !n.fixed {
		n.role = member.Hybrid
	}
	n.room, n.ramRoom, n.diskRoom = spec.KVTokens/s.o.BlockTokens, spec.RAMTokens/s.o.BlockTokens, spec.DiskTokens/s.o.BlockTokens
	n.resident, n.ram, n.disk = newTier(), newTier(), newTier()
	n.feed = scheduler.NewFeed(n.origin())
	return n
}

func (n *node) origin() uint64 { return uint64(n.at)<<32 | uint64(n.epoch) }

// take puts a task into the queue. False: the queue is full, or the node is down.
func (n *node) take(t *task) (ok, down bool) {
	if !n.up {
		return false, true
	}
	if n.spec.Queue > 0 && len(n.running) >= n.spec.Slots && len(n.queue)+len(n.waiting) >= n.spec.Queue {
		return false, false
	}
	if t.served != nil {
		n.served++
	} else {
		n.given++
	}
	n.taken++
	t.order = n.taken
	n.setRemain(t, max(1, t.prompt-n.holding(t.blocks).Run*n.s.o.BlockTokens))
	if n.s.chooseWay(t) {
		t.getting = true
		n.setRemain(t, max(1, t.prompt-t.planned))
		n.waiting = append(n.waiting, t)
	} else {
		n.queue = append(n.queue, t)
	}
	n.begin()
	n.s.known.changed(n)
	return true, false
}

func (n *node) setRemain(t *task, tokens int) {
	n.toCompute += tokens - t.remain
	t.remain = tokens
}

// holding is what the node has of a chain.
func (n *node) holding(blocks []uint64) scheduler.Holding {
	h := scheduler.Holding{Node: n.id, Resident: n.resident.held(blocks, 0)}
	for h.Run = h.Resident; h.Run < len(blocks); h.Run++ {
		switch b := blocks[h.Run]; {
		case n.resident.has(b), n.ram.has(b):
			h.FromRAM++
		case n.disk.has(b):
			h.FromDisk++
		default:
			return h
		}
	}
	return h
}

// tokensOf is how many tokens the first blocks of a task's chain stand for.
func (t *task) tokensOf(blocks int) int {
	return min(blocks*t.node.s.o.BlockTokens, t.job.input, t.prompt)
}

// blocksOf is how many blocks are complete with so many tokens.
func (t *task) blocksOf(tokens int) int {
	if tokens >= t.job.input {
		return len(t.blocks)
	}
	return min(tokens/t.node.s.o.BlockTokens, len(t.blocks))
}

// begin admits what fits and starts the next step, if there is anything to do and none
// is under way.
func (n *node) begin() {
	if !n.up || n.frozenUntil > n.s.now {
		return
	}
	n.admit()
	if n.busy {
		n.interrupt()
		return
	}
	n.pieces, n.decoding = n.pieces[:0], n.decoding[:0]
	context := 0
	for _, t := range n.running {
		if t.have >= t.prompt && t.restoring == 0 {
			n.decoding = append(n.decoding, t)
			context += t.have
		}
	}
	budget := n.s.o.ChunkAlone
	if len(n.decoding) > 0 && !n.s.o.Apart {
		budget = n.s.o.ChunkBeside
	}
	prompt, attention := 0, 0.0
	for _, t := range n.running {
		if budget == 0 {
			break
		}
		if t.have >= t.prompt || t.restoring > 0 {
			continue
		}
		tokens := min(budget, t.prompt-t.have)
		budget -= tokens
		prompt += tokens
		attention += n.spec.Engine.attentionMs(t.have, tokens)
		n.pieces = append(n.pieces, piece{t, tokens})
	}
	if prompt > 0 && n.s.o.Apart {
		n.decoding, context = n.decoding[:0], 0
	}
	switch {
	case prompt > 0:
		n.start(1, milliseconds(n.stepMs(prompt, len(n.decoding), attention, float64(context))))
	case len(n.decoding) > 0:
		streams := len(n.decoding)
		count := stepsAtOnce
		for _, t := range n.decoding {
			count = min(count, t.left)
		}
		// Contexts grow by one token a stream and step; times are linear in them.
		middle := float64(context) + float64(streams*(count-1))/2
		n.start(count, milliseconds(n.stepMs(0, streams, 0, middle)))
	}
}

// stepsAtOnce bounds how many steps of decoding are one event.
const stepsAtOnce = 64

// stepMs is the time of a step; a prompt longer than a ubatch reads the weights for
// each.
func (n *node) stepMs(prompt, streams int, attention, context float64) float64 {
	e := &n.spec.Engine
	ms := 0.0
	for ; prompt > ubatch; prompt -= ubatch {
		ms += e.stepMs(ubatch, 0, 0, 0)
	}
	return ms + e.stepMs(prompt, streams, attention, context)
}

func (n *node) start(count int, each time.Duration) {
	n.busy = true
	n.stepNumber++
	n.stepBegan, n.stepEach, n.stepCount = n.s.now, each, count
	n.s.push(event{at: n.s.now + each*time.Duration(count), kind: stepEnds, node: int32(n.at), epoch: n.epoch, n: n.stepNumber})
}

// interrupt ends a run of steps after the one that is under way, if something else can
// be computed now.
func (n *node) interrupt() {
	if n.stepCount < 2 || !slices.ContainsFunc(n.running, func(t *task) bool { return t.have < t.prompt && t.restoring == 0 }) {
		return
	}
	done := int((n.s.now-n.stepBegan)/n.stepEach) + 1
	if done >= n.stepCount {
		return
	}
	n.stepCount = done
	n.stepNumber++
	n.s.push(event{at: n.stepBegan + n.stepEach*time.Duration(done), kind: stepEnds, node: int32(n.at), epoch: n.epoch, n: n.stepNumber})
}

// stepEnds gives each answer that is written its tokens, and prompts their KV.
func (n *node) stepEnds() {
	n.busy = false
	n.busyTime += n.s.now - n.stepBegan
	for _, t := range n.decoding {
		if !t.gone {
			n.write(t, n.stepCount)
		}
	}
	for _, p := range n.pieces {
		if !p.t.gone {
			n.compute(p.t, p.tokens)
		}
	}
	n.s.check.room(n)
	n.s.series.stepped(n)
	n.publish()
	n.begin()
	n.s.known.changed(n)
}

// write is tokens of an answer.
func (n *node) write(t *task, count int) {
	n.s.check.token(t)
	t.have += count
	n.active += count
	t.left -= count
	n.written += int64(count)
	n.s.wrote(t, count, n.stepEach)
	if t.left <= 0 {
		n.end(t)
	}
}

// compute is the end of a step for a prompt. The last chunk gives the first token.
func (n *node) compute(t *task, tokens int) {
	n.computed += int64(tokens)
	n.s.records[t.job.number].computed += int32(tokens)
	n.s.check.credit(t, tokens)
	n.extend(t, tokens)
	if t.served != nil {
		t.served.transfer.made(t.pinned)
	}
	if t.have < t.prompt {
		return
	}
	if t.left > 0 {
		n.s.check.token(t)
		t.left--
		n.written++
		n.s.wrote(t, 1, 0)
	}
	if t.left <= 0 {
		n.end(t)
	}
}

// extend adds tokens to what a task has, and names the blocks that are complete.
func (n *node) extend(t *task, tokens int) {
	t.have += tokens
	n.active += tokens
	n.setRemain(t, max(0, t.prompt-t.have-t.restoring))
	for end := t.blocksOf(t.have); t.pinned < end; t.pinned++ {
		b := t.blocks[t.pinned]
		if !n.resident.has(b) {
			n.resident.add(b)
			n.tell(scheduler.Stored, scheduler.Resident, b)
		}
		n.resident.pin(b)
		t.private--
		n.private--
		n.keep(b)
	}
}

// keep writes a block behind: into memory, and what memory has no room for to disk.
func (n *node) keep(b uint64) {
	if n.ramRoom == 0 {
		return
	}
	if n.ram.use(b) {
		n.tell(scheduler.Stored, scheduler.RAM, b)
	}
	for n.ram.size() > n.ramRoom {
		old, ok := n.ram.evict()
		if !ok {
			return
		}
		n.tell(scheduler.Removed, scheduler.RAM, old)
		if n.diskRoom == 0 {
			continue
		}
		if n.disk.use(old) {
			n.tell(scheduler.Stored, scheduler.Disk, old)
		}
		if n.disk.size() > n.diskRoom {
			if gone, ok := n.disk.evict(); ok {
				n.tell(scheduler.Removed, scheduler.Disk, gone)
			}
		}
	}
}

// admit fills slots from the queue, in order. A task whose KV does not fit waits.
func (n *node) admit() {
	for len(n.queue) > 0 && len(n.running) < n.spec.Slots {
		t := n.queue[0]
		if t.stale() {
			n.queue = n.queue[1:]
			n.drop(t)
			continue
		}
		if !n.reserve(t) {
			return
		}
		n.queue = n.queue[1:]
		t.admitted = n.s.now
		n.running = append(n.running, t)
		n.fill(t)
	}
}

// reserve finds room for all that a task will need, and pins what it can use.
func (n *node) reserve(t *task) bool {
	run := min(n.resident.held(t.blocks, 0), t.blocksOf(t.prompt))
	need := max((t.prompt+t.left+n.s.o.BlockTokens-1)/n.s.o.BlockTokens, len(t.blocks)) - run
	fresh := 0
	for _, b := range t.blocks[:run] {
		if n.resident.cells[n.resident.places[b]].pins == 0 {
			fresh++
		}
	}
	if n.resident.pinned+fresh+n.private+need > n.room && n.s.o.plant != overfills {
		return false
	}
	for _, b := range t.blocks[:run] {
		n.resident.pin(b)
	}
	t.pinned, t.private = run, need
	n.private += need
	for n.resident.size()+n.private > n.room {
		b, ok := n.resident.evict()
		if !ok {
			break
		}
		n.tell(scheduler.Removed, scheduler.Resident, b)
	}
	return true
}

// fill takes what is kept of a task's prompt: resident blocks at once, the others when
// they are read and imported. At least one token is always computed.
func (n *node) fill(t *task) {
	t.have = 0
	resident := min(t.tokensOf(t.pinned), t.prompt-1)
	n.s.check.credit(t, resident)
	t.have = resident
	n.active += resident
	if n.s.o.plant == tokenEarly && t.job.number == 0 {
		t.have = t.prompt
		return
	}
	h := n.holding(t.blocks)
	if h.Run < t.gotFrom { // what was before it went meanwhile
		t.got = 0
	}
	size := float64(n.s.o.BlockTokens * n.s.o.BytesPerToken)
	ms, more, end := 0.0, 0, t.pinned
	if run := max(h.Run, t.got); run > t.pinned {
		ram := run - t.pinned
		if t.got <= h.Run {
			ram = h.FromRAM
		}
		// As the engine does it: what takes longer to restore than to compute is computed.
		ramMs := float64(ram) * size / n.spec.HostBps * 1000
		if t.got > t.pinned || ram == 0 || ramMs < n.prefillMs(t.have, t.tokensOf(t.pinned+ram)) {
			ms, end = ramMs, t.pinned+ram
			if disk := run - end; disk > 0 {
				diskMs := float64(disk)*size/n.spec.DiskBps*1000 + float64(disk)*size/n.spec.HostBps*1000
				if diskMs < n.prefillMs(t.tokensOf(end), t.tokensOf(run)) {
					ms, end = ms+diskMs, run
				}
			}
		}
		more = min(t.tokensOf(end), t.prompt-1) - t.have
	}
	n.setRemain(t, max(0, t.prompt-t.have-max(0, more)))
	if t.served != nil {
		t.served.transfer.made(t.pinned)
	}
	if more > 0 {
		t.restoring = more
		n.s.push(event{at: n.s.now + milliseconds(ms), kind: restored, ref: t})
	}
}

func (n *node) prefillMs(from, to int) float64 {
	tokens := max(0, to-from)
	return float64(tokens)/n.spec.Engine.prefillRate()*1000 + n.spec.Engine.attentionMs(from, tokens)
}

// restored is when kept blocks are in the engine.
func (t *task) restored() {
	n := t.node
	if t.gone || t.restoring == 0 {
		return
	}
	tokens := t.restoring
	t.restoring = 0
	n.s.check.credit(t, tokens)
	n.s.result.Restored += int64(tokens)
	n.extend(t, tokens)
	if t.served != nil {
		t.served.transfer.made(t.pinned)
	}
	n.publish()
	n.begin()
}

// end frees what a task has; its blocks stay until others need the room.
func (n *node) end(t *task) {
	const share = 0.1 // of a new value
	ms := float64(n.s.now-t.admitted) / float64(time.Millisecond)
	if n.slotMs == 0 {
		n.slotMs = ms
	}
	n.slotMs += share * (ms - n.slotMs)
	n.drop(t)
	if t.served == nil {
		n.s.answered(t)
		if n.s.o.plant == endsTwice && t.job.number == 0 {
			n.s.check.end(t.job.number)
		}
	}
}

// drop frees what a task has.
func (n *node) drop(t *task) {
	if t.gone {
		return
	}
	t.gone = true
	remove := func(list []*task) []*task {
		if i := slices.Index(list, t); i >= 0 {
			return slices.Delete(list, i, i+1)
		}
		return list
	}
	n.waiting, n.queue, n.running = remove(n.waiting), remove(n.queue), remove(n.running)
	n.setRemain(t, 0)
	n.active -= t.have
	n.private -= t.private
	for i := t.pinned - 1; i >= 0; i-- {
		n.resident.unpin(t.blocks[i])
	}
	if t.source != nil {
		source := t.source
		t.source = nil
		source.node.drop(source)
		source.node.begin()
	}
}

// load is what a node tells of its load.
func (n *node) load() load {
	return load{running: len(n.running), queued: len(n.queue) + len(n.waiting), waiting: n.toCompute, active: n.active, slotMs: n.slotMs}
}

func milliseconds(ms float64) time.Duration { return time.Duration(ms * float64(time.Millisecond)) }
