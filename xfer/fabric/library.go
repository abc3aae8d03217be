//go:build fabric && linux && cgo

package fabric

// #cgo LDFLAGS: -ldl
// #include <stdlib.h>
// #include <sys/resource.h>
// #include "shim.h"
import "C"

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"sync"
	"syscall"
	"unsafe"
)

// Codes of rdma/fi_errno.h, which are those of errno.
const (
	codeNoMemory   = int(syscall.ENOMEM)
	codeAgain      = int(syscall.EAGAIN)
	codeNotAllowed = int(syscall.EPERM)
	codeNoData     = int(syscall.ENODATA)
)

// providersMax is how many different providers Providers returns.
const providersMax = 64

// loader is the library, of which a process has one.
var loader struct {
	// mu is held by all calls that load, list or open: see fab_load.
	mu sync.Mutex
	// name is opened by whoever is first; tests change it.
	name string
}

func init() { loader.name = "libfabric.so.1" }

// loadLocked opens the library unless it is open.
func loadLocked() error {
	name := C.CString(loader.name)
	defer C.free(unsafe.Pointer(name))
	var fault C.fab_error
	if C.fab_load(name, &fault) != 0 {
		return fmt.Errorf("%w (%s)", ErrNoLibrary, C.GoString(&fault.text[0]))
	}
	return nil
}

// asError is what a call left behind.
func asError(fault *C.fab_error) *Error {
	return &Error{Call: C.GoString(&fault.call[0]), Code: -int(fault.code), Text: C.GoString(&fault.text[0])}
}

func asInfo(i *C.fab_info) Info {
	version := uint32(C.fab_version())
	provider := C.GoString(&i.provider[0])
	return Info{
		Provider: provider,
		Protocol: protocolName(uint32(i.protocol)),
		Library:  fmt.Sprintf("%d.%d", version>>16, version&0xffff),
		RDMA:     isRDMA(provider),
	}
}

// Providers lists the providers of this machine that Open can use, in libfabric's order.
func Providers() ([]Info, error) {
	loader.mu.Lock()
	defer loader.mu.Unlock()
	if err := loadLocked(); err != nil {
		return nil, err
	}
	var found [providersMax]C.fab_info
	var fault C.fab_error
	n := C.fab_list(&found[0], providersMax, &fault)
	if n < 0 {
		return nil, fmt.Errorf("fabric: providers: %w", asError(&fault))
	}
	var infos []Info
	for i := range found[:n] {
		if info := asInfo(&found[i]); !crashes(info.Provider, uint32(C.fab_version())) {
			infos = append(infos, info)
		}
	}
	return infos, nil
}

// domain is a C.fab_domain. One for reads by peers has a grant.
type domain struct {
	c     *C.fab_domain
	grant *C.fab_grant
	// answering is closed when the goroutine that answers peers has ended; nil
	// without a grant.
	answering chan struct{}
}

// openDomain opens one provider, or the best of those that are RDMA.
func openDomain(o Options, serves bool) (*domain, error) {
	loader.mu.Lock()
	defer loader.mu.Unlock()
	if err := loadLocked(); err != nil {
		return nil, err
	}
	if o.Provider != "" {
		return openDomainLocked(o, serves)
	}
	var failed error
	for _, provider := range rdmaProviders {
		if !isRDMA(provider) {
			continue
		}
		o.Provider = provider
		d, err := openDomainLocked(o, serves)
		if err == nil {
			return d, nil
		}
		// A provider that is there and fails says more than those that are not.
		if failed == nil && !errors.Is(err, ErrNoProvider) {
			failed = err
		}
	}
	if failed != nil {
		return nil, failed
	}
	return nil, fmt.Errorf("%w: none for RDMA, of %v: is there an RDMA device that is up (see fi_info -l and rdma link), and may this process open /dev/infiniband?", ErrNoProvider, rdmaProviders)
}

func openDomainLocked(o Options, serves bool) (*domain, error) {
	if crashes(o.Provider, uint32(C.fab_version())) {
		return nil, crashFault(o.Provider)
	}
	provider := C.CString(o.Provider)
	defer C.free(unsafe.Pointer(provider))
	if !hasIP(o.Provider) {
		o.Address = ""
	}
	address := C.CString(o.Address)
	defer C.free(unsafe.Pointer(address))
	d := &domain{}
	if serves {
		d.grant, d.answering = &C.fab_grant{}, make(chan struct{})
	}
	var key [8]byte
	rand.Read(key[:])
	var instead [C.FAB_PROVIDER_MAX]C.char
	var fault C.fab_error
	region := unsafe.Pointer(unsafe.SliceData(o.Region))
	if C.fab_domain_open(&d.c, provider, address, region, C.uint64_t(len(o.Region)), C.uint64_t(binary.NativeEndian.Uint64(key[:])), d.grant, &instead[0], &fault) != 0 {
		return nil, openFault(o, asError(&fault), C.GoString(&instead[0]))
	}
	if serves {
		go func() {
			defer close(d.answering)
			C.fab_domain_progress(d.c)
		}()
	}
	return d, nil
}

func crashFault(provider string) error {
	return fmt.Errorf(`%w: %q before libfabric 1.18 crashes when a peer goes away: use "net", or a later libfabric`, ErrNoProvider, provider)
}

// openFault says why a provider could not be opened. instead is another that came.
func openFault(o Options, err *Error, instead string) error {
	if err.Code != codeNoData {
		return fmt.Errorf("fabric: open %s for %d MiB: %w%s", o.Provider, len(o.Region)>>20, err, memlockRemedy(err, o.Provider, len(o.Region)))
	}
	where := ""
	if o.Address != "" {
		where = " at " + o.Address
	}
	if crashes(instead, uint32(C.fab_version())) {
		return crashFault(instead)
	}
	if instead != "" {
		return fmt.Errorf("%w: asked for %q%s, this libfabric offers %q: give its full name at both ends", ErrNoProvider, o.Provider, where, instead)
	}
	return fmt.Errorf("%w: %q%s: fi_info -l lists those there are", ErrNoProvider, o.Provider, where)
}

// close ends the answers and frees everything. It may hang: see inTime.
func (d *domain) close() error {
	if d.answering != nil {
		C.fab_domain_stop(d.c)
		<-d.answering
	}
	var fault C.fab_error
	if C.fab_domain_close(d.c, &fault) != 0 {
		return fmt.Errorf("fabric: %w: %w", ErrUnfenced, asError(&fault))
	}
	return nil
}

// memlockRemedy is what to do if hardware could not pin the region or its own queues,
// else "".
func memlockRemedy(err *Error, provider string, bytes int) string {
	if !isRDMA(provider) || err.Code != codeNoMemory && err.Code != codeAgain && err.Code != codeNotAllowed {
		return ""
	}
	var limit syscall.Rlimit
	if syscall.Getrlimit(C.RLIMIT_MEMLOCK, &limit) != nil || limit.Cur/2 >= uint64(bytes) {
		return ""
	}
	return memlockSentence(bytes, limit.Cur)
}

// memlockSentence counts the region twice: once for reads by peers, once for our own.
func memlockSentence(bytes int, limit uint64) string {
	return fmt.Sprintf("; the device pins %d MiB and RLIMIT_MEMLOCK allows %d KiB: set LimitMEMLOCK=infinity in the unit, or ulimit -l unlimited", 2*bytes>>20, limit>>10)
}

// handlers is a checksum of the handlers of signals of the process.
func handlers() uint64 { return uint64(C.fab_handlers()) }
