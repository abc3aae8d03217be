package sim_test

import (
	"bytes"
	"reflect"
	"strings"
	"testing"
	"time"

	"tandem/scheduler/sim"
)

func TestTracesAreRead(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       []sim.Arrival
		block      int
	}{
		{"mooncake", `{"timestamp": 0, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}` + "\n\n" + `{"timestamp": 27, "input_length": 10, "output_length": 0, "hash_ids": []}`,
			[]sim.Arrival{{Input: 600, Output: 5, Blocks: []uint64{0, 1}}, {At: 27 * time.Millisecond, Input: 10, Blocks: []uint64{}}}, 512},
		{"mooncake", `{"timestamp": 3, "input_length": 1, "hash_ids": [7]}` + "\n" + `{"timestamp": 0, "input_length": 2, "hash_ids": [8]}`, // out of order
			[]sim.Arrival{{Input: 2, Blocks: []uint64{8}}, {At: 3 * time.Millisecond, Input: 1, Blocks: []uint64{7}}}, 512},
		{"azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n2023-11-16 18:15:50.9951690,396,109\n",
			[]sim.Arrival{{Input: 374, Output: 44}, {At: 4314579 * time.Microsecond, Input: 396, Output: 109}}, 0},
		{"burstgpt", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n5.5,GPT-4,0,0,0,API log\n45,ChatGPT,1087,230,1317,Conversation log\n",
			[]sim.Arrival{{Input: 472, Output: 18}, {At: 40 * time.Second, Input: 1087, Output: 230}}, 0},
		{"burstgpt", "Timestamp,Session ID,Elapsed time,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,a,1.5,ChatGPT,472,18,490,x\n",
			[]sim.Arrival{{Input: 472, Output: 18}}, 0},
		{"tandem", `{"at":100.5,"input_tokens":130,"output_tokens":7,"block_tokens":64,"blocks":["a","b"],"node":"box"}` + "\n" + `{"at":101,"input_tokens":70,"output_tokens":1,"block_tokens":64,"blocks":["a"]}`,
			[]sim.Arrival{{Input: 130, Output: 7, Blocks: []uint64{0, 1}}, {At: 500 * time.Millisecond, Input: 70, Output: 1, Blocks: []uint64{0}}}, 64},
	} {
		got, block, err := sim.Read(strings.NewReader(c.text), "")
		if err != nil || block != c.block || !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: %+v, %d, %v", c.name, got, block, err)
		}
	}
}

func TestBadTracesAreRefused(t *testing.T) {
	long := strings.Repeat("1", 2<<20)
	for format, texts := range map[string][]string{
		"mooncake": {"{", `{"input_length": 0}`, `{"input_length": 99999999}`, `{"input_length": 1, "timestamp": 1e300}`, `{"input_length":1,"hash_ids":[-1]}`, `{"input_length":1,"x":"` + long + `"}`, ""},
		"azure":    {"TIMESTAMP,ContextTokens\n", "TIMESTAMP,ContextTokens,GeneratedTokens\nyesterday,1,1\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,x,1\n", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1\n"},
		"burstgpt": {"Timestamp,Request tokens,Response tokens\nNaN,1,1\n", "Timestamp,Request tokens,Response tokens\n1,-1,1\n", "Timestamp,Request tokens,Response tokens\n" + long},
		"tandem":   {`{"input_tokens":1}`, `{"at":1,"input_tokens":1,"blocks":["a"]}`, `{"at":1,"input_tokens":1,"blocks":["a"],"block_tokens":64}` + "\n" + `{"at":1,"input_tokens":1,"blocks":["a"],"block_tokens":32}`},
		"none":     {"x"},
		"":         {"hello", ""},
	} {
		for _, text := range texts {
			if got, _, err := sim.Read(strings.NewReader(text), format); err == nil {
				t.Errorf("%s: %.60q was read: %d requests", format, text, len(got))
			}
		}
	}
}

// What is written as a log is read as it was.
func TestLogsComeBack(t *testing.T) {
	for _, kind := range sim.LoadKinds() {
		l, err := sim.ParseLoad(kind + ",requests=50")
		if err != nil {
			t.Fatal(err)
		}
		made := l.Make()
		var file bytes.Buffer
		if err := sim.WriteLog(&file, made, l.Block); err != nil {
			t.Fatal(err)
		}
		got, block, err := sim.Read(&file, "")
		if err != nil || len(got) != len(made) || block != 0 && block != l.Block {
			t.Fatalf("%s: %d of %d, block %d, %v", kind, len(got), len(made), block, err)
		}
		for i := range got {
			if d := got[i].At - made[i].At; got[i].Input != made[i].Input || got[i].Output != made[i].Output || len(got[i].Blocks) != len(made[i].Blocks) || d < -time.Microsecond || d > time.Microsecond {
				t.Fatalf("%s, request %d: %+v, was %+v", kind, i, got[i], made[i])
			}
		}
	}
}

func fuzz(f *testing.F, format string, seeds ...string) {
	for _, s := range seeds {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		list, block, err := sim.Read(bytes.NewReader(b), format)
		if err != nil {
			return
		}
		if block < 0 || len(list) == 0 {
			t.Errorf("%d requests, block %d", len(list), block)
		}
		for i, a := range list {
			if a.At < 0 || a.Input < 1 || a.Output < 0 || 2*len(a.Blocks) > len(b) || i > 0 && a.At < list[i-1].At {
				t.Errorf("%+v of %d bytes", a, len(b))
			}
		}
	})
}

func FuzzMooncake(f *testing.F) {
	fuzz(f, "mooncake", `{"timestamp": 1, "input_length": 600, "output_length": 5, "hash_ids": [0, 1]}`)
}

func FuzzAzure(f *testing.F) {
	fuzz(f, "azure", "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46.6805900,374,44\n")
}

func FuzzBurstGPT(f *testing.F) {
	fuzz(f, "burstgpt", "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n5,ChatGPT,472,18,490,Conversation log\n")
}

func FuzzLog(f *testing.F) {
	fuzz(f, "tandem", `{"at":100.5,"input_tokens":130,"output_tokens":7,"block_tokens":64,"blocks":["a","b"]}`)
}

// FuzzScenario reads files of scenarios and what they say.
func FuzzScenario(f *testing.F) {
	f.Add([]byte(`{"nodes":"2xRTX3090,1xcpu=prefill@1gbit","model":"qwen3-8b:q8_0:kv8","link":"2.5gbit","slo":"ttft=1s,itl=50ms","outages":"0:1s-2s,1:freeze:3s-4s","ram":"4GiB","load":"chat,rate=2"}`))
	f.Fuzz(func(t *testing.T, b []byte) {
		s, err := sim.ReadScenario(bytes.NewReader(b))
		if err != nil {
			return
		}
		s = s.Over(sim.Default())
		if _, err := sim.ParseLoad(s.Load); err != nil && s.Load != "" {
			return
		}
		o, err := s.Options([]sim.Arrival{{Input: 1}}, 0)
		if err == nil && (len(o.Nodes) == 0 || o.Nodes[0].LinkBps <= 0) {
			t.Errorf("%+v", o)
		}
	})
}
