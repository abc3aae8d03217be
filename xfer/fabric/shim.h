// What the Go side of package fabric calls. Two kinds of object: a fab_domain has the
// region registered, either for reads by peers, and then it has the endpoint that they
// read from, or for our own; a fab_client is an endpoint of its own in the second kind
// of domain, for the reads from one peer. It can be closed, which is what makes late
// data impossible, without touching any other.
//
// Invariants. Nothing here calls into Go or keeps a pointer to Go memory. Every
// function that can fail returns 0 or a negative code of libfabric and fills in the
// fab_error. Handlers of signals are the same after a call as before it.
#ifndef TANDEM_XFER_FABRIC_SHIM_H
#define TANDEM_XFER_FABRIC_SHIM_H

#include <stddef.h>
#include <stdint.h>

enum {
	FAB_NAME_MAX = 256,    // bytes of the name of an endpoint
	FAB_PROVIDER_MAX = 64, // bytes of the name of a provider, with its zero
	FAB_WINDOW = 16,       // reads in flight of one client
};

typedef struct {
	int code;           // negative, of libfabric; 0: a fault found here
	char call[32];      // what failed
	char text[256];     // libfabric's text
} fab_error;

typedef struct {
	char provider[FAB_PROVIDER_MAX];
	uint32_t protocol;
	uint32_t format; // of names
} fab_info;

// What a peer needs to read the region.
typedef struct {
	unsigned char name[FAB_NAME_MAX]; // of the endpoint
	size_t name_bytes;
	uint64_t key;
	uint64_t base; // address of the first byte in a read; 0 where reads count from the region's start
} fab_grant;

// A contiguous read. Its pages lie in the region, so that the number stays valid.
typedef struct {
	uint64_t remote; // address as the peer's provider counts
	uintptr_t local;
	uint64_t bytes;
} fab_piece;

typedef struct fab_domain fab_domain;
typedef struct fab_client fab_client;

// fab_load opens the library once; later calls with the same name do nothing.
// Concurrent calls of this, fab_list, fab_domain_open and fab_client_open exclude
// each other: the caller holds one lock for all of them.
int fab_load(const char *library, fab_error *err);
uint32_t fab_version(void); // of the loaded library: major << 16 | minor

// fab_list writes at most max different providers that can do one-sided reads and
// returns how many it wrote.
int fab_list(fab_info *out, int max, fab_error *err);

// fab_domain_open opens the provider of exactly that name. With a grant, it registers
// the region for reads by peers, under the given key where the provider lets us
// choose, and says in the grant what peers need; else for our own reads. If only other
// providers came, it fails with -FI_ENODATA and instead holds the name of the first.
// An address of "" leaves the interface to the provider.
int fab_domain_open(fab_domain **out, const char *provider, const char *address, void *region, uint64_t bytes,
		    uint64_t key, fab_grant *grant, char instead[FAB_PROVIDER_MAX], fab_error *err);
void fab_domain_info(const fab_domain *d, fab_info *out);
// fab_domain_progress answers peers until fab_domain_stop. Exactly one thread runs it,
// and only if there is a grant.
void fab_domain_progress(fab_domain *d);
void fab_domain_stop(fab_domain *d);
// fab_domain_close frees everything, after the progress has ended and all clients are
// closed. If it fails the domain must not be used again and its memory stays: what the
// provider still holds may point to it.
int fab_domain_close(fab_domain *d, fab_error *err);

int fab_client_open(fab_client **out, fab_domain *d, const void *name, size_t bytes, fab_error *err);
// fab_client_begin makes the client ready for a new list of pieces. Nothing may be in
// flight.
void fab_client_begin(fab_client *c);
// fab_client_step keeps the window full until all pieces have arrived, which returns
// 1, or about slice_us have gone by, which returns 0 and wants another call with the
// same pieces. After an error the client must be closed: pieces may be in flight.
int fab_client_step(fab_client *c, const fab_piece *pieces, size_t count, uint64_t key, int slice_us, fab_error *err);
size_t fab_client_arrived(const fab_client *c);
// fab_client_posted is how many pieces the provider has taken. Before there is a
// connection it takes none, and tries to connect for ever.
size_t fab_client_posted(const fab_client *c);
// fab_client_close ends what is in flight. Once it has returned 0 nothing is written
// to local memory any more, whatever the peer sends. If it fails, that is not known;
// the client must not be used again and its memory stays.
int fab_client_close(fab_client *c, fab_error *err);

// fab_handlers is a checksum of all handlers of signals of the process; for tests.
uint64_t fab_handlers(void);

#endif
