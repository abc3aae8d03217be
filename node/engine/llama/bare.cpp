#include <algorithm>
#include <chrono>

#include "bridge_internal.h"
#include "logits.h"

namespace {

using clock_type = std::chrono::steady_clock;

double seconds_since(clock_type::time_point start) {
    return std::chrono::duration<double>(clock_type::now() - start).count();
}

// bare_run is the state of one run: the next token and position of each
// sequence.
struct bare_run {
    td_model & m;
    const volatile int32_t * stop;
    std::vector<int32_t> next;
    int32_t position = 0;

    void decode(int32_t n) {
        if (*stop) {
            throw std::runtime_error("stopped");
        }
        td_error err{};
        if (decode_batch(m, n, &err) != 0) {
            throw std::runtime_error(std::string("llama_decode failed: ") + err.text);
        }
    }

    void set(int32_t i, int32_t token, int32_t pos, int32_t seq, bool logits) {
        m.token[size_t(i)] = token;
        m.pos[size_t(i)] = pos;
        m.seq[size_t(i)] = seq;
        m.logits[size_t(i)] = logits;
    }

    int32_t best(int32_t i) { return argmax(llama_get_logits_ith(m.ctx, i), m.n_vocab); }

    void prefill(int32_t seq, int32_t tokens) {
        // Any tokens do, but not always the same ones.
        uint32_t random = uint32_t(seq) + 1;
        int32_t batch = int32_t(m.token.size());
        for (int32_t from = 0; from < tokens; from += batch) {
            int32_t n = std::min(batch, tokens - from);
            for (int32_t i = 0; i < n; i++) {
                random = random * 1664525u + 1013904223u;
                set(i, int32_t((random >> 8) % uint32_t(m.n_vocab)), from + i, seq, from + i == tokens - 1);
            }
            decode(n);
            if (from + n == tokens) {
                next[size_t(seq)] = best(n - 1);
            }
        }
    }

    void step() {
        int32_t n = int32_t(next.size());
        for (int32_t i = 0; i < n; i++) {
            set(i, next[size_t(i)], position, i, true);
        }
        decode(n);
        for (int32_t i = 0; i < n; i++) {
            next[size_t(i)] = best(i);
        }
        position++;
    }
};

} // namespace

extern "C" int td_bare(td_model * m, int32_t prompt, int32_t generate, int32_t sequences, const volatile int32_t * stop, td_bare_result * out, td_error * err) {
    return guarded(err, int(TD_FAILED), [&]() -> int {
        llama_memory_clear(m->memory, false);
        bare_run run{*m, stop, std::vector<int32_t>(size_t(sequences)), prompt};
        auto start = clock_type::now();
        for (int32_t s = 0; s < sequences; s++) {
            run.prefill(s, prompt);
        }
        out->prefill_seconds = seconds_since(start);
        start = clock_type::now();
        for (int32_t i = 0; i < generate; i++) {
            run.step();
        }
        out->decode_seconds = seconds_since(start);
        llama_memory_clear(m->memory, false);
        return TD_OK;
    });
}
