// What the C++ files of this package share.
#ifndef TANDEM_BRIDGE_INTERNAL_H
#define TANDEM_BRIDGE_INTERNAL_H

#include <exception>
#include <memory>
#include <stdexcept>
#include <string>
#include <vector>

#include "abi.h"
#include "bridge.h"
#include "runner.h"

struct candidate {
    int32_t token;
    float logit;
};

struct td_model {
    llama_model * model = nullptr;
    llama_context * ctx = nullptr;
    llama_memory_t memory = nullptr; // NULL: an encoder without KV cache
    const llama_vocab * vocab = nullptr;
    ggml_threadpool * pool = nullptr;
    int32_t n_vocab = 0;
    bool embeds = false;
    bool pooled = false; // by llama.cpp, over the rows of one batch

    std::vector<uint8_t> flags; // TD_TOKEN_* of every token
    std::vector<int32_t> eog;

    // The batch handed to llama_decode points into these.
    std::vector<int32_t> token, pos, seq, n_seq;
    std::vector<int32_t *> seq_ptr;
    std::vector<int8_t> logits;

    // What became of it. The thread ends before anything it uses.
    struct {
        int rc = 0;
        td_timing timing{};
        td_error err{};
    } decoded;
    std::unique_ptr<runner> thread;

    // How KV rows of one token look: K and V of each layer in turn. Empty if they
    // cannot be moved.
    struct {
        std::vector<td_kv_row> rows;
        std::vector<uint32_t> caches; // layers of each
        uint32_t streams = 0;
        uint64_t token_bytes = 0;
    } kv;

    // Scratch of the owner thread's td_sample.
    std::vector<candidate> candidates;
    std::vector<float> masked;
    std::vector<float> weights;

    ~td_model();
};

// log_capture collects the errors that llama.cpp logs on this thread while it
// lives, and turns failed assertions on this thread into exceptions; not during
// computations, whose other threads would wait for this one for ever.
class log_capture {
public:
    enum what { with_assertions, only_text };
    explicit log_capture(what w = with_assertions);
    ~log_capture();
    // text is the lines that were logged as errors, or fallback.
    std::string text(const char * fallback) const;

private:
    what before_;
    log_capture(const log_capture &) = delete;
    log_capture & operator=(const log_capture &) = delete;
};

// decode_batch computes the first n entries of m's batch and returns what
// llama_decode returns; err tells more of anything but 0 and 1.
int decode_batch(td_model & m, int32_t n, td_error * err);

// describe_kv finds out how the rows of sequence 0, which holds some, look. It
// throws if they cannot be moved.
void describe_kv(td_model & m);

// on_log takes a line of llama.cpp's log.
void on_log(ggml_log_level level, const char * text, void * user_data);

void set_error(td_error * err, const std::string & text);

// guarded runs f; an exception becomes err and the value failed.
template <typename T, typename F>
T guarded(td_error * err, T failed, F f) {
    try {
        return f();
    } catch (const std::exception & e) {
        set_error(err, e.what());
    } catch (...) {
        set_error(err, "unknown C++ exception");
    }
    return failed;
}

#endif
