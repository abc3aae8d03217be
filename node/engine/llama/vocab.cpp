#include <pthread.h>

#include <climits>

#include "bridge_internal.h"

namespace {

struct tokenize_call {
    const llama_vocab * vocab;
    const char * text;
    int32_t len;
    int32_t * tokens;
    int32_t n;
    bool special;
    td_error * err;
    int32_t result;

    void run() {
        result = guarded(err, INT32_MIN, [&]() -> int32_t {
            log_capture log;
            int32_t got = llama_tokenize(vocab, text, len, tokens, n, false, special);
            if (got == INT32_MIN) {
                set_error(err, "too many tokens");
            }
            return got;
        });
    }
};

void * run_tokenize(void * call) {
    static_cast<tokenize_call *>(call)->run();
    return nullptr;
}

// run_on_stack runs c on a thread of its own with that much stack.
bool run_on_stack(tokenize_call & c, size_t stack) {
    pthread_attr_t attr;
    if (pthread_attr_init(&attr) != 0) {
        return false;
    }
    pthread_t thread;
    bool started = pthread_attr_setstacksize(&attr, stack) == 0 && pthread_create(&thread, &attr, run_tokenize, &c) == 0;
    pthread_attr_destroy(&attr);
    return started && pthread_join(thread, nullptr) == 0;
}

} // namespace

extern "C" void td_vocab(td_model * m, td_vocab_info * out) {
    out->size = m->n_vocab;
    out->uses_regex = llama_vocab_type(m->vocab) == LLAMA_VOCAB_TYPE_BPE;
    out->bos = llama_vocab_bos(m->vocab);
    out->eos = llama_vocab_eos(m->vocab);
    out->sep = llama_vocab_sep(m->vocab);
    out->fim_prefix = llama_vocab_fim_pre(m->vocab);
    out->fim_suffix = llama_vocab_fim_suf(m->vocab);
    out->fim_middle = llama_vocab_fim_mid(m->vocab);
    out->add_bos = llama_vocab_get_add_bos(m->vocab);
    out->add_eos = llama_vocab_get_add_eos(m->vocab);
    out->add_sep = llama_vocab_get_add_sep(m->vocab);
}

extern "C" int32_t td_piece(td_model * m, int32_t token, char * buf, int32_t n, uint8_t * flags, td_error * err) {
    return guarded(err, INT32_MIN, [&]() -> int32_t {
        log_capture log;
        *flags = m->flags.at(size_t(token));
        return llama_token_to_piece(m->vocab, token, buf, n, 0, true);
    });
}

extern "C" int32_t td_tokenize(td_model * m, const char * text, int32_t len, int32_t * tokens, int32_t n, bool special, size_t stack, td_error * err) {
    tokenize_call c{m->vocab, text, len, tokens, n, special, err, INT32_MIN};
    if (stack == 0) {
        c.run();
    } else if (!run_on_stack(c, stack)) {
        set_error(err, "no memory for the stack that this text needs");
    }
    return c.result;
}
