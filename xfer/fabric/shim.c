//go:build fabric && linux && cgo

#define _GNU_SOURCE
#include "shim.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include <rdma/fabric.h>
#include <rdma/fi_cm.h>
#include <rdma/fi_domain.h>
#include <rdma/fi_endpoint.h>
#include <rdma/fi_errno.h>
#include <rdma/fi_rma.h>

enum {
	CQ_SIZE = 64,            // more than a window: providers may not notice an overrun
	PAUSE_US_MIN = 10,       // back-off where a queue can only be polled
	PAUSE_US_MAX = 50,       // of a client, which waits for data
	PAUSE_US_IDLE = 500,     // of who answers peers, which may take hours, and of a client without a connection
	PAUSE_US_FAULT = 10000,  // of who answers peers, after a fault
	ANSWER_SLICE_MS = 500,   // who answers peers looks at its stop mark at least this often
};

// The library's functions, by the version whose structs the headers describe:
// FABRIC_1.3 is the API from 1.9 to 1.19, and later libraries still have it. All other
// calls are inline functions over tables of pointers. The library is never closed: its
// providers have constructors and threads.
static struct {
	char name[256];
	int (*getinfo)(uint32_t, const char *, const char *, uint64_t, const struct fi_info *, struct fi_info **);
	void (*freeinfo)(struct fi_info *);
	struct fi_info *(*dupinfo)(const struct fi_info *);
	int (*fabric)(struct fi_fabric_attr *, struct fid_fabric **, void *);
	const char *(*strerror)(int);
	uint32_t (*version)(void);
} lib;

struct fab_domain {
	struct fi_info *info;
	struct fid_fabric *fabric;
	struct fid_domain *domain;
	struct fid_mr *mr; // NULL where the provider needs none for its own reads
	// What peers read from; NULL in a domain for our own reads.
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	bool waits; // the queue can be waited for; else it is polled
	atomic_bool stop;
};

struct fab_client {
	fab_domain *shared;
	// Where memory need not be registered for our own reads, a domain of its own: a
	// domain is not used again after a read has failed. net of 1.17 frees the record
	// of a read twice if its answer was cut short; then two reads of that domain, to
	// whatever peer, share one, and wait for ever.
	struct fid_domain *own;
	struct fid_ep *ep;
	struct fid_cq *cq;
	struct fid_av *av;
	fi_addr_t peer;
	bool waits;
	size_t posted;   // pieces handed to the provider
	size_t arrived;  // pieces that are complete; posted - arrived <= FAB_WINDOW are in flight
	// A slot belongs to the provider while its piece is in flight.
	struct fi_context2 slots[FAB_WINDOW];
	int unused[FAB_WINDOW]; // the first FAB_WINDOW - (posted - arrived) entries
};

static int fail(fab_error *err, const char *call, int code)
{
	err->code = code;
	snprintf(err->call, sizeof err->call, "%s", call);
	snprintf(err->text, sizeof err->text, "%s", lib.strerror ? lib.strerror(-code) : strerror(-code));
	return code;
}

static int64_t now_us(void)
{
	struct timespec t;
	clock_gettime(CLOCK_MONOTONIC, &t);
	return (int64_t)t.tv_sec * 1000000 + t.tv_nsec / 1000;
}

static void pause_us(int64_t us)
{
	struct timespec t = {.tv_sec = us / 1000000, .tv_nsec = us % 1000000 * 1000};
	nanosleep(&t, NULL);
}

// Handlers of signals. Providers install their own, psm and psm2 when they are loaded,
// shm with its endpoints, without SA_ONSTACK: on a goroutine's small stack such a
// handler writes over other memory, and Go's runtime loses the signal. Threads that
// providers start take no signals at all: those belong to Go's threads.
struct guard {
	struct sigaction handlers[_NSIG];
	bool known[_NSIG];
	sigset_t mask;
};

static void guard_enter(struct guard *g)
{
	sigset_t all;
	sigfillset(&all);
	for (int s = 1; s < _NSIG; s++)
		g->known[s] = sigaction(s, NULL, &g->handlers[s]) == 0;
	pthread_sigmask(SIG_SETMASK, &all, &g->mask);
}

static void guard_leave(const struct guard *g)
{
	for (int s = 1; s < _NSIG; s++) {
		struct sigaction now;
		if (!g->known[s] || sigaction(s, NULL, &now) != 0)
			continue;
		if (now.sa_sigaction != g->handlers[s].sa_sigaction || now.sa_flags != g->handlers[s].sa_flags)
			sigaction(s, &g->handlers[s], NULL);
	}
	pthread_sigmask(SIG_SETMASK, &g->mask, NULL);
}

uint64_t fab_handlers(void)
{
	uint64_t sum = 0;
	for (int s = 1; s < _NSIG; s++) {
		struct sigaction now;
		if (sigaction(s, NULL, &now) == 0)
			sum = sum * 1099511628211u + (uintptr_t)now.sa_sigaction + (unsigned)now.sa_flags;
	}
	return sum;
}

// Loading.

static int load(const char *library, fab_error *err)
{
	void *handle = dlopen(library, RTLD_NOW | RTLD_LOCAL);
	if (!handle) {
		fail(err, "dlopen", -ENOENT);
		const char *why = dlerror();
		snprintf(err->text, sizeof err->text, "%s", why ? why : library);
		return -ENOENT;
	}
	const struct {
		const char *name, *version;
		void **to;
	} symbols[] = {
		{"fi_getinfo", "FABRIC_1.3", (void **)&lib.getinfo},
		{"fi_freeinfo", "FABRIC_1.3", (void **)&lib.freeinfo},
		{"fi_dupinfo", "FABRIC_1.3", (void **)&lib.dupinfo},
		{"fi_fabric", "FABRIC_1.1", (void **)&lib.fabric},
		{"fi_strerror", "FABRIC_1.0", (void **)&lib.strerror},
		{"fi_version", "FABRIC_1.0", (void **)&lib.version},
	};
	for (size_t i = 0; i < sizeof symbols / sizeof *symbols; i++) {
		void *found = dlvsym(handle, symbols[i].name, symbols[i].version);
		if (!found) {
			fail(err, "dlvsym", -ENOENT);
			snprintf(err->text, sizeof err->text, "%s has no %s of %s", library, symbols[i].name, symbols[i].version);
			return -ENOENT;
		}
		*symbols[i].to = found;
	}
	snprintf(lib.name, sizeof lib.name, "%s", library);
	return 0;
}

int fab_load(const char *library, fab_error *err)
{
	if (lib.name[0] && strcmp(lib.name, library) == 0)
		return 0;
	struct guard g;
	guard_enter(&g);
	int rc = load(library, err);
	guard_leave(&g);
	return rc;
}

uint32_t fab_version(void)
{
	return lib.version();
}

// Finding a provider.

// getinfo asks for reliable endpoints that read and are read. NULL asks for all
// providers. The caller frees *out.
static int getinfo(const char *provider, const char *address, struct fi_info **out, fab_error *err)
{
	struct fi_info *hints = lib.dupinfo(NULL);
	if (!hints)
		return fail(err, "fi_dupinfo", -FI_ENOMEM);
	hints->caps = FI_MSG | FI_RMA | FI_READ | FI_REMOTE_READ;
	hints->mode = FI_CONTEXT | FI_CONTEXT2; // slots are struct fi_context2
	hints->ep_attr->type = FI_EP_RDM;
	hints->domain_attr->threading = FI_THREAD_SAFE;
	hints->domain_attr->mr_mode = FI_MR_LOCAL | FI_MR_VIRT_ADDR | FI_MR_ALLOCATED | FI_MR_PROV_KEY | FI_MR_ENDPOINT;
	hints->fabric_attr->prov_name = provider ? strdup(provider) : NULL;
	const char *node = address && address[0] ? address : NULL;
	uint32_t version = FI_VERSION(1, 17);
	if (lib.version() < version)
		version = lib.version();
	int rc = lib.getinfo(version, node, NULL, node ? FI_SOURCE : 0, hints, out);
	lib.freeinfo(hints);
	return rc ? fail(err, "fi_getinfo", rc) : 0;
}

static void describe(const struct fi_info *info, fab_info *out)
{
	memset(out, 0, sizeof *out);
	snprintf(out->provider, sizeof out->provider, "%s", info->fabric_attr->prov_name);
	out->protocol = info->ep_attr->protocol;
	out->format = info->addr_format;
}

int fab_list(fab_info *out, int max, fab_error *err)
{
	struct fi_info *all = NULL;
	struct guard g;
	guard_enter(&g);
	int rc = getinfo(NULL, NULL, &all, err);
	guard_leave(&g);
	if (rc == -FI_ENODATA)
		return 0;
	if (rc)
		return rc;
	int count = 0;
	for (struct fi_info *i = all; i && count < max; i = i->next) {
		fab_info one;
		describe(i, &one);
		bool seen = false;
		for (int k = 0; k < count && !seen; k++)
			seen = strcmp(out[k].provider, one.provider) == 0 && out[k].protocol == one.protocol;
		if (!seen)
			out[count++] = one;
	}
	lib.freeinfo(all);
	return count;
}

// choose leaves in d->info the first entry of exactly that provider. A provider that
// is only like the one asked for speaks another protocol, and reads from it would hang.
static int choose(fab_domain *d, const char *provider, const char *address, char *instead, fab_error *err)
{
	struct fi_info *all = NULL;
	int rc = getinfo(provider, address, &all, err);
	if (rc)
		return rc;
	for (struct fi_info *i = all; i && !d->info; i = i->next) {
		if (strcmp(i->fabric_attr->prov_name, provider) == 0)
			d->info = lib.dupinfo(i);
		else if (!instead[0])
			snprintf(instead, FAB_PROVIDER_MAX, "%s", i->fabric_attr->prov_name);
	}
	lib.freeinfo(all);
	return d->info ? 0 : fail(err, "fi_getinfo", -FI_ENODATA);
}

// Endpoints.

// open_queue opens a queue that can be waited for, or one that can only be polled
// where the provider has no other or, as shm up to 1.17, hangs in its wait.
static int open_queue(const struct fi_info *info, struct fid_domain *domain, struct fid_cq **cq, bool *waits, fab_error *err)
{
	struct fi_cq_attr attr = {.size = CQ_SIZE, .format = FI_CQ_FORMAT_CONTEXT, .wait_obj = FI_WAIT_UNSPEC};
	*waits = strncmp(info->fabric_attr->prov_name, "shm", 3) != 0;
	if (*waits && fi_cq_open(domain, &attr, cq, NULL) == 0)
		return 0;
	*waits = false;
	attr.wait_obj = FI_WAIT_NONE;
	int rc = fi_cq_open(domain, &attr, cq, NULL);
	return rc ? fail(err, "fi_cq_open", rc) : 0;
}

static int open_endpoint(struct fi_info *info, struct fid_domain *domain, struct fid_ep **ep, struct fid_cq **cq,
			 struct fid_av **av, bool *waits, fab_error *err)
{
	struct fi_av_attr attr = {.type = info->domain_attr->av_type};
	int rc = open_queue(info, domain, cq, waits, err);
	if (rc)
		return rc;
	if ((rc = fi_av_open(domain, &attr, av, NULL)))
		return fail(err, "fi_av_open", rc);
	if ((rc = fi_endpoint(domain, info, ep, NULL)))
		return fail(err, "fi_endpoint", rc);
	if ((rc = fi_ep_bind(*ep, &(*cq)->fid, FI_TRANSMIT | FI_RECV)) || (rc = fi_ep_bind(*ep, &(*av)->fid, 0)))
		return fail(err, "fi_ep_bind", rc);
	if ((rc = fi_enable(*ep)))
		return fail(err, "fi_enable", rc);
	return 0;
}

// shut closes an object once. An endpoint is closed before the queue it reports to: its
// end is the end of all that is in flight.
static int shut(struct fid **fid, fab_error *err)
{
	int rc = *fid ? fi_close(*fid) : 0;
	if (rc)
		return fail(err, "fi_close", rc);
	*fid = NULL;
	return 0;
}

#define SHUT(object, err) ((object) ? shut((struct fid **)&(object), err) : 0)

// Domains.

static int offer(fab_domain *d, void *region, uint64_t bytes, uint64_t key, fab_grant *grant, fab_error *err)
{
	int rc = open_endpoint(d->info, d->domain, &d->ep, &d->cq, &d->av, &d->waits, err);
	if (rc)
		return rc;
	grant->name_bytes = sizeof grant->name;
	if ((rc = fi_getname(&d->ep->fid, grant->name, &grant->name_bytes)))
		return fail(err, "fi_getname", rc);
	uint64_t mode = d->info->domain_attr->mr_mode;
	size_t key_bytes = d->info->domain_attr->mr_key_size;
	if (key_bytes && key_bytes < sizeof key)
		key &= ((uint64_t)1 << (8 * key_bytes)) - 1;
	rc = fi_mr_reg(d->domain, region, bytes, FI_REMOTE_READ, 0, mode & FI_MR_PROV_KEY ? 0 : key, 0, &d->mr, NULL);
	if (rc)
		return fail(err, "fi_mr_reg", rc);
	if ((mode & FI_MR_ENDPOINT) && ((rc = fi_mr_bind(d->mr, &d->ep->fid, 0)) || (rc = fi_mr_enable(d->mr))))
		return fail(err, "fi_mr_enable", rc);
	grant->key = fi_mr_key(d->mr);
	if (grant->key == FI_KEY_NOTAVAIL) // longer than 64 bits
		return fail(err, "fi_mr_key", -FI_EKEYREJECTED);
	grant->base = mode & FI_MR_VIRT_ADDR ? (uintptr_t)region : 0;
	return 0;
}

static int open_domain(fab_domain *d, const char *provider, const char *address, char *instead, fab_error *err)
{
	int rc = choose(d, provider, address, instead, err);
	if (rc)
		return rc;
	if ((rc = lib.fabric(d->info->fabric_attr, &d->fabric, NULL)))
		return fail(err, "fi_fabric", rc);
	if ((rc = fi_domain(d->fabric, d->info, &d->domain, NULL)))
		return fail(err, "fi_domain", rc);
	return 0;
}

int fab_domain_open(fab_domain **out, const char *provider, const char *address, void *region, uint64_t bytes,
		    uint64_t key, fab_grant *grant, char instead[FAB_PROVIDER_MAX], fab_error *err)
{
	instead[0] = 0;
	fab_domain *d = calloc(1, sizeof *d);
	if (!d)
		return fail(err, "calloc", -ENOMEM);
	struct guard g;
	guard_enter(&g);
	int rc = open_domain(d, provider, address, instead, err);
	if (!rc && grant)
		rc = offer(d, region, bytes, key, grant, err);
	else if (!rc && (d->info->domain_attr->mr_mode & FI_MR_LOCAL) &&
		 (rc = fi_mr_reg(d->domain, region, bytes, FI_READ, 0, key, 0, &d->mr, NULL)))
		fail(err, "fi_mr_reg", rc);
	guard_leave(&g);
	if (rc) {
		fab_error ignored;
		fab_domain_close(d, &ignored);
		return rc;
	}
	*out = d;
	return 0;
}

void fab_domain_info(const fab_domain *d, fab_info *out)
{
	describe(d->info, out);
}

// reap takes at most FAB_WINDOW completions, waiting for at most wait_ms where the
// queue can be waited for. It returns how many, -FI_EAGAIN, or the error of a
// completion. Waits end early for signals and for fab_domain_stop.
static int reap(struct fid_cq *cq, bool waits, int wait_ms, struct fi_cq_entry *entries, fab_error *err)
{
	ssize_t n = waits && wait_ms > 0 ? fi_cq_sread(cq, entries, FAB_WINDOW, NULL, wait_ms) : fi_cq_read(cq, entries, FAB_WINDOW);
	if (n >= 0)
		return (int)n;
	if (n == -FI_EAGAIN || n == -FI_EINTR || n == -FI_ETIMEDOUT || n == -FI_ECANCELED)
		return -FI_EAGAIN;
	if (n != -FI_EAVAIL)
		return fail(err, "fi_cq_read", (int)n);
	struct fi_cq_err_entry entry = {0};
	n = fi_cq_readerr(cq, &entry, 0);
	if (n < 0)
		return fail(err, "fi_cq_readerr", (int)n);
	int code = entry.err > 0 ? -entry.err : -FI_EOTHER;
	char more[128] = "";
	const char *text = fi_cq_strerror(cq, entry.prov_errno, entry.err_data, more, sizeof more);
	fail(err, "fi_read", code);
	if (text && text[0] && strcmp(text, err->text) != 0) {
		size_t used = strlen(err->text);
		snprintf(err->text + used, sizeof err->text - used, " (%s)", text);
	}
	return code;
}

void fab_domain_progress(fab_domain *d)
{
	struct fi_cq_entry entries[FAB_WINDOW];
	int64_t pause = PAUSE_US_MIN;
	while (!atomic_load(&d->stop)) {
		fab_error ignored; // of one peer's read; the peer is told
		int n = reap(d->cq, d->waits, ANSWER_SLICE_MS, entries, &ignored);
		if (n > 0)
			pause = PAUSE_US_MIN;
		else if (n != -FI_EAGAIN)
			pause_us(PAUSE_US_FAULT);
		else if (!d->waits) {
			pause_us(pause);
			pause = pause * 2 < PAUSE_US_IDLE ? pause * 2 : PAUSE_US_IDLE;
		}
	}
}

void fab_domain_stop(fab_domain *d)
{
	atomic_store(&d->stop, true);
	if (d->waits)
		fi_cq_signal(d->cq);
}

int fab_domain_close(fab_domain *d, fab_error *err)
{
	int rc;
	// Memory bound to an endpoint goes first, and all before their domain.
	if ((rc = SHUT(d->mr, err)) || (rc = SHUT(d->ep, err)) || (rc = SHUT(d->cq, err)) || (rc = SHUT(d->av, err)) ||
	    (rc = SHUT(d->domain, err)) || (rc = SHUT(d->fabric, err)))
		return rc;
	if (d->info)
		lib.freeinfo(d->info);
	free(d);
	return 0;
}

// The client.

static int client_open(fab_client *c, const void *name, size_t bytes, fab_error *err)
{
	// Providers read as many bytes as an address of their format has, and texts up to
	// their zero, whatever a peer has sent.
	char padded[2 * FAB_NAME_MAX] = {0};
	memcpy(padded, name, bytes < FAB_NAME_MAX ? bytes : FAB_NAME_MAX);
	struct fid_domain *domain = c->shared->domain;
	int rc;
	if (!c->shared->mr) {
		if ((rc = fi_domain(c->shared->fabric, c->shared->info, &c->own, NULL)))
			return fail(err, "fi_domain", rc);
		domain = c->own;
	}
	if ((rc = open_endpoint(c->shared->info, domain, &c->ep, &c->cq, &c->av, &c->waits, err)))
		return rc;
	rc = fi_av_insert(c->av, padded, 1, &c->peer, 0, NULL);
	if (rc != 1)
		return fail(err, "fi_av_insert", rc < 0 ? rc : -FI_EADDRNOTAVAIL);
	return 0;
}

int fab_client_open(fab_client **out, fab_domain *d, const void *name, size_t bytes, fab_error *err)
{
	fab_client *c = calloc(1, sizeof *c);
	if (!c)
		return fail(err, "calloc", -ENOMEM);
	c->shared = d;
	fab_client_begin(c);
	struct guard g;
	guard_enter(&g);
	int rc = client_open(c, name, bytes, err);
	guard_leave(&g);
	if (rc) {
		fab_error ignored;
		fab_client_close(c, &ignored);
		return rc;
	}
	*out = c;
	return 0;
}

void fab_client_begin(fab_client *c)
{
	c->posted = c->arrived = 0;
	for (int i = 0; i < FAB_WINDOW; i++)
		c->unused[i] = i;
}

size_t fab_client_arrived(const fab_client *c)
{
	return c->arrived;
}

size_t fab_client_posted(const fab_client *c)
{
	return c->posted;
}

// post fills the window. It returns -FI_EAGAIN if the provider wants to be asked
// again, as it does until there is a connection.
static int post(fab_client *c, const fab_piece *pieces, size_t count, uint64_t key, fab_error *err)
{
	void *descriptor = c->shared->mr ? fi_mr_desc(c->shared->mr) : NULL;
	while (c->posted < count && c->posted - c->arrived < FAB_WINDOW) {
		const fab_piece *p = &pieces[c->posted];
		int slot = c->unused[FAB_WINDOW - 1 - (c->posted - c->arrived)];
		ssize_t rc = fi_read(c->ep, (void *)p->local, p->bytes, descriptor, c->peer, p->remote, key, &c->slots[slot]);
		if (rc == -FI_EAGAIN)
			return -FI_EAGAIN;
		if (rc)
			return fail(err, "fi_read", (int)rc);
		c->posted++;
	}
	return 0;
}

// release gives the slots of completions back.
static int release(fab_client *c, const struct fi_cq_entry *entries, int n, fab_error *err)
{
	for (int i = 0; i < n; i++) {
		ptrdiff_t slot = (struct fi_context2 *)entries[i].op_context - c->slots;
		if (slot < 0 || slot >= FAB_WINDOW || c->arrived == c->posted)
			return fail(err, "fi_cq_read", -FI_EOTHER);
		c->arrived++;
		c->unused[FAB_WINDOW - 1 - (c->posted - c->arrived)] = (int)slot;
	}
	return 0;
}

int fab_client_step(fab_client *c, const fab_piece *pieces, size_t count, uint64_t key, int slice_us, fab_error *err)
{
	struct fi_cq_entry entries[FAB_WINDOW];
	int64_t end = now_us() + slice_us, pause = PAUSE_US_MIN;
	while (c->arrived < count) {
		int refused = post(c, pieces, count, key, err);
		if (refused && refused != -FI_EAGAIN)
			return refused;
		int64_t left = end - now_us();
		if (left <= 0)
			return 0;
		// With nothing in flight no completion would end a wait.
		bool wait = c->waits && c->posted > c->arrived;
		int n = reap(c->cq, wait, (int)(left / 1000) + 1, entries, err);
		if (n < 0 && n != -FI_EAGAIN)
			return n;
		if (n > 0) {
			int rc = release(c, entries, n, err);
			if (rc)
				return rc;
			pause = PAUSE_US_MIN;
		} else if (!wait) {
			int64_t most = c->posted > c->arrived ? PAUSE_US_MAX : PAUSE_US_IDLE;
			pause_us(pause);
			pause = pause * 2 < most ? pause * 2 : most;
		}
	}
	return 1;
}

int fab_client_close(fab_client *c, fab_error *err)
{
	int rc;
	if ((rc = SHUT(c->ep, err)) || (rc = SHUT(c->cq, err)) || (rc = SHUT(c->av, err)) ||
	    (rc = SHUT(c->own, err)))
		return rc;
	free(c);
	return 0;
}
