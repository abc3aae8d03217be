package llama

// #include <stdlib.h>
// #include "bridge.h"
import "C"

import (
	"sync"
	"unsafe"

	"tandem/node/engine"
)

// loadOnce lets the shared libraries of GPU backends be loaded once per
// process: ggml registers the devices of a library again each time.
var loadOnce sync.Once

// LoadBackends loads the ggml backends (shared libraries for GPUs) of a folder.
// Only the first call of a process does something. It must come before Load.
func LoadBackends(dir string) {
	loadOnce.Do(func() {
		initOnce()
		setLogLevel()
		d := C.CString(dir)
		defer C.free(unsafe.Pointer(d))
		C.td_load_backends(d)
	})
}

// deviceKinds is in the order of ggml_backend_dev_type.
var deviceKinds = [...]string{"cpu", "gpu", "igpu", "accel"}

// Devices are the compute devices that ggml sees, with the memory that is free
// at the moment.
func Devices() []engine.Device {
	initOnce()
	out := make([]engine.Device, C.td_device_count())
	for i := range out {
		var d C.td_device
		C.td_device_get(C.size_t(i), &d)
		out[i] = engine.Device{
			Name: C.GoString(&d.name[0]), Description: C.GoString(&d.description[0]), Kind: "accel",
			FreeBytes: int64(d.free_bytes), TotalBytes: int64(d.total_bytes),
		}
		if int(d.kind) < len(deviceKinds) {
			out[i].Kind = deviceKinds[d.kind]
		}
	}
	return out
}
