package engine

import (
	"math"
	"testing"
	"testing/fstest"
)

func TestCapacity(t *testing.T) {
	const mib = 1 << 20
	base := map[string]string{
		"proc/meminfo":     "MemTotal:       8388608 kB\nMemAvailable:   4194304 kB\n",
		"proc/self/status": "Name:\tnode\nRssAnon:\t    1024 kB\nRssFile:\t 9999 kB\n",
	}
	tests := []struct {
		name  string
		files map[string]string
		want  int64
	}{
		{"machine", nil, 4096*mib + mib},
		{"version 2", map[string]string{
			"proc/self/cgroup":                "0::/a/b\n",
			"sys/fs/cgroup/a/b/memory.max":    "max\n",
			"sys/fs/cgroup/a/memory.max":      "1073741824\n",
			"sys/fs/cgroup/a/memory.current":  "536870912\n",
			"sys/fs/cgroup/a/memory.stat":     "anon 1\ninactive_file 1048576\nactive_file 2097152\n",
			"sys/fs/cgroup/a/b/memory.events": "low 0\n",
		}, 512*mib + 3*mib + mib},
		{"version 2, name of the host", map[string]string{
			"proc/self/cgroup":             "0::/../../x\n",
			"sys/fs/cgroup/memory.max":     "1073741824\n",
			"sys/fs/cgroup/memory.current": "0\n",
		}, 1024*mib + mib},
		{"version 1", map[string]string{
			"proc/self/cgroup": "5:devices:/x\n4:memory:/x\n0::/\n",
			"sys/fs/cgroup/memory/x/memory.limit_in_bytes": "2147483648\n",
			"sys/fs/cgroup/memory/x/memory.usage_in_bytes": "1073741824\n",
			"sys/fs/cgroup/memory/x/memory.stat":           "cache 7\ntotal_inactive_file 0\ntotal_active_file 1048576\n",
			"sys/fs/cgroup/memory/memory.limit_in_bytes":   "9223372036854771712\n",
			"sys/fs/cgroup/memory/memory.usage_in_bytes":   "1073741824\n",
		}, 1024*mib + mib + mib},
		{"limit below the use", map[string]string{
			"proc/self/cgroup":             "0::/\n",
			"sys/fs/cgroup/memory.max":     "1\n",
			"sys/fs/cgroup/memory.current": "1073741824\n",
		}, mib},
		{"not Linux", map[string]string{"proc/meminfo": ""}, math.MaxInt64},
		{"nonsense", map[string]string{"proc/self/cgroup": "x\n\n:\n0::\n::::\n"}, 4096*mib + mib},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			root := fstest.MapFS{}
			for _, files := range []map[string]string{base, tt.files} {
				for name, text := range files {
					root[name] = &fstest.MapFile{Data: []byte(text)}
				}
			}
			if got := capacity(root); got != tt.want {
				t.Errorf("got %d, want %d", got, tt.want)
			}
		})
	}
}
