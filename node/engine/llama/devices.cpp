#if !defined(_WIN32)
#include <dlfcn.h>
#endif

#include <cstring>

#include "bridge_internal.h"

namespace {

// quieten hands the log of a backend folder's own copy of ggml to ours: shared
// backends do not see the copy that is linked into this program.
void quieten(const std::string & dir) {
#if defined(_WIN32)
    (void) dir;
#else
#if defined(__APPLE__)
    const char * name = "/libggml-base.dylib";
#else
    const char * name = "/libggml-base.so";
#endif
    void * base = dlopen((dir + name).c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!base) {
        return;
    }
    void * f = dlsym(base, "ggml_log_set");
    if (f) {
        void (*set)(ggml_log_callback, void *);
        std::memcpy(&set, &f, sizeof set);
        set(on_log, nullptr);
    }
#endif
}

} // namespace

extern "C" void td_load_backends(const char * dir) {
    quieten(dir);
    ggml_backend_load_all_from_path(dir);
}

extern "C" size_t td_device_count(void) { return ggml_backend_dev_count(); }

extern "C" void td_device_get(size_t i, td_device * out) {
    ggml_backend_dev_t d = ggml_backend_dev_get(i);
    std::memset(out, 0, sizeof *out);
    std::strncpy(out->name, ggml_backend_dev_name(d), sizeof out->name - 1);
    std::strncpy(out->description, ggml_backend_dev_description(d), sizeof out->description - 1);
    out->kind = ggml_backend_dev_type(d);
    size_t free = 0, total = 0;
    ggml_backend_dev_memory(d, &free, &total);
    out->free_bytes = free;
    out->total_bytes = total;
}
