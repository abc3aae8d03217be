#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "bridge_internal.h"

extern "C" void goLog(int level, char * text);

namespace {

constexpr size_t captured_bytes_max = 2048;

std::atomic<int> min_level{GGML_LOG_LEVEL_WARN};

// Depth of nested captures on this thread, and what they have collected.
thread_local int captures = 0;
thread_local std::string captured;
thread_local log_capture::what capturing = log_capture::only_text;
// Level of the line that a CONT message continues.
thread_local int last_level = GGML_LOG_LEVEL_INFO;

// on_abort is called by a failed assertion, whose next step would be abort().
// While a capture is open on this thread the failure is an exception instead.
void on_abort(const char * message) {
    const char * slash = std::strrchr(message, '/');
    const char * text = slash ? slash + 1 : message;
    if (captures > 0 && capturing == log_capture::with_assertions) {
        throw std::runtime_error(text);
    }
    std::fprintf(stderr, "llama.cpp: %s\n", text);
}

} // namespace

void on_log(ggml_log_level level, const char * text, void *) {
    int l = level == GGML_LOG_LEVEL_CONT ? last_level : int(level);
    last_level = l;
    if (captures > 0 && l == GGML_LOG_LEVEL_ERROR) {
        if (captured.size() < captured_bytes_max) {
            captured += text;
        }
        l = GGML_LOG_LEVEL_DEBUG; // it comes back as the error of the call
    }
    if (l >= min_level.load(std::memory_order_relaxed)) {
        goLog(l, const_cast<char *>(text));
    }
}

log_capture::log_capture(what w) : before_(capturing) {
    capturing = w;
    if (captures++ == 0) {
        captured.clear();
    }
}

log_capture::~log_capture() {
    captures--;
    capturing = before_;
}

std::string log_capture::text(const char * fallback) const {
    return captured.empty() ? std::string(fallback) : captured;
}

void set_error(td_error * err, const std::string & text) {
    size_t n = text.size() < sizeof err->text - 1 ? text.size() : sizeof err->text - 1;
    std::memcpy(err->text, text.data(), n);
    err->text[n] = 0;
}

extern "C" void td_init(void) {
    llama_log_set(on_log, nullptr);
    ggml_set_abort_callback(on_abort);
    llama_backend_init();
}

extern "C" void td_set_log_level(int32_t level) { min_level.store(level); }
