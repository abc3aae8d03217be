package node

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"tandem/cluster/member"
	"tandem/xfer"
)

// rateTime is how long bytes are sent each way.
const rateTime = 500 * time.Millisecond

// begin opens a stream to the doctor's service.
func (d *doctor) begin(ctx context.Context, id member.ID, what string) (*xfer.Stream, error) {
	s, err := d.link.OpenBound(ctx, id, serviceDoctor)
	if err != nil {
		return nil, err
	}
	if err := xfer.WriteMessage(s, []byte(what)); err != nil {
		s.Close()
		return nil, err
	}
	return s, nil
}

// tell asks what the node says of itself. Its stream stays open until all is done: its
// end is the goodbye. ahead is the other clock against this one.
func (d *doctor) tell(ctx context.Context, id member.ID) (s *xfer.Stream, t tell, ahead time.Duration, err error) {
	begin := time.Now()
	if s, err = d.begin(ctx, id, doctorTell); err != nil {
		return nil, t, 0, err
	}
	data, err := xfer.ReadMessage(s, doctorTellMax)
	took := time.Since(begin)
	if err == nil {
		err = json.Unmarshal(data, &t)
	}
	if err != nil {
		s.Close()
		return nil, t, 0, err
	}
	return s, t, t.Time.Sub(begin.Add(took / 2)), nil
}

// rateFrom measures how fast bytes come from the node, in bits a second.
func (d *doctor) rateFrom(ctx context.Context, id member.ID) (float64, error) {
	s, err := d.begin(ctx, id, doctorSend)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	chunk := make([]byte, doctorChunk)
	if _, err := s.Read(chunk); err != nil { // when the first ones are here, the time begins
		return 0, err
	}
	begin, got := time.Now(), 0
	if err := s.SetReadDeadline(begin.Add(rateTime)); err != nil {
		return 0, err
	}
	for err == nil {
		var n int
		n, err = s.Read(chunk)
		got += n
	}
	if !errors.Is(err, os.ErrDeadlineExceeded) && got < doctorBytesMax/2 {
		return 0, err
	}
	return rate(got, time.Since(begin)), nil
}

// rateTo measures how fast bytes go to the node, by how many it has got and when it
// says so.
func (d *doctor) rateTo(ctx context.Context, id member.ID, rtt time.Duration) (float64, error) {
	s, err := d.begin(ctx, id, doctorSwallow)
	if err != nil {
		return 0, err
	}
	defer s.Close()
	chunk := make([]byte, doctorChunk)
	begin := time.Now()
	for sent := 0; sent < doctorBytesMax && time.Since(begin) < rateTime; {
		n, err := s.Write(chunk)
		sent += n
		if err != nil && doctorEnd(err) != nil {
			return 0, err
		}
		if err != nil {
			break
		}
	}
	if err := s.CloseWrite(); err != nil && doctorEnd(err) != nil {
		return 0, err
	}
	const countBytes = 20
	answer, err := xfer.ReadMessage(s, countBytes)
	if err != nil {
		return 0, err
	}
	got, err := strconv.Atoi(string(answer))
	if err != nil {
		return 0, fmt.Errorf("the node there counted %q bytes", answer)
	}
	return rate(got, time.Since(begin)-rtt), nil
}

func rate(bytes int, took time.Duration) float64 {
	return 8 * float64(bytes) / max(took, time.Millisecond).Seconds()
}

// bits writes a rate as networks are sold.
func bits(rate float64) string {
	if rate >= 1e9 {
		return fmt.Sprintf("%.1f Gbit/s", rate/1e9)
	}
	return fmt.Sprintf("%.0f Mbit/s", rate/1e6)
}
