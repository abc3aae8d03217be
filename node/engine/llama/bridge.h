// What Go calls. Functions return 0 or a value documented below; no C++
// exception and no failed assertion of llama.cpp that these functions can
// reach during load, tokenising or sampling crosses them: they become a text in
// td_error.
#ifndef TANDEM_BRIDGE_H
#define TANDEM_BRIDGE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct { char text[1024]; } td_error;

typedef struct td_model td_model;     // weights, context, KV cache
typedef struct td_sampler td_sampler; // sampling state of one sequence

enum { TD_OK = 0, TD_NO_ROOM = 1, TD_FAILED = -1, TD_CANCELLED = -2 };

// ---- process -----------------------------------------------------------------

// td_init must run once before everything else. Lines of llama.cpp's log below
// min_level (GGML's numbering) never reach Go.
void td_init(void);
void td_set_log_level(int32_t min_level);
void td_load_backends(const char * dir);

typedef struct {
    char name[64];
    char description[128];
    int32_t kind; // enum ggml_backend_dev_type
    uint64_t free_bytes;
    uint64_t total_bytes;
} td_device;

size_t td_device_count(void);
void td_device_get(size_t i, td_device * out);

// ---- model -------------------------------------------------------------------

typedef struct {
    const char * path;
    uint32_t context;   // tokens of one sequence; 0: what the model was trained on
    uint32_t sequences; // each with a cache of its own
    uint32_t batch;
    uint32_t micro_batch;
    int32_t kv_type;    // enum ggml_type
    int32_t gpu_layers;
    int32_t threads;
    int32_t poll;       // how eagerly idle compute threads spin, 0 ... 100
    bool embeddings;
    uintptr_t progress; // handed to goProgress
    int done;           // the file descriptor that td_decode writes to
} td_options;

typedef struct {
    char architecture[64];
    char description[128];
    const char * chat_template; // lives as long as the model; may be NULL
    uint64_t parameters;
    uint64_t size_bytes;
    int32_t context_train;
    int32_t layers;
    int32_t embedding;
    int32_t sliding_window;
    int32_t vocab_size;
    uint32_t context;
    uint32_t batch;
    uint32_t micro_batch;
    uint32_t sequences;
    bool has_memory;
    bool recurrent;
    bool fixed_positions; // none beyond context_train can be computed
    bool embeds;          // embeddings instead of text
    bool whole_batch;     // a sequence to embed must be in one batch
} td_info;

// td_load returns NULL with err filled; err->text is empty if goProgress
// refused to go on.
td_model * td_load(const td_options * o, td_info * info, td_error * err);
// td_load_vocab reads no weights: of its model only the functions for vocabularies
// and td_free may be used, and of info chat_template, context_train and embeds hold.
td_model * td_load_vocab(const char * path, td_info * info, td_error * err);
void td_free(td_model * m);

// The arrays that td_decode reads, each of info.batch entries.
typedef struct {
    int32_t * token;
    int32_t * pos;
    int32_t * seq;
    int8_t * logits;
} td_batch;

td_batch td_get_batch(td_model * m);

// td_timing is how long the computing thread was in a computation, and how much of
// that it ran; equal where that is not known or waiting has another cause.
typedef struct { int64_t wall_ns, cpu_ns; } td_timing;

// td_decode begins to compute the first n entries of the batch on the thread of m.
// One byte is written to options.done when td_decoded can tell the result; until
// then nothing else may be called with m.
void td_decode(td_model * m, int32_t n);
int td_decoded(td_model * m, td_timing * timing, td_error * err);
void td_set_threads(td_model * m, int32_t n);
bool td_seq_remove(td_model * m, int32_t seq, int32_t from);

// td_embedding: i is the batch entry whose row is wanted when nothing is pooled.
const float * td_embedding(td_model * m, int32_t seq, int32_t i);

// ---- KV rows -------------------------------------------------------------------

// td_kv_row is how one layer keeps K or V of one token.
typedef struct { int32_t type; uint32_t bytes; } td_kv_row; // enum ggml_type

// td_kv_layout gives K and V of each layer in turn. 0: rows of this model cannot
// be moved.
size_t td_kv_layout(td_model * m, const td_kv_row ** rows);

// td_kv_block is the rows of consecutive tokens: of each layer those of K, then
// those of V.
typedef struct { const uint8_t * rows; int32_t tokens; } td_kv_block;

// td_kv_export copies the rows of positions [from, to) in the layout of one block.
int td_kv_export(td_model * m, int32_t seq, int32_t from, int32_t to, uint8_t * dst, td_error * err);
// td_kv_import makes blocks those of seq that follow its first from positions, which
// is all that it holds; with from = 0 it replaces what it holds. After a failure seq
// is empty.
int td_kv_import(td_model * m, int32_t seq, int32_t from, const td_kv_block * blocks, size_t n, td_error * err);
// td_kv_copy makes dst hold the first n positions of src and nothing else. After a
// failure dst is empty.
int td_kv_copy(td_model * m, int32_t src, int32_t dst, int32_t n, td_error * err);

// ---- vocabulary --------------------------------------------------------------

typedef struct {
    int32_t size;
    int32_t bos, eos, sep;
    int32_t fim_prefix, fim_suffix, fim_middle;
    bool add_bos, add_eos, add_sep;
    bool uses_regex; // text is cut by regular expressions first
} td_vocab_info;

enum { TD_TOKEN_CONTROL = 1, TD_TOKEN_EOG = 2, TD_TOKEN_USER = 4 };

void td_vocab(td_model * m, td_vocab_info * out);
// td_piece writes the text of a token, also of a control token, and returns its
// length; a negative number is the room that it needs. flags get TD_TOKEN_*.
int32_t td_piece(td_model * m, int32_t token, char * buf, int32_t n, uint8_t * flags, td_error * err);
// td_tokenize returns the number of tokens, or the negative number of tokens
// that would be needed; INT32_MIN with err filled on failure. With stack not 0
// it runs on a stack of that many bytes: the regular expressions of the C++
// library recurse for every character that they match.
int32_t td_tokenize(td_model * m, const char * text, int32_t len, int32_t * tokens, int32_t n, bool special, size_t stack, td_error * err);

// ---- sampling ----------------------------------------------------------------

typedef struct {
    float temperature;
    int32_t top_k;
    float top_p;
    float min_p;
    float typical_p;
    float repeat_penalty;
    int32_t repeat_last_n;
    float frequency_penalty;
    float presence_penalty;
    int32_t mirostat;
    float mirostat_tau;
    float mirostat_eta;
    uint64_t seed;
    int32_t top_logprobs;
    bool ignore_eos;
} td_sampling;

typedef struct { int32_t token; float logprob; } td_logprob;

// td_result is what the last td_sample of a sampler chose.
typedef struct {
    int32_t token;
    float logprob;
    int32_t n_top;
    const td_logprob * top;
} td_result;

td_sampler * td_sampler_new(const td_sampling * p, const int32_t * bias_tokens, const float * bias, size_t n_bias, td_error * err);
// td_sampler_accept tells the penalties of tokens that are already there.
int td_sampler_accept(td_sampler * s, const int32_t * tokens, size_t n, td_error * err);
const td_result * td_sampler_result(td_sampler * s);
void td_sampler_free(td_sampler * s);

// What else a grammar lets follow.
enum {
    TD_END = 1,     // end-of-generation tokens
    TD_ONLY_END = 2 // and nothing else: ignore_eos cannot be kept
};

// td_sample draws from the logits of batch entry i. The choice counts as
// accepted when td_sample is called for another position; for the same position
// it is replaced. A grammar uses that: first without allowed, then, if it
// refuses the choice, once more with the tokens that it allows, one bit each,
// and TD_* in end.
int td_sample(td_model * m, td_sampler * s, int32_t i, int64_t pos, const uint64_t * allowed, int end, td_error * err);

// td_uniform is the number that decides draw number draw at pos.
double td_uniform(uint64_t seed, uint64_t pos, uint32_t draw);

// ---- benchmark ---------------------------------------------------------------

typedef struct {
    double prefill_seconds;
    double decode_seconds;
} td_bare_result;

// td_bare computes a prompt of `prompt` tokens for each of `sequences`, then
// `generate` greedy tokens for all of them at once, in one loop without Go. It
// empties the KV cache before and after. It gives up when *stop is not 0.
int td_bare(td_model * m, int32_t prompt, int32_t generate, int32_t sequences, const volatile int32_t * stop, td_bare_result * out, td_error * err);

#ifdef __cplusplus
}
#endif

#endif
